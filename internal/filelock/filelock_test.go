package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/internal/filelock"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLock(t *testing.T) {
	type take func(context.Context, *os.File, time.Duration) error
	for _, c := range []struct {
		name          string
		first, second take
		both          bool
	}{
		{"exclusive, exclusive", filelock.Lock, filelock.Lock, false},
		{"exclusive, shared", filelock.Lock, filelock.RLock, false},
		{"shared, exclusive", filelock.RLock, filelock.Lock, false},
		{"shared, shared", filelock.RLock, filelock.RLock, true},
	} {
		path := filepath.Join(t.TempDir(), "f")
		a, b := open(t, path), open(t, path)
		if err := c.first(t.Context(), a, 0); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, wait := range []time.Duration{-1, 0, 30 * time.Millisecond} {
			start := time.Now()
			err := c.second(t.Context(), b, wait)
			if c.both != (err == nil) || !c.both && !errors.Is(err, filelock.ErrLocked) {
				t.Errorf("%s: %v", c.name, err)
			}
			if took := time.Since(start); !c.both && took < wait {
				t.Errorf("%s: waited %v of %v", c.name, took, wait)
			}
		}
		if _, err := b.WriteAt([]byte("x"), 0); err != nil {
			t.Errorf("%s: the lock is in the way of a write: %v", c.name, err)
		}

		done := make(chan error, 1)
		go func() { done <- c.second(t.Context(), b, time.Minute) }()
		time.Sleep(10 * time.Millisecond)
		a.Close()
		if err := <-done; err != nil {
			t.Errorf("%s: after the release: %v", c.name, err)
		}
	}
}

func TestLockCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	a, b := open(t, path), open(t, path)
	if err := filelock.Lock(t.Context(), a, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	time.AfterFunc(20*time.Millisecond, func() { cancel(reason) })
	if err := filelock.Lock(ctx, b, time.Minute); !errors.Is(err, reason) {
		t.Error(err)
	}
}

func TestLockClosedFile(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "f"))
	f.Close()
	if err := filelock.Lock(t.Context(), f, time.Minute); err == nil || errors.Is(err, filelock.ErrLocked) {
		t.Error(err)
	}
}
