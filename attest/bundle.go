package attest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/filelock"
)

// opening says how a bundle is to be opened.
type opening struct {
	write  bool // under an exclusive lock; else for reading, under a shared one
	create bool // if it is missing
	shared bool // although group or others have permissions
	wait   time.Duration
	disk   *disk
}

// A bundleFile is a bundle that is open and locked.
type bundleFile struct {
	chain.File // its content
	file       *os.File
	path       string
	size       int64 // when it was locked
	created    bool  // by this process, and nobody wrote to it before it was locked
	disk       *disk
}

// A disk stands between this package and the files it writes, in tests: it makes
// writes fail.
type disk struct {
	bundle func(*os.File) chain.File
	side   func(*os.File) sideWriter
}

// errMoved says that the path does not lead to the file that was opened.
var errMoved = errors.New("the file was moved or replaced")

// openTries is how often a bundle is opened anew without any time to wait.
const openTries = 3

// openBundle opens a bundle and locks it. What the path names after that is the
// file that is locked: a lock on a file that somebody has replaced while we
// waited guards nothing. Errors wrap ErrLocked, or are those of the system.
func openBundle(ctx context.Context, path string, o opening) (*bundleFile, error) {
	deadline := time.Now().Add(o.wait)
	for tries := 1; ; tries++ {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		b, err := openUnlocked(path, o)
		if err == nil {
			if err = b.lock(ctx, o.write, time.Until(deadline)); err == nil {
				return b, nil
			}
			b.file.Close() // nothing was written
		}
		switch {
		case errors.Is(err, filelock.ErrLocked):
			return nil, ErrLocked
		case !errors.Is(err, errMoved) || tries >= openTries && time.Now().After(deadline):
			return nil, err
		}
	}
}

// openUnlocked opens the file at path, which must be a regular one. A symbolic
// link is refused, as side files are made beside the path, and as it could lead
// the writer to any file of its user where others may write to the folder.
func openUnlocked(path string, o opening) (*bundleFile, error) {
	flag := os.O_RDONLY
	if o.write {
		flag = os.O_RDWR
	}
	b := &bundleFile{path: path, disk: o.disk}
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	case errors.Is(err, fs.ErrNotExist) && o.create:
		flag |= os.O_CREATE | os.O_EXCL
		b.created = true
	case err != nil:
		return nil, err
	}
	b.file, err = openFile(path, flag, 0o600)
	if b.created && errors.Is(err, fs.ErrExist) || o.create && !b.created && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errMoved, err) // just now
	}
	if err != nil {
		return nil, err
	}
	if err := b.checkFile(o.shared); err != nil {
		b.file.Close() // the reason is err
		return nil, err
	}
	b.File = &guarded{File: b.file}
	if b.disk != nil {
		b.File = b.disk.bundle(b.file)
	}
	return b, nil
}

// guarded is a bundle that is written at its end only. The lock keeps out those
// who ask for it. If somebody who does not has changed the file's length, a line
// written now would lie over their bytes, or after a hole, and cutting it off
// again would make it worse: nothing more is written then.
type guarded struct {
	*os.File
	changed error
}

func (g *guarded) WriteAt(p []byte, off int64) (int, error) {
	info, err := g.Stat()
	if err != nil {
		return 0, err
	}
	if size := info.Size(); size != off {
		g.changed = fmt.Errorf("the file has %d bytes, %d were expected: another process wrote to it without the lock", size, off)
		return 0, g.changed
	}
	return g.File.WriteAt(p, off)
}

func (g *guarded) Truncate(size int64) error {
	if g.changed != nil {
		return g.changed
	}
	return g.File.Truncate(size)
}

// checkFile asks the open file, not its path, which may name another a moment
// later.
func (b *bundleFile) checkFile(shared bool) error {
	info, err := b.file.Stat()
	if err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return &fs.PathError{Op: "open", Path: b.path, Err: fmt.Errorf(format, args...)}
	}
	if !info.Mode().IsRegular() {
		return bad("not a regular file")
	}
	if mode := info.Mode().Perm(); hasModes && !shared && mode&0o077 != 0 {
		return bad("mode is %04o, want none for group and others unless sharing is asked for (chmod 600)", mode)
	}
	return nil
}

// lock takes the lock and then looks at what was locked.
func (b *bundleFile) lock(ctx context.Context, exclusive bool, wait time.Duration) error {
	take := filelock.RLock
	if exclusive {
		take = filelock.Lock
	}
	if err := take(ctx, b.file, wait); err != nil {
		return err
	}
	if err := b.checkPlace(); err != nil {
		return err
	}
	info, err := b.file.Stat()
	if err != nil {
		return err
	}
	b.size = info.Size()
	b.created = b.created && b.size == 0
	return nil
}

// checkPlace reports whether the path leads to the open file.
func (b *bundleFile) checkPlace() error {
	there, err := os.Lstat(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "find", Path: b.path, Err: errMoved}
	}
	if err != nil {
		return err
	}
	open, err := b.file.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(there, open) {
		return &fs.PathError{Op: "find", Path: b.path, Err: errMoved}
	}
	return nil
}

// content reads the bundle as it was when it was locked.
func (b *bundleFile) content() io.Reader { return io.NewSectionReader(b, 0, b.size) }

// syncDir makes the file's name durable.
func (b *bundleFile) syncDir() error { return syncDir(filepath.Dir(b.path)) }

// close gives up the lock. A file that this process made and left empty is
// removed while the lock is held, so that nobody else's file is.
func (b *bundleFile) close() error {
	var err error
	if b.created {
		err = b.removeEmpty()
	}
	return errors.Join(err, b.file.Close())
}

func (b *bundleFile) removeEmpty() error {
	info, err := b.file.Stat()
	if err != nil || info.Size() > 0 || b.checkPlace() != nil {
		return err
	}
	return os.Remove(b.path)
}
