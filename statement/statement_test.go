package statement_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// payloads returns the entry and link payloads of a bundle, which are taken on
// trust: the statements of a bundle made by another implementation.
func payloads(tb testing.TB, name string) (entries, links [][]byte) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	for raw := range bytes.Lines(data) {
		var line struct {
			Envelope, Link *struct{ Payload []byte }
		}
		if err := json.Unmarshal(raw, &line); err != nil {
			tb.Fatal(err)
		}
		if line.Envelope != nil {
			entries = append(entries, line.Envelope.Payload)
		}
		links = append(links, line.Link.Payload)
	}
	return entries, links
}

// TestRealSession reads every statement of the real session and writes it
// again, byte for byte.
func TestRealSession(t *testing.T) {
	entries, links := payloads(t, "seed-session/bundle.jsonl")
	if len(entries) != 6 || len(links) != 7 {
		t.Fatalf("%d entries and %d links, want 6 and 7", len(entries), len(links))
	}
	for i, p := range entries {
		e, err := statement.ParseEntry(p)
		if err != nil {
			t.Fatal(err)
		}
		var again []byte
		if e.Record != nil {
			again = statement.AppendRecord(nil, e.Record)
		} else {
			again = statement.AppendClose(nil, *e.Close)
		}
		if !bytes.Equal(again, p) {
			t.Errorf("entry %d: have %s, want %s", i+1, again, p)
		}
		// The statement is one to the in-toto library too.
		var s intoto.Statement
		if err := protojson.Unmarshal(p, &s); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("entry %d: in-toto: %v", i+1, err)
		}
	}
	for i, p := range links {
		l, err := statement.ParseLink(p)
		if err != nil {
			t.Fatal(err)
		}
		if again := statement.AppendLink(nil, l); !bytes.Equal(again, p) {
			t.Errorf("link %d: have %s, want %s", i+1, again, p)
		}
	}
}

// TestCheckpointGolden is the published payload of the real session's
// checkpoint.
func TestCheckpointGolden(t *testing.T) {
	const before = "53c548a6975ae7a1c742379817557c6daa8eb8fd7960e7f5d220d644116c1910"
	have := statement.AppendLink(nil, statement.Link{Index: 7, PreviousSHA256: before, Checkpoint: true, Lines: 6})
	want := `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"bundle-line","digest":{"sha256":"` + before +
		`"}}],"predicateType":"https://plimsollmark.github.io/plimsoll/bundle-link/v1","predicate":{"index":7,"previous_sha256":"` + before +
		`","checkpoint":true,"lines":6}}`
	if string(have) != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

var sample = record.Record{
	Version: 2, RequestSHA256: strings.Repeat("a", 64), ResultSHA256: strings.Repeat("b", 64),
	Provider: "open\"shell", Isolation: "container", Policy: "p<>&\u2028", StartedUnixMS: -1, EndedUnixMS: 2,
	Session: strings.Repeat("c", 64), Sequence: 1<<64 - 1, RecordSHA256: strings.Repeat("d", 64),
}

func edit(old, new string) func(string) string {
	return func(s string) string {
		if !strings.Contains(s, old) {
			panic("nothing to edit: " + old)
		}
		return strings.Replace(s, old, new, 1)
	}
}

// TestOneSpelling changes one thing in a good statement; every other spelling
// and every other content of the frame is refused.
func TestOneSpelling(t *testing.T) {
	good := string(statement.AppendRecord(nil, &sample))
	if _, err := statement.ParseRecord([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(string) string{
		"empty":                    func(string) string { return "" },
		"null":                     func(string) string { return "null" },
		"array":                    func(string) string { return "[]" },
		"byte order mark":          func(s string) string { return "\ufeff" + s },
		"leading space":            func(s string) string { return " " + s },
		"trailing newline":         func(s string) string { return s + "\n" },
		"second value":             func(s string) string { return s + "{}" },
		"NUL after":                func(s string) string { return s + "\x00" },
		"cut short":                func(s string) string { return s[:len(s)-1] },
		"space after colon":        edit(`"version":2`, `"version": 2`),
		"statement v0.1":           edit("Statement/v1", "Statement/v0.1"),
		"other predicate type":     edit("run-record/v1", "run-record/v2"),
		"other subject name":       edit(`"name":"run-record"`, `"name":"record"`),
		"other subject digest":     edit(`"sha256":"d`, `"sha256":"e`),
		"second subject":           edit(`}}],"predicateType"`, `}},{"name":"run-record","digest":{"sha256":""}}],"predicateType"`),
		"second digest":            edit(`"digest":{`, `"digest":{"sha512":"",`),
		"unknown member":           edit(`"version":2`, `"version":2,"note":""`),
		"unknown member outside":   edit(`"predicate":{`, `"note":1,"predicate":{`),
		"repeated member":          edit(`"version":2`, `"version":2,"version":2`),
		"repeated member, escaped": edit(`"version":2`, `"version":2,"\u0076ersion":2`),
		"repeated predicate":       edit(`"predicate":{`, `"predicate":{},"predicate":{`),
		"escaped name":             edit(`"version"`, `"\u0076ersion"`),
		"other case":               edit(`"version"`, `"Version"`),
		"member left out":          edit(`"environment":"",`, ``),
		"empty optional written":   edit(`"environment":""`, `"environment":"","software_identity":""`),
		"null for empty":           edit(`"environment":""`, `"environment":null`),
		"members swapped":          edit(`"started_unix_ms":-1,"ended_unix_ms":2`, `"ended_unix_ms":2,"started_unix_ms":-1`),
		"fraction":                 edit(`"version":2`, `"version":2.0`),
		"exponent":                 edit(`"version":2`, `"version":2e0`),
		"leading zero":             edit(`"version":2`, `"version":02`),
		"number as text":           edit(`"version":2`, `"version":"2"`),
		"negative version":         edit(`"version":2`, `"version":-2`),
		"version past 32 bits":     edit(`"version":2`, `"version":4294967298`),
		"minus zero":               edit(`"ended_unix_ms":2`, `"ended_unix_ms":-0`),
		"time past 64 bits":        edit(`"ended_unix_ms":2`, `"ended_unix_ms":9223372036854775808`),
		"sequence past 64 bits":    edit(`18446744073709551615`, `18446744073709551616`),
		"raw angle bracket":        edit(`\u003c`, `<`),
		"upper-case escape":        edit(`\u003c`, `\u003C`),
		"escaped slash":            edit(`https://in`, `https:\/\/in`),
		"raw line separator":       edit(`\u2028`, "\u2028"),
		"lone surrogate":           edit(`\u2028`, `\ud800`),
		"not UTF-8":                edit(`container`, "contain\xffr"),
		"raw control character":    edit(`container`, "con\ttainer"),
		"instance in version 2":    edit(`"policy"`, `"instance":"","policy"`),
		"nesting":                  edit(`"environment":""`, `"environment":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)),
		"deep unknown member":      edit(`"version":2`, `"x":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`,"version":2`),
		"too large":                edit(`container`, strings.Repeat("x", statement.MaxBytes)),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := statement.ParseEntry([]byte(change(good))); !errors.Is(err, statement.ErrStatement) {
				t.Fatalf("have %v, want ErrStatement", err)
			}
		})
	}
}

// TestBound: a payload may have MaxBytes and no more, however it is spelled.
func TestBound(t *testing.T) {
	for _, filler := range []string{"x", "<"} {
		r := sample
		r.Policy = filler
		over := statement.MaxBytes - len(statement.AppendRecord(nil, &r))
		for extra, ok := range []bool{true, false} {
			r.Policy = filler + strings.Repeat("x", over+extra)
			payload := statement.AppendRecord(nil, &r)
			if len(payload) != statement.MaxBytes+extra {
				t.Fatalf("made %d bytes", len(payload))
			}
			if _, err := statement.ParseEntry(payload); (err == nil) != ok {
				t.Errorf("%d bytes with %q: have %v, want accepted %v", len(payload), filler, err, ok)
			}
		}
	}
}

// TestVersion4Spelling holds the one exception: a version 4 record may have
// "instance" anywhere and empty optional members written out.
func TestVersion4Spelling(t *testing.T) {
	v4 := sample
	v4.Version, v4.Instance = 4, "k8s-pod-uid:0a1b"
	good := string(statement.AppendRecord(nil, &v4))
	moved := strings.Replace(good, `"instance":"k8s-pod-uid:0a1b",`, "", 1)
	instance := `"instance":"k8s-pod-uid:0a1b"`
	for name, c := range map[string]struct {
		payload string
		ok      bool
	}{
		"as written":             {good, true},
		"first":                  {edit(`{"version"`, `{`+instance+`,"version"`)(moved), true},
		"last":                   {strings.TrimSuffix(moved, "}}") + "," + instance + "}}", true},
		"optionals written out":  {edit(`"environment":""`, `"environment":"","software_identity":"","software_rule_id":""`)(good), true},
		"unanswered written out": {edit(`,"record_sha256"`, `,"unanswered":"","record_sha256"`)(good), true},
		"optionals out of order": {edit(`"environment":""`, `"environment":"","software_rule_id":"","software_identity":""`)(good), false},
		"compulsory left out":    {edit(`"environment":"",`, ``)(good), false},
		"compulsory moved":       {edit(`"version":4,`, ``)(edit(`,"record_sha256"`, `,"version":4,"record_sha256"`)(good)), false},
		"instance twice":         {edit(`{"version"`, `{`+instance+`,"version"`)(good), false},
		"white space":            {edit(`"version":4`, `"version": 4`)(good), false},
		"instance escaped":       {edit(`k8s-pod`, `k8s\u002dpod`)(good), false},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := statement.ParseRecord([]byte(c.payload))
			if (err == nil) != c.ok {
				t.Fatalf("have %v, want accepted %v", err, c.ok)
			}
			if err == nil && *r != v4 {
				t.Fatalf("have %+v, want %+v", *r, v4)
			}
		})
	}
	if _, err := statement.ParseRecord([]byte(edit(instance, `"instance":""`)(good))); err != nil {
		t.Errorf("an empty instance written out: %v", err)
	}
}

// TestOtherKinds: one statement is never taken for another.
func TestOtherKinds(t *testing.T) {
	link := statement.AppendLink(nil, statement.Link{Index: 1})
	closing := statement.AppendClose(nil, statement.Close{Session: "s"})
	rec := statement.AppendRecord(nil, &sample)
	for name, err := range map[string]error{
		"link as entry":    second(statement.ParseEntry(link)),
		"link as record":   second(statement.ParseRecord(link)),
		"link as close":    second(statement.ParseClose(link)),
		"close as link":    second(statement.ParseLink(closing)),
		"record as link":   second(statement.ParseLink(rec)),
		"record as close":  second(statement.ParseClose(rec)),
		"close as record":  second(statement.ParseRecord(closing)),
		"link, close type": second(statement.ParseLink(bytes.Replace(link, []byte("bundle-link/v1"), []byte("session-close/v1"), 1))),
	} {
		if !errors.Is(err, statement.ErrStatement) {
			t.Errorf("%s: have %v, want ErrStatement", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// FuzzParse: what parses as a statement is written again byte for byte, but for
// the spellings that version 4 leaves open, and is what a plain JSON reader
// finds in the same bytes.
func FuzzParse(f *testing.F) {
	entries, links := payloads(f, "seed-session/bundle.jsonl")
	for _, p := range append(entries, links...) {
		f.Add(p)
	}
	v4 := sample
	v4.Version, v4.Instance = 4, "k8s-pod-uid:0a1b"
	f.Add(statement.AppendRecord(nil, &v4))
	plain := func(t *testing.T, payload []byte, read any) {
		p := reflect.New(reflect.TypeOf(read))
		s := struct{ Predicate any }{p.Interface()}
		if err := json.Unmarshal(payload, &s); err != nil || !reflect.DeepEqual(p.Elem().Interface(), read) {
			t.Errorf("%s: have %+v, want %+v (%v)", payload, read, p.Elem(), err)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if l, err := statement.ParseLink(payload); err == nil {
			plain(t, payload, l)
			if !bytes.Equal(statement.AppendLink(nil, l), payload) {
				t.Errorf("link %s is not written as it was read", payload)
			}
		}
		e, err := statement.ParseEntry(payload)
		switch {
		case err != nil:
		case e.Close != nil:
			plain(t, payload, *e.Close)
			if !bytes.Equal(statement.AppendClose(nil, *e.Close), payload) {
				t.Errorf("close %s is not written as it was read", payload)
			}
		default:
			plain(t, payload, jsonRecord(*e.Record))
			again := statement.AppendRecord(nil, e.Record)
			if e.Record.Version == 4 {
				r, err := statement.ParseRecord(again)
				if err != nil || *r != *e.Record {
					t.Errorf("record %s is not what its own spelling reads as: %v", payload, err)
				}
			} else if !bytes.Equal(again, payload) {
				t.Errorf("record %s is not written as it was read", payload)
			}
		}
	})
}

// jsonRecord is a record under the member names of its statement.
type jsonRecord struct {
	Version          uint32 `json:"version"`
	RequestSHA256    string `json:"request_sha256"`
	ResultSHA256     string `json:"result_sha256"`
	Provider         string `json:"provider"`
	Isolation        string `json:"isolation"`
	Environment      string `json:"environment"`
	SoftwareIdentity string `json:"software_identity"`
	SoftwareRuleID   string `json:"software_rule_id"`
	Instance         string `json:"instance"`
	Policy           string `json:"policy"`
	StartedUnixMS    int64  `json:"started_unix_ms"`
	EndedUnixMS      int64  `json:"ended_unix_ms"`
	Session          string `json:"session"`
	Sequence         uint64 `json:"sequence"`
	PreviousSHA256   string `json:"previous_sha256"`
	Unanswered       string `json:"unanswered"`
	RecordSHA256     string `json:"record_sha256"`
}

func ExampleParseEntry() {
	payload := statement.AppendClose(nil, statement.Close{Session: "5947d7c3", Calls: 5, LastRecordSHA256: "adf08a4e"})
	entry, err := statement.ParseEntry(payload)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(entry.Close.Calls)
	// The same statement with a space in it is another sequence of bytes.
	_, err = statement.ParseEntry(bytes.Replace(payload, []byte(":5,"), []byte(": 5,"), 1))
	fmt.Println(err)
	// Output:
	// 5
	// statement: not in its exact form: byte 222: have " 5,\"last_record_sha256\":\"adf08a4", want "5,\"last_record_sha256\":\"adf08a4e"
}
