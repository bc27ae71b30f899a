package chain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// A Reader splits a bundle into lines, in memory bounded by the longest one.
type Reader struct {
	r    *bufio.Reader
	buf  []byte
	read int64
	err  error
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10)}
}

// ErrTorn is wrapped, beside ErrLine, when the last line has no newline: what a
// writer leaves that was killed, or ran out of disk, in the middle of a line.
var ErrTorn = errors.New("no newline at the end")

// Next returns the next line without its LF. The slice is valid until the next
// call. It returns io.EOF at the end, an error wrapping ErrLine for a line that
// is too long or torn, and the error of the underlying reader otherwise. After
// an error every call returns it again.
func (r *Reader) Next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.buf = r.buf[:0]
	for {
		part, err := r.r.ReadSlice('\n')
		if len(r.buf)+len(part) > MaxLineBytes {
			r.err = tooLong()
			return nil, r.err
		}
		r.read += int64(len(part))
		if err == nil && len(r.buf) == 0 {
			return part[:len(part)-1], nil
		}
		r.buf = append(r.buf, part...)
		switch {
		case err == nil:
			return r.buf[:len(r.buf)-1], nil
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(r.buf) == 0:
			r.err = io.EOF
		case err == io.EOF:
			r.err = fmt.Errorf("%w: %w after %d bytes", ErrLine, ErrTorn, len(r.buf))
		default:
			r.err = err
		}
		return nil, r.err
	}
}

// End returns how many bytes Next has read: the offset after the last line's LF.
func (r *Reader) End() int64 { return r.read }
