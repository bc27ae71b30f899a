// Package statement reads and writes the in-toto statements of the format:
// run-record, session-close and bundle-link.
//
// Each statement has exactly one spelling. Parse decodes strictly, writes the
// statement again from what it read and compares: a payload that says the same
// in other bytes is refused. There is one exception, see ParseRecord.
//
// Nothing here knows a key: a parsed statement is somebody's word until its
// envelope was verified.
package statement
