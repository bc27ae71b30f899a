package attest

import "golang.org/x/sys/unix"

// Protect keeps the memory of this process, which is about to hold a private key
// or passphrase, from other processes of the same user: no core file, no ptrace,
// no reading of /proc/PID/mem or environ. Root sees it still.
func Protect() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
