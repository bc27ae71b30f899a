package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestPackIsGenerated generates the pack and compares it with the one in the
// repository, byte for byte. It finds what was edited by hand, a generator that
// does not give the same bytes twice, and files that no vector names any more.
func TestPackIsGenerated(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	committed := filepath.Join("..", "..", "testdata")
	seen := compare(t, dir, committed)
	for _, sub := range []string{"bundles", "runlog"} {
		err := filepath.WalkDir(filepath.Join(committed, sub), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == "README.md" {
				return err
			}
			if name, _ := filepath.Rel(committed, path); !seen[name] {
				t.Errorf("%s is not of the pack: remove it, or run go run ./internal/genpack", name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// compare compares every file below dir with that of the same name below
// committed, and returns the names.
func compare(t *testing.T, dir, committed string) map[string]bool {
	t.Helper()
	seen := make(map[string]bool)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		seen[name] = true
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		have, err := os.ReadFile(filepath.Join(committed, name))
		if err != nil {
			t.Errorf("%v: run go run ./internal/genpack", err)
		} else if !bytes.Equal(have, want) {
			t.Errorf("%s differs from what the generator writes: run go run ./internal/genpack", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) < 200 {
		t.Fatalf("the generator wrote %d files", len(seen))
	}
	return seen
}
