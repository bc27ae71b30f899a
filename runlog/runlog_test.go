package runlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/runlog"
)

const (
	answered   = `{"request":"AQI=","response":"Aw==","statement":"BA=="}` + "\n"
	unanswered = `{"request":"AQI=","statement":"BA=="}` + "\n"
	closing    = `{"statement":"BQ=="}` + "\n"
	refused    = `{"refused":{"line":3,"trace_id":"call-3","code":"invalid_argument","reason":"request","detail":"unknown name \"cod\""}}` + "\n"
	refusedNil = `{"refused":{"line":0,"trace_id":"","code":"","reason":"","detail":""}}` + "\n"
	end        = `{"end":{"calls":2,"refused":2,"sessions":1}}` + "\n"
	whole      = answered + unanswered + closing + refused + refusedNil + end
)

// lines are what whole holds.
func lines() []*runlog.Line {
	return []*runlog.Line{
		{Request: []byte{1, 2}, Response: []byte{3}, Statement: []byte{4}},
		{Request: []byte{1, 2}, Statement: []byte{4}},
		{Statement: []byte{5}},
		{Refused: &runlog.Refused{Line: 3, TraceID: "call-3", Code: "invalid_argument", Reason: "request", Detail: `unknown name "cod"`}},
		{Refused: &runlog.Refused{}},
		{End: &runlog.End{Calls: 2, Refused: 2, Sessions: 1}},
	}
}

// readAll returns the lines of a log as text, and the error that ended it.
func readAll(log io.Reader) ([]string, error) {
	r := runlog.NewReader(log)
	var got []string
	for {
		line, err := r.Next()
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			if _, again := r.Next(); again != err {
				return got, fmt.Errorf("after %v the reader went on with %v", err, again)
			}
			return got, err
		}
		got = append(got, string(runlog.AppendLine(nil, line))+"\n")
	}
}

func TestGoldenLines(t *testing.T) {
	var text []byte
	for _, l := range lines() {
		text = append(runlog.AppendLine(text, l), '\n')
	}
	if string(text) != whole {
		t.Errorf("AppendLine:\nhave %s\nwant %s", text, whole)
	}
	for name, r := range map[string]io.Reader{
		"at once":        strings.NewReader(whole),
		"byte by byte":   iotest.OneByteReader(strings.NewReader(whole)),
		"data with EOF":  iotest.DataErrReader(strings.NewReader(whole)),
		"one whole line": iotest.HalfReader(strings.NewReader(whole)),
	} {
		got, err := readAll(r)
		if err != nil || strings.Join(got, "") != whole {
			t.Errorf("%s: have %q and %v, want %q", name, got, err, whole)
		}
	}
}

func TestWriter(t *testing.T) {
	var out writes
	w := runlog.NewWriter(&out)
	l := lines()
	for _, err := range []error{
		w.Answered(l[0].Request, l[0].Response, l[0].Statement),
		w.Unanswered(l[1].Request, l[1].Statement),
		w.Close(l[2].Statement),
		w.Refused(*l[3].Refused),
		// What has no form is refused, and leaves the log as it was.
		wants(w.Answered(nil, []byte{1}, []byte{2}), runlog.ErrLine),
		wants(w.Answered([]byte{1}, nil, []byte{2}), nil),
		wants(w.Answered([]byte{1}, []byte{1}, nil), runlog.ErrLine),
		wants(w.Unanswered(nil, []byte{2}), nil),
		wants(w.Unanswered([]byte{1}, nil), runlog.ErrLine),
		wants(w.Close(nil), runlog.ErrLine),
		w.Refused(*l[4].Refused),
		w.End(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(out, ""); got != whole {
		t.Errorf("have %s\nwant %s", got, whole)
	}
	if len(out) != len(l) {
		t.Errorf("%d writes for %d lines", len(out), len(l))
	}
	for _, err := range []error{w.End(), w.Close([]byte{1}), w.Refused(runlog.Refused{})} {
		if !errors.Is(err, runlog.ErrEnded) {
			t.Errorf("a line after the end: %v", err)
		}
	}
	if len(out) != len(l) {
		t.Error("something was written after the end")
	}
}

// wants turns a wanted error into none. A nil want is any error.
func wants(err, want error) error {
	if err == nil || want != nil && !errors.Is(err, want) {
		return fmt.Errorf("have error %v, want %v", err, want)
	}
	return nil
}

// writes keeps each write apart.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

// TestWriterAfterTornLine: a line that may be half written is never followed.
func TestWriterAfterTornLine(t *testing.T) {
	for name, out := range map[string]io.Writer{
		"error": &limited{n: 10, err: io.ErrClosedPipe},
		"short": &limited{n: 10, err: nil},
	} {
		w := runlog.NewWriter(out)
		err := w.Close([]byte("statement"))
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if again := w.End(); again != err {
			t.Errorf("%s: then %v, want the same error again", name, again)
		}
		if got := out.(*limited).Len(); got != 10 {
			t.Errorf("%s: %d bytes written", name, got)
		}
	}
}

// limited takes n bytes, then returns err.
type limited struct {
	bytes.Buffer
	n   int
	err error
}

func (l *limited) Write(p []byte) (int, error) {
	n, _ := l.Buffer.Write(p[:min(len(p), l.n-l.Len())])
	if n < len(p) {
		return n, l.err
	}
	return n, nil
}

// TestTestLogs shows that the logs that other packages test with are those of
// this one.
func TestTestLogs(t *testing.T) {
	s := bundletest.NewSession("a")
	entries := []bundletest.Entry{
		s.Add(bundletest.Project("call-1")).Entry(),
		bundletest.Module("alone").Entry(),
		s.Add(bundletest.JavaScript("call-2", "1", "").Unanswered("unavailable")).Entry(),
		s.Close(),
	}
	log := bundletest.RunLog(entries, bundletest.Refused{Line: 2, TraceID: "<\u2028>", Code: "c", Reason: "r", Detail: "\x01"})
	got, err := readAll(bytes.NewReader(log))
	if err != nil || strings.Join(got, "") != string(log) {
		t.Errorf("have %q and %v", got, err)
	}
}

// TestCutLog cuts a log at every byte: no part of it is a whole log, and no
// more lines are read than are whole.
func TestCutLog(t *testing.T) {
	for n := range len(whole) {
		got, err := readAll(strings.NewReader(whole[:n]))
		if !errors.Is(err, runlog.ErrIncomplete) {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if want := whole[:strings.LastIndex(whole[:n], "\n")+1]; strings.Join(got, "") != want {
			t.Fatalf("cut at %d: read %q, want %q", n, got, want)
		}
		var at *runlog.LineError
		if want := uint64(len(got)) + 1; !errors.As(err, &at) || at.Line != want {
			t.Fatalf("cut at %d: %v, want line %d", n, err, want)
		}
	}
}

func TestRefusedLogs(t *testing.T) {
	for _, c := range []struct {
		name, log string
		line      uint64
		err       error
	}{
		{"no line at all", "", 1, runlog.ErrIncomplete},
		{"a blank line", "\n" + whole, 1, runlog.ErrLine},
		{"a blank line at the end", whole + "\n", 7, runlog.ErrEnd},
		{"text after the end", whole + "{", 7, runlog.ErrEnd},
		{"a second end", whole + end, 7, runlog.ErrEnd},
		{"a call after the end", whole + answered, 7, runlog.ErrEnd},
		{"a byte order mark", "\ufeff" + whole, 1, runlog.ErrLine},
		{"CR LF", strings.ReplaceAll(whole, "\n", "\r\n"), 1, runlog.ErrLine},
		{"end: another number of calls", answered + `{"end":{"calls":2,"refused":0,"sessions":0}}` + "\n", 2, runlog.ErrEnd},
		{"end: a call less", answered + `{"end":{"calls":0,"refused":0,"sessions":0}}` + "\n", 2, runlog.ErrEnd},
		{"end: refused calls", answered + `{"end":{"calls":1,"refused":1,"sessions":0}}` + "\n", 2, runlog.ErrEnd},
		{"end: sessions", answered + `{"end":{"calls":1,"refused":0,"sessions":1}}` + "\n", 2, runlog.ErrEnd},
		{"end: a count left out", `{"end":{"calls":0,"refused":0}}` + "\n", 1, runlog.ErrLine},
		{"end: a fraction", `{"end":{"calls":0.0,"refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"end: an exponent", `{"end":{"calls":0e0,"refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"end: below zero", `{"end":{"calls":-1,"refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"end: minus zero", `{"end":{"calls":-0,"refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"end: past 64 bits", `{"end":{"calls":18446744073709551616,"refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"end: text", `{"end":{"calls":"0","refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"end: null", `{"end":null}` + "\n", 1, runlog.ErrLine},
		{"end with a statement", `{"statement":"BQ==","end":{"calls":0,"refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"refused with a request", `{"request":"AQ==","refused":{"line":0,"trace_id":"","code":"","reason":"","detail":""}}` + "\n", 1, runlog.ErrLine},
		{"refused and end", `{"refused":{"line":0,"trace_id":"","code":"","reason":"","detail":""},"end":{"calls":0,"refused":0,"sessions":0}}` + "\n", 1, runlog.ErrLine},
		{"refused: a member left out", `{"refused":{"line":1,"trace_id":"a","code":"b","reason":"c"}}` + "\n", 1, runlog.ErrLine},
		{"refused: another order", `{"refused":{"trace_id":"","line":0,"code":"","reason":"","detail":""}}` + "\n", 1, runlog.ErrLine},
		{"refused: an unknown member", `{"refused":{"line":0,"trace_id":"","code":"","reason":"","detail":"","note":""}}` + "\n", 1, runlog.ErrLine},
		{"an empty object", "{}\n", 1, runlog.ErrLine},
		{"null", "null\n", 1, runlog.ErrLine},
		{"an array", "[]\n", 1, runlog.ErrLine},
		{"two objects on a line", strings.TrimSuffix(closing, "\n") + closing, 1, runlog.ErrLine},
		{"a request alone", `{"request":"AQ=="}` + "\n", 1, runlog.ErrLine},
		{"a response alone", `{"response":"AQ=="}` + "\n", 1, runlog.ErrLine},
		{"a response without a request", `{"response":"AQ==","statement":"BA=="}` + "\n", 1, runlog.ErrLine},
		{"no statement", `{"request":"AQ==","response":"AQ=="}` + "\n", 1, runlog.ErrLine},
		{"an empty statement", `{"request":"AQ==","response":"AQ==","statement":""}` + "\n", 1, runlog.ErrLine},
		{"an envelope", `{"statement":"BA==","envelope":{}}` + "\n", 1, runlog.ErrLine},
		{"another order", `{"statement":"BA==","request":"AQ=="}` + "\n", 1, runlog.ErrLine},
		{"a name twice", `{"statement":"BA==","statement":"BA=="}` + "\n", 1, runlog.ErrLine},
		{"a name twice, escaped", `{"statement":"BA==","\u0073tatement":"BA=="}` + "\n", 1, runlog.ErrLine},
		{"another case", `{"Statement":"BA=="}` + "\n", 1, runlog.ErrLine},
		{"white space", `{"statement": "BA=="}` + "\n", 1, runlog.ErrLine},
		{"base64: no padding", `{"statement":"BA"}` + "\n", 1, runlog.ErrLine},
		{"base64: stray bits", `{"statement":"BB=="}` + "\n", 1, runlog.ErrLine},
		{"base64: URL alphabet", `{"statement":"-_-_"}` + "\n", 1, runlog.ErrLine},
		{"base64: a line break", `{"statement":"BA\n=="}` + "\n", 1, runlog.ErrLine},
		{"an escaped slash", `{"statement":"\/\/\/\/"}` + "\n", 1, runlog.ErrLine},
		{"not UTF-8", `{"refused":{"line":0,"trace_id":"` + "\xff" + `","code":"","reason":"","detail":""}}` + "\n", 1, runlog.ErrLine},
		{"a lone surrogate", `{"refused":{"line":0,"trace_id":"\ud800","code":"","reason":"","detail":""}}` + "\n", 1, runlog.ErrLine},
		{"a NUL", closing + "\x00\n", 2, runlog.ErrLine},
		{"deep nesting", strings.Repeat("[", 100_000) + "\n", 1, runlog.ErrLine},
	} {
		_, err := readAll(strings.NewReader(c.log))
		var at *runlog.LineError
		if !errors.Is(err, c.err) || !errors.As(err, &at) || at.Line != c.line {
			t.Errorf("%s: have %v, want %v on line %d", c.name, err, c.err, c.line)
		}
	}
}

func TestReadError(t *testing.T) {
	broken := io.MultiReader(strings.NewReader(answered+closing[:5]), iotest.ErrReader(os.ErrDeadlineExceeded))
	got, err := readAll(broken)
	if len(got) != 1 || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, runlog.ErrIncomplete) {
		t.Errorf("have %d lines and %v", len(got), err)
	}
	ended := io.MultiReader(strings.NewReader(whole), iotest.ErrReader(os.ErrDeadlineExceeded))
	if _, err := readAll(ended); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, runlog.ErrEnd) {
		t.Errorf("after the end: %v", err)
	}
}

func TestLineBound(t *testing.T) {
	long := func(n int) string {
		around := len(refusedNil)
		return strings.Replace(refusedNil, `"detail":"`, `"detail":"`+strings.Repeat("x", n-around), 1)
	}
	at := long(runlog.MaxLineBytes)
	if got, err := readAll(strings.NewReader(at)); len(got) != 1 || !errors.Is(err, runlog.ErrIncomplete) {
		t.Errorf("a line of %d bytes: %v", len(at), err)
	}
	over := long(runlog.MaxLineBytes + 1)
	if got, err := readAll(strings.NewReader(over)); len(got) != 0 || !errors.Is(err, runlog.ErrLine) {
		t.Errorf("a line of %d bytes: %v", len(over), err)
	}
	if _, err := runlog.ParseLine([]byte(over[:len(over)-1])); !errors.Is(err, runlog.ErrLine) {
		t.Errorf("ParseLine: %v", err)
	}

	var out writes
	w := runlog.NewWriter(&out)
	if err := w.Refused(runlog.Refused{Detail: strings.Repeat("x", runlog.MaxLineBytes-len(refusedNil)+1)}); !errors.Is(err, runlog.ErrLine) || len(out) > 0 {
		t.Errorf("Writer: %v, %d writes", err, len(out))
	}
	if err := w.End(); err != nil {
		t.Errorf("Writer, after a line that was refused: %v", err)
	}
}

// TestEndlessLine: a log without a newline is refused at the bound, and not
// read to its end.
func TestEndlessLine(t *testing.T) {
	endless := &spaces{line: bytes.Repeat([]byte(" "), 1<<20)}
	if _, err := readAll(endless); !errors.Is(err, runlog.ErrLine) {
		t.Errorf("have %v", err)
	}
	if endless.read > runlog.MaxLineBytes+1<<20 {
		t.Errorf("read %d bytes", endless.read)
	}
}

type spaces struct {
	line []byte
	read int
}

func (s *spaces) Read(p []byte) (int, error) {
	n := copy(p, s.line)
	s.read += n
	return n, nil
}

// FuzzRunLog asks more than that nothing panics: what is read formats back to
// the very bytes, the counts are those of the lines, and a log that was read
// whole is one that the Writer writes.
func FuzzRunLog(f *testing.F) {
	for _, seed := range []string{whole, answered + end, refused, "{}\n", `{"end":{"calls":0,"refused":0,"sessions":0}}` + "\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		r := runlog.NewReader(bytes.NewReader(log))
		var again bytes.Buffer
		w := runlog.NewWriter(&again)
		for {
			line, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				if !bytes.HasPrefix(log, again.Bytes()) {
					t.Fatalf("wrote %q of %q", again.Bytes(), log)
				}
				return
			}
			switch {
			case line.End != nil:
				err = w.End()
			case line.Refused != nil:
				err = w.Refused(*line.Refused)
			case len(line.Response) > 0:
				err = w.Answered(line.Request, line.Response, line.Statement)
			case line.IsCall():
				err = w.Unanswered(line.Request, line.Statement)
			default:
				err = w.Close(line.Statement)
			}
			if err != nil {
				t.Fatalf("a line that was read cannot be written: %v", err)
			}
		}
		if !bytes.Equal(again.Bytes(), log) {
			t.Fatalf("wrote %q\nread  %q", again.Bytes(), log)
		}
	})
}
