// Package record holds what a runner states about one call: the request as it
// was sent, the result as it was returned, and the run record that names both
// by digest.
//
// The types mirror the messages of plimsoll.v1. Parse functions read protobuf
// bytes from strangers; Append functions write the one canonical form
// (ascending field numbers, zero values left out, repeated doubles packed).
// What is no protobuf, nests groups too deep or has too many elements is refused
// with ErrMessage; memory follows the size of the input.
//
// Digests never depend on those bytes: they are SHA-256 over a domain and
// length-prefixed named fields (docs/bundle-format.md, "Digests"), so that two
// encodings of one request have one digest.
//
// The package knows no keys, no files and no JSON.
package record
