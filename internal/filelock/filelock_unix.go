//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// try takes the lock if it is free. flock and not fcntl: the latter's locks are
// the process's, which loses them when any of its descriptors is closed.
func try(f *os.File, exclusive bool) (locked bool, err error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err {
		case nil:
			return true, nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return false, nil
		default:
			return false, err
		}
	}
}
