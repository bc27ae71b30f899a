package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// FileError drops what os adds to an error: the path, which the caller states.
func FileError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// OutputError is the error of a write to standard output.
func OutputError(err error) error { return fmt.Errorf("standard output: %w", FileError(err)) }

// Plural is "1 line", "2 lines".
func Plural[N int | int64 | uint64](n N, noun string) string {
	s := strconv.FormatInt(int64(n), 10) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}
