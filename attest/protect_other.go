//go:build !linux

package attest

// Protect does nothing where the system offers no such protection.
func Protect() error { return nil }
