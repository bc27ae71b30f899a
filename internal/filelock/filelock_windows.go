package filelock

import (
	"os"

	"golang.org/x/sys/windows"
)

// On Windows a lock forbids others to read and write the bytes it covers. One
// byte past the end of any file keeps it what it is elsewhere: a sign to those
// who look for it.
const (
	lockedOffsetHigh = 0x40000000
	lockedBytes      = 1
)

func try(f *os.File, exclusive bool) (locked bool, err error) {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	at := windows.Overlapped{OffsetHigh: lockedOffsetHigh}
	switch err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, lockedBytes, 0, &at); err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION, windows.ERROR_IO_PENDING:
		return false, nil
	default:
		return false, err
	}
}
