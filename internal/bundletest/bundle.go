package bundletest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// An Entry is the content of a line or of a run log's line: stored messages and
// the payload to be signed. The zero value stands for a checkpoint.
type Entry struct {
	Request, Response, Payload []byte
}

// Checkpoint is the entry that makes Extend write a checkpoint.
var Checkpoint Entry

func (e *Entry) checkpoint() bool {
	return len(e.Request) == 0 && len(e.Response) == 0 && len(e.Payload) == 0
}

// Linked returns a linked bundle of the entries with a checkpoint at its end.
func Linked(k chain.Signer, entries ...Entry) []byte {
	return Extend(k, nil, append(append([]Entry(nil), entries...), Checkpoint)...)
}

// Extend returns the linked bundle with the entries appended to it, and nothing
// else: give a Checkpoint last to have the result whole. bundle is not changed.
func Extend(k chain.Signer, bundle []byte, entries ...Entry) []byte {
	file := &File{Bytes: bytes.Clone(bundle)}
	a := chain.NewAppender(file, k, End(bundle))
	for _, e := range entries {
		if e.checkpoint() {
			must(a.Checkpoint())
			continue
		}
		_, err := a.Append(e.Request, e.Response, e.Payload)
		must(err)
	}
	return file.Bytes
}

// Unlinked returns a bundle of the older format.
func Unlinked(k chain.Signer, entries ...Entry) []byte {
	var bundle []byte
	for _, e := range entries {
		bundle = chain.AppendLine(bundle, &chain.Line{
			Request: e.Request, Response: e.Response, Envelope: envelopeOf(k, e.Payload),
		})
		bundle = append(bundle, '\n')
	}
	return bundle
}

// End returns the end of a bundle whose last line has its LF.
func End(bundle []byte) chain.Mark {
	end := chain.Mark{Offset: int64(len(bundle))}
	if lines := Lines(bundle); len(lines) > 0 {
		end.Lines, end.Digest = uint64(len(lines)), digest(lines[len(lines)-1])
	}
	return end
}

// Lines splits a bundle into lines without their LF. They are copies.
func Lines(bundle []byte) [][]byte {
	var lines [][]byte
	for len(bundle) > 0 {
		line, rest, _ := bytes.Cut(bundle, []byte{'\n'})
		lines = append(lines, bytes.Clone(line))
		bundle = rest
	}
	return lines
}

// Join is the reverse of Lines.
func Join(lines ...[]byte) []byte {
	var bundle []byte
	for _, line := range lines {
		bundle = append(append(bundle, line...), '\n')
	}
	return bundle
}

// Relink returns the bundle with the links of line from and of all after it
// made anew: each entry as it stands, a line without one as a checkpoint. Lines
// that are not of the format stay as they are.
func Relink(k chain.Signer, bundle []byte, from int) []byte {
	w := NewWriter(k)
	for i, raw := range Lines(bundle) {
		line, err := chain.ParseLine(raw)
		if i+1 < from || err != nil {
			w.Raw(raw)
			continue
		}
		line.Link = nil
		w.Line(line.Line)
	}
	return w.Bundle()
}

// A Writer writes a linked bundle line by line, right or wrong. Every line
// written counts in the links that the Writer makes for later ones.
type Writer struct {
	key  chain.Signer
	at   chain.Position
	text []byte
}

// NewWriter returns a Writer of an empty bundle.
func NewWriter(k chain.Signer) *Writer { return &Writer{key: k} }

// At returns the place of the next line.
func (w *Writer) At() chain.Position { return w.at }

// Bundle returns what has been written.
func (w *Writer) Bundle() []byte { return bytes.Clone(w.text) }

// Entry writes a line as chain.Appender does.
func (w *Writer) Entry(e Entry) {
	if e.checkpoint() {
		w.Line(chain.Line{})
		return
	}
	w.Line(chain.Line{Request: e.Request, Response: e.Response, Envelope: envelopeOf(w.key, e.Payload)})
}

// Line writes any line. It gets the right link unless it has one.
func (w *Writer) Line(l chain.Line) {
	if l.Link == nil {
		l.Link = envelopeOf(w.key, statement.AppendLink(nil, w.LinkFor(&l)))
	}
	w.Raw(chain.AppendLine(nil, &l))
}

// LinkFor returns the right link of l as the next line: a checkpoint when l has
// no entry.
func (w *Writer) LinkFor(l *chain.Line) statement.Link {
	link := statement.Link{Index: w.at.Lines + 1, PreviousSHA256: w.at.Digest}
	if !l.HasEntry() {
		link.Checkpoint, link.Lines = true, w.at.Lines
		return link
	}
	entry := *l
	entry.Link = nil
	link.EntrySHA256 = digest(chain.AppendLine(nil, &entry))
	return link
}

// RawEntry writes a line whose entry is any text that ends in a brace, with the
// right link for it.
func (w *Writer) RawEntry(entry []byte) {
	link := statement.Link{Index: w.at.Lines + 1, PreviousSHA256: w.at.Digest, EntrySHA256: digest(entry)}
	line := append(bytes.Clone(entry[:len(entry)-1]), `,"link":`...)
	line = envelope.Append(line, envelopeOf(w.key, statement.AppendLink(nil, link)))
	w.Raw(append(line, '}'))
}

// Raw writes any text and an LF as the next line.
func (w *Writer) Raw(line []byte) {
	w.text = append(append(w.text, line...), '\n')
	w.at = chain.Position{Lines: w.at.Lines + 1, Digest: digest(line)}
}

func envelopeOf(k chain.Signer, payload []byte) *dsse.Envelope {
	e, err := k.Sign(payload)
	must(err)
	return e
}

// digest is the lower-case hex SHA-256 of b.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// A File is a bundle in memory. It is a chain.File.
type File struct {
	Bytes []byte
	Syncs int // how often Sync was called
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	if off >= int64(len(f.Bytes)) {
		return 0, io.EOF
	}
	n := copy(p, f.Bytes[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt. It leaves no hole.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(f.Bytes)) {
		return 0, errors.New("offset outside the file")
	}
	f.Bytes = append(f.Bytes[:off], append(bytes.Clone(p), f.Bytes[min(int(off)+len(p), len(f.Bytes)):]...)...)
	return len(p), nil
}

// Truncate makes the file shorter.
func (f *File) Truncate(size int64) error {
	if size < 0 || size > int64(len(f.Bytes)) {
		return errors.New("size outside the file")
	}
	f.Bytes = f.Bytes[:size]
	return nil
}

// Sync counts itself.
func (f *File) Sync() error {
	f.Syncs++
	return nil
}
