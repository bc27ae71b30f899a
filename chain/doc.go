// Package chain is the file format of a bundle: lines, links and checkpoints.
//
// A bundle is JSON lines, each an entry (a call or the close of a session), a
// link, or both. A line is
//
//	{"request":"…","response":"…","envelope":{…},"link":{…}}
//
// with members left out when empty, and has exactly one spelling; see
// AppendLine. The link is a signed statement of the line's number, the digest
// of the whole line before and the digest of this line without its link. A
// checkpoint is a line with a link alone, which counts the lines before it; the
// last line of a finished bundle is one.
//
// Reader splits a file into lines in bounded memory, ParseLine reads one,
// Position checks a link against its place, and Appender writes. Keys, paths
// and locks are the caller's.
package chain
