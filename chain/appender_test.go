package chain_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// flaky is a file that fails on demand.
type flaky struct {
	bundletest.File
	writes   int   // bytes that can still be written; < 0: no bound
	writeErr error // of a write that is cut short
	syncErr  error // of the next sync
	truncErr error
}

func (f *flaky) WriteAt(p []byte, off int64) (int, error) {
	if f.writes >= 0 && len(p) > f.writes {
		n, _ := f.File.WriteAt(p[:f.writes], off)
		f.writes = 0
		return n, f.writeErr
	}
	if f.writes >= 0 {
		f.writes -= len(p)
	}
	return f.File.WriteAt(p, off)
}

func (f *flaky) Sync() error {
	err := f.syncErr
	f.syncErr = nil
	return err
}

func (f *flaky) Truncate(size int64) error {
	if f.truncErr != nil {
		return f.truncErr
	}
	return f.File.Truncate(size)
}

func verified(t *testing.T, bundle []byte) {
	t.Helper()
	_, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), verify.Options{Keys: []*envelope.PublicKey{bundletest.Harness.Public}})
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, f io.ReaderAt, size int64) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFailedWrite lets the write of a line fail after each possible number of
// bytes. Nothing of the line stays; the line is in the error; the same line can
// be written again and the bundle is as if nothing had happened.
func TestFailedWrite(t *testing.T) {
	call := bundletest.JavaScript("call-1", "1", "1\n").Entry()
	want := bundletest.Linked(bundletest.Harness, call)
	full := errors.New("no space left on device")
	length := bytes.IndexByte(want, '\n') + 1
	for room := range length {
		f := &flaky{writes: room, writeErr: full}
		a := chain.NewAppender(f, bundletest.Harness, chain.Mark{})
		_, err := a.Append(call.Request, call.Response, call.Payload)
		var failed *chain.WriteError
		if !errors.As(err, &failed) || !errors.Is(err, full) || failed.CutErr != nil {
			t.Fatalf("%d bytes: have %v", room, err)
		}
		if !bytes.Equal(failed.Line, want[:length]) {
			t.Fatalf("%d bytes: the error holds %q", room, failed.Line)
		}
		if rest := content(t, f, 1<<20); len(rest) != 0 {
			t.Fatalf("%d bytes stayed of a line that failed after %d", len(rest), room)
		}
		f.writes = -1
		if _, err := a.Append(call.Request, call.Response, call.Payload); err != nil {
			t.Fatal(err)
		}
		if err := a.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if have := content(t, f, 1<<20); !bytes.Equal(have, want) {
			t.Fatal("the bundle is not what it would have been")
		}
	}
	verified(t, want)
}

// TestFailedSync: a line that may not have reached the disk is taken back.
func TestFailedSync(t *testing.T) {
	call := bundletest.JavaScript("call-1", "1", "1\n").Entry()
	broken := errors.New("input/output error")
	f := &flaky{writes: -1, syncErr: broken}
	a := chain.NewAppender(f, bundletest.Harness, chain.Mark{})
	if _, err := a.Append(call.Request, call.Response, call.Payload); !errors.Is(err, broken) {
		t.Fatalf("have %v", err)
	}
	if rest := content(t, f, 1<<20); len(rest) != 0 {
		t.Fatalf("%d bytes stayed", len(rest))
	}
	if a.End() != (chain.Mark{}) {
		t.Errorf("the end moved to %+v", a.End())
	}
}

// TestFailedCut: when a torn line cannot be cut off, nothing more is written.
func TestFailedCut(t *testing.T) {
	call := bundletest.JavaScript("call-1", "1", "1\n").Entry()
	full, readOnly := errors.New("no space left on device"), errors.New("read-only file system")
	f := &flaky{writes: 100, writeErr: full, truncErr: readOnly}
	a := chain.NewAppender(f, bundletest.Harness, chain.Mark{})
	var failed *chain.WriteError
	if _, err := a.Append(call.Request, call.Response, call.Payload); !errors.As(err, &failed) || !errors.Is(failed.CutErr, readOnly) {
		t.Fatalf("have %v", err)
	}
	f.writes, f.truncErr = -1, nil
	if err := a.Checkpoint(); !errors.Is(err, full) {
		t.Errorf("a line was glued to a torn one: %v", err)
	}
}

// TestCutTo takes lines back out; without a copy of them nothing is cut.
func TestCutTo(t *testing.T) {
	first, second := bundletest.JavaScript("call-1", "1", "1\n").Entry(), bundletest.JavaScript("call-2", "2", "2\n").Entry()
	f := new(bundletest.File)
	a := chain.NewAppender(f, bundletest.Harness, chain.Mark{})
	if _, err := a.Append(first.Request, first.Response, first.Payload); err != nil {
		t.Fatal(err)
	}
	mark := a.End()
	if _, err := a.Append(second.Request, second.Response, second.Payload); err != nil {
		t.Fatal(err)
	}
	end := a.End()
	line := content(t, f, 1<<20)[mark.Offset:]

	if err := a.CutTo(mark, brokenWriter{}); err == nil || a.End() != end {
		t.Fatalf("cut without a copy: %v, end %+v", err, a.End())
	}
	var keep bytes.Buffer
	if err := a.CutTo(mark, &keep); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(keep.Bytes(), line) {
		t.Error("the copy is not the line")
	}
	if err := a.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	want := bundletest.Linked(bundletest.Harness, first)
	if have := content(t, f, 1<<20); !bytes.Equal(have, want) {
		t.Error("the bundle is not the one without the line")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write(p []byte) (int, error) { return len(p) / 2, errors.New("disk full") }

// TestSignerAway: a signer that fails leaves the file alone.
func TestSignerAway(t *testing.T) {
	call := bundletest.JavaScript("call-1", "1", "1\n").Entry()
	for after := range 2 {
		f := new(bundletest.File)
		a := chain.NewAppender(f, &away{left: after}, chain.Mark{})
		if _, err := a.Append(call.Request, call.Response, call.Payload); !errors.Is(err, errAway) {
			t.Errorf("have %v, want the signer's error", err)
		}
		if rest := content(t, f, 1<<20); len(rest) != 0 {
			t.Errorf("%d bytes written without a signature", len(rest))
		}
	}
}

var errAway = errors.New("agent is locked")

type away struct{ left int }

func (s *away) Sign(payload []byte) (*dsse.Envelope, error) {
	if s.left == 0 {
		return nil, errAway
	}
	s.left--
	return bundletest.Harness.Sign(payload)
}

// TestOverlongEntry: a call that no line can hold is refused before a byte is
// written.
func TestOverlongEntry(t *testing.T) {
	if testing.Short() {
		t.Skip("64 MiB of text")
	}
	f := new(bundletest.File)
	a := chain.NewAppender(f, bundletest.Harness, chain.Mark{})
	if _, err := a.Append(make([]byte, chain.MaxLineBytes), nil, []byte("{}")); !errors.Is(err, chain.ErrLine) {
		t.Fatalf("have %v, want ErrLine", err)
	}
	if rest := content(t, f, 1<<20); len(rest) != 0 {
		t.Errorf("%d bytes written", len(rest))
	}
}
