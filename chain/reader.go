package chain

import (
	"errors"
	"fmt"
	"io"

	"github.com/plimsoll-attest/plimsoll/internal/lines"
)

// A Reader splits a bundle into lines, in memory bounded by the longest one.
type Reader struct{ lines *lines.Reader }

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{lines.NewReader(r)} }

// ErrTorn is wrapped, beside ErrLine, when the last line has no newline: what a
// writer leaves that was killed, or ran out of disk, in the middle of a line.
var ErrTorn = lines.ErrTorn

// Next returns the next line without its LF. The slice is valid until the next
// call. It returns io.EOF at the end, an error wrapping ErrLine for a line that
// is too long or torn, and the error of the underlying reader otherwise. After
// an error every call returns it again.
func (r *Reader) Next() ([]byte, error) {
	raw, err := r.lines.Next()
	if errors.Is(err, lines.ErrTooLong) || errors.Is(err, lines.ErrTorn) {
		return nil, fmt.Errorf("%w: %w", ErrLine, err)
	}
	return raw, err
}

// End returns how many bytes Next has read: the offset after the last line's LF.
func (r *Reader) End() int64 { return r.lines.End() }
