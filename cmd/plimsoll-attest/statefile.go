package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/filelock"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// A stateFile is the file in which verify remembers a bundle's end.
type stateFile struct {
	path string
	was  []byte // content when it was read; nil when there was no file
}

// stateWait is how long another run may take to replace the file. It does so
// when its verdict is there, so this is the time of writing a few bytes.
const stateWait = 5 * time.Second

// openState reads the remembered end. It is nil on first sight, when there is
// no file.
func openState(path string) (*stateFile, *verify.State, error) {
	// A link keeps pointing to the file that is replaced.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	s := &stateFile{path: path}
	var err error
	if s.was, err = s.read(); err != nil || s.was == nil {
		return s, nil, err
	}
	state, err := verify.ParseState(s.was)
	return s, state, err
}

// read returns the file's content, nil when there is no file.
func (s *stateFile) read() ([]byte, error) {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, cli.FileError(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	}
	data, err := readBounded(s.path, verify.MaxStateBytes+1)
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// A stateUpdate is a new state, written and locked, that has not yet taken the
// old one's place.
type stateUpdate struct {
	file *os.File
	path string // of the file to be replaced
}

// prepare writes the new state beside the old one. The old one must be what
// was read: another run may have remembered a later end since, and what this
// run verified has not been held against that.
//
// The name of the new file is always the same and its lock is what lets one run
// at a time replace the old one. A run that was killed leaves it behind, which
// does no harm.
func (s *stateFile) prepare(ctx context.Context, state *verify.State) (*stateUpdate, error) {
	f, err := lockNew(ctx, s.path+".new")
	if err != nil {
		return nil, err
	}
	u := &stateUpdate{file: f, path: s.path}
	if err := u.write(s, verify.FormatState(state)); err != nil {
		u.abort()
		return nil, err
	}
	return u, nil
}

// lockNew opens or creates the file and locks it, and once more whenever another
// run has renamed it in between. One that is there must be what a killed run
// left: another file of that name, the bundle itself perhaps, is not ours to
// write to.
func lockNew(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := openNew(path)
		if errors.Is(err, errRetry) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, cli.FileError(err))
		}
		current, err := lockCurrent(ctx, f)
		if err == nil && current {
			err = checkLeftover(f)
		}
		switch {
		case err != nil:
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, cli.FileError(err))
		case current:
			return f, nil
		}
		f.Close()
	}
}

// errRetry says that a file came or went while it was opened.
var errRetry = errors.New("try again")

// openNew creates the file, or opens it if it is there, never through a link.
func openNew(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errRetry
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	}
	if f, err = os.OpenFile(path, os.O_RDWR, 0); errors.Is(err, fs.ErrNotExist) {
		return nil, errRetry
	}
	return f, err
}

// stateStart is what each state begins with.
const stateStart = `{"schema":"plimsoll.verify-state/`

// checkLeftover reports an error unless f is a state or the beginning of one.
func checkLeftover(f *os.File) error {
	data := make([]byte, len(stateStart))
	n, err := f.ReadAt(data, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if string(data[:n]) != stateStart[:n] {
		return errors.New("a file in the way that is no state of a bundle")
	}
	return nil
}

// lockCurrent locks f and reports whether its path still leads to it.
func lockCurrent(ctx context.Context, f *os.File) (bool, error) {
	if err := filelock.Lock(ctx, f, stateWait); err != nil {
		return false, err
	}
	locked, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(f.Name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !named.Mode().IsRegular():
		return false, errors.New("not a regular file")
	}
	return os.SameFile(locked, named), nil
}

func (u *stateUpdate) write(s *stateFile, text []byte) error {
	now, err := s.read()
	switch {
	case err != nil:
		return err
	case bytes.Equal(now, text): // another run verified the same
	case !bytes.Equal(now, s.was) || (now == nil) != (s.was == nil):
		return errors.New("changed by another run meanwhile, verify again")
	}
	if err := u.file.Chmod(0o600); err != nil && runtime.GOOS != "windows" {
		return cli.FileError(err)
	}
	if err := u.file.Truncate(0); err != nil {
		return cli.FileError(err)
	}
	if _, err := u.file.WriteAt(text, 0); err != nil {
		return cli.FileError(err)
	}
	if err := u.file.Sync(); err != nil {
		return cli.FileError(err)
	}
	return nil
}

// commit puts the new state in the place of the old one.
func (u *stateUpdate) commit() error {
	if runtime.GOOS == "windows" {
		u.file.Close() // no open file can be renamed there
	} else {
		defer u.file.Close()
	}
	if err := os.Rename(u.file.Name(), u.path); err != nil {
		os.Remove(u.file.Name())
		return err
	}
	// The rename itself must outlive a crash, or the state would go back.
	dir, err := os.Open(filepath.Dir(u.path))
	if err != nil {
		return cli.FileError(err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && runtime.GOOS != "windows" {
		return cli.FileError(err)
	}
	return nil
}

// abort leaves the old state as it is, and nothing beside it.
func (u *stateUpdate) abort() {
	os.Remove(u.file.Name())
	u.file.Close()
}
