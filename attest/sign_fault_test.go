package attest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// faults say what fails on a disk. Counters run down; at 0 the fault is there.
type faults struct {
	bundleRoom int // bytes that fit into the bundle's file beyond those in it
	sideRoom   int // bytes that fit into a side file
	syncs      int // of the bundle that work
	sideSyncs  int
	truncates  int  // of the bundle that work
	syncBack   bool // syncs work again after the first that did not
}

// none is a disk without a fault that will come up.
var none = faults{1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, false}

var errSync = errors.New("sync: I/O error")

// disk returns a disk with these faults.
func (f faults) disk() *disk {
	return &disk{
		bundle: func(file *os.File) chain.File { return &faultyBundle{file, &f} },
		side:   func(file *os.File) sideWriter { return &faultySide{file, &f} },
	}
}

type faultyBundle struct {
	*os.File
	f *faults
}

func (b *faultyBundle) WriteAt(p []byte, off int64) (int, error) {
	n := min(len(p), b.f.bundleRoom)
	if _, err := b.File.WriteAt(p[:n], off); err != nil {
		return 0, err
	}
	if b.f.bundleRoom -= n; n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (b *faultyBundle) Sync() error {
	if b.f.syncs--; b.f.syncs == -1 || b.f.syncs < 0 && !b.f.syncBack {
		return errSync
	}
	return nil
}

func (b *faultyBundle) Truncate(size int64) error {
	if b.f.truncates--; b.f.truncates < 0 {
		return syscall.EIO
	}
	return b.File.Truncate(size)
}

// A faultySide has no other methods of its file: io.Copy would use them.
type faultySide struct {
	file *os.File
	f    *faults
}

func (s *faultySide) Write(p []byte) (int, error) {
	n := min(len(p), s.f.sideRoom)
	if _, err := s.file.Write(p[:n]); err != nil {
		return 0, err
	}
	if s.f.sideRoom -= n; n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (s *faultySide) Sync() error {
	if s.f.sideSyncs--; s.f.sideSyncs < 0 {
		return errSync
	}
	return nil
}

// identities are what a run reports, or files hold: records' digests and the
// sessions of closes.
type identities map[string]bool

func (ids identities) record(r Recorded) {
	if r.Close != nil {
		ids["close "+r.Close.Session] = true
	} else {
		ids[r.Call.Record.RecordSHA256] = true
	}
}

// read adds what the whole lines of a file hold.
func (ids identities) read(t testing.TB, path string) {
	t.Helper()
	for _, raw := range bundletest.Lines(content(t, path)) {
		line, err := chain.ParseLine(raw)
		if err != nil || line.Envelope == nil {
			continue
		}
		payload, err := base64.StdEncoding.DecodeString(line.Envelope.Payload)
		if err != nil {
			t.Fatal(err)
		}
		e, err := statement.ParseEntry(payload)
		if err != nil {
			t.Fatal(err)
		}
		if e.Close != nil {
			ids["close "+e.Close.Session] = true
		} else {
			ids[e.Record.RecordSHA256] = true
		}
	}
}

// settle brings what a failed or killed run left into order, in the way that
// the commands offer, and returns which one it took. It fails the test when
// there is none, or when something that was reported as recorded is lost.
func settle(t testing.TB, path string, reported identities) string {
	t.Helper()
	way := "whole"
	if info, err := os.Stat(path); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		way = "new"
	} else if _, err := verify.Bundle(t.Context(), bytes.NewReader(content(t, path)), verifyOptions()); err != nil {
		o := options(t, path)
		shown, showErr := Recover(t.Context(), RecoverOptions{Bundle: path, Keys: []*envelope.PublicKey{bundletest.Harness.Public}, LockTimeout: -1})
		if showErr != nil {
			t.Fatalf("recover shows: %v", showErr)
		}
		if _, sealErr := Seal(t.Context(), o); sealErr == nil {
			if way = "sealed"; !shown.Sealable() {
				t.Fatalf("sealed what recover did not call sealable: %+v", shown)
			}
			mustVerify(t, path)
		} else {
			if !errors.Is(sealErr, ErrBundle) || shown.Sealable() {
				t.Fatalf("checkpoint: %v, of %+v", sealErr, shown)
			}
			way = "recovered"
			r, err := Recover(t.Context(), RecoverOptions{
				Bundle: path, Keys: []*envelope.PublicKey{bundletest.Harness.Public}, LockTimeout: -1, Cut: true, disk: quick,
			})
			if err != nil || r.SideFile == "" || r.Moved != r.Bytes-r.Kept.Offset || r.Intact() {
				t.Fatalf("recover: %v, %+v", err, r)
			}
			if r.Kept.Lines > 0 {
				mustVerify(t, path)
			}
		}
	}
	there := identities{}
	for _, name := range folder(t, path) {
		there.read(t, filepath.Join(filepath.Dir(path), name))
	}
	for id := range reported {
		if !there[id] {
			t.Fatalf("%s: %s was reported as recorded and is lost; %v", way, id, folder(t, path))
		}
	}
	return way
}

// resume gives the log again after settle, and checks that all of it is in the
// bundle.
func resume(t testing.TB, path string, log []byte) {
	t.Helper()
	signLog(t, path, log)
	report := mustVerify(t, path)
	if report.Calls < 5 || report.Sessions < 2 {
		t.Fatalf("resumed: %+v", report)
	}
}

// A faultCase is where a run fails, and what must be left then.
type faultCase struct {
	name   string
	faults faults
	// bundle and side are lengths of the bundle, as it would be without a
	// fault: what is left in it, and up to where the side file goes.
	bundle, side int
}

// TestDiskFaults lets the bundle's writes fail at bytes all over it, when asked
// for at every one, with and without room for a side file, on a new bundle and on
// one that is extended.
func TestDiskFaults(t *testing.T) {
	before := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("before", "0", "0\n").Entry())
	for name, start := range map[string][]byte{"new": nil, "extended": before} {
		t.Run(name, func(t *testing.T) {
			whole := bundletest.Extend(bundletest.Harness, start, append(testCalls(), bundletest.Checkpoint)...)
			ends := []int{len(start)} // of the lines to be written
			for i := len(start); i < len(whole); i++ {
				if whole[i] == '\n' {
					ends = append(ends, i+1)
				}
			}
			// The calls after which no session is open; after the last comes the checkpoint.
			closed := []int{ends[0], ends[3], ends[4], ends[7]}
			var cases []faultCase
			for at := len(start); at < len(whole); at++ {
				i, isEnd := slices.BinarySearch(ends, at)
				all := isEnd || at%1499 == 0
				if !all && !thorough() {
					continue
				}
				if isEnd {
					i++
				}
				last, next := ends[i-1], ends[i] // whole lines written, and the line that fails
				var here []faultCase
				f := none
				f.bundleRoom = at - len(start)
				here = append(here, faultCase{"write", f, len(start), next})
				for _, room := range []int{0, 1, next - len(start) - 1} {
					f.sideRoom = room
					here = append(here, faultCase{"write, no room for a side file", f, last, 0})
				}
				f = none
				f.bundleRoom, f.sideSyncs = at-len(start), 0
				here = append(here, faultCase{"write, sync of the side file", f, last, 0})
				f = none
				f.bundleRoom, f.truncates = at-len(start), 0
				here = append(here, faultCase{"write, cut", f, at, next})
				f.truncates = 1
				// The torn line goes; the whole ones before it can not be cut.
				here = append(here, faultCase{"write, second cut", f, last, next})
				f.truncates, f.sideRoom = 0, 10
				here = append(here, faultCase{"write, cut, no side file", f, at, 0})
				if !all {
					here = here[at%len(here):][:1] // in turn
				}
				cases = append(cases, here...)
			}
			for i := range len(ends) - 1 {
				f := none
				f.syncs = i
				cases = append(cases, faultCase{"sync", f, len(start), ends[i+1]})
				f.syncBack = true
				cases = append(cases, faultCase{"sync, once", f, len(start), ends[i+1]})
				f.sideRoom = 0
				cases = append(cases, faultCase{"sync, once, no side file", f, ends[i], 0})
			}
			log := bundletest.RunLog(testCalls())
			resumed := map[string]int{}
			for _, c := range cases {
				c.run(t, start, whole, log, closed, resumed[c.name] < 3)
				resumed[c.name]++
			}
			t.Logf("%d cases", len(cases))
		})
	}
}

func (c *faultCase) run(t *testing.T, start, whole, log []byte, closed []int, andResume bool) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "bundle.jsonl")
	if start != nil {
		if err := os.WriteFile(path, start, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reported := identities{}
	o := options(t, path)
	o.disk = c.faults.disk()
	o.Progress = reported.record
	res, err := Sign(t.Context(), bytes.NewReader(log), o)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, errSync) || errors.Is(err, ErrRunLog) || errors.Is(err, ErrBundle) {
		t.Fatalf("%s: %v", c.name, err)
	}

	var bundle []byte
	if _, err := os.Stat(path); err == nil {
		bundle = content(t, path)
	} else if c.bundle > 0 {
		t.Fatalf("%s: no bundle, want one of %d bytes", c.name, c.bundle)
	}
	if !bytes.Equal(bundle, whole[:c.bundle]) {
		t.Fatalf("%s: %d bytes in the bundle, want %d: %v", c.name, len(bundle), c.bundle, err)
	}
	var side []byte
	switch {
	case c.side == 0 && len(res.SideFiles) > 0, len(res.SideFiles) > 1:
		t.Fatalf("%s: side files %v", c.name, res.SideFiles)
	case c.side > 0:
		side = content(t, res.SideFiles[0])
		if !strings.Contains(err.Error(), res.SideFiles[0]) {
			t.Errorf("%s: the side file is not named: %v", c.name, err)
		}
		if !bytes.Equal(side, whole[len(start):c.side]) {
			t.Fatalf("%s: %d bytes in the side file, want %d", c.name, len(side), c.side-len(start))
		}
	}
	names := 0
	if bundle != nil {
		names++
	}
	if side != nil {
		names++
	}
	if have := folder(t, path); len(have) != names {
		t.Fatalf("%s: files %v", c.name, have)
	}

	// What is said to help does.
	want := "new"
	switch {
	case c.bundle == len(start) && c.bundle > 0:
		want = "whole"
	case slices.Contains(closed, c.bundle) && c.bundle > 0:
		want = "sealed"
		if !strings.Contains(err.Error(), "plimsoll-attest checkpoint") && c.faults.truncates > 0 {
			t.Errorf("%s: checkpoint would help: %v", c.name, err)
		}
	case c.bundle > 0:
		want = "recovered"
		if !strings.Contains(err.Error(), "plimsoll-attest recover") {
			t.Errorf("%s: recover would help: %v", c.name, err)
		}
	}
	if wasSealed := c.bundle == len(start) && len(start) > 0; res.Sealed != wasSealed && c.faults.truncates > 0 && c.name != "sync" {
		t.Errorf("%s: sealed %v", c.name, res.Sealed)
	}
	if way := settle(t, path, reported); way != want {
		t.Errorf("%s: %s, want %s; %v", c.name, way, want, err)
	}
	if andResume {
		resume(t, path, log)
	}
}

// TestSealingFails: a log that is cut leaves a session open; then the checkpoint
// over what is whole fails as well. Two side files hold what was signed.
func TestSealingFails(t *testing.T) {
	e := testCalls()
	whole := bundletest.Linked(bundletest.Harness, e[:4]...)
	log := bundletest.RunLog(e[:6])
	path := newPath(t)
	reported := identities{}
	o := options(t, path)
	f := none
	f.bundleRoom = len(bundletest.Extend(bundletest.Harness, nil, e[:6]...)) + 10
	o.disk, o.Progress = f.disk(), reported.record
	res, err := Sign(t.Context(), bytes.NewReader(log), o)
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrRunLog) || !strings.Contains(err.Error(), "run log") {
		t.Error(err)
	}
	if len(res.SideFiles) != 2 || res.Moved != 5 || res.Sealed || res.LinesAfter != 0 {
		t.Fatalf("%+v", res)
	}
	if got := content(t, res.SideFiles[1]); !bytes.Equal(got, whole) {
		t.Errorf("%d bytes in the second side file, want %d", len(got), len(whole))
	}
	if way := settle(t, path, reported); way != "new" {
		t.Error(way)
	}
	resume(t, path, bundletest.RunLog(e))
}

// TestCutLogAndFullDisk: a log that is cut leaves a session open, and there is no
// room for the side file.
func TestCutLogAndFullDisk(t *testing.T) {
	e := testCalls()
	path := newPath(t)
	reported := identities{}
	o := options(t, path)
	f := none
	f.sideRoom = 100
	o.disk, o.Progress = f.disk(), reported.record
	res, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog(e[:6])), o)
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrRunLog) || !strings.Contains(err.Error(), "lines 1 to 6 stay in the bundle") {
		t.Error(err)
	}
	if len(res.SideFiles) != 0 || res.Sealed || res.LinesAfter != 6 || res.Calls != 5 {
		t.Fatalf("%+v", res)
	}
	if way := settle(t, path, reported); way != "recovered" {
		t.Error(way)
	}
	resume(t, path, bundletest.RunLog(e))
}
