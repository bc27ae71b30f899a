//go:build linux

// Package asuser is a test helper: it runs the tests of a package again as a user
// without rights.
package asuser

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// uid is nobody's.
const uid = 54321

// Rerun runs the tests of the binary whose names match the pattern (as for go test
// -run) again as an ordinary user, where it was started by root, and fails t when it fails, when fewer than atLeast of its tests have passed
// or when it leaves a temporary file. Under another user it skips t.
//
// The trees, paths as the tests use them, are copied to where they are found by
// the same paths; env is added to the environment.
func Rerun(t *testing.T, pattern string, atLeast int, env []string, trees ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the user is an ordinary one")
	}
	top, err := os.MkdirTemp("", "pl-user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, tmp := filepath.Join(top, "a", "b", "c"), filepath.Join(top, "t")
	program := filepath.Join(dir, "tests")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Mkdir(tmp, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, tree := range trees {
		if err := copyTree(filepath.Join(dir, tree), tree); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyTree(program, self); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	})
	if err := errors.Join(err, os.Chmod(top, 0o755)); err != nil {
		t.Fatal(err)
	}
	// Short: what is slow and asks nothing of the user is not done again.
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run="+pattern, "-test.short", "-test.timeout=15m")
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "HOME="+top, "TMPDIR="+tmp), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if n := bytes.Count(out, []byte("\n--- PASS: Test")); n < atLeast {
		t.Errorf("only %d tests have passed:\n%s", n, out)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// copyTree copies a file or a folder of files.
func copyTree(target, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(target, os.DirFS(source))
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return os.WriteFile(target, data, 0o755)
}
