package attest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// A sideWriter is a side file being written. *os.File is one.
type sideWriter interface {
	io.Writer
	Sync() error
}

// keep writes lines to a new side file beside the bundle and returns its path.
// The file is on disk when keep returns, or not there when it returns an error.
func (b *bundleFile) keep(lines io.Reader, now time.Time) (path string, err error) {
	f, err := b.createSide(now)
	if err != nil {
		return "", err
	}
	var w sideWriter = f
	if b.disk != nil {
		w = b.disk.side(f)
	}
	if _, err = io.Copy(w, lines); err == nil {
		err = w.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = b.syncDir()
	}
	if err != nil {
		// What is in it is in the bundle still. Half a side file would look
		// like all there is.
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// probeSide makes a side file and removes it again.
func (b *bundleFile) probeSide(now time.Time) error {
	f, err := b.createSide(now)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// createSide makes the file, under a name that no other has
// (docs/bundle-format.md, "Writing and resuming").
func (b *bundleFile) createSide(now time.Time) (*os.File, error) {
	for {
		var random [4]byte
		rand.Read(random[:]) // never fails
		name := b.path + ".unsealed-" + now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(random[:]) + ".jsonl"
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}
