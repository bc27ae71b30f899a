//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

func try(*os.File, bool) (bool, error) { return false, errors.ErrUnsupported }
