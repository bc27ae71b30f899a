package runlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/plimsoll-attest/plimsoll/internal/lines"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
)

var (
	// ErrIncomplete is wrapped when a log stops before its end: the runner was
	// killed, or what it wrote was cut.
	ErrIncomplete = errors.New("incomplete")
	// ErrEnd is wrapped when the end does not count what was before it, or when
	// something follows it.
	ErrEnd = errors.New("end")
)

// A LineError locates a failure in a run log. Line counts from 1; for a log
// that stops too early it is the line that is missing.
type LineError struct {
	Line uint64
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// A Reader reads a run log, in memory bounded by the longest line.
type Reader struct {
	r     *lines.Reader
	lines uint64
	count End
	ended bool
	err   error
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: lines.NewReader(r)}
}

// Lines returns how many lines Next has returned.
func (r *Reader) Lines() uint64 { return r.lines }

// Counts returns what the lines returned so far add up to.
func (r *Reader) Counts() End { return r.count }

// Next returns the next line, which is the caller's to keep. After the end line
// it returns io.EOF, and never before it: a log without its end is an error
// that wraps ErrIncomplete. Other errors wrap ErrLine or ErrEnd, or are those of
// the underlying reader. All are a *LineError, but for io.EOF. After an error
// every call returns it again.
func (r *Reader) Next() (*Line, error) {
	if r.err != nil {
		return nil, r.err
	}
	line, err := r.next()
	if err != nil {
		if err != io.EOF {
			err = &LineError{Line: r.lines + 1, Err: err}
		}
		r.err = err
		return nil, err
	}
	r.lines++
	return line, nil
}

func (r *Reader) next() (*Line, error) {
	raw, err := r.raw()
	switch {
	case err == io.EOF && r.ended:
		return nil, io.EOF
	case err == io.EOF:
		return nil, fmt.Errorf("%w: the log stops here, without its end", ErrIncomplete)
	case r.ended && (err == nil || errors.Is(err, ErrLine) || errors.Is(err, ErrIncomplete)):
		return nil, fmt.Errorf("%w: something follows it", ErrEnd)
	case err != nil:
		return nil, err
	}
	line, err := ParseLine(raw)
	if err != nil {
		return nil, err
	}
	switch {
	case line.End != nil:
		if err := r.count.check(line.End); err != nil {
			return nil, err
		}
		r.ended = true
	case line.Refused != nil:
		r.count.Refused++
	case line.IsCall():
		r.count.Calls++
	default:
		r.count.Sessions++
	}
	return line, nil
}

// check compares the end as stated with what was read.
func (e *End) check(stated *End) error {
	for _, c := range []struct {
		what       string
		have, want uint64
	}{
		{"calls", stated.Calls, e.Calls},
		{"refused", stated.Refused, e.Refused},
		{"sessions", stated.Sessions, e.Sessions},
	} {
		if c.have != c.want {
			return mismatch.New(ErrEnd, c.what, fmt.Sprint(c.have), fmt.Sprint(c.want))
		}
	}
	return nil
}

// raw returns the next line's bytes without the LF, valid until the next call.
// It returns io.EOF at the end, and ErrIncomplete when the last line has no LF.
func (r *Reader) raw() ([]byte, error) {
	raw, err := r.r.Next()
	switch {
	case errors.Is(err, lines.ErrTooLong):
		return nil, tooLong()
	case errors.Is(err, lines.ErrTorn):
		return nil, fmt.Errorf("%w: the log stops inside this line: %w", ErrIncomplete, err)
	}
	return raw, err
}
