package bundletest_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/verify"
)

var _ chain.File = (*bundletest.File)(nil)

// entries are a call of each kind, in a session and alone.
func entries() []bundletest.Entry {
	s := bundletest.NewSession("a")
	return []bundletest.Entry{
		s.Add(bundletest.Project("call-1")).Entry(),
		bundletest.Module("alone").Entry(),
		s.Add(bundletest.Cell("call-2")).Entry(),
		s.Add(bundletest.JavaScript("call-3", "1", "").Unanswered("unavailable")).Entry(),
		s.Close(),
	}
}

func options() verify.Options {
	return verify.Options{Keys: []*envelope.PublicKey{bundletest.Harness.Public}}
}

func TestBundlesVerify(t *testing.T) {
	s := bundletest.NewSession("4")
	for name, bundle := range map[string][]byte{
		"linked":    bundletest.Linked(bundletest.Harness, entries()...),
		"empty":     bundletest.Linked(bundletest.Harness),
		"version 4": bundletest.Linked(bundletest.Harness, s.Add(bundletest.Project("v4").Version(4)).Entry(), s.Add(bundletest.Project("v4").Version(4).Unanswered("internal")).Entry(), s.Close()),
	} {
		if _, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), options()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	unlinked := options()
	unlinked.Unlinked = true
	bundle := bundletest.Unlinked(bundletest.Harness, append(entries(), bundletest.Project("v1").Version(1).Entry())...)
	if _, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), unlinked); err != nil {
		t.Errorf("unlinked: %v", err)
	}
}

// TestWriterIsAppender shows that what the Writer does by hand is what the
// Appender does.
func TestWriterIsAppender(t *testing.T) {
	want := bundletest.Linked(bundletest.Harness, entries()...)
	w := bundletest.NewWriter(bundletest.Harness)
	for _, e := range append(entries(), bundletest.Checkpoint) {
		w.Entry(e)
	}
	if !bytes.Equal(w.Bundle(), want) {
		t.Error("Writer and Appender differ")
	}
	if !bytes.Equal(bundletest.Relink(bundletest.Harness, want, 1), want) {
		t.Error("Relink changes a good bundle")
	}
	lines := bundletest.Lines(want)
	part := bundletest.Join(lines[:2]...)
	if got := bundletest.Extend(bundletest.Harness, part, append(entries()[2:], bundletest.Checkpoint)...); !bytes.Equal(got, want) {
		t.Error("Extend differs from writing at once")
	}
}

// TestRunLog shows that the run log is one that its reader takes, and has what
// was put into it.
func TestRunLog(t *testing.T) {
	want := entries()
	log := bundletest.RunLog(want, bundletest.Refused{Line: 3, TraceID: "x", Code: "invalid_argument", Reason: "request", Detail: "unknown name \"cod\""})
	r := runlog.NewReader(bytes.NewReader(log))
	for n := 0; ; n++ {
		line, err := r.Next()
		if err == io.EOF {
			if n != len(want)+2 {
				t.Errorf("%d lines, want %d", n, len(want)+2)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if n < len(want) && (!bytes.Equal(line.Request, want[n].Request) || !bytes.Equal(line.Response, want[n].Response) || !bytes.Equal(line.Statement, want[n].Payload)) {
			t.Errorf("line %d is another", n+1)
		}
	}
}
