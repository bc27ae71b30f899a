package runlog

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/plimsoll-attest/plimsoll/internal/lines"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
)

// MaxLineBytes bounds a line, its LF included. It is the bound of a bundle's
// lines.
const MaxLineBytes = lines.MaxBytes

// ErrLine is wrapped when bytes are not a line of the format.
var ErrLine = errors.New("malformed")

// A Line is one line of a run log. It has one of five forms; members that are
// not named are nil:
//
//   - an answered call: Request, Response, Statement
//   - an unanswered call: Request, Statement
//   - the close of a session: Statement
//   - a refused call: Refused
//   - the end: End
type Line struct {
	Request   []byte   `json:"request"`   // protobuf bytes of plimsoll.v1.RunRequest
	Response  []byte   `json:"response"`  // protobuf bytes of plimsoll.v1.RunResponse
	Statement []byte   `json:"statement"` // the payload to be signed
	Refused   *Refused `json:"refused"`
	End       *End     `json:"end"`
}

// A Refused is a call that was refused before anything ran. It has no record,
// takes no number in its session and is never signed.
type Refused struct {
	Line    uint64 `json:"line"`     // of the runner's input, from 1
	TraceID string `json:"trace_id"` // the caller's name for the call; empty when it could not be read
	Code    string `json:"code"`     // a Connect error code
	Reason  string `json:"reason"`   // what would help
	Detail  string `json:"detail"`   // for people
}

// An End is the last line: the runner finished, and this is what it wrote.
type End struct {
	Calls    uint64 `json:"calls"` // answered and unanswered ones
	Refused  uint64 `json:"refused"`
	Sessions uint64 `json:"sessions"` // closes
}

// IsCall reports whether the line is a call, answered or not.
func (l *Line) IsCall() bool { return len(l.Request) > 0 }

// check reports whether the line has one of the five forms.
func (l *Line) check() error {
	signed := len(l.Request) > 0 || len(l.Response) > 0 || len(l.Statement) > 0
	forms := 0
	for _, is := range []bool{signed, l.Refused != nil, l.End != nil} {
		if is {
			forms++
		}
	}
	switch {
	case forms == 0:
		return fmt.Errorf("%w: an empty object", ErrLine)
	case forms > 1:
		return fmt.Errorf("%w: members of different lines in one", ErrLine)
	case signed && len(l.Statement) == 0:
		return fmt.Errorf("%w: a request or response without a statement", ErrLine)
	case len(l.Response) > 0 && len(l.Request) == 0:
		return fmt.Errorf("%w: a response without a request", ErrLine)
	}
	return nil
}

// ParseLine reads a line, given without its LF. It accepts exactly the texts
// that AppendLine writes of lines in one of the five forms. Errors wrap ErrLine.
func ParseLine(raw []byte) (*Line, error) {
	if len(raw) >= MaxLineBytes {
		return nil, tooLong()
	}
	l := new(Line)
	if !scanLine(raw, l) {
		if err := strictjson.UnmarshalToCompare(raw, l); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLine, err)
		}
	}
	// One spelling: with two, the line that was checked and the line that
	// somebody else reads in the same bytes could differ.
	if at, have, want := strictjson.Differs(raw, func(dst []byte) []byte { return AppendLine(dst, l) }); at >= 0 {
		return nil, mismatch.New(ErrLine, "not the canonical spelling: byte "+strconv.Itoa(at), have, want)
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l, nil
}

// scanLine reads a call's line. What it reads counts only if it is raw when
// written again.
func scanLine(raw []byte, l *Line) bool {
	s := strictjson.NewScan(raw)
	s.Literal(`{"request":"`)
	l.Request = s.Base64()
	if s.Optional(`,"response":"`) {
		l.Response = s.Base64()
	}
	s.Literal(`,"statement":"`)
	l.Statement = s.Base64()
	if s.End("}") {
		return true
	}
	*l = Line{}
	return false
}

// AppendLine appends the text of l without an LF, in its one spelling, which
// follows the rules of a bundle's lines (docs/bundle-format.md, "Lines"). Empty
// byte strings are left out; the members of Refused and End never are.
func AppendLine(dst []byte, l *Line) []byte {
	dst = append(dst, '{')
	start := len(dst)
	for _, m := range []struct {
		name  string
		value []byte
	}{
		{`"request":`, l.Request},
		{`"response":`, l.Response},
		{`"statement":`, l.Statement},
	} {
		if len(m.value) > 0 {
			dst = appendName(dst, start, m.name)
			dst = strictjson.AppendBase64(dst, m.value)
		}
	}
	if l.Refused != nil {
		dst = appendRefused(appendName(dst, start, `"refused":`), l.Refused)
	}
	if l.End != nil {
		dst = appendEnd(appendName(dst, start, `"end":`), l.End)
	}
	return append(dst, '}')
}

func appendName(dst []byte, start int, name string) []byte {
	if len(dst) > start {
		dst = append(dst, ',')
	}
	return append(dst, name...)
}

func appendRefused(dst []byte, r *Refused) []byte {
	dst = append(dst, `{"line":`...)
	dst = strconv.AppendUint(dst, r.Line, 10)
	dst = append(dst, `,"trace_id":`...)
	dst = strictjson.AppendString(dst, r.TraceID)
	dst = append(dst, `,"code":`...)
	dst = strictjson.AppendString(dst, r.Code)
	dst = append(dst, `,"reason":`...)
	dst = strictjson.AppendString(dst, r.Reason)
	dst = append(dst, `,"detail":`...)
	dst = strictjson.AppendString(dst, r.Detail)
	return append(dst, '}')
}

func appendEnd(dst []byte, e *End) []byte {
	dst = append(dst, `{"calls":`...)
	dst = strconv.AppendUint(dst, e.Calls, 10)
	dst = append(dst, `,"refused":`...)
	dst = strconv.AppendUint(dst, e.Refused, 10)
	dst = append(dst, `,"sessions":`...)
	dst = strconv.AppendUint(dst, e.Sessions, 10)
	return append(dst, '}')
}

func tooLong() error { return fmt.Errorf("%w: %w", ErrLine, lines.ErrTooLong) }
