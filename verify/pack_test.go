package verify_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// packDir holds the conformance pack. internal/genpack writes it.
var packDir = filepath.Join("..", "testdata", "bundles")

// A packVector is one of the pack's manifest.
type packVector struct {
	ID, Group, Name, What string
	File                  string
	Pub                   []string
	Args                  struct {
		Unlinked     bool    `json:"unlinked"`
		Expect       *string `json:"expect"`
		ExpectCount  *uint64 `json:"expect_count"`
		MinIsolation string  `json:"min_isolation"`
		State        string  `json:"state"`
	}
	Verdict string
	Check   verify.Check
	Line    *uint64
	Offset  *int64
	Report  *struct {
		KeyID                              string `json:"key_id"`
		Lines, Calls, Unanswered, Sessions uint64
	}
}

// readPack reads the manifest, and the bundles and key files that it names.
func readPack(tb testing.TB) (vectors []packVector, files map[string][]byte) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(packDir, "manifest.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var manifest struct {
		Schema  string
		Vectors []packVector
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		tb.Fatal(err)
	}
	if manifest.Schema != "plimsoll.conformance/v1" {
		tb.Fatalf("schema: have %q", manifest.Schema)
	}
	if n := len(manifest.Vectors); n < 200 {
		tb.Fatalf("the pack has %d vectors, want 200 at least", n)
	}
	files = make(map[string][]byte)
	for _, v := range manifest.Vectors {
		for _, name := range append(slices.Clone(v.Pub), v.File) {
			if files[name] != nil {
				continue
			}
			if files[name], err = os.ReadFile(filepath.Join(packDir, name)); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return manifest.Vectors, files
}

// options are what the vector asks for; an error says that there is no question.
func (v *packVector) options(files map[string][]byte) (verify.Options, error) {
	opts := verify.Options{Unlinked: v.Args.Unlinked, ExpectCount: v.Args.ExpectCount, MinIsolation: v.Args.MinIsolation}
	for _, name := range v.Pub {
		keys, err := envelope.ParsePublicKeys(files[name])
		if err != nil {
			return opts, err
		}
		opts.Keys = append(opts.Keys, keys...)
	}
	var err error
	if v.Args.Expect != nil {
		if opts.Expect, err = verify.ParseExpected(strings.NewReader(*v.Args.Expect)); err != nil {
			return opts, err
		}
	}
	if v.Args.State != "" {
		opts.State, err = verify.ParseState([]byte(v.Args.State))
	}
	return opts, err
}

// sampled reports whether a test that does one thing very often is to do it less
// often: under -short, and under the race detector, which makes it twenty times
// slower and has nothing to find in it that the rest does not show.
func sampled() bool { return testing.Short() || raceDetector() }

func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// TestPack gives every vector of the conformance pack its verdict, check and
// line, whatever the number of workers.
func TestPack(t *testing.T) {
	vectors, files := readPack(t)
	workerCounts := []int{1, 2, 5}
	if raceDetector() {
		workerCounts = []int{5}
	}
	for _, v := range vectors {
		t.Run(v.ID, func(t *testing.T) {
			for _, workers := range workerCounts {
				opts, err := v.options(files)
				var report *verify.Report
				if err == nil {
					opts.Workers = workers
					report, err = verify.Bundle(t.Context(), bytes.NewReader(files[v.File]), opts)
				}
				v.judge(t, files[v.File], report, err)
			}
		})
	}
}

// judge compares what was found with what the vector says.
func (v *packVector) judge(t *testing.T, bundle []byte, report *verify.Report, err error) {
	t.Helper()
	var refusal *verify.Refusal
	switch refused := errors.As(err, &refusal); {
	case (report == nil) == (err == nil):
		t.Fatalf("report %v and error %v", report, err)
	case v.Verdict == "error":
		if err == nil || refused {
			t.Fatalf("have %v, want neither a verdict nor a refusal", err)
		}
	case v.Verdict == "refused":
		if !refused {
			t.Fatalf("have %v, want a refusal by %s at line %d (%s: %s)", err, v.Check, *v.Line, v.Name, v.What)
		}
		if refusal.Check != v.Check || refusal.Line != *v.Line {
			t.Fatalf("refused by %s at line %d (%v), want %s at line %d (%s: %s)", refusal.Check, refusal.Line, err, v.Check, *v.Line, v.Name, v.What)
		}
		v.judgePlace(t, bundle, refusal)
	case v.Verdict == "verified":
		if err != nil {
			t.Fatalf("have %v, want verified (%s: %s)", err, v.Name, v.What)
		}
		want := v.Report
		if report.KeyID != want.KeyID || report.Lines != want.Lines || report.Calls != want.Calls ||
			report.Unanswered != want.Unanswered || report.Sessions != want.Sessions || report.Bytes != int64(len(bundle)) {
			t.Errorf("report: have %+v, want %+v", *report, *want)
		}
		if report.Signatures == 0 {
			t.Error("verified without a signature")
		}
	default:
		t.Fatalf("verdict %q", v.Verdict)
	}
}

// judgePlace checks where in the file the refusal is, and that it can be shown:
// one line, no control characters.
func (v *packVector) judgePlace(t *testing.T, bundle []byte, refusal *verify.Refusal) {
	t.Helper()
	text := refusal.Error()
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 }); i >= 0 || len(text) > 2000 {
		t.Errorf("the text of the refusal, %d bytes, has a control character at %d: %.300q", len(text), i, text)
	}
	if v.Offset == nil {
		return
	}
	last := int64(len(bundle))
	if lf := bytes.IndexByte(bundle[*v.Offset:], '\n'); lf >= 0 {
		last = *v.Offset + int64(lf)
	}
	if refusal.Check != verify.CheckLine {
		last = *v.Offset
	}
	if refusal.Offset < *v.Offset || refusal.Offset > last {
		t.Errorf("offset: have %d, want %d to %d", refusal.Offset, *v.Offset, last)
	}
}

// TestPackAgreesWithField compares the pack with the bundles of another
// implementation of the format: a case that both have gets the same verdict at
// the same line.
func TestPackAgreesWithField(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "field", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var field struct{ Cases []vector }
	if err := json.Unmarshal(data, &field); err != nil {
		t.Fatal(err)
	}
	vectors, _ := readPack(t)
	compared := 0
	for _, c := range field.Cases {
		if strings.HasPrefix(c.ID, "seed-") {
			continue
		}
		i := slices.IndexFunc(vectors, func(v packVector) bool { return v.ID == c.ID })
		if i < 0 {
			t.Errorf("%s is not in the pack", c.ID)
			continue
		}
		v, line := vectors[i], uint64(0)
		if v.Line != nil {
			line = *v.Line
		}
		if v.Verdict != c.Verdict || v.Check != c.Check || line != c.Line {
			t.Errorf("%s: the pack has %s %s at line %d, the field %s %s at line %d", c.ID, v.Verdict, v.Check, line, c.Verdict, c.Check, c.Line)
		}
		compared++
	}
	if compared < 100 {
		t.Errorf("compared %d cases", compared)
	}
}

// seedSession is a real bundle and its key.
func seedSession(tb testing.TB) ([]byte, verify.Options) {
	tb.Helper()
	dir := filepath.Join("..", "testdata", "seed-session")
	bundle, err := os.ReadFile(filepath.Join(dir, "bundle.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	pub, err := os.ReadFile(filepath.Join(dir, "harness.pub"))
	if err != nil {
		tb.Fatal(err)
	}
	keys, err := envelope.ParsePublicKeys(pub)
	if err != nil {
		tb.Fatal(err)
	}
	return bundle, verify.Options{Keys: keys, Workers: 1}
}

// refusal returns the refusal of a bundle that must not verify.
func refusal(t *testing.T, r io.Reader, opts verify.Options) *verify.Refusal {
	t.Helper()
	report, err := verify.Bundle(t.Context(), r, opts)
	var refused *verify.Refusal
	if report != nil || !errors.As(err, &refused) {
		t.Fatalf("have report %v and error %v, want a refusal", report, err)
	}
	return refused
}

// shards runs f for every number below n, in parallel.
func shards(t *testing.T, n int, f func(t *testing.T, i int)) {
	t.Helper()
	const parallel = 4
	for shard := range parallel {
		t.Run(strconv.Itoa(shard), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < n && !t.Failed(); i += parallel {
				f(t, i)
			}
		})
	}
}

// TestEveryBit changes single bits of a real session. Each copy is refused, at
// the line where the bit is. All bits take minutes, so a run takes a sample, by a
// stride that comes to every bit of a byte. Set PLIMSOLL_EVERY_BIT for all.
func TestEveryBit(t *testing.T) {
	bundle, opts := seedSession(t)
	if _, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), opts); err != nil {
		t.Fatal(err)
	}
	stride := 29
	switch {
	case os.Getenv("PLIMSOLL_EVERY_BIT") != "":
		stride = 1
	case sampled():
		stride = 397
	}
	bits := 8 * len(bundle)
	shards(t, (bits+stride-1)/stride, func(t *testing.T, i int) {
		at, bit := i*stride/8, i*stride%8
		changed := bytes.Clone(bundle)
		changed[at] ^= 1 << bit
		refused := refusal(t, bytes.NewReader(changed), opts)
		if line := uint64(1 + bytes.Count(bundle[:at], []byte{'\n'})); refused.Line != line {
			t.Errorf("byte %d, bit %d: refused at line %d (%v), want line %d", at, bit, refused.Line, refused, line)
		}
	})
}

// TestEveryTruncation cuts a real session off after each of its bytes. A cut
// between lines leaves the end open, any other tears a line.
func TestEveryTruncation(t *testing.T) {
	bundle, opts := seedSession(t)
	stride := 1
	if sampled() {
		stride = 53
	}
	shards(t, (len(bundle)+stride-1)/stride, func(t *testing.T, i int) {
		n := i * stride
		refused := refusal(t, bytes.NewReader(bundle[:n]), opts)
		check, line := verify.CheckLine, uint64(1+bytes.Count(bundle[:n], []byte{'\n'}))
		if n == 0 || bundle[n-1] == '\n' {
			check, line = verify.CheckIncomplete, 0
		}
		if refused.Check != check || refused.Line != line {
			t.Errorf("cut after %d bytes: refused by %s at line %d, want %s at line %d", n, refused.Check, refused.Line, check, line)
		}
	})
}

// endless gives n bytes of one kind without a line feed, and counts what was
// taken.
type endless struct {
	char        byte
	left, taken int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := int(min(int64(len(p)), e.left))
	if n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = e.char
	}
	e.left -= int64(n)
	e.taken += int64(n)
	return n, nil
}

// TestEndlessLine gives a line of 600 MB, also after a good one. It is refused
// once it is too long, and is not read to its end.
func TestEndlessLine(t *testing.T) {
	good := bundletest.Linked(bundletest.Harness)
	for _, c := range []struct {
		name   string
		before []byte
		line   uint64
	}{
		{"first", nil, 1},
		{"after the checkpoint", good, 2},
		{"inside a request", []byte(`{"request":"`), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if sampled() && c.line == 2 {
				t.Skip("as the first")
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			long := &endless{char: 'A', left: 600e6}
			refused := refusal(t, io.MultiReader(bytes.NewReader(c.before), long), harnessOptions())
			if refused.Check != verify.CheckLine || refused.Line != c.line {
				t.Errorf("refused by %s at line %d, want line at line %d", refused.Check, refused.Line, c.line)
			}
			if long.taken > chain.MaxLineBytes+1<<20 {
				t.Errorf("read %d bytes of a line that may have %d", long.taken, chain.MaxLineBytes)
			}
			runtime.ReadMemStats(&after)
			if grown := int64(after.Sys) - int64(before.Sys); grown > 400e6 {
				t.Errorf("memory grew by %d MB", grown/1e6)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func harnessOptions() verify.Options {
	return verify.Options{Keys: []*envelope.PublicKey{bundletest.Harness.Public}}
}

// TestHugeLines gives single lines near the limit that are made of very many
// small parts, of fewer where the test is sampled. Each is refused quickly, for
// what it is.
func TestHugeLines(t *testing.T) {
	million := 1_000_000
	if sampled() {
		million /= 50
	}
	members := func() string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range million {
			fmt.Fprintf(&b, `"m%d":0,`, i)
		}
		return strings.TrimSuffix(b.String(), ",") + "}"
	}
	signatures := func(keyID, sig string, n int) string {
		one := `{"keyid":"` + keyID + `","sig":"` + sig + `"}`
		return `[` + strings.Repeat(one+",", n-1) + one + `]`
	}
	payload := base64.StdEncoding.EncodeToString([]byte("{}"))
	link := func(signatures string) string {
		return `{"link":{"payloadType":"` + envelope.PayloadType + `","payload":"` + payload + `","signatures":` + signatures + `}}`
	}
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 64))
	for _, c := range []struct {
		name  string
		line  string
		check verify.Check
	}{
		{"a million members", members(), verify.CheckLine},
		{"a million members of an envelope", `{"envelope":` + members() + `}`, verify.CheckLine},
		{"one member a million times", `{` + strings.Repeat(`"request":"",`, million) + `"request":""}`, verify.CheckLine},
		{"10,000 nested arrays", strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), verify.CheckLine},
		{"30 million nested arrays", strings.Repeat("[", 30*million) + strings.Repeat("]", 30*million), verify.CheckLine},
		{"a million nested objects", strings.Repeat(`{"link":`, million) + "0" + strings.Repeat("}", million), verify.CheckLine},
		{"a million nested arrays for signatures", link(strings.Repeat("[", million) + strings.Repeat("]", million)), verify.CheckLine},
		{"a number of 60 million digits", `{"request":` + strings.Repeat("9", 60*million) + `}`, verify.CheckLine},
		{"a string of 10 million escapes", `{"request":"` + strings.Repeat(`\u0041`, 10*million) + `"}`, verify.CheckLine},
		{"500,000 signatures of the key, none good", link(signatures("", zeros, million/2)), verify.CheckSignature},
		{"350,000 signatures naming the key, none good", link(signatures(bundletest.Harness.ID(), zeros, million*35/100)), verify.CheckSignature},
		{"500,000 signatures of another key", link(signatures("k", "", million/2)), verify.CheckSignature},
		{"500,000 empty signatures", link(signatures("", "", million/2)), verify.CheckSignature},
		{"48 million bytes of payload", strings.Replace(link("[]"), payload, strings.Repeat("AAAA", 12*million), 1), verify.CheckSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.line) >= chain.MaxLineBytes {
				t.Fatalf("the line has %d bytes, which is too long", len(c.line))
			}
			start := time.Now()
			refused := refusal(t, io.MultiReader(strings.NewReader(c.line), strings.NewReader("\n")), harnessOptions())
			if refused.Check != c.check || refused.Line != 1 {
				t.Errorf("refused by %s at line %d (%v), want %s at line 1", refused.Check, refused.Line, refused, c.check)
			}
			if len(refused.Error()) > 2000 {
				t.Errorf("the text of the refusal has %d bytes", len(refused.Error()))
			}
			// A second or two. A verification of each signature would take a
			// minute.
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestHugeStatements gives signed statements that are made of very many small
// parts, or are longer than any statement.
func TestHugeStatements(t *testing.T) {
	entry := bundletest.JavaScript("a", "1", "").Entry()
	good := string(entry.Payload)
	million := 1_000_000
	if sampled() {
		million /= 50
	}
	for _, c := range []struct{ name, payload string }{
		{"a million members of the predicate", strings.Replace(good, `"predicate":{`, `"predicate":{`+strings.Repeat(`"a":0,`, million), 1)},
		{"a hundred thousand members of the predicate", strings.Replace(good, `"predicate":{`, `"predicate":{`+strings.Repeat(`"a":0,`, 100_000), 1)},
		{"a hundred thousand subjects", strings.Replace(good, `"subject":[`, `"subject":[`+strings.Repeat(`{},`, 100_000), 1)},
		{"10,000 nested arrays", strings.Replace(good, `"session":""`, `"session":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000), 1)},
		{"a million nested arrays", strings.Replace(good, `"session":""`, `"session":`+strings.Repeat("[", million)+strings.Repeat("]", million), 1)},
		{"white space without end", good + strings.Repeat(" ", 10*million)},
		{"a sequence of 100,000 digits", strings.Replace(good, `"sequence":0`, `"sequence":1`+strings.Repeat("0", 100_000), 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.payload == good {
				t.Fatal("the statement is as it was")
			}
			huge := entry
			huge.Payload = []byte(c.payload)
			start := time.Now()
			refused := refusal(t, bytes.NewReader(bundletest.Linked(bundletest.Harness, huge)), harnessOptions())
			if refused.Check != verify.CheckStatement || refused.Line != 1 {
				t.Errorf("refused by %s at line %d (%v), want statement at line 1", refused.Check, refused.Line, refused)
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
