package attest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/runlog"
)

// TestBundleModes: a bundle of group or others is taken only when asked for.
func TestBundleModes(t *testing.T) {
	if !hasModes {
		t.Skip("modes say nothing here")
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o666, 0o601, 0o644} {
		path := newPath(t)
		signLog(t, path, bundletest.RunLog(testCalls()[:3]))
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		before := content(t, path)
		o, r := options(t, path), recoverOptions(path, true)
		_, signErr := Sign(t.Context(), unread{t}, o)
		_, sealErr := Seal(t.Context(), o)
		_, recoverErr := Recover(t.Context(), r)
		for _, err := range []error{signErr, sealErr, recoverErr} {
			if err == nil || errors.Is(err, ErrBundle) || !strings.Contains(err.Error(), "mode") {
				t.Errorf("%o: %v", mode, err)
			}
		}
		if !bytes.Equal(before, content(t, path)) {
			t.Errorf("%o: changed", mode)
		}

		o.AllowShared, r.AllowShared = true, true
		_, signErr = Sign(t.Context(), bytes.NewReader(bundletest.RunLog(testCalls())), o)
		_, sealErr = Seal(t.Context(), o)
		_, recoverErr = Recover(t.Context(), r)
		if err := errors.Join(signErr, sealErr, recoverErr); err != nil {
			t.Errorf("%o, allowed: %v", mode, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("mode %v, %v: not what it was", info.Mode(), err)
		}
	}
}

// TestBundleKinds: only a regular file is a bundle.
func TestBundleKinds(t *testing.T) {
	target := newPath(t)
	signLog(t, target, bundletest.RunLog(testCalls()))
	before := content(t, target)
	missing := newPath(t)
	for name, make := range map[string]func(path string) error{
		"a link":                   func(path string) error { return os.Symlink(target, path) },
		"a link to nothing":        func(path string) error { return os.Symlink(missing, path) },
		"a link to itself":         func(path string) error { return os.Symlink(path, path) },
		"a folder":                 func(path string) error { return os.Mkdir(path, 0o700) },
		"a device, through a link": func(path string) error { return os.Symlink("/dev/null", path) },
	} {
		path := newPath(t)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		_, signErr := Sign(t.Context(), unread{t}, options(t, path))
		_, sealErr := Seal(t.Context(), options(t, path))
		_, recoverErr := Recover(t.Context(), recoverOptions(path, true))
		_, lookErr := Recover(t.Context(), recoverOptions(path, false))
		for _, err := range []error{signErr, sealErr, recoverErr, lookErr} {
			if err == nil || errors.Is(err, ErrBundle) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if !bytes.Equal(before, content(t, target)) {
		t.Error("written through a link")
	}
	if names := folder(t, missing); len(names) != 0 {
		t.Error("made through a link")
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(missing), "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A folder on the way may be a link.
	way := filepath.Join(t.TempDir(), "way")
	if err := os.Symlink(filepath.Dir(target), way); err != nil {
		t.Fatal(err)
	}
	signLog(t, filepath.Join(way, "bundle.jsonl"), bundletest.RunLog(nil))
}

// TestEmptyBundle: an empty file is a new bundle. One that we made is removed
// again when nothing came of it, one that was there stays.
func TestEmptyBundle(t *testing.T) {
	for _, there := range []bool{false, true} {
		path := newPath(t)
		if there {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		res, err := Sign(t.Context(), bytes.NewReader(nil), options(t, path))
		if !errors.Is(err, runlog.ErrIncomplete) || !res.Created || res.Sealed || res.LinesAfter != 0 {
			t.Errorf("%+v, %v", res, err)
		}
		if names := folder(t, path); len(names) > 0 != there {
			t.Errorf("there before: %v, left %v", there, names)
		}
		if there && len(content(t, path)) != 0 {
			t.Error("wrote without a call")
		}
		if res := signLog(t, path, bundletest.RunLog(nil)); !res.Created || !res.Sealed || res.LinesAfter != 1 || res.Calls != 0 {
			t.Errorf("%+v", res)
		}
		if report := mustVerify(t, path); report.Calls != 0 || report.Checkpoints != 1 {
			t.Errorf("%+v", report)
		}
	}
}
