//go:build unix

package attest

import (
	"fmt"
	"os"
	"syscall"
)

// onlyName refuses a file that has more names than one: the others may be in
// folders that are not hidden.
func onlyName(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return fmt.Errorf("%w: %s has %d names (hard links): the others may be in reach of the runner", ErrIsolation, path, st.Nlink)
	}
	return nil
}
