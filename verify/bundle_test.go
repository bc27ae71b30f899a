package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

func keys(k ...*bundletest.Key) []*envelope.PublicKey {
	var public []*envelope.PublicKey
	for _, key := range k {
		public = append(public, key.Public)
	}
	return public
}

// runs returns n single runs, call-1 and on.
func runs(n int) []bundletest.Entry {
	var entries []bundletest.Entry
	for i := range n {
		entries = append(entries, bundletest.JavaScript(fmt.Sprintf("call-%d", i+1), fmt.Sprint(i), "1\n").Entry())
	}
	return entries
}

// session returns a session of n calls and its close.
func session(name string, n int) []bundletest.Entry {
	s := bundletest.NewSession(name)
	var entries []bundletest.Entry
	for i := range n {
		entries = append(entries, s.Add(bundletest.JavaScript(fmt.Sprintf("%s-%d", name, i+1), fmt.Sprint(i), "1\n")).Entry())
	}
	return append(entries, s.Close())
}

// refused runs a verification that must be refused by check at line.
func refused(t *testing.T, bundle []byte, opts verify.Options, check verify.Check, line uint64) *verify.Refusal {
	t.Helper()
	report, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), opts)
	var r *verify.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("have %v, want a refusal", err)
	}
	if r.Check != check || r.Line != line {
		t.Fatalf("refused by %s at line %d (%v), want %s at line %d", r.Check, r.Line, err, check, line)
	}
	if got, ok := verify.CheckOf(err); !ok || got != check {
		t.Errorf("CheckOf: have %s", got)
	}
	if report != nil {
		t.Error("a report beside a refusal")
	}
	return r
}

func accepted(t *testing.T, bundle []byte, opts verify.Options) *verify.Report {
	t.Helper()
	report, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestReport(t *testing.T) {
	s := bundletest.NewSession("a")
	bundle := bundletest.Linked(bundletest.Harness,
		bundletest.Project("single").Entry(),
		s.Add(bundletest.JavaScript("a-1", "1", "1\n")).Entry(),
		s.Add(bundletest.JavaScript("a-2", "1", "").Unanswered("unavailable")).Entry(),
		s.Close(), bundletest.Checkpoint,
		bundletest.NewSession("empty").Close())
	r := accepted(t, bundle, verify.Options{Keys: keys(bundletest.Harness)})
	if r.Lines != 7 || r.Calls != 3 || r.Unanswered != 1 || r.Sessions != 2 || r.Checkpoints != 2 || r.Signatures != 12 ||
		r.KeyID != bundletest.Harness.ID() || !r.Linked || r.Bytes != int64(len(bundle)) || r.Tiers["container"] != 3 {
		t.Errorf("have %+v", r)
	}
	if want := bundletest.End(bundle).Position; r.End != want {
		t.Errorf("end: have %+v, want %+v", r.End, want)
	}
	for _, c := range r.Checks {
		switch c.Name {
		case "min-isolation", "expect", "count", "state":
			if c.Checked {
				t.Errorf("%s: checked without being asked for: %s", c.Name, c.Detail)
			}
		default:
			if !c.Checked {
				t.Errorf("%s: not checked: %s", c.Name, c.Detail)
			}
		}
	}
}

func TestNoKey(t *testing.T) {
	_, err := verify.Bundle(t.Context(), bytes.NewReader(bundletest.Linked(bundletest.Harness)), verify.Options{})
	if _, ok := verify.CheckOf(err); err == nil || ok {
		t.Errorf("have %v, want an error that is no refusal", err)
	}
}

func TestEmptyKey(t *testing.T) {
	for _, k := range []*envelope.PublicKey{nil, {}} {
		_, err := verify.Bundle(t.Context(), bytes.NewReader(bundletest.Linked(bundletest.Harness)), verify.Options{Keys: []*envelope.PublicKey{bundletest.Harness.Public, k}})
		if _, ok := verify.CheckOf(err); err == nil || ok {
			t.Errorf("have %v, want an error that is no refusal", err)
		}
	}
}

// TestUnnamedKey: why a link that names no key is refused does not depend on the
// order in which the keys were given.
func TestUnnamedKey(t *testing.T) {
	w := bundletest.NewWriter(bundletest.Harness)
	line := chain.Line{}
	link := bundletest.Harness.Envelope(statement.AppendLink(nil, statement.Link{Index: 1, Checkpoint: true}))
	link.Signatures[0].KeyID = ""
	line.Link = link
	w.Raw(chain.AppendLine(nil, &line))
	for _, given := range [][]*envelope.PublicKey{
		keys(bundletest.Harness),
		keys(bundletest.Harness, bundletest.Stranger),
		keys(bundletest.Stranger, bundletest.Harness),
	} {
		refused(t, w.Bundle(), verify.Options{Keys: given}, verify.CheckStatement, 1)
	}
}

// TestTiersBound: tiers are free text, and a report does not grow with it.
func TestTiersBound(t *testing.T) {
	var entries []bundletest.Entry
	for i := range 40 {
		c := bundletest.JavaScript("", "1", "1\n")
		c.Request.MinimumIsolation = ""
		c.Record.Isolation = fmt.Sprint("tier-", i)
		if i == 0 {
			c.Record.Isolation = strings.Repeat("x", 65)
		}
		c.Response.Isolation = c.Record.Isolation
		entries = append(entries, c.Seal().Entry())
	}
	r := accepted(t, bundletest.Linked(bundletest.Harness, entries...), verify.Options{Keys: keys(bundletest.Harness)})
	if len(r.Tiers) != 32 || r.OtherTiers != 8 {
		t.Errorf("have %d tiers and %d others, want 32 and 8", len(r.Tiers), r.OtherTiers)
	}
}

// TestVersion1Rule: a version 1 record speaks of no software, so the report does
// not say that a rule was met.
func TestVersion1Rule(t *testing.T) {
	c := bundletest.JavaScript("a", "1", "1\n").Version(1)
	c.Request.SoftwareRule = &record.SoftwareRule{Mode: "exact", Identities: []string{bundletest.ImageOne}}
	bundle := bundletest.Unlinked(bundletest.Harness, c.Seal().Entry())
	r := accepted(t, bundle, verify.Options{Keys: keys(bundletest.Harness), Unlinked: true})
	for _, check := range r.Checks {
		if check.Name == "floor" && !strings.Contains(check.Detail, "rule of 1 call of version 1 was not checked") {
			t.Errorf("have %q", check.Detail)
		}
	}
}

func TestSeveralKeys(t *testing.T) {
	entries := runs(3)
	bundle := bundletest.Linked(bundletest.Harness, entries...)
	third := bundletest.NamedKey("third")
	for _, given := range [][]*envelope.PublicKey{
		keys(bundletest.Harness, bundletest.Stranger, third),
		keys(third, bundletest.Stranger, bundletest.Harness),
	} {
		if r := accepted(t, bundle, verify.Options{Keys: given}); r.KeyID != bundletest.Harness.ID() {
			t.Errorf("key: have %s", r.KeyID)
		}
	}
	refused(t, bundle, verify.Options{Keys: keys(third, bundletest.Stranger)}, verify.CheckSignature, 1)

	// A bundle whose second line is linked by the other key, both given.
	w := bundletest.NewWriter(bundletest.Stranger)
	lines := bundletest.Lines(bundle)
	w.Raw(lines[0])
	for _, e := range entries[1:] {
		w.Entry(e)
	}
	r := refused(t, w.Bundle(), verify.Options{Keys: keys(bundletest.Harness, bundletest.Stranger)}, verify.CheckSignature, 2)
	if !strings.Contains(r.Want, bundletest.Harness.ID()) {
		t.Errorf("want names no key: %s", r.Want)
	}
}

func TestState(t *testing.T) {
	first := bundletest.Linked(bundletest.Harness, session("a", 2)...)
	longer := bundletest.Extend(bundletest.Harness, first, append(session("b", 2), bundletest.Checkpoint)...)
	other := bundletest.Linked(bundletest.Harness, append(session("a", 3), session("b", 3)...)...)
	opts := verify.Options{Keys: keys(bundletest.Harness, bundletest.Stranger)}
	atFirst := accepted(t, first, opts).State()
	atLonger := accepted(t, longer, opts).State()

	with := func(s *verify.State) verify.Options { o := opts; o.State = s; return o }
	accepted(t, first, with(atFirst))
	accepted(t, longer, with(atFirst))
	accepted(t, longer, with(atLonger))
	refused(t, first, with(atLonger), verify.CheckState, 0) // cut back
	refused(t, other, with(atFirst), verify.CheckState, 4)  // another history
	refused(t, bundletest.Linked(bundletest.Stranger, append(session("a", 2), session("b", 2)...)...), with(atFirst), verify.CheckState, 0)
	refused(t, nil, with(atFirst), verify.CheckIncomplete, 0)

	text := verify.FormatState(atLonger)
	back, err := verify.ParseState(text)
	if err != nil || *back != *atLonger {
		t.Errorf("have %+v, %v, want %+v", back, err, atLonger)
	}
	for name, text := range map[string]string{
		"empty":         "",
		"cut":           string(text[:len(text)-3]),
		"two":           string(text) + string(text),
		"other schema":  strings.Replace(string(text), "/v1", "/v2", 1),
		"no lines":      strings.Replace(string(text), fmt.Sprint(`"lines":`, atLonger.Lines), `"lines":0`, 1),
		"capitals":      strings.Replace(string(text), atLonger.Digest, strings.ToUpper(atLonger.Digest), 1),
		"unknown":       strings.Replace(string(text), "{", `{"x":1,`, 1),
		"too long":      string(text) + strings.Repeat(" ", verify.MaxStateBytes),
		"short key ID":  strings.Replace(string(text), atLonger.KeyID, atLonger.KeyID[:63], 1),
		"repeated name": strings.Replace(string(text), "{", `{"lines":7,`, 1),
	} {
		if _, err := verify.ParseState([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	unlinked := opts
	unlinked.Unlinked, unlinked.State = true, atFirst
	if _, err := verify.Bundle(t.Context(), bytes.NewReader(first), unlinked); err == nil {
		t.Error("a state was taken for an unlinked bundle")
	}
}

func TestMinIsolation(t *testing.T) {
	kernel := bundletest.JavaScript("k", "1", "1\n")
	kernel.Response.Isolation, kernel.Record.Isolation = "kernel", "kernel"
	bundle := bundletest.Linked(bundletest.Harness, kernel.Seal().Entry(), bundletest.JavaScript("c", "1", "1\n").Entry())
	for tier, line := range map[string]uint64{"": 0, "process": 0, "container": 0, "kernel": 2, "vm": 1} {
		opts := verify.Options{Keys: keys(bundletest.Harness), MinIsolation: tier}
		if line == 0 {
			accepted(t, bundle, opts)
			continue
		}
		refused(t, bundle, opts, verify.CheckFloor, line)
	}
	for _, tier := range []string{"none", "Container", "unknown"} {
		_, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), verify.Options{Keys: keys(bundletest.Harness), MinIsolation: tier})
		if _, ok := verify.CheckOf(err); err == nil || ok {
			t.Errorf("floor %q: have %v, want an error that is no refusal", tier, err)
		}
	}
}

func TestExpected(t *testing.T) {
	bundle := bundletest.Linked(bundletest.Harness, append(runs(2), bundletest.JavaScript("", "9", "9\n").Entry())...)
	two := bundletest.Linked(bundletest.Harness, runs(2)...)
	digest := func(code string) string { return bundletest.JavaScript("x", code, "").Record.RequestSHA256 }
	for name, c := range map[string]struct {
		list   string
		bundle []byte
		ok     bool
	}{
		"trace IDs":                         {"call-2\ncall-1\n", two, true},
		"labels, tabs, blanks, CRLF, no LF": {"call-1\tfirst\r\n\n  \n\tcall-2 the second", two, true},
		"digests":                           {digest("0") + " a\n" + digest("1"), two, true},
		"digests of all":                    {digest("0") + "\n" + digest("1") + "\n" + digest("9"), bundle, true},
		"one missing":                       {"call-1\ncall-2\ncall-3\n", two, false},
		"one not listed":                    {"call-1\n", two, false},
		"listed twice":                      {"call-1\ncall-2\ncall-2\n", two, false},
		"mixed":                             {digest("0") + "\ncall-2\n", two, false},
		"capitals":                          {strings.ToUpper(digest("0")) + "\n" + digest("1") + "\n", two, false},
		"empty":                             {"\n \n", two, false},
		"a call without a trace ID":         {"call-1\ncall-2\n\n", bundle, false},
		"another case":                      {"Call-1\ncall-2\n", two, false},
		"another white space":               {"call-1\u00a0\ncall-2\n", two, false},
		"a line of another white space":     {"call-1\ncall-2\n\u2003\n", two, false},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := verify.ParseExpected(strings.NewReader(c.list))
			if err != nil {
				t.Fatal(err)
			}
			opts := verify.Options{Keys: keys(bundletest.Harness), Expect: list}
			if c.ok {
				accepted(t, c.bundle, opts)
				accepted(t, c.bundle, opts) // a list is not used up
			} else {
				refused(t, c.bundle, opts, verify.CheckExpect, 0)
			}
		})
	}
	none := verify.Options{Keys: keys(bundletest.Harness), Expect: verify.NewExpected(nil)}
	if r := accepted(t, bundletest.Linked(bundletest.Harness), none); r.Calls != 0 {
		t.Errorf("calls: have %d", r.Calls)
	}
	if _, err := verify.ParseExpected(strings.NewReader(strings.Repeat("x", 1<<17))); err == nil {
		t.Error("an endless line was accepted")
	}
	broken := errors.New("input/output error")
	if _, err := verify.ParseExpected(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("have %v", err)
	}
	three, two64 := uint64(3), uint64(2)
	refused(t, two, verify.Options{Keys: keys(bundletest.Harness), ExpectCount: &three}, verify.CheckExpect, 0)
	accepted(t, two, verify.Options{Keys: keys(bundletest.Harness), ExpectCount: &two64})
}

// TestOrderOfRefusals: the first bad line decides, then the order of the steps,
// whatever the number of workers and however the lines fall into batches.
func TestOrderOfRefusals(t *testing.T) {
	lines := bundletest.Lines(bundletest.Linked(bundletest.Harness, runs(400)...))
	for _, bad := range []int{0, 1, 63, 64, 65, 200, 399} {
		broken := append([][]byte(nil), lines...)
		broken[bad] = bytes.Replace(broken[bad], []byte(`"request":"`), []byte(`"request":"AAAA`), 1)
		for later := bad + 1; later < len(broken); later++ {
			broken[later] = []byte("no line at all")
		}
		for _, workers := range []int{1, 2, 3, 16} {
			opts := verify.Options{Keys: keys(bundletest.Harness), Workers: workers}
			r := refused(t, bundletest.Join(broken...), opts, verify.CheckLink, uint64(bad+1))
			if want := int64(len(bundletest.Join(broken[:bad]...))); r.Offset != want {
				t.Errorf("offset: have %d, want %d", r.Offset, want)
			}
		}
	}
}

// TestSpellingOffset: for a line that is not canonical the offset is that of the
// first wrong byte.
func TestSpellingOffset(t *testing.T) {
	bundle := bundletest.Linked(bundletest.Harness, runs(3)...)
	lines := bundletest.Lines(bundle)
	at := bytes.Index(lines[1], []byte(`,"envelope"`)) + 1
	lines[1] = []byte(string(lines[1][:at]) + " " + string(lines[1][at:]))
	r := refused(t, bundletest.Join(lines...), verify.Options{Keys: keys(bundletest.Harness)}, verify.CheckLine, 2)
	if want := int64(len(lines[0]) + 1 + at); r.Offset != want {
		t.Errorf("offset: have %d, want %d", r.Offset, want)
	}
}

// TestEntries: the visitor sees each entry once, in order, and can end it.
func TestEntries(t *testing.T) {
	var entries []bundletest.Entry
	for i := range 100 {
		entries = append(entries, session(fmt.Sprint("s", i), 2)...)
	}
	bundle := bundletest.Linked(bundletest.Harness, entries...)
	var seen []uint64
	stop := errors.New("enough")
	opts := verify.Options{Keys: keys(bundletest.Harness), Entry: func(e verify.Entry) error {
		if (e.Call == nil) == (e.Close == nil) {
			t.Fatalf("line %d is neither or both", e.Line)
		}
		if e.Close != nil && e.Line%3 != 0 || e.Call != nil && e.Call.Request.TraceID == "" {
			t.Fatalf("line %d holds another line's content", e.Line)
		}
		seen = append(seen, e.Line)
		if len(seen) == 250 {
			return stop
		}
		return nil
	}}
	if _, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), opts); !errors.Is(err, stop) {
		t.Fatalf("have %v", err)
	}
	for i, line := range seen {
		if line != uint64(i+1) {
			t.Fatalf("entry %d was line %d", i, line)
		}
	}
}

// TestReadErrors: a disk that fails gives no verdict, and neither does a caller
// that gives up.
func TestReadErrors(t *testing.T) {
	bundle := bundletest.Linked(bundletest.Harness, runs(3)...)
	broken := errors.New("input/output error")
	opts := verify.Options{Keys: keys(bundletest.Harness)}
	_, err := verify.Bundle(t.Context(), io.MultiReader(bytes.NewReader(bundle), iotest.ErrReader(broken)), opts)
	if _, refusal := verify.CheckOf(err); !errors.Is(err, broken) || refusal {
		t.Errorf("have %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := verify.Bundle(ctx, bytes.NewReader(bundle), opts); !errors.Is(err, context.Canceled) {
		t.Errorf("have %v", err)
	}
}

func TestSessions(t *testing.T) {
	var s verify.Sessions
	a := bundletest.NewSession("a")
	first := a.Add(bundletest.JavaScript("1", "1", "")).Record
	if err := s.Call(first); err != nil || s.Open() != 1 {
		t.Fatal(err, s.Open())
	}
	if err := s.Call(first); !errors.Is(err, verify.ErrChain) {
		t.Errorf("repeated: have %v", err)
	}
	if err := s.Close(&statement.Close{Session: ""}); !errors.Is(err, verify.ErrChain) {
		t.Errorf("a close of no session: have %v", err)
	}
	closing := &statement.Close{Session: first.Session, Calls: 1, LastRecordSHA256: first.RecordSHA256}
	if open := s.OpenSessions(); len(open) != 1 || open[0] != (verify.OpenSession{Session: first.Session, Calls: 1}) {
		t.Errorf("have %+v", open)
	}
	if err := s.Close(closing); err != nil || s.Open() != 0 || !s.Closed(first.Session) {
		t.Fatal(err)
	}
	if err := s.Close(closing); !errors.Is(err, verify.ErrChain) {
		t.Errorf("closed twice: have %v", err)
	}
	if err := s.Call(a.Add(bundletest.JavaScript("2", "2", "")).Record); !errors.Is(err, verify.ErrChain) {
		t.Errorf("a call after the close: have %v", err)
	}
	// A refused first call opens nothing.
	late := bundletest.NewSession("late")
	late.Add(bundletest.JavaScript("1", "1", ""))
	if err := s.Call(late.Add(bundletest.JavaScript("2", "2", "")).Record); !errors.Is(err, verify.ErrChain) || s.Open() != 0 {
		t.Errorf("have %v, %d open", err, s.Open())
	}
}

func TestFindTail(t *testing.T) {
	sealed := bundletest.Linked(bundletest.Harness, session("a", 2)...)
	good := bundletest.End(sealed)
	withCalls := bundletest.Extend(bundletest.Harness, sealed, session("b", 2)[:2]...)
	withClose := bundletest.Extend(bundletest.Harness, sealed, session("b", 2)...)
	openSeal := bundletest.Extend(bundletest.Harness, withCalls, bundletest.Checkpoint)
	for name, c := range map[string]struct {
		bundle      []byte
		good, whole chain.Mark
		open        int
		check       verify.Check
	}{
		"whole":                     {sealed, good, good, 0, ""},
		"empty":                     {nil, chain.Mark{}, chain.Mark{}, 0, ""},
		"open session":              {withCalls, good, bundletest.End(withCalls), 1, ""},
		"unsealed":                  {withClose, good, bundletest.End(withClose), 0, ""},
		"torn":                      {withClose[:len(withClose)-5], good, bundletest.End(withCalls), 1, verify.CheckLine},
		"a checkpoint in a session": {openSeal, good, bundletest.End(openSeal), 1, ""},
		"garbage":                   {append(bytes.Clone(withClose), "garbage\n"...), good, bundletest.End(withClose), 0, verify.CheckLine},
		"another's line":            {append(bytes.Clone(sealed), bundletest.Lines(bundletest.Linked(bundletest.Stranger))[0]...), good, good, 0, verify.CheckLine},
	} {
		t.Run(name, func(t *testing.T) {
			tail, err := verify.FindTail(t.Context(), bytes.NewReader(c.bundle), verify.Options{Keys: keys(bundletest.Harness)})
			if err != nil {
				t.Fatal(err)
			}
			if tail.Good != c.good || tail.Whole != c.whole || len(tail.Open) != c.open {
				t.Errorf("have %+v, want %+v and %+v, %d open", tail, c.good, c.whole, c.open)
			}
			if tail.Refusal == nil != (c.check == "") || tail.Refusal != nil && tail.Refusal.Check != c.check {
				t.Errorf("refusal: have %v, want %s", tail.Refusal, c.check)
			}
		})
	}
	count := uint64(1)
	if _, err := verify.FindTail(t.Context(), bytes.NewReader(sealed), verify.Options{Keys: keys(bundletest.Harness), ExpectCount: &count}); err == nil {
		t.Error("a count was taken and not looked at")
	}
}

func ExampleBundle() {
	bundle := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("call-1", "console.log(1+1)", "2\n").Entry())
	opts := verify.Options{
		Keys:   []*envelope.PublicKey{bundletest.Harness.Public},
		Expect: verify.NewExpected([]string{"call-1"}),
	}
	report, err := verify.Bundle(context.Background(), bytes.NewReader(bundle), opts)
	fmt.Println(report.Calls, err)

	bundle = bytes.Replace(bundle, []byte(`"request":"CAIS`), []byte(`"request":"CAMS`), 1)
	_, err = verify.Bundle(context.Background(), bytes.NewReader(bundle), opts)
	var refusal *verify.Refusal
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Check, refusal.Line)
	}
	// Output:
	// 1 <nil>
	// link 1
}
