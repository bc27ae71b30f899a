// Package attest signs: it turns run logs into bundles, and is the only package
// that touches private keys.
//
// Sign reads a run log, checks every line of it against itself, and appends what
// holds to a bundle, signed and linked. Seal and Recover deal with what a writer
// that was killed left behind. All three hold a lock on the bundle from opening
// to closing it, and verify what is there before they write.
//
// A bundle is only ever appended to, or cut back to where it was. A line is on
// disk before anybody is told of it, and signed lines that cannot stay in the
// bundle are in a side file, on disk, before they are taken out of it.
package attest
