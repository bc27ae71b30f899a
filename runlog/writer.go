package runlog

import (
	"errors"
	"io"
)

// ErrEnded is returned when a line is to follow the end.
var ErrEnded = errors.New("the run log has its end already")

// A Writer writes a run log. Each line is one call of the underlying writer, so
// that a reader on a pipe has it at once. After a failed write, which may have
// torn a line, every method returns that error.
//
// A Writer is not safe for concurrent use.
type Writer struct {
	w     io.Writer
	count End
	buf   []byte
	err   error
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Answered writes a call that has an answer: the message bytes that the digests
// cover, and the run-record statement to be signed, as it is to be signed.
func (w *Writer) Answered(request, response, statement []byte) error {
	if len(response) == 0 {
		return errors.New("answered call without a response")
	}
	return w.write(&Line{Request: request, Response: response, Statement: statement}, &w.count.Calls)
}

// Unanswered writes a call that may have run and has no answer.
func (w *Writer) Unanswered(request, statement []byte) error {
	if len(request) == 0 {
		return errors.New("unanswered call without a request")
	}
	return w.write(&Line{Request: request, Statement: statement}, &w.count.Calls)
}

// Close writes the close of a session: its session-close statement.
func (w *Writer) Close(statement []byte) error {
	return w.write(&Line{Statement: statement}, &w.count.Sessions)
}

// Refused writes a call that was refused before anything ran.
func (w *Writer) Refused(r Refused) error {
	return w.write(&Line{Refused: &r}, &w.count.Refused)
}

// End writes the last line, with the counts of what was written.
func (w *Writer) End() error {
	end := w.count
	if err := w.write(&Line{End: &end}, new(uint64)); err != nil {
		return err
	}
	w.err = ErrEnded
	return nil
}

// write writes one line and counts it. A line that has no valid form, or is too
// long, is refused and leaves the log as it was.
func (w *Writer) write(l *Line, count *uint64) error {
	if w.err != nil {
		return w.err
	}
	if w.buf = w.buf[:0]; cap(w.buf) > 1<<20 { // one huge line does not hold its memory for good
		w.buf = nil
	}
	if err := l.check(); err != nil {
		return err
	}
	w.buf = append(AppendLine(w.buf, l), '\n')
	if len(w.buf) > MaxLineBytes {
		return tooLong()
	}
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = err
		return err
	}
	*count++
	return nil
}
