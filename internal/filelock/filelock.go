// Package filelock takes advisory locks on open files, across processes and
// between descriptors of one process.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked is returned when another descriptor holds the lock and the time to
// wait for it is over.
var ErrLocked = errors.New("locked by another process")

// The pause between two tries grows from the first to the last. There is no
// call of the system that waits with a limit.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Lock takes an exclusive lock on f: nobody else then holds one, of either
// sort. It waits for up to wait, and tries just once when wait is not positive.
// It returns ErrLocked, the cause of ctx being done while it waits, or an error
// of the system; without an error the lock is held until f is closed, at the
// latest when the process dies.
func Lock(ctx context.Context, f *os.File, wait time.Duration) error {
	return lock(ctx, f, wait, true)
}

// RLock takes a shared lock on f, which any number may hold while nobody holds
// an exclusive one. It is otherwise like Lock.
func RLock(ctx context.Context, f *os.File, wait time.Duration) error {
	return lock(ctx, f, wait, false)
}

func lock(ctx context.Context, f *os.File, wait time.Duration, exclusive bool) error {
	deadline := time.Now().Add(wait)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		locked, err := try(f, exclusive)
		if err != nil {
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		if locked {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return ErrLocked
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
