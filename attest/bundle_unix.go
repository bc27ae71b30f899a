//go:build unix

package attest

import (
	"os"
	"syscall"
)

// openFile opens a file that must not be a symbolic link.
func openFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_NOFOLLOW, mode)
}
