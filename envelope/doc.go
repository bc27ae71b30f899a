// Package envelope is DSSE for one kind of payload and one kind of key:
// envelopes of in-toto statements with exactly one Ed25519 signature.
//
// The types and the PAE are those of go-securesystemslib. Its verifier is not
// used: it takes base64 in two alphabets and counts one key under two names as
// two signers, and whatever it refuses, Verify refuses too.
//
// The package reads public keys and holds no private one.
package envelope
