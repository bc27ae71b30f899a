package attest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// TestOneRecordOtherBytes: a trace ID is in no digest, so two calls can have one
// record. The second is not taken for the first: it would be signed nowhere.
func TestOneRecordOtherBytes(t *testing.T) {
	path := newPath(t)
	first := bundletest.JavaScript("call-1", "1", "1\n")
	signLog(t, path, bundletest.RunLog([]bundletest.Entry{first.Entry()}))
	before := content(t, path)
	second := bundletest.JavaScript("call-2", "1", "1\n")
	if first.Record.RecordSHA256 != second.Record.RecordSHA256 {
		t.Fatal("the two calls have two records")
	}
	_, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog([]bundletest.Entry{second.Entry()})), options(t, path))
	if !errors.Is(err, ErrRunLog) || !errors.Is(err, verify.ErrChain) {
		t.Errorf("have %v, want a refused run log", err)
	}
	if !bytes.Equal(content(t, path), before) {
		t.Error("the bundle changed")
	}
}

// meddling is a run log whose reading does something to the bundle.
type meddling struct {
	io.Reader
	after int // bytes
	do    func()
}

func (m *meddling) Read(p []byte) (int, error) {
	if m.after <= 0 && m.do != nil {
		m.do()
		m.do = nil
	}
	n, err := m.Reader.Read(p[:min(len(p), 512)])
	m.after -= n
	return n, err
}

// TestMeddledBundle: somebody who does not ask for the lock writes to the bundle
// during a run. Nothing is written over it or after a hole, and nothing of it
// is called sealed.
func TestMeddledBundle(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("locks are mandatory there")
	}
	log := bundletest.RunLog(testCalls())
	for name, meddle := range map[string]func(path string) error{
		"cut":      func(path string) error { return os.Truncate(path, 0) },
		"cut back": func(path string) error { return os.Truncate(path, 100) },
		"appended": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("foreign\n")
			return errors.Join(err, f.Close())
		},
		"removed": os.Remove,
		"renamed": func(path string) error { return os.Rename(path, path+".moved") },
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			o := options(t, path)
			o.disk = nil
			var after []byte
			res, err := Sign(t.Context(), &meddling{bytes.NewReader(log), len(log) / 2, func() {
				if err := meddle(path); err != nil {
					t.Fatal(err)
				}
				after, _ = os.ReadFile(path)
			}}, o)
			if err == nil || errors.Is(err, ErrRunLog) || errors.Is(err, ErrBundle) {
				t.Fatalf("have %v, want an error of the disk", err)
			}
			if res.Sealed {
				t.Error("it is said to be sealed")
			}
			if now, _ := os.ReadFile(path); !bytes.Equal(now, after) {
				t.Errorf("%d bytes were there after the meddling, %d are now", len(after), len(now))
			}
		})
	}
}

// TestNoRoomForSideFile: where no side file can be made, a run does not start.
func TestNoRoomForSideFile(t *testing.T) {
	dir := t.TempDir()
	name := make([]byte, 240) // with the ending of a side file, more than a name may have
	for i := range name {
		name[i] = 'b'
	}
	path := filepath.Join(dir, string(name))
	unread := &meddling{Reader: bytes.NewReader(nil), do: func() { t.Error("the log was read") }}
	if _, err := Sign(t.Context(), unread, options(t, path)); err == nil {
		t.Error("signed")
	}
	if left := folder(t, path); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
