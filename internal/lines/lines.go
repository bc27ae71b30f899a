// Package lines splits a stream into lines that are bounded and each have their
// newline: the frame of a bundle and of a run log.
package lines

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// MaxBytes bounds a line, its LF included.
const MaxBytes = 64 << 20

var (
	// ErrTooLong is returned for a line of more than MaxBytes, once that many
	// were read and however many more there are.
	ErrTooLong = fmt.Errorf("longer than %d bytes with its newline", MaxBytes)
	// ErrTorn is wrapped when the last line has no newline: what a writer leaves
	// that was killed, or ran out of disk, in the middle of a line.
	ErrTorn = errors.New("no newline at the end")
)

// A Reader reads lines in memory bounded by the longest one.
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

// maxKept is how large a buffer is kept for the next line.
const maxKept = 1 << 20

// Next returns the next line without its LF. The slice is valid until the next
// call. It returns io.EOF at the end, ErrTooLong, an error wrapping ErrTorn, or
// the error of the underlying reader. After an error every call returns it
// again.
func (r *Reader) Next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.buf = r.buf[:0]; cap(r.buf) > maxKept {
		r.buf = nil
	}
	for {
		part, err := r.r.ReadSlice('\n')
		if len(r.buf)+len(part) > MaxBytes {
			r.err = ErrTooLong
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
		case err == io.EOF && len(r.buf) > 0:
			r.err = fmt.Errorf("%w after %d bytes", ErrTorn, len(r.buf))
		default:
			r.err = err
		}
		return nil, r.err
	}
}

// End returns how many bytes Next has read: the offset after the last line's LF.
func (r *Reader) End() int64 { return r.read }
