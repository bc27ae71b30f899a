package attest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// TestSeal: what holds and has no session open is sealed, and nothing else.
func TestSeal(t *testing.T) {
	for _, c := range leftBundles() {
		path := newPath(t)
		if err := os.WriteFile(path, c.bundle, 0o600); err != nil {
			t.Fatal(err)
		}
		intact := c.kept == c.whole && c.check == "" && len(c.bundle) > 0
		res, err := Seal(t.Context(), options(t, path))
		got := content(t, path)
		switch {
		case c.sealable:
			want := bundletest.Extend(bundletest.Harness, c.bundle, bundletest.Checkpoint)
			if err != nil || !bytes.Equal(got, want) || !res.Sealed || res.LinesBefore != uint64(c.whole) || res.LinesAfter != uint64(c.whole)+1 {
				t.Errorf("%s: %+v, %v", c.name, res, err)
			}
			if report := mustVerify(t, path); report.End != res.End {
				t.Errorf("%s: %+v", c.name, res)
			}
		case intact:
			if err != nil || !bytes.Equal(got, c.bundle) || !res.Sealed || res.LinesBefore != res.LinesAfter {
				t.Errorf("%s: %+v, %v", c.name, res, err)
			}
		default:
			_, known := verify.CheckOf(err)
			if !errors.Is(err, ErrBundle) || !known || res != nil || !bytes.Equal(got, c.bundle) {
				t.Errorf("%s: %+v, %v", c.name, res, err)
			}
			if len(c.bundle) > 0 && !strings.Contains(err.Error(), "recover") {
				t.Errorf("%s: no pointer to recover: %v", c.name, err)
			}
		}
	}
}

func TestSealMakesNothing(t *testing.T) {
	path := newPath(t)
	if _, err := Seal(t.Context(), options(t, path)); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrBundle) {
		t.Error(err)
	}
	if names := folder(t, path); len(names) != 0 {
		t.Errorf("left %v", names)
	}
}

// TestSealFaults: a checkpoint that cannot be written leaves what was there.
func TestSealFaults(t *testing.T) {
	left := bundletest.Extend(bundletest.Harness, nil, testCalls()...)
	for _, c := range []struct {
		name   string
		change func(*faults)
		torn   bool
	}{
		{"full", func(f *faults) { f.bundleRoom = 0 }, false},
		{"nearly full", func(f *faults) { f.bundleRoom = 100 }, false},
		{"sync", func(f *faults) { f.syncs, f.syncBack = 0, true }, false},
		{"full, and no cut", func(f *faults) { f.bundleRoom, f.truncates = 100, 0 }, true},
	} {
		path := newPath(t)
		if err := os.WriteFile(path, left, 0o600); err != nil {
			t.Fatal(err)
		}
		f := none
		c.change(&f)
		o := options(t, path)
		o.disk = f.disk()
		res, err := Seal(t.Context(), o)
		if res != nil || errors.Is(err, ErrBundle) || !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, errSync) {
			t.Errorf("%s: %+v, %v", c.name, res, err)
		}
		if got := content(t, path); bytes.Equal(got, left) == c.torn || c.torn != strings.Contains(err.Error(), "recover") {
			t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
		}
		if way := settle(t, path, identities{}); (way == "sealed") == c.torn {
			t.Errorf("%s: %s", c.name, way)
		}
	}
}
