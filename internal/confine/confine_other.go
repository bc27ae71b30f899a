//go:build !linux

package confine

import (
	"errors"
	"fmt"
	"os"
)

// HandOver does nothing where Start does not.
func HandOver() {}

// Start needs Linux.
func Start(*View) (*Process, error) {
	return nil, fmt.Errorf("%w: %w: it needs Linux", ErrIsolation, errors.ErrUnsupported)
}

type launcher struct{}

// Signal does nothing.
func (*launcher) Signal(os.Signal) {}

// Kill does nothing.
func (*launcher) Kill() {}

// Wait returns at once.
func (*launcher) Wait() (int, error) { return 0, errors.ErrUnsupported }
