// Package verify decides whether a bundle is what its signer wrote, whole and
// in order, and whether each stored call is the one its signed record states.
//
// Bundle reads a stream once, in memory bounded by its longest lines, one a
// worker, by its sessions and by the caller's list. It returns
// a Report, or an error: a *Refusal when the evidence does not hold, anything
// else when the question could not be put. What was not asked for, a list of
// calls or a remembered end, is in the Report as not checked.
//
// The package sees public keys only, opens no file and prints nothing.
package verify
