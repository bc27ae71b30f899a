//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFailure has commands fail: what is in the folder stays, and nothing else.
func TestFailure(t *testing.T) {
	const script = `#!/bin/sh
[ "$1" != "$FAILING" ] || exit 1
[ "$1" != wrap ] || echo "$OUTCOMES"
`
	t.Chdir("../..")
	for failing, exits := range map[string]string{
		"keygen": "", "wrap": "", "verify": "1,0,0,0,0", "report": "1,0,0,0,0",
		"no call": "", "a program": "1,0,0,0,126",
	} {
		bin, tmp, beside := t.TempDir(), t.TempDir(), t.TempDir()
		t.Setenv("TMPDIR", tmp)
		t.Setenv("FAILING", failing)
		t.Setenv("OUTCOMES", outcomes(exits))
		out := filepath.Join(beside, "out")
		before := filepath.Join(out, "bundle.jsonl")
		for name, text := range map[string]string{filepath.Join(bin, "plimsoll-attest"): script, before: "before"} {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := run(out, bin, "kernel", nil); err == nil {
			t.Errorf("%s: no error", failing)
		}
		for dir, want := range map[string]int{tmp: 0, beside: 1, out: 1} {
			if left, err := os.ReadDir(dir); err != nil || len(left) != want {
				t.Errorf("%s: have %v, %v in %s, want %d", failing, left, err, dir, want)
			}
		}
		if text, err := os.ReadFile(before); err != nil || string(text) != "before" {
			t.Errorf("%s: have %q, %v, want what was there before", failing, text, err)
		}
	}
}

// outcomes are what wrap says of calls that exited so.
func outcomes(exits string) string {
	var text strings.Builder
	for exit := range strings.SplitSeq(exits, ",") {
		if exit != "" {
			fmt.Fprintf(&text, `{"call":{"steps":[{"exit_code":%s}]}}`, exit)
		}
	}
	return text.String()
}
