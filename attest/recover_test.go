package attest

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// recoverOptions are those of the harness's key.
func recoverOptions(path string, cut bool) RecoverOptions {
	return RecoverOptions{Bundle: path, Keys: []*envelope.PublicKey{bundletest.Harness.Public}, Cut: cut, LockTimeout: -1, disk: quick}
}

// A leftBundle is a bundle that something was left in.
type leftBundle struct {
	name     string
	bundle   []byte
	kept     int // lines up to the last good checkpoint
	whole    int // lines that hold
	open     uint64
	check    verify.Check // of the first line that does not hold; empty when all do
	sealable bool
	refused  bool // an interrupted writer does not explain it
}

func leftBundles() []leftBundle {
	e := testCalls()
	first := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("first", "1", "").Entry())
	extend := func(entries ...bundletest.Entry) []byte {
		return bundletest.Extend(bundletest.Harness, first, entries...)
	}
	fresh := func(entries ...bundletest.Entry) []byte {
		return bundletest.Extend(bundletest.Harness, nil, entries...)
	}
	torn := func(b []byte, n int) []byte { return b[:len(b)-n] }
	good := extend(append(e, bundletest.Checkpoint)...)
	broken := bundletest.Lines(good) // 2 lines, 7 entries and a checkpoint
	broken[3] = bytes.Replace(broken[3], []byte(`"response":"`), []byte(`"response":"AAAA`), 1)
	lastLine := bundletest.Lines(extend(e...))
	lastLine[8] = bytes.Repeat([]byte{0}, len(lastLine[8]))
	stranger := bundletest.Linked(bundletest.Stranger, e...)
	strange := bundletest.Extend(bundletest.Stranger, first, e[0])
	firstLine := bundletest.Lines(fresh(e[0]))[0]
	return []leftBundle{
		{name: "whole", bundle: first, kept: 2, whole: 2},
		{name: "whole, extended", bundle: good, kept: 10, whole: 10},
		{name: "empty", bundle: nil},

		{name: "unsealed", bundle: extend(e...), kept: 2, whole: 9, sealable: true},
		{name: "unsealed, one line", bundle: extend(e[3]), kept: 2, whole: 3, sealable: true},
		{name: "a session open", bundle: extend(e[0], e[1]), kept: 2, whole: 4, open: 1},
		{name: "two sessions open", bundle: extend(e[0], e[4]), kept: 2, whole: 4, open: 2},
		{name: "a checkpoint with a session open", bundle: extend(e[0], bundletest.Checkpoint), kept: 2, whole: 4, open: 1},
		{name: "a torn line", bundle: torn(extend(e[3], e[0]), 100), kept: 2, whole: 3, check: verify.CheckLine},
		{name: "a line without its LF", bundle: torn(extend(e[3]), 1), kept: 2, whole: 2, check: verify.CheckLine},
		{name: "a torn checkpoint", bundle: torn(good, 1), kept: 2, whole: 9, check: verify.CheckLine},
		{name: "one byte", bundle: append(bytes.Clone(first), '{'), kept: 2, whole: 2, check: verify.CheckLine},
		{name: "zeros, as after a power cut", bundle: append(bytes.Clone(first), make([]byte, 4096)...), kept: 2, whole: 2, check: verify.CheckLine},
		{name: "a last line of zeros", bundle: bundletest.Join(lastLine...), kept: 2, whole: 8, open: 1, check: verify.CheckLine},

		{name: "a first run, unsealed", bundle: fresh(e...), whole: 7, sealable: true},
		{name: "a first run, a session open", bundle: fresh(e[0]), whole: 1, open: 1},
		{name: "a first run, torn", bundle: torn(fresh(e[0], e[1]), 7), whole: 1, open: 1, check: verify.CheckLine},
		{name: "a first line, torn", bundle: torn(fresh(e[0]), 7), check: verify.CheckLine},
		{name: "a first line, all but its LF", bundle: firstLine, check: verify.CheckLine},
		{name: "a first line, torn early", bundle: firstLine[:5], check: verify.CheckLine},
		{name: "a first checkpoint, torn", bundle: torn(fresh(bundletest.Checkpoint), 9), check: verify.CheckLine},

		{name: "a line changed, more after it", bundle: bundletest.Join(broken...), kept: 2, whole: 3, open: 1, check: verify.CheckLink, refused: true},
		{name: "a line dropped", bundle: bundletest.Join(append(bundletest.Lines(good)[:6], bundletest.Lines(good)[7:]...)...), kept: 2, whole: 6, check: verify.CheckLink, refused: true},
		{name: "a bad line and a torn one", bundle: append(bytes.Clone(first), "{}\n{"...), kept: 2, whole: 2, check: verify.CheckLink, refused: true},
		{name: "another key's", bundle: stranger, check: verify.CheckSignature, refused: true},
		{name: "another key's first line", bundle: bundletest.Extend(bundletest.Stranger, nil, e[0]), check: verify.CheckSignature, refused: true},
		{name: "another key's first line, torn", bundle: torn(bundletest.Extend(bundletest.Stranger, nil, e[0]), 2), check: verify.CheckLine, refused: true},
		{name: "another key's line after ours", bundle: strange, kept: 2, whole: 2, check: verify.CheckSignature},
		{name: "unlinked", bundle: bundletest.Unlinked(bundletest.Harness, e...), check: verify.CheckLink, refused: true},
		{name: "no bundle", bundle: []byte("notes\n"), check: verify.CheckLine, refused: true},
		{name: "no bundle, no LF", bundle: []byte("notes"), check: verify.CheckLine, refused: true},
		{name: "other JSON, no LF", bundle: []byte(`{"requests":[`), check: verify.CheckLine, refused: true},
	}
}

func TestRecover(t *testing.T) {
	for _, c := range leftBundles() {
		path := newPath(t)
		if err := os.WriteFile(path, c.bundle, 0o600); err != nil {
			t.Fatal(err)
		}
		intact := c.kept == c.whole && c.check == "" && len(c.bundle) > 0
		for _, cut := range []bool{false, true} {
			o := recoverOptions(path, cut)
			r, err := Recover(t.Context(), o)
			if c.refused != errors.Is(err, ErrBundle) || (err != nil) != c.refused {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if r.Kept.Lines != uint64(c.kept) || r.Whole.Lines != uint64(c.whole) || uint64(len(r.Open)) != c.open ||
				r.Intact() != intact || r.Sealable() != c.sealable || r.Bytes != int64(len(c.bundle)) {
				t.Errorf("%s: %+v, intact %v, sealable %v", c.name, r, r.Intact(), r.Sealable())
			}
			if c.check == "" && r.Refusal != nil || c.check != "" && (r.Refusal == nil || r.Refusal.Check != c.check) {
				t.Errorf("%s: refusal %v, want %q", c.name, r.Refusal, c.check)
			}
			if (r.After > 0) && !strings.Contains(err.Error(), "changed by other means") {
				t.Errorf("%s: %d lines after: %v", c.name, r.After, err)
			}
			kept := c.bundle
			if cut && !c.refused && !intact && len(c.bundle) > 0 {
				kept = bundletest.Join(bundletest.Lines(c.bundle)[:c.kept]...)
				if side := content(t, r.SideFile); !bytes.Equal(slices.Concat(kept, side), c.bundle) || r.Moved != int64(len(side)) {
					t.Errorf("%s: %d bytes in the side file", c.name, len(side))
				}
				if err := os.Remove(r.SideFile); err != nil {
					t.Fatal(err)
				}
			} else if r.SideFile != "" || r.Moved != 0 {
				t.Errorf("%s: moved %+v", c.name, r)
			}
			if !bytes.Equal(content(t, path), kept) || len(folder(t, path)) != 1 {
				t.Errorf("%s, cut %v: %d bytes left, want %d", c.name, cut, len(content(t, path)), len(kept))
			}
		}
		if !c.refused && len(c.bundle) > 0 {
			// What is left can be extended, and there is nothing more to recover.
			r, err := Recover(t.Context(), recoverOptions(path, true))
			if err != nil || !r.Intact() && r.Bytes > 0 || r.SideFile != "" {
				t.Errorf("%s: again: %v, %+v", c.name, err, r)
			}
			signLog(t, path, bundletest.RunLog(testCalls()))
			mustVerify(t, path)
		}
	}
}

func TestRecoverSeveralKeys(t *testing.T) {
	path := newPath(t)
	bundle := bundletest.Extend(bundletest.Stranger, bundletest.Linked(bundletest.Stranger), testCalls()[0])
	if err := os.WriteFile(path, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	o := recoverOptions(path, false)
	o.Keys = append(o.Keys, bundletest.Stranger.Public)
	if r, err := Recover(t.Context(), o); err != nil || r.Kept.Lines != 1 || r.Whole.Lines != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRecoverOptions(t *testing.T) {
	for name, o := range map[string]RecoverOptions{
		"no bundle": {Keys: []*envelope.PublicKey{bundletest.Harness.Public}},
		"no key":    {Bundle: newPath(t)},
		"missing":   recoverOptions(newPath(t), true),
		"a folder":  recoverOptions(t.TempDir(), false),
	} {
		if r, err := Recover(t.Context(), o); err == nil || r != nil || errors.Is(err, ErrBundle) || errors.Is(err, ErrLocked) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if name == "missing" && len(folder(t, o.Bundle)) != 0 {
			t.Error("made a bundle")
		}
	}
}

// TestRecoverFaults: nothing is cut that is not on disk elsewhere.
func TestRecoverFaults(t *testing.T) {
	e := testCalls()
	left := bundletest.Extend(bundletest.Harness, bundletest.Linked(bundletest.Harness, e[3]), e[0], e[1])
	for _, c := range []struct {
		name   string
		change func(*faults)
		side   bool
		cut    bool
	}{
		{"no room", func(f *faults) { f.sideRoom = 0 }, false, false},
		{"little room", func(f *faults) { f.sideRoom = 1000 }, false, false},
		{"sync of the side file", func(f *faults) { f.sideSyncs = 0 }, false, false},
		{"cut", func(f *faults) { f.truncates = 0 }, true, false},
		{"sync of the cut", func(f *faults) { f.syncs = 0 }, true, true},
	} {
		path := newPath(t)
		if err := os.WriteFile(path, left, 0o600); err != nil {
			t.Fatal(err)
		}
		f := none
		c.change(&f)
		o := recoverOptions(path, true)
		o.disk = f.disk()
		r, err := Recover(t.Context(), o)
		if err == nil || errors.Is(err, ErrBundle) || !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, errSync) && !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", c.name, err)
		}
		if (r.SideFile != "") != c.side || len(content(t, path)) < len(left) != c.cut {
			t.Errorf("%s: %+v", c.name, r)
		}
		if names := folder(t, path); len(names) != 1 && !c.side || len(names) > 2 {
			t.Errorf("%s: %v", c.name, names)
		}
		if c.side && !strings.Contains(err.Error(), r.SideFile) {
			t.Errorf("%s: the side file is not named: %v", c.name, err)
		}
		mustFollow(t, path, nil)
	}
}
