//go:build unix

package attest

import (
	"errors"
	"os"
	"syscall"
)

const (
	hasModes = true
	// Opening a pipe that nobody writes to would wait; a pipe is no key file.
	openWithoutWaiting = syscall.O_NONBLOCK
)

// syncDir makes the names of a directory durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some network file systems cannot do it, and then have no need to.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
