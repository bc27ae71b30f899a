package chain

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/statement"
)

// A Signer signs payloads: statements in, envelopes with one signature out.
type Signer interface {
	Sign(payload []byte) (*dsse.Envelope, error)
}

// A File is the open bundle. *os.File is one.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Sync() error
}

// A Mark is a place in a bundle between two lines that an Appender can go back
// to.
type Mark struct {
	Position
	Offset int64 // bytes before it
}

// An Appender extends a bundle by signed, linked lines. Each is on disk before
// the call that writes it returns. A line is whole in the file or absent: a
// failed write is cut off again.
//
// An Appender trusts what it is told of the file: that the bundle up to its
// start verifies, and that nobody else writes to it. It is not safe for
// concurrent use.
type Appender struct {
	file   File
	signer Signer
	end    Mark
	broken error
	buf    []byte
}

// NewAppender returns an Appender that writes at end, the end of the file.
func NewAppender(file File, signer Signer, end Mark) *Appender {
	return &Appender{file: file, signer: signer, end: end}
}

// End returns the end of what has been written.
func (a *Appender) End() Mark { return a.end }

// A WriteError says that a line could not be written, and holds it. The file
// ends where it ended before, unless CutErr is set: then the torn line could
// not be cut off and the file needs recovery.
type WriteError struct {
	Line   []byte // the signed line, with its LF
	Err    error
	CutErr error
}

func (e *WriteError) Error() string {
	if e.CutErr != nil {
		return fmt.Sprintf("write a line: %v; and cut it off again: %v", e.Err, e.CutErr)
	}
	return fmt.Sprintf("write a line: %v", e.Err)
}

// Unwrap returns the errors of the write and of the cut.
func (e *WriteError) Unwrap() []error { return []error{e.Err, e.CutErr} }

// Append signs payload, a run-record or session-close statement, and writes the
// line of it. request and response are empty where the line has none. It
// returns the line's number.
//
// After a *WriteError the Appender can go on, or back with CutTo, unless the
// error has a CutErr.
func (a *Appender) Append(request, response, payload []byte) (uint64, error) {
	envelope, err := a.signer.Sign(payload)
	if err != nil {
		return 0, fmt.Errorf("sign: %w", err)
	}
	line := &Line{Request: request, Response: response, Envelope: envelope}
	return a.write(line, func(entry string) statement.Link {
		return statement.Link{EntrySHA256: entry}
	})
}

// Checkpoint writes a checkpoint over all lines so far.
func (a *Appender) Checkpoint() error {
	_, err := a.write(new(Line), func(string) statement.Link {
		return statement.Link{Checkpoint: true, Lines: a.end.Lines}
	})
	return err
}

// linkBytes is room for the statement of a link.
const linkBytes = 640

// write links line and writes it.
func (a *Appender) write(line *Line, linkTo func(entryDigest string) statement.Link) (uint64, error) {
	if a.broken != nil {
		return 0, a.broken
	}
	a.buf = appendEntry(a.buf[:0], line)
	link := linkTo(entryDigest(a.buf))
	link.Index, link.PreviousSHA256 = a.end.Lines+1, a.end.Digest

	var err error
	if line.Link, err = a.signer.Sign(statement.AppendLink(make([]byte, 0, linkBytes), link)); err != nil {
		return 0, fmt.Errorf("sign a link: %w", err)
	}
	text := closeLine(a.buf, line)
	sum := sha256.Sum256(text)
	text = append(text, '\n')
	a.buf = text
	if len(text) > MaxLineBytes {
		a.buf = nil
		return 0, tooLong()
	}
	if _, err = a.file.WriteAt(text, a.end.Offset); err == nil {
		err = a.file.Sync()
	}
	if err != nil {
		failed := &WriteError{Line: append([]byte(nil), text...), Err: err}
		if failed.CutErr = a.cut(a.end.Offset); failed.CutErr != nil {
			a.broken = failed
		}
		return 0, failed
	}
	a.end.Lines++
	a.end.Digest = hex.EncodeToString(sum[:])
	a.end.Offset += int64(len(text))
	if cap(a.buf) > 1<<20 {
		a.buf = nil // one huge line does not hold its memory for good
	}
	return a.end.Lines, nil
}

func (a *Appender) cut(size int64) error {
	return errors.Join(a.file.Truncate(size), a.file.Sync())
}

// CutTo takes everything after mark out of the file. The bytes are copied to
// keep first and, when that fails, stay where they are.
func (a *Appender) CutTo(mark Mark, keep io.Writer) error {
	tail := io.NewSectionReader(a.file, mark.Offset, a.end.Offset-mark.Offset)
	if _, err := io.Copy(keep, tail); err != nil {
		return fmt.Errorf("copy the lines to be cut: %w", err)
	}
	if err := a.cut(mark.Offset); err != nil {
		a.broken = err
		return fmt.Errorf("cut back: %w", err)
	}
	a.end = mark
	return nil
}
