package verify_test

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// BenchmarkBundle compares verify.Bundle with a textbook verifier on one
// bundle, which has as many lines as BENCH_LINES says (100,000 unless set). The
// figures to compare are lines/s.
func BenchmarkBundle(b *testing.B) {
	lines := 100_000
	if s := os.Getenv("BENCH_LINES"); s != "" {
		var err error
		if lines, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	path := benchBundle(b, lines)
	run := func(name string, check func(io.Reader) error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				if err := check(f); err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
			b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
	run("textbook", func(r io.Reader) error { return textbook(r, benchPublic) })
	for _, workers := range []int{1, 2} {
		run(fmt.Sprintf("plimsoll/workers=%d", workers), func(r io.Reader) error {
			_, err := verify.Bundle(b.Context(), r, verify.Options{Keys: benchKeys(b), Workers: workers})
			return err
		})
	}
}

// BenchmarkLine is the cost of one line apart from its two signatures.
func BenchmarkLine(b *testing.B) {
	f, err := os.Open(benchBundle(b, 1000))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	raw, err := chain.NewReader(f).Next()
	if err != nil {
		b.Fatal(err)
	}
	line, err := chain.ParseLine(raw)
	if err != nil {
		b.Fatal(err)
	}
	payload, _ := base64.StdEncoding.DecodeString(line.Envelope.Payload)
	link, _ := base64.StdEncoding.DecodeString(line.Link.Payload)
	rec, err := statement.ParseRecord(payload)
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"parse":     func() error { _, err := chain.ParseLine(raw); return err },
		"record":    func() error { _, err := statement.ParseRecord(payload); return err },
		"link":      func() error { _, err := statement.ParseLink(link); return err },
		"exchange":  func() error { _, err := verify.CheckExchange(line.Request, line.Response, rec); return err },
		"signature": func() error { _, err := envelope.Verify(line.Envelope, benchKeys(b)[0]); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestTextbookVerdicts shows that the benchmark's other side does the work it
// is timed for: it accepts the bundle and refuses each way of breaking it.
func TestTextbookVerdicts(t *testing.T) {
	good, err := os.ReadFile(benchBundle(t, 50))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bundle []byte
		ok     bool
	}{
		"as written":       {good, true},
		"a byte changed":   {bytes.Replace(good, []byte(`"request":"C`), []byte(`"request":"D`), 1), false},
		"a line taken out": {good[bytes.IndexByte(good, '\n')+1:], false},
		"the end cut":      {good[:bytes.LastIndexByte(good[:len(good)-1], '\n')+1], false},
	} {
		_, ours := verify.Bundle(t.Context(), bytes.NewReader(c.bundle), verify.Options{Keys: benchKeys(t)})
		if theirs := textbook(bytes.NewReader(c.bundle), benchPublic); (theirs == nil) != c.ok || (ours == nil) != c.ok {
			t.Errorf("%s: textbook %v, plimsoll %v, want accepted %v", name, theirs, ours, c.ok)
		}
	}
}

// TestMemoryBound verifies a bundle far larger than the memory it may use. It
// has BENCH_LINES lines, 10,000 unless set.
func TestMemoryBound(t *testing.T) {
	lines := 10_000
	if s := os.Getenv("BENCH_LINES"); s != "" {
		lines, _ = strconv.Atoi(s)
	}
	f, err := os.Open(benchBundle(t, lines))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var peak uint64
	n := 0
	runtime.GC()
	_, err = verify.Bundle(t.Context(), f, verify.Options{
		Keys: benchKeys(t),
		Entry: func(verify.Entry) error {
			if n++; n%500 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	info, _ := f.Stat()
	t.Logf("bundle %d MiB, heap at most %d MiB", info.Size()>>20, peak>>20)
	if peak > 48<<20 {
		t.Errorf("heap of %d MiB, want at most 48", peak>>20)
	}
}

var (
	benchPrivate = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	benchPublic  = benchPrivate.Public().(ed25519.PublicKey)
)

func benchKeys(tb testing.TB) []*envelope.PublicKey {
	tb.Helper()
	key, err := envelope.NewPublicKey(benchPublic)
	if err != nil {
		tb.Fatal(err)
	}
	return []*envelope.PublicKey{key}
}

// benchBundle writes a bundle of sessions of five calls, shaped as the calls of
// the real session, and returns its path. With BENCH_DIR it is kept there for
// the next time, as the making of a large one takes longer than its verifying.
func benchBundle(tb testing.TB, lines int) string {
	tb.Helper()
	dir := os.Getenv("BENCH_DIR")
	if dir == "" {
		dir = tb.TempDir()
	}
	path := filepath.Join(dir, fmt.Sprintf("bundle-%d.jsonl", lines))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	key := benchKeys(tb)[0]
	buf := buffered{bufio.NewWriterSize(f, 1<<20)}
	out := chain.NewAppender(buf, benchSigner(key.ID()), chain.Mark{})
	add := func(request, response, payload []byte) {
		if _, err := out.Append(request, response, payload); err != nil {
			tb.Fatal(err)
		}
	}
	const calls = 5
	for n := 0; out.End().Lines < uint64(lines)-1; {
		session, last := record.Fingerprint(fmt.Sprintf("%032x", n)), ""
		count := uint64(0)
		for count < calls && out.End().Lines < uint64(lines)-2 {
			count++
			n++
			req := &record.Request{
				Protocol: 2, MinimumIsolation: "container", TraceID: "call-" + strconv.Itoa(n),
				Project: &record.ProjectRun{
					Files: []record.ProjectFile{{Path: "test.js", Content: string(bytes.Repeat([]byte("console.log(1);\n"), 15))}},
					Steps: []string{"node test.js"},
				},
			}
			resp := &record.Response{
				Sandbox: "openshell", Isolation: "container", DurationMS: 80,
				Project: &record.ProjectResult{
					Outcome: record.OutcomeCompleted,
					Steps:   []record.StepResult{{Command: "node test.js", Stdout: bytes.Repeat([]byte("1\n"), 15), DurationMS: 70}},
				},
			}
			rec := &record.Record{
				Version: 2, RequestSHA256: req.Digest(), ResultSHA256: resp.ResultDigest(),
				Provider: "openshell", Isolation: "container",
				Policy:        "openshell-policy:sha256:" + record.Fingerprint("policy"),
				StartedUnixMS: 1790000000000 + int64(n)*100, EndedUnixMS: 1790000000080 + int64(n)*100,
				Session: session, Sequence: count, PreviousSHA256: last,
			}
			if rec.RecordSHA256, err = rec.Digest(); err != nil {
				tb.Fatal(err)
			}
			last, resp.Record = rec.RecordSHA256, rec
			add(record.AppendRequest(nil, req), record.AppendResponse(nil, resp), statement.AppendRecord(nil, rec))
		}
		add(nil, nil, statement.AppendClose(nil, statement.Close{Session: session, Calls: count, LastRecordSHA256: last}))
	}
	if err := errors.Join(out.Checkpoint(), buf.Flush()); err != nil {
		tb.Fatal(err)
	}
	return path
}

// buffered is a chain.File that is only ever written at its end.
type buffered struct{ *bufio.Writer }

func (b buffered) WriteAt(p []byte, _ int64) (int, error) { return b.Write(p) }
func (b buffered) ReadAt([]byte, int64) (int, error)      { return 0, errors.ErrUnsupported }
func (b buffered) Truncate(int64) error                   { return errors.ErrUnsupported }
func (b buffered) Sync() error                            { return nil }

type benchSigner string

func (id benchSigner) Sign(payload []byte) (*dsse.Envelope, error) {
	return envelope.New(payload, string(id), ed25519.Sign(benchPrivate, envelope.PAE(payload))), nil
}

// textbook is the verifier one would write first: one goroutine, encoding/json
// and crypto/ed25519. It checks both signatures of a line, the link's place,
// and the digests of line and entry; it does not look at stored messages.
func textbook(r io.Reader, pub ed25519.PublicKey) error {
	type signed struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			KeyID string `json:"keyid"`
			Sig   []byte `json:"sig"`
		} `json:"signatures"`
	}
	open := func(e *signed, predicate any) error {
		if len(e.Signatures) != 1 {
			return errors.New("not one signature")
		}
		pae := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
		if !ed25519.Verify(pub, pae, e.Signatures[0].Sig) {
			return errors.New("bad signature")
		}
		statement := struct {
			Predicate any `json:"predicate"`
		}{predicate}
		return json.Unmarshal(e.Payload, &statement)
	}
	lines := bufio.NewReaderSize(r, 1<<20)
	previous, sealed := "", false
	for index := uint64(1); ; index++ {
		raw, err := lines.ReadBytes('\n')
		if err == io.EOF && len(raw) == 0 {
			if !sealed {
				return errors.New("not sealed")
			}
			return nil
		} else if err != nil {
			return err
		}
		raw = raw[:len(raw)-1]
		var line struct {
			Request  []byte  `json:"request"`
			Response []byte  `json:"response"`
			Envelope *signed `json:"envelope"`
			Link     *signed `json:"link"`
		}
		if err := json.Unmarshal(raw, &line); err != nil {
			return err
		}
		if line.Link == nil {
			return errors.New("no link")
		}
		var link struct {
			Index      uint64 `json:"index"`
			Previous   string `json:"previous_sha256"`
			Entry      string `json:"entry_sha256"`
			Checkpoint bool   `json:"checkpoint"`
			Lines      uint64 `json:"lines"`
		}
		if err := open(line.Link, &link); err != nil {
			return err
		}
		if link.Index != index || link.Previous != previous {
			return errors.New("bad link")
		}
		if sealed = link.Checkpoint; !sealed {
			cut := bytes.LastIndex(raw, []byte(`,"link":`))
			if cut < 0 {
				return errors.New("no entry")
			}
			entry := sha256.Sum256(append(bytes.Clone(raw[:cut]), '}'))
			if link.Entry != hex.EncodeToString(entry[:]) {
				return errors.New("bad entry")
			}
			var rec struct {
				Version  int    `json:"version"`
				Session  string `json:"session"`
				Sequence uint64 `json:"sequence"`
				Previous string `json:"previous_sha256"`
				Record   string `json:"record_sha256"`
			}
			if err := open(line.Envelope, &rec); err != nil {
				return err
			}
		}
		sum := sha256.Sum256(raw)
		previous = hex.EncodeToString(sum[:])
	}
}
