//go:build linux || darwin

package attest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// limitEnv is the size that no file of a child process can pass.
const limitEnv = "PLIMSOLL_TEST_CHILD_FSIZE"

// atChildStart sets the limit that a child was given.
func atChildStart(t *testing.T) {
	s := os.Getenv(limitEnv)
	if s == "" {
		return
	}
	size, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size}); err != nil {
		t.Fatal(err)
	}
}

// TestFileSizeLimit has the kernel cut the writes of a child process short.
func TestFileSizeLimit(t *testing.T) {
	whole := bundletest.Linked(bundletest.Harness, testCalls()...)
	log := bundletest.RunLog(testCalls())
	for _, limit := range []int{1, 100, len(whole) / 2, len(whole) - 1} {
		path := newPath(t)
		cmd, out := startChild(t, path, bytes.NewReader(log), limitEnv+"="+strconv.Itoa(limit))
		reported := identities{}
		var failure string
		for out.Scan() {
			if id, ok := strings.CutPrefix(out.Text(), "recorded "); ok {
				reported[id] = true
			}
			if strings.HasPrefix(out.Text(), "error ") {
				failure = out.Text()
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(failure, syscall.EFBIG.Error()) {
			t.Errorf("limit %d: %v, %s", limit, err, failure)
		}
		settle(t, path, reported)
		resume(t, path, log)
	}
}

// TestFullDisk signs on a real file system that is full. It takes root to mount
// one.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	log := bundletest.RunLog(testCalls())
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %v, %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v, %s", err, out)
		}
	})
	for room := 0; room <= 32<<10; room += 4 << 10 {
		sub := filepath.Join(dir, strconv.Itoa(room))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		// Fill the disk but for the room.
		filler := filepath.Join(dir, "filler")
		err := os.WriteFile(filler, make([]byte, 128<<10), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("fill: %v", err)
		}
		info, err := os.Stat(filler)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filler, info.Size()-int64(room)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(sub, "bundle.jsonl")
		reported := identities{}
		o := options(t, path)
		o.disk, o.Progress = nil, reported.record
		res, err := Sign(t.Context(), bytes.NewReader(log), o)
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room for %d: %v", room, err)
		}
		if res != nil {
			t.Logf("room for %d: %d lines, sealed %v, side files %d: %v", room, res.LinesAfter, res.Sealed, len(res.SideFiles), err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		settle(t, path, reported)
		resume(t, path, log)
		if err := os.RemoveAll(sub); err != nil {
			t.Fatal(err)
		}
	}
}
