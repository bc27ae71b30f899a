//go:build unix

package attest

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Reading a pipe that nobody writes to must not hang.
func TestKeyFileIsPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := OpenSigner(path, nil)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, ErrKey) {
			t.Errorf("have %v, want ErrKey", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("still waiting for the pipe")
	}
}

// Whatever the umask, nobody else can read a new private key.
func TestCreateKeyUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := t.TempDir()
	path, pub := filepath.Join(dir, "k"), filepath.Join(dir, "p")
	if _, err := CreateKey(path, pub, nil); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{path: 0o600, pub: 0o644} {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if have := uint32(st.Mode) & 0o7777; have != want {
			t.Errorf("%s: have mode %04o, want %04o", filepath.Base(path), have, want)
		}
	}
}
