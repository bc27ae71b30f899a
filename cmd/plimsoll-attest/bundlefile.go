package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/filelock"
)

// stdinName is the operand that stands for standard input.
const stdinName = "-"

// A source is a bundle that is open for reading.
type source struct {
	io.Reader
	file *os.File // nil for standard input
	// regular says that file can be read again from its start, and that its
	// writers are locked out until it is closed.
	regular bool
}

func (s *source) Close() {
	if s.file != nil {
		s.file.Close() // was only read
	}
}

// openBundle opens name for reading, or takes standard input. A regular file is
// locked against writers, without waiting for one: half of what it is about to
// write would look like a broken bundle. Other files are read as they come.
func openBundle(ctx context.Context, std *streams, name string) (*source, error) {
	if name == stdinName {
		return &source{Reader: std.in}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, cli.FileError(err)
	}
	src := &source{Reader: f, file: f}
	if err := src.prepare(ctx, std, name); err != nil {
		f.Close()
		return nil, err
	}
	return src, nil
}

// rereadable returns the bundle as a file at its start. What can be read only once
// is copied to a temporary one first.
func (s *source) rereadable() (file *os.File, remove func(), err error) {
	if s.regular {
		return s.file, func() {}, nil
	}
	spool, err := newSpool()
	if err != nil {
		return nil, nil, err
	}
	if _, err = io.Copy(spool.file, s); err == nil {
		_, err = spool.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		spool.remove()
		return nil, nil, cli.FileError(err)
	}
	return spool.file, spool.remove, nil
}

func (s *source) prepare(ctx context.Context, std *streams, name string) error {
	info, err := s.file.Stat()
	switch {
	case err != nil:
		return cli.FileError(err)
	case info.IsDir():
		return errors.New("is a folder")
	}
	if s.regular = info.Mode().IsRegular(); !s.regular {
		return nil
	}
	switch err := filelock.RLock(ctx, s.file, 0); {
	case errors.Is(err, filelock.ErrLocked):
		return fmt.Errorf("being written: %w", err)
	case errors.Is(err, errors.ErrUnsupported):
		std.complain("%s: read without a lock, the file system has none", name)
	case err != nil:
		return fmt.Errorf("lock: %w", cli.FileError(err))
	}
	return nil
}

// An operand is one bundle to verify, or the reason why there is none.
type operand struct {
	name string
	err  error
}

// operands puts in the place of each folder the bundles in it: its *.jsonl
// files by name, not those of folders inside it. Side files of evidence that
// was never sealed are not bundles; they are told of and left out.
func operands(std *streams, args []string) []operand {
	var list []operand
	for _, arg := range args {
		if info, err := os.Stat(arg); arg == stdinName || err != nil || !info.IsDir() {
			list = append(list, operand{name: arg})
			continue
		}
		list = append(list, folder(std, arg)...)
	}
	return list
}

func folder(std *streams, dir string) []operand {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []operand{{dir, cli.FileError(err)}}
	}
	var list []operand
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		switch {
		case !strings.HasSuffix(name, ".jsonl"):
		case isSideFile(entry.Name()):
			std.complain("WARNING: %s: UNSEALED EVIDENCE, not verified: a side file of what a failed write or a recovery took out of a bundle", name)
		default:
			o := operand{name: name}
			// A folder is a stranger's: a device or a pipe in it could be read forever.
			if info, err := os.Stat(name); err != nil {
				o.err = cli.FileError(err)
			} else if !info.Mode().IsRegular() {
				o.err = errors.New("not a regular file")
			}
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		return []operand{{dir, errors.New("a folder without a bundle: no *.jsonl file in it")}}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	return list
}

// isSideFile reports whether name is that of a side file
// (docs/bundle-format.md, "Writing and resuming").
func isSideFile(name string) bool {
	_, after, found := strings.Cut(name, ".unsealed-")
	return found && strings.HasSuffix(after, ".jsonl")
}
