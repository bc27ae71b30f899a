package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestInspectChangedMeanwhile changes the file between the reading that verifies
// and the one that shows.
func TestInspectChangedMeanwhile(t *testing.T) {
	call := func(id string) bundletest.Entry { return bundletest.JavaScript(id, "1", "").Entry() }
	good := bundletest.Linked(bundletest.Harness, call("a"), call("b"))
	for name, other := range map[string][]byte{
		"another good bundle": bundletest.Linked(bundletest.Harness, call("evil"), call("b")),
		"a longer one":        bundletest.Extend(bundletest.Harness, good, call("evil"), bundletest.Checkpoint),
		"another key's":       bundletest.Linked(bundletest.Stranger, call("evil"), call("b")),
		"a cut one":           good[:len(good)/2],
		"an edited one":       bytes.Replace(good, []byte("link"), []byte("linc"), 1),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, pub := filepath.Join(dir, "b.jsonl"), filepath.Join(dir, "p")
			for file, data := range map[string][]byte{path: good, pub: bundletest.Harness.Public.MarshalPEM()} {
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			changed := false
			std := &streams{in: strings.NewReader(""), err: io.Discard}
			// The first words are written when the bundle has verified.
			std.out = bufio.NewWriterSize(writerFunc(func(p []byte) (int, error) {
				if !changed {
					changed = true
					if err := os.WriteFile(path, other, 0o600); err != nil {
						t.Error(err)
					}
				}
				return len(p), nil
			}), 16)
			flags := inspectFlags{pub: []string{pub}}
			err := flags.run(context.Background(), std, path)
			if !changed || err == nil || exitCode(err) != exitNoVerdict || !strings.Contains(err.Error(), "changed while it was read") {
				t.Errorf("have %v, exit status %d", err, exitCode(err))
			}
		})
	}
}
