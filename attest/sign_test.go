package attest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// signerOf returns a Signer with a key of bundletest.
func signerOf(t testing.TB, k *bundletest.Key) *Signer {
	t.Helper()
	if k == bundletest.Harness {
		return harness()
	}
	return newSigner(k)
}

// harness is one for all: a key that has verified much becomes quicker.
var harness = sync.OnceValue(func() *Signer { return newSigner(bundletest.Harness) })

func newSigner(k *bundletest.Key) *Signer {
	s, err := signature.LoadED25519Signer(k.Private)
	if err != nil {
		panic(err)
	}
	signer, err := NewSigner(s)
	if err != nil {
		panic(err)
	}
	return signer
}

// unsynced is a file whose Sync costs nothing, for tests that make many.
type unsynced struct{ *os.File }

func (unsynced) Sync() error { return nil }

// quick is a disk that does not wait.
var quick = &disk{
	bundle: func(f *os.File) chain.File { return unsynced{f} },
	side:   func(f *os.File) sideWriter { return unsynced{f} },
}

// options are what the tests sign with, unless they change it.
func options(t testing.TB, path string) Options {
	return Options{
		Bundle: path, Signer: signerOf(t, bundletest.Harness), LockTimeout: -1, disk: quick,
		Now: func() time.Time { return time.Date(2026, 9, 21, 14, 5, 6, 0, time.FixedZone("", 7200)) },
	}
}

// newPath returns a path for a bundle in a folder of its own.
func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "bundle.jsonl") }

// signLog signs a log, which must work.
func signLog(t testing.TB, path string, log []byte) *Result {
	t.Helper()
	res, err := Sign(t.Context(), bytes.NewReader(log), options(t, path))
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	return res
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func verifyOptions() verify.Options {
	return verify.Options{Keys: []*envelope.PublicKey{bundletest.Harness.Public}}
}

// mustVerify fails the test unless the bundle verifies.
func mustVerify(t testing.TB, path string) *verify.Report {
	t.Helper()
	report, err := verify.Bundle(t.Context(), bytes.NewReader(content(t, path)), verifyOptions())
	if err != nil {
		t.Fatalf("%s does not verify: %v", filepath.Base(path), err)
	}
	return report
}

// folder lists what is beside the bundle, itself included.
func folder(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var sideName = regexp.MustCompile(`^bundle\.jsonl\.unsealed-\d{8}T\d{6}Z-[0-9a-f]{8}\.jsonl$`)

// mustFollow fails the test unless each side file holds whole signed lines that
// continue the bundle, or what the bundle was before its last checkpoint.
func mustFollow(t testing.TB, path string, sideFiles []string) {
	t.Helper()
	var bundle []byte
	if b, err := os.ReadFile(path); err == nil {
		bundle = b
	}
	lines := bundletest.Lines(bundle)
	for _, side := range sideFiles {
		if !sideName.MatchString(filepath.Base(side)) || filepath.Dir(side) != filepath.Dir(path) {
			t.Errorf("side file %s", side)
		}
		info, err := os.Stat(side)
		if err != nil || info.Mode() != 0o600 {
			t.Fatalf("side file: %v, %v", info, err)
		}
		kept, follows := content(t, side), false
		for n := len(lines); n >= 0 && n >= len(lines)-1; n-- {
			all := append(bundletest.Join(lines[:n]...), kept...)
			tail, err := verify.FindTail(t.Context(), bytes.NewReader(all), verifyOptions())
			if err != nil {
				t.Fatal(err)
			}
			follows = follows || tail.Refusal == nil
		}
		if len(kept) == 0 || !follows {
			t.Errorf("the side file of %d bytes does not continue the bundle", len(kept))
		}
	}
}

// testCalls are a session of two calls and its close, a single run, and a
// session of an answered and an unanswered call and its close.
func testCalls() []bundletest.Entry {
	a, b := bundletest.NewSession("a"), bundletest.NewSession("b")
	return []bundletest.Entry{
		a.Add(bundletest.Project("a-1")).Entry(),
		a.Add(bundletest.JavaScript("a-2", "console.log(1+1)", "2\n")).Entry(),
		a.Close(),
		bundletest.Module("alone").Entry(),
		b.Add(bundletest.Cell("b-1")).Entry(),
		b.Add(bundletest.JavaScript("b-2", "1", "").Unanswered("unavailable")).Entry(),
		b.Close(),
	}
}

// TestGolden writes the frozen bundle again: two runs, and every byte the same.
func TestGolden(t *testing.T) {
	golden := filepath.Join("..", "testdata", "field", "golden")
	var steps struct {
		KeySeed string `json:"key_seed"`
		KeyID   string `json:"key_id"`
		Steps   []struct {
			Op, Request, Response, Record, Session string
			Calls                                  uint64
			LastRecordSHA256                       string `json:"last_record_sha256"`
		}
	}
	if err := json.Unmarshal(content(t, filepath.Join(golden, "steps.json")), &steps); err != nil {
		t.Fatal(err)
	}
	key := bundletest.NewKey([32]byte(unhex(t, steps.KeySeed)))
	path := newPath(t)
	o := options(t, path)
	o.Signer = signerOf(t, key)
	var entries []bundletest.Entry
	for _, s := range steps.Steps {
		e := bundletest.Entry{Request: unhex(t, s.Request), Response: unhex(t, s.Response)}
		switch s.Op {
		case "call":
			response, err := record.ParseResponse(e.Response)
			if err != nil {
				t.Fatal(err)
			}
			e.Payload = statement.AppendRecord(nil, response.Record)
		case "unanswered":
			// A record alone, as the member of a response that is not kept.
			raw := unhex(t, s.Record)
			response, err := record.ParseResponse(append(varint([]byte{4<<3 | 2}, len(raw)), raw...))
			if err != nil {
				t.Fatal(err)
			}
			e.Payload = statement.AppendRecord(nil, response.Record)
		case "close":
			e.Payload = statement.AppendClose(nil, statement.Close{Session: s.Session, Calls: s.Calls, LastRecordSHA256: s.LastRecordSHA256})
		case "checkpoint":
			if _, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog(entries)), o); err != nil {
				t.Fatal(err)
			}
			entries = nil
			continue
		default:
			t.Fatalf("op %q", s.Op)
		}
		entries = append(entries, e)
	}
	if key.ID() != steps.KeyID || len(steps.Steps) != 9 || len(entries) != 0 {
		t.Fatalf("key %s, %d steps", key.ID(), len(steps.Steps))
	}
	if got, want := content(t, path), content(t, filepath.Join(golden, "bundle.jsonl")); !bytes.Equal(got, want) {
		t.Errorf("have %d bytes\n%s\nwant %d bytes\n%s", len(got), got, len(want), want)
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func varint(dst []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}

func TestSign(t *testing.T) {
	path := newPath(t)
	o := options(t, path)
	var recorded []Recorded
	o.Progress = func(r Recorded) {
		// It is there before it is reported.
		if have := len(bundletest.Lines(content(t, path))); uint64(have) != r.Line {
			t.Errorf("reported line %d with %d lines in the file", r.Line, have)
		}
		recorded = append(recorded, r)
	}
	log := bundletest.RunLog(testCalls(), bundletest.Refused{Line: 4, Code: "invalid_argument"})
	res, err := Sign(t.Context(), iotest.HalfReader(bytes.NewReader(log)), o)
	if err != nil {
		t.Fatal(err)
	}
	want := bundletest.Linked(bundletest.Harness, testCalls()...)
	if got := content(t, path); !bytes.Equal(got, want) {
		t.Errorf("have\n%s\nwant\n%s", got, want)
	}
	if info, err := os.Stat(path); err != nil || hasModes && info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	report := mustVerify(t, path)
	res.NotChecked = nil
	if want := (Result{
		KeyID: bundletest.Harness.ID(), Created: true, LinesAfter: 8, End: report.End, Sealed: true,
		Calls: 5, Sessions: 2, Refused: 1,
	}); !equal(res, &want) {
		t.Errorf("have %+v\nwant %+v", res, want)
	}
	if len(recorded) != 7 || recorded[5].Call.Record.Unanswered != "unavailable" || recorded[6].Close == nil || recorded[6].LogLine != 7 {
		t.Errorf("recorded %+v", recorded)
	}
}

func equal(a, b *Result) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }

func TestSignResumes(t *testing.T) {
	path := newPath(t)
	all := testCalls()
	first, second := all[:3], all[3:]
	signLog(t, path, bundletest.RunLog(first))
	res := signLog(t, path, bundletest.RunLog(second))
	if res.Created || res.LinesBefore != 4 || res.LinesAfter != 9 || res.Calls != 3 || res.Skipped != 0 {
		t.Errorf("%+v", res)
	}
	want := slices.Concat(first, []bundletest.Entry{bundletest.Checkpoint}, second)
	if got := content(t, path); !bytes.Equal(got, bundletest.Linked(bundletest.Harness, want...)) {
		t.Errorf("have\n%s", got)
	}
}

// TestSignAgain: a log that the bundle holds adds nothing, not even a checkpoint,
// and one whose beginning it holds adds the rest.
func TestSignAgain(t *testing.T) {
	all := testCalls()
	s := bundletest.NewSession("interleaved")
	alone := bundletest.JavaScript("between", "2", "2\n").Entry()
	interleaved := []bundletest.Entry{
		s.Add(bundletest.Cell("i-1")).Entry(), alone, s.Add(bundletest.Cell("i-2")).Entry(), s.Close(),
	}
	empty := bundletest.NewSession("empty").Close()
	for _, c := range []struct {
		name             string
		before, log      []bundletest.Entry
		skipped, written uint64 // calls
		sameBytes        bool
	}{
		{"nothing on nothing", nil, nil, 0, 0, true},
		{"nothing on a bundle", all, nil, 0, 0, true},
		{"all", all, all, 5, 0, true},
		{"its first session", all, all[:3], 2, 0, true},
		{"its second part", all, all[3:], 3, 0, true},
		{"its parts in another order", all, slices.Concat(all[4:], all[3:4], all[:3]), 5, 0, true},
		{"a session, then more", all[:3], all, 2, 3, false},
		{"a session and a run, then more", all[:4], all, 3, 2, false},
		{"interleaved", interleaved, interleaved, 3, 0, true},
		{"interleaved, then more", interleaved, slices.Concat(interleaved, all), 3, 5, false},
		{"an empty session", []bundletest.Entry{empty}, []bundletest.Entry{empty}, 0, 0, true},
		{"an empty session, then more", []bundletest.Entry{empty}, append([]bundletest.Entry{empty}, all...), 0, 5, false},
	} {
		path := newPath(t)
		signLog(t, path, bundletest.RunLog(c.before))
		before := content(t, path)
		res := signLog(t, path, bundletest.RunLog(c.log))
		if res.Skipped != c.skipped || res.Calls != c.written || !res.Sealed {
			t.Errorf("%s: %+v", c.name, res)
		}
		after := content(t, path)
		if c.sameBytes != bytes.Equal(before, after) || !bytes.HasPrefix(after, before) {
			t.Errorf("%s: %d bytes, then %d", c.name, len(before), len(after))
		}
		if report := mustVerify(t, path); report.Calls < c.written+c.skipped {
			t.Errorf("%s: %d calls", c.name, report.Calls)
		}
	}
}

// TestSignRefusesOverlap: what the bundle holds may only be at the start of a
// log, and whole.
func TestSignRefusesOverlap(t *testing.T) {
	all := testCalls()
	fresh := bundletest.JavaScript("new", "3", "3\n").Entry()
	a := bundletest.NewSession("a")
	longer := []bundletest.Entry{
		a.Add(bundletest.Project("a-1")).Entry(),
		a.Add(bundletest.JavaScript("a-2", "console.log(1+1)", "2\n")).Entry(),
	}
	shorter := a.Close()
	other := bundletest.NewSession("a")
	longer = append(longer, a.Add(bundletest.Cell("a-3")).Entry(), a.Close())
	cutShort := []bundletest.Entry{all[0], {Payload: statement.AppendClose(nil, statement.Close{
		Session: a.Fingerprint, Calls: 1, LastRecordSHA256: recordOf(t, all[0]).RecordSHA256,
	})}}
	_ = shorter
	for _, c := range []struct {
		name   string
		log    []bundletest.Entry
		line   uint64
		calls  uint64 // sealed
		sealed bool
	}{
		{"a known run after a new one", []bundletest.Entry{fresh, all[3]}, 2, 1, true},
		{"a known session after a new run", append([]bundletest.Entry{fresh}, all[:3]...), 2, 1, true},
		{"a known empty session after a new run", []bundletest.Entry{fresh, bundletest.NewSession("empty").Close()}, 2, 1, true},
		{"a new run inside a known session", []bundletest.Entry{all[0], fresh, all[1], all[2]}, 2, 0, false},
		{"a known session with a call more", longer, 3, 0, false},
		{"a known session with a call less", cutShort, 2, 0, false},
		{"a known session with other calls", []bundletest.Entry{other.Add(bundletest.Cell("x")).Entry(), other.Close()}, 1, 0, false},
		{"a known empty session with a call", []bundletest.Entry{func() bundletest.Entry {
			return bundletest.NewSession("empty").Add(bundletest.Cell("x")).Entry()
		}()}, 1, 0, false},
		{"a known session closed as an empty one", []bundletest.Entry{bundletest.NewSession("a").Close()}, 1, 0, false},
		{"a new session that never closes, then a known one", append([]bundletest.Entry{bundletest.NewSession("c").Add(bundletest.Cell("c")).Entry()}, all[:3]...), 2, 0, false},
	} {
		path := newPath(t)
		signLog(t, path, bundletest.RunLog(append(all, bundletest.NewSession("empty").Close())))
		before := content(t, path)
		res, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog(c.log)), options(t, path))
		mustBlame(t, c.name, err, c.line, verify.CheckChain)
		mustVerify(t, path)
		if res.Calls != c.calls || c.sealed == bytes.Equal(before, content(t, path)) {
			t.Errorf("%s: %+v", c.name, res)
		}
	}
}

// mustBlame fails the test unless err is that of a run log's line, by a check.
func mustBlame(t *testing.T, name string, err error, line uint64, check verify.Check) {
	t.Helper()
	var at *runlog.LineError
	if !errors.Is(err, ErrRunLog) || !errors.As(err, &at) || at.Line != line {
		t.Errorf("%s: have %v, want ErrRunLog of line %d", name, err, line)
		return
	}
	if have, _ := verify.CheckOf(err); have != check {
		t.Errorf("%s: refused by %q, want %q: %v", name, have, check, err)
	}
	if errors.Is(err, ErrBundle) || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("%s: %v", name, err)
	}
}

func recordOf(t testing.TB, e bundletest.Entry) *record.Record {
	t.Helper()
	rec, err := statement.ParseRecord(e.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// flip changes one digit of a digest.
func flip(s string) string {
	if s == "" {
		return strings.Repeat("0", 64)
	}
	c := byte('0')
	if s[0] == c {
		c = '1'
	}
	return string(c) + s[1:]
}

// TestLyingLog changes one thing in a good log. Line 4, a single run, is made
// wrong, after a session that is whole: that stays, sealed, and nothing else.
func TestLyingLog(t *testing.T) {
	alone := func(change func(*bundletest.Call)) bundletest.Entry {
		c := bundletest.Module("alone")
		change(c)
		return c.Entry()
	}
	rec := func(change func(*record.Record)) bundletest.Entry {
		return alone(func(c *bundletest.Call) { change(c.Record); c.SealRecord() })
	}
	payload := func(change func(string) string) bundletest.Entry {
		e := bundletest.Module("alone").Entry()
		e.Payload = []byte(change(string(e.Payload)))
		return e
	}
	replace := func(old, new string) bundletest.Entry {
		return payload(func(p string) string {
			if !strings.Contains(p, old) {
				t.Fatalf("no %q in %s", old, p)
			}
			return strings.Replace(p, old, new, 1)
		})
	}
	good := bundletest.Module("alone").Entry()
	version4 := bundletest.Module("alone").Version(4).Entry()
	inSession := func(c *bundletest.Call) bundletest.Entry { return bundletest.NewSession("c").Add(c).Entry() }
	single := bundletest.NewSession("c")
	single.Add(bundletest.Cell("c-1"))

	for _, c := range []struct {
		name  string
		lie   bundletest.Entry
		check verify.Check
	}{
		{"request_sha256", rec(func(r *record.Record) { r.RequestSHA256 = flip(r.RequestSHA256) }), verify.CheckStored},
		{"result_sha256", rec(func(r *record.Record) { r.ResultSHA256 = flip(r.ResultSHA256) }), verify.CheckStored},
		{"no result_sha256", rec(func(r *record.Record) { r.ResultSHA256 = "" }), verify.CheckStored},
		{"previous_sha256", rec(func(r *record.Record) { r.PreviousSHA256 = flip("") }), verify.CheckChain},
		{"record_sha256", alone(func(c *bundletest.Call) { c.Record.RecordSHA256 = flip(c.Record.RecordSHA256); c.Copy() }), verify.CheckStatement},
		{"record_sha256 in capitals", alone(func(c *bundletest.Call) { c.Record.RecordSHA256 = strings.ToUpper(c.Record.RecordSHA256); c.Copy() }), verify.CheckStatement},
		{"the subject", replace(recordOf(t, good).RecordSHA256, flip(recordOf(t, good).RecordSHA256)), verify.CheckStatement},
		{"a time, its digest kept", alone(func(c *bundletest.Call) { c.Record.EndedUnixMS++; c.Copy() }), verify.CheckStatement},
		{"a time, not that of the response's record", alone(func(c *bundletest.Call) {
			c.Record.EndedUnixMS++
			inner := *c.Response.Record
			c.SealRecord()
			c.Response.Record = &inner
		}), verify.CheckStored},
		{"the tier", rec(func(r *record.Record) { r.Isolation = "vm" }), verify.CheckStored},
		{"the provider", rec(func(r *record.Record) { r.Provider = "other" }), verify.CheckStored},
		{"the environment", rec(func(r *record.Record) { r.Environment = "" }), verify.CheckStored},
		{"the software", rec(func(r *record.Record) { r.SoftwareIdentity = bundletest.ImageOne }), verify.CheckStored},
		{"a rule that was not sent", rec(func(r *record.Record) { r.SoftwareRuleID = "exact:x" }), verify.CheckStored},
		{"the policy, in the response only", alone(func(c *bundletest.Call) { c.Response.Record.Policy = "" }), verify.CheckStored},
		{"another request", alone(func(c *bundletest.Call) { c.Request.Module.Step = 0.2 }), verify.CheckStored},
		{"another result", alone(func(c *bundletest.Call) { c.Response.Module.Stdout = []byte("rows=3\n") }), verify.CheckStored},
		{"a result of another kind", alone(func(c *bundletest.Call) {
			c.Response.Module, c.Response.JavaScript = nil, &record.JavaScriptResult{}
			c.Seal()
		}), verify.CheckStored},
		{"no response", bundletest.Entry{Request: good.Request, Payload: good.Payload}, verify.CheckStored},
		{"no request and response", bundletest.Entry{Payload: good.Payload}, verify.CheckStored},
		{"a request cut short", bundletest.Entry{Request: good.Request[:len(good.Request)-1], Response: good.Response, Payload: good.Payload}, verify.CheckStored},
		{"a response cut short", bundletest.Entry{Request: good.Request, Response: good.Response[:len(good.Response)-1], Payload: good.Payload}, verify.CheckStored},
		{"below its floor", alone(func(c *bundletest.Call) { c.Request.MinimumIsolation = "vm"; c.Seal() }), verify.CheckFloor},
		{"a floor that is none", alone(func(c *bundletest.Call) { c.Request.MinimumIsolation = "none"; c.Seal() }), verify.CheckStored},
		{"outside its rule", alone(func(c *bundletest.Call) {
			c.Under(&record.SoftwareRule{Mode: "exact", Identities: []string{bundletest.ImageOne}}, bundletest.ImageTwo)
		}), verify.CheckStored},
		{"version 0", rec(func(r *record.Record) { r.Version = 0 }), verify.CheckStatement},
		{"version 1", alone(func(c *bundletest.Call) { c.Version(1) }), verify.CheckStatement},
		{"version 5", rec(func(r *record.Record) { r.Version = 5 }), verify.CheckStatement},
		{"version 3 with an answer", rec(func(r *record.Record) { r.Version = 3 }), verify.CheckStatement},
		{"an instance in version 2", rec(func(r *record.Record) { r.Instance = bundletest.Instance }), verify.CheckStatement},
		{"unanswered in version 2", rec(func(r *record.Record) { r.Unanswered = "internal" }), verify.CheckStatement},
		{"unanswered outside a session", alone(func(c *bundletest.Call) { c.Unanswered("internal") }), verify.CheckChain},
		{"unanswered with a response", func() bundletest.Entry {
			e := inSession(bundletest.Module("alone").Unanswered("internal"))
			e.Response = good.Response
			return e
		}(), verify.CheckStored},
		{"unanswered without a code of the list", inSession(bundletest.Module("alone").Unanswered("the relay said so")), verify.CheckStored},
		{"a number in no session", rec(func(r *record.Record) { r.Sequence = 1 }), verify.CheckChain},
		{"a session's second call first", rec(func(r *record.Record) { r.Session, r.Sequence = single.Fingerprint, 2 }), verify.CheckChain},
		{"a session's call 0", rec(func(r *record.Record) { r.Session = single.Fingerprint }), verify.CheckChain},
		{"a first call with one before it", rec(func(r *record.Record) {
			r.Session, r.Sequence, r.PreviousSHA256 = single.Fingerprint, 1, flip("")
		}), verify.CheckChain},
		{"a call of session a after its close", rec(func(r *record.Record) {
			r.Session, r.Sequence = bundletest.NewSession("a").Fingerprint, 3
		}), verify.CheckChain},

		{"a close of a session without a call that counts one", single.Close(), verify.CheckChain},
		{"a second close", testCalls()[2], verify.CheckChain},
		{"a close beside a request", bundletest.Entry{Request: good.Request, Payload: bundletest.NewSession("c").Close().Payload}, verify.CheckStored},
		{"a close beside a request and response", bundletest.Entry{Request: good.Request, Response: good.Response, Payload: bundletest.NewSession("c").Close().Payload}, verify.CheckStored},
		{"a link", bundletest.Entry{Request: good.Request, Response: good.Response, Payload: statement.AppendLink(nil, statement.Link{Index: 5, PreviousSHA256: flip(""), EntrySHA256: flip("")})}, verify.CheckStatement},
		{"a checkpoint", bundletest.Entry{Payload: statement.AppendLink(nil, statement.Link{Index: 5, PreviousSHA256: flip(""), Checkpoint: true, Lines: 4})}, verify.CheckStatement},
		{"another predicate type", replace("run-record/v1", "run-record/v2"), verify.CheckStatement},
		{"a stranger's predicate type", replace(statement.RunRecordType, "https://slsa.dev/provenance/v1"), verify.CheckStatement},
		{"another statement type", replace("Statement/v1", "Statement/v0.1"), verify.CheckStatement},
		{"another subject name", replace(`"name":"run-record"`, `"name":"record"`), verify.CheckStatement},
		{"a close's subject on a record", replace(`"name":"run-record"`, `"name":"session"`), verify.CheckStatement},
		{"no statement but text", payload(func(string) string { return "pay 100" }), verify.CheckStatement},
		{"a statement with a newline", payload(func(p string) string { return p + "\n" }), verify.CheckStatement},
		{"white space", replace(`"version":2`, `"version": 2`), verify.CheckStatement},
		{"another order", replace(`"isolation":"container","environment":"`+bundletest.Environment+`"`, `"environment":"`+bundletest.Environment+`","isolation":"container"`), verify.CheckStatement},
		{"an empty member written out", replace(`,"policy"`, `,"software_identity":"","policy"`), verify.CheckStatement},
		{"a fraction", replace(`"version":2`, `"version":2.0`), verify.CheckStatement},
		{"an unknown member", replace(`"version":2`, `"note":"","version":2`), verify.CheckStatement},
		{"a name twice", replace(`"version":2`, `"version":2,"version":2`), verify.CheckStatement},
		{"an escape", replace(`"version":2`, `"\u0076ersion":2`), verify.CheckStatement},
		// A verifier reads these two of somebody else. We do not write them.
		{"a version 4 record, instance last", func() bundletest.Entry {
			instance := `,"instance":"` + bundletest.Instance + `"`
			e := version4
			p := strings.Replace(string(e.Payload), instance, "", 1)
			e.Payload = []byte(strings.TrimSuffix(p, "}}") + instance + "}}")
			return e
		}(), verify.CheckStatement},
		{"a version 4 record, unanswered written empty", func() bundletest.Entry {
			e := version4
			e.Payload = []byte(strings.Replace(string(e.Payload), `,"record_sha256"`, `,"unanswered":"","record_sha256"`, 1))
			return e
		}(), verify.CheckStatement},
	} {
		path := newPath(t)
		entries := testCalls()
		if c.name != "no response" && bytes.Equal(bundletest.RunLogLine(c.lie), bundletest.RunLogLine(entries[3])) {
			t.Fatalf("%s: changes nothing", c.name)
		}
		entries[3] = c.lie
		res, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog(entries)), options(t, path))
		mustBlame(t, c.name, err, 4, c.check)
		if got, want := content(t, path), bundletest.Linked(bundletest.Harness, entries[:3]...); !bytes.Equal(got, want) {
			t.Errorf("%s: not the first session, sealed:\n%s", c.name, got)
		}
		if res == nil || res.Calls != 2 || res.Sessions != 1 || !res.Sealed || res.Moved != 0 || len(folder(t, path)) != 1 {
			t.Errorf("%s: %+v, %v", c.name, res, folder(t, path))
		}
	}
}

// TestDisorderedLog moves, repeats and drops lines of a good log.
func TestDisorderedLog(t *testing.T) {
	e := testCalls()
	closeOf := func(c statement.Close) bundletest.Entry {
		return bundletest.Entry{Payload: statement.AppendClose(nil, c)}
	}
	a := statement.Close{Session: bundletest.NewSession("a").Fingerprint, Calls: 2, LastRecordSHA256: recordOf(t, e[1]).RecordSHA256}
	fewer, more, other, foreign := a, a, a, a
	fewer.Calls--
	more.Calls++
	other.LastRecordSHA256 = recordOf(t, e[0]).RecordSHA256
	foreign.Session = bundletest.NewSession("c").Fingerprint
	for _, c := range []struct {
		name          string
		log           []bundletest.Entry
		line          uint64
		calls, closes uint64 // sealed
		moved         uint64
		check         verify.Check
	}{
		{"two calls of a session swapped", []bundletest.Entry{e[1], e[0], e[2]}, 1, 0, 0, 0, verify.CheckChain},
		{"the first call dropped", []bundletest.Entry{e[3], e[1], e[2]}, 2, 1, 0, 0, verify.CheckChain},
		{"the last call dropped", []bundletest.Entry{e[3], e[0], e[2]}, 3, 1, 0, 1, verify.CheckChain},
		{"every call dropped", []bundletest.Entry{e[3], e[2]}, 2, 1, 0, 0, verify.CheckChain},
		{"the close dropped", []bundletest.Entry{e[3], e[0], e[1]}, 4, 1, 0, 2, verify.CheckChain},
		{"the close before the last call", []bundletest.Entry{e[0], e[2], e[1]}, 2, 0, 0, 1, verify.CheckChain},
		{"a call repeated", []bundletest.Entry{e[3], e[0], e[1], e[1], e[2]}, 4, 1, 0, 2, verify.CheckChain},
		{"a single run repeated", []bundletest.Entry{e[3], e[0], e[1], e[2], e[3]}, 5, 3, 1, 0, verify.CheckChain},
		{"a single run repeated at once", []bundletest.Entry{e[3], e[3]}, 2, 1, 0, 0, verify.CheckChain},
		{"a session repeated", []bundletest.Entry{e[0], e[1], e[2], e[0], e[1], e[2]}, 4, 2, 1, 0, verify.CheckChain},
		{"two closes", []bundletest.Entry{e[0], e[1], e[2], e[2]}, 4, 2, 1, 0, verify.CheckChain},
		{"a close counting one less", []bundletest.Entry{e[0], e[1], closeOf(fewer)}, 3, 0, 0, 2, verify.CheckChain},
		{"a close counting one more", []bundletest.Entry{e[0], e[1], closeOf(more)}, 3, 0, 0, 2, verify.CheckChain},
		{"a close naming another record", []bundletest.Entry{e[0], e[1], closeOf(other)}, 3, 0, 0, 2, verify.CheckChain},
		{"a close of another session", []bundletest.Entry{e[0], e[1], closeOf(foreign)}, 3, 0, 0, 2, verify.CheckChain},
		{"one session of two left open", []bundletest.Entry{e[3], e[4], e[0], e[1], e[2]}, 6, 1, 0, 3, verify.CheckChain},
	} {
		path := newPath(t)
		res, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog(c.log)), options(t, path))
		mustBlame(t, c.name, err, c.line, c.check)
		if res.Calls != c.calls || res.Sessions != c.closes || res.Moved != c.moved || res.Sealed != (c.calls > 0) {
			t.Errorf("%s: %+v", c.name, res)
		}
		checkCut(t, c.name, path, res)
		if c.moved > 0 && !strings.Contains(err.Error(), res.SideFiles[0]) {
			t.Errorf("%s: the side file is not named: %v", c.name, err)
		}
	}
}

// checkCut checks a bundle and side files after a log that was wrong: the bundle
// is sealed, or not there when nothing was whole.
func checkCut(t *testing.T, name, path string, res *Result) {
	t.Helper()
	names := folder(t, path)
	if res.LinesAfter > 0 {
		report := mustVerify(t, path)
		if report.Calls < res.Calls || report.End != res.End || report.Checkpoints == 0 {
			t.Errorf("%s: %+v, report %+v", name, res, report)
		}
		names = names[1:]
	} else if slices.Contains(names, "bundle.jsonl") {
		t.Errorf("%s: left an empty bundle", name)
	}
	if len(names) != len(res.SideFiles) || (res.Moved > 0) != (len(names) > 0) {
		t.Errorf("%s: %v beside the bundle, want %v", name, names, res.SideFiles)
	}
	mustFollow(t, path, res.SideFiles)
}

// TestMalformedLog puts lines into a log that are not of its format.
func TestMalformedLog(t *testing.T) {
	e := testCalls()
	start := bundletest.RunLog(e[:4])
	start = start[:len(start)-len(bundletest.RunLogEnd(3, 0, 1))]
	session := append(bytes.Clone(start), bundletest.RunLogLine(e[4])...) // opened
	for _, c := range []struct {
		name  string
		log   []byte
		err   error
		calls uint64
		moved uint64
	}{
		{"empty", nil, runlog.ErrIncomplete, 0, 0},
		{"no end", start, runlog.ErrIncomplete, 3, 0},
		{"no end, a session open", session, runlog.ErrIncomplete, 3, 1},
		{"a count of calls", append(bytes.Clone(start), bundletest.RunLogEnd(4, 0, 1)...), runlog.ErrEnd, 3, 0},
		{"a count of refused calls", append(bytes.Clone(start), bundletest.RunLogEnd(3, 1, 1)...), runlog.ErrEnd, 3, 0},
		{"a count of sessions", append(bytes.Clone(start), bundletest.RunLogEnd(3, 0, 2)...), runlog.ErrEnd, 3, 0},
		{"an end with a session open", append(bytes.Clone(session), bundletest.RunLogEnd(4, 0, 1)...), verify.ErrChain, 3, 1},
		{"a call after the end", slices.Concat(start, bundletest.RunLogEnd(3, 0, 1), bundletest.RunLogLine(e[4])), runlog.ErrEnd, 3, 0},
		{"text after the end", slices.Concat(start, bundletest.RunLogEnd(3, 0, 1), []byte("x")), runlog.ErrEnd, 3, 0},
		{"two logs", slices.Concat(bundletest.RunLog(e[:4]), bundletest.RunLog(e[4:])), runlog.ErrEnd, 3, 0},
		{"a blank line", append(bytes.Clone(session), "\n"...), runlog.ErrLine, 3, 1},
		{"CR LF", append(bytes.Clone(start), "{}\r\n"...), runlog.ErrLine, 3, 0},
		{"a space", append(bytes.Clone(start), bytes.Replace(bundletest.RunLogLine(e[4]), []byte(":"), []byte(": "), 1)...), runlog.ErrLine, 3, 0},
		{"another order", append(bytes.Clone(start), []byte(`{"statement":"AA==","request":"AA=="}`+"\n")...), runlog.ErrLine, 3, 0},
		{"an envelope", append(bytes.Clone(start), bundletest.Lines(bundletest.Linked(bundletest.Harness, e[4]))[0]...), runlog.ErrIncomplete, 3, 0},
	} {
		path := newPath(t)
		res, err := Sign(t.Context(), bytes.NewReader(c.log), options(t, path))
		if !errors.Is(err, ErrRunLog) || !errors.Is(err, c.err) {
			t.Errorf("%s: have %v, want %v", c.name, err, c.err)
		}
		if res.Calls != c.calls || res.Moved != c.moved {
			t.Errorf("%s: %+v", c.name, res)
		}
		checkCut(t, c.name, path, res)
	}
}

// TestLogCutAnywhere cuts a log at every byte, and then gives it whole: nothing
// is signed twice and all of it is there in the end.
func TestLogCutAnywhere(t *testing.T) {
	log := bundletest.RunLog(testCalls())
	whole := bundletest.Linked(bundletest.Harness, testCalls()...)
	ends := []int{} // of lines
	for i, b := range log {
		if b == '\n' {
			ends = append(ends, i+1)
		}
	}
	dir := t.TempDir()
	for n := range len(log) {
		if !thorough() && n%211 != 0 && !slices.Contains(ends, n) && !slices.Contains(ends, n+1) {
			continue
		}
		path := filepath.Join(dir, fmt.Sprint(n), "bundle.jsonl")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		res, err := Sign(t.Context(), bytes.NewReader(log[:n]), options(t, path))
		if !errors.Is(err, ErrRunLog) || !errors.Is(err, runlog.ErrIncomplete) {
			t.Fatalf("cut at %d: %v", n, err)
		}
		checkCut(t, fmt.Sprint("cut at ", n), path, res)
		if had := bytes.Count(log[:n], []byte("\n")); res.Calls+res.Sessions+res.Moved > uint64(had) || res.Calls+res.Moved != callsIn(had) {
			t.Fatalf("cut at %d: %+v of %d lines", n, res, had)
		}

		again := signLog(t, path, log)
		if again.Skipped != res.Calls || again.Calls != 5-res.Calls {
			t.Fatalf("cut at %d, then whole: %+v", n, again)
		}
		if got := content(t, path); again.Skipped == 0 && !bytes.Equal(got, whole) {
			t.Fatalf("cut at %d, then whole:\n%s", n, got)
		}
		if report := mustVerify(t, path); report.Calls != 5 || report.Sessions != 2 {
			t.Fatalf("cut at %d, then whole: %+v", n, report)
		}
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
	}
}

// callsIn says how many of the first n lines of testCalls are calls.
func callsIn(n int) uint64 {
	calls := uint64(0)
	for _, e := range testCalls()[:min(n, len(testCalls()))] {
		if len(e.Request) > 0 {
			calls++
		}
	}
	return calls
}

// thorough asks for the long form of the tests that can take minutes.
func thorough() bool { return os.Getenv("PLIMSOLL_TEST_THOROUGH") != "" }

// TestReadErrorOfLog: an error of the pipe is no wrong log, and what was read is
// kept like that of a log that was cut.
func TestReadErrorOfLog(t *testing.T) {
	e := testCalls()
	path := newPath(t)
	log := io.MultiReader(bytes.NewReader(bundletest.RunLogLine(e[3])), bytes.NewReader(bundletest.RunLogLine(e[0])), iotest.ErrReader(io.ErrClosedPipe))
	res, err := Sign(t.Context(), log, options(t, path))
	if !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrRunLog) {
		t.Error(err)
	}
	if res.Calls != 1 || res.Moved != 1 || !res.Sealed {
		t.Errorf("%+v", res)
	}
	checkCut(t, "read error", path, res)
}

// TestSignCancelled stops a run between two lines.
func TestSignCancelled(t *testing.T) {
	path := newPath(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	o := options(t, path)
	reason := errors.New("enough")
	o.Progress = func(r Recorded) {
		if r.Line == 5 {
			cancel(reason)
		}
	}
	res, err := Sign(ctx, bytes.NewReader(bundletest.RunLog(testCalls())), o)
	if !errors.Is(err, ErrRunLog) || !errors.Is(err, reason) {
		t.Error(err)
	}
	if res.Calls != 3 || res.Sessions != 1 || res.Moved != 1 {
		t.Errorf("%+v", res)
	}
	checkCut(t, "cancelled", path, res)

	// Before it began, there is nothing to keep.
	path = newPath(t)
	if _, err := Sign(ctx, unread{t}, options(t, path)); err == nil {
		t.Error("signed with a cancelled context")
	}
	if names := folder(t, path); len(names) != 0 {
		t.Errorf("left %v", names)
	}
}

// unread fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the log was read")
	return 0, io.EOF
}

// TestSignRefusesBundle: what is there must verify whole under the signer's key
// before the log is read, and stays as it is if it does not.
func TestSignRefusesBundle(t *testing.T) {
	good := bundletest.Linked(bundletest.Harness, testCalls()...)
	lines := bundletest.Lines(good)
	cut := func(n int) []byte { return bundletest.Join(lines[:n]...) }
	swapped := bundletest.Lines(good)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	for _, c := range []struct {
		name   string
		bundle []byte
		check  verify.Check
		hint   string
	}{
		{"another key's", bundletest.Linked(bundletest.Stranger, testCalls()...), verify.CheckSignature, ""},
		{"unsealed", cut(7), verify.CheckIncomplete, "checkpoint"},
		{"unsealed, a session open", cut(6), verify.CheckIncomplete, "recover"},
		{"sealed, a session open", bundletest.Linked(bundletest.Harness, testCalls()[:6]...), verify.CheckChain, "recover"},
		{"torn", good[:len(good)-1], verify.CheckLine, "recover"},
		{"lines swapped", bundletest.Join(swapped...), verify.CheckLink, ""},
		{"a line dropped", bundletest.Join(append(bundletest.Lines(good)[:3], lines[4:]...)...), verify.CheckLink, ""},
		{"unlinked", bundletest.Unlinked(bundletest.Harness, testCalls()...), verify.CheckLink, ""},
		{"no bundle", []byte("notes\n"), verify.CheckLine, ""},
		{"a NUL at the end", append(bytes.Clone(good), 0), verify.CheckLine, "recover"},
	} {
		path := newPath(t)
		if err := os.WriteFile(path, c.bundle, 0o600); err != nil {
			t.Fatal(err)
		}
		res, err := Sign(t.Context(), unread{t}, options(t, path))
		var refusal *verify.Refusal
		if res != nil || !errors.Is(err, ErrBundle) || !errors.As(err, &refusal) || refusal.Check != c.check || errors.Is(err, ErrRunLog) {
			t.Errorf("%s: have %v, want %s", c.name, err, c.check)
			continue
		}
		if !strings.Contains(err.Error(), c.hint) || c.hint == "" && strings.Contains(err.Error(), "plimsoll-attest") {
			t.Errorf("%s: want a hint to %q: %v", c.name, c.hint, err)
		}
		if got := content(t, path); !bytes.Equal(got, c.bundle) || len(folder(t, path)) != 1 {
			t.Errorf("%s: the bundle was changed", c.name)
		}
	}
}

// TestSignerFails: without a signature nothing can be sealed, so that nothing of
// the run stays in the bundle.
func TestSignerFails(t *testing.T) {
	away := errors.New("the agent is gone")
	for after := range 2*len(testCalls()) + 1 {
		path := newPath(t)
		signLog(t, path, bundletest.RunLog([]bundletest.Entry{bundletest.JavaScript("before", "0", "0\n").Entry()}))
		before := content(t, path)
		signed := 0
		signer, err := NewSigner(fakeSigner{key: bundletest.Harness.Private.Public(), sign: func(message []byte) ([]byte, error) {
			if signed++; signed > after {
				return nil, away
			}
			return ed25519.Sign(bundletest.Harness.Private, message), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		o := options(t, path)
		o.Signer = signer
		res, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog(testCalls())), o)
		if !errors.Is(err, away) || !errors.Is(err, ErrSigner) || errors.Is(err, ErrRunLog) {
			t.Errorf("after %d: %v", after, err)
		}
		if !bytes.Equal(content(t, path), before) || !res.Sealed || res.LinesAfter != 2 {
			t.Errorf("after %d: the bundle changed: %+v", after, res)
		}
		if lines := after / 2; res.Moved != callsIn(lines) || (len(res.SideFiles) > 0) != (lines > 0) {
			t.Errorf("after %d: %+v", after, res)
		}
		if len(folder(t, path)) != 1+len(res.SideFiles) {
			t.Errorf("after %d: %v", after, folder(t, path))
		}
	}
}

func TestSignOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no bundle": {Signer: signerOf(t, bundletest.Harness)},
		"no signer": {Bundle: newPath(t)},
		"no folder": {Bundle: filepath.Join(t.TempDir(), "missing", "bundle.jsonl"), Signer: signerOf(t, bundletest.Harness)},
		"a folder":  {Bundle: t.TempDir(), Signer: signerOf(t, bundletest.Harness)},
	} {
		started := time.Now()
		if _, err := Sign(t.Context(), unread{t}, o); err == nil || errors.Is(err, ErrBundle) || errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v", name, err)
		}
		if time.Since(started) > DefaultLockTimeout/2 {
			t.Errorf("%s: waited", name)
		}
	}
}
