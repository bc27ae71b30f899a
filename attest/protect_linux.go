package attest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// protect keeps the memory of this process, which is about to hold a private key
// or passphrase, from other processes of the same user: no core file, no ptrace,
// no reading of /proc/PID/mem or environ. Root sees it still.
func protect() error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("protect the key in memory: %w", err)
	}
	return nil
}
