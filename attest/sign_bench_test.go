package attest

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// BenchmarkSignLog signs logs of single runs, without the disk: what a line
// costs beside its fsync. BenchmarkSignature is what to measure it by; a line has
// two.
func BenchmarkSignLog(b *testing.B) {
	var entries []bundletest.Entry
	for i := range b.N {
		entries = append(entries, bundletest.JavaScript(fmt.Sprint("call-", i), fmt.Sprint("console.log(", i, ")"), fmt.Sprintln(i)).Entry())
	}
	log := bundletest.RunLog(entries)
	o := options(b, newPath(b))
	o.disk = &disk{bundle: func(*os.File) chain.File { return new(nowhere) }, side: quick.side}
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := Sign(b.Context(), bytes.NewReader(log), o); err != nil {
		b.Fatal(err)
	}
}

// nowhere is a file that keeps nothing.
type nowhere struct{}

func (nowhere) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nowhere) Truncate(int64) error                   { return nil }
func (nowhere) Sync() error                            { return nil }

func BenchmarkSignature(b *testing.B) {
	pae := envelope.PAE(bundletest.JavaScript("call-1", "console.log(1+1)", "2\n").Entry().Payload)
	for b.Loop() {
		ed25519.Sign(bundletest.Harness.Private, pae)
	}
}

// BenchmarkResume opens a bundle of 100,000 lines to write to it, which is to take
// as long as to verify it.
func BenchmarkResume(b *testing.B) {
	path := newPath(b)
	var entries []bundletest.Entry
	for i := range 100_000 {
		entries = append(entries, bundletest.JavaScript(fmt.Sprint("call-", i), fmt.Sprint("console.log(", i, ")"), fmt.Sprintln(i)).Entry())
	}
	signLog(b, path, bundletest.RunLog(entries))
	entries = nil
	var once time.Duration
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := verify.Bundle(b.Context(), f, verifyOptions()); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
		once = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("resume", func(b *testing.B) {
		for b.Loop() {
			s, err := openSigning(b.Context(), options(b, path))
			if err != nil {
				b.Fatal(err)
			}
			s.bundle.close()
		}
		b.ReportMetric(float64(b.Elapsed()/time.Duration(b.N))/float64(once), "x-verify")
	})
}
