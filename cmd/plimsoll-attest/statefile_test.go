package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// TestStateOfConcurrentRuns verifies a bundle before and after it grew at once,
// against one state file. It never goes back, and is never half a file.
func TestStateOfConcurrentRuns(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shortBundle := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("a", "1", "").Entry())
	longBundle := bundletest.Extend(bundletest.Harness, shortBundle, bundletest.JavaScript("b", "2", "").Entry(), bundletest.Checkpoint)
	short, long := write("short.jsonl", shortBundle), write("long.jsonl", longBundle)
	pub := write("pub", bundletest.Harness.Public.MarshalPEM())
	state := filepath.Join(dir, "state")

	verifyAtOnce := func(bundles ...string) (codes []int) {
		codes = make([]int, len(bundles))
		var all sync.WaitGroup
		for i, bundle := range bundles {
			all.Go(func() {
				var stderr string
				codes[i], _, stderr = runCommand("", "verify", "--pub", pub, "--state", state, bundle)
				// The loser of a race is told so; on the other side of it, it is refused.
				if codes[i] != 0 && !strings.Contains(stderr, "changed by another run") && !strings.Contains(stderr, "shorter than when last verified") {
					t.Errorf("%s: %s", bundle, stderr)
				}
			})
		}
		all.Wait()
		return codes
	}
	lines := func() uint64 {
		data, err := os.ReadFile(state)
		if err != nil {
			t.Fatal(err)
		}
		s, err := verify.ParseState(data)
		if err != nil {
			t.Fatal(err)
		}
		return s.Lines
	}

	for range 20 {
		os.Remove(state)
		for i, code := range verifyAtOnce(short, short, short, short) {
			if code != 0 {
				t.Errorf("first sight, run %d: exit status %d", i, code)
			}
		}
		if n := lines(); n != 2 {
			t.Fatalf("state after first sight: line %d, want 2", n)
		}
		if codes := verifyAtOnce(short, long, short, long); codes[1] != 0 || codes[3] != 0 {
			t.Errorf("the longer bundle: exit status %d and %d", codes[1], codes[3])
		}
		if n := lines(); n != 4 {
			t.Fatalf("state went back to line %d, want 4", n)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.new"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
