package main

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenerated: the committed code of every .proto file of the module is what is
// generated from it.
func TestGenerated(t *testing.T) {
	n := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." && entry.Name() != ".":
			return fs.SkipDir
		case filepath.Ext(path) != ".proto":
			return nil
		}
		n++
		if err := run(path, true); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d files, %v", n, err)
	}
}
