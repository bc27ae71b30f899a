package chain

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/lines"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
)

// MaxLineBytes bounds a line, its LF included.
const MaxLineBytes = lines.MaxBytes

// ErrLine is wrapped when bytes are not a line of the format.
var ErrLine = errors.New("line")

// A Line is one line of a bundle. Empty members are left out of its text.
//
// An answered call has Request, Response and Envelope; an unanswered one has no
// Response; the close of a session has the Envelope alone; a checkpoint has none
// of them. Every line of a linked bundle has a Link.
type Line struct {
	Request  []byte         `json:"request"`  // protobuf bytes of plimsoll.v1.RunRequest
	Response []byte         `json:"response"` // protobuf bytes of plimsoll.v1.RunResponse
	Envelope *dsse.Envelope `json:"envelope"`
	Link     *dsse.Envelope `json:"link"`
}

// A ParsedLine is a line and the digests that links speak of, as 64 lower-case
// hex digits.
type ParsedLine struct {
	Line
	Digest      string // the whole text without its LF: the next link's previous_sha256
	EntryDigest string // the text with the link left out: entry_sha256; "{}" has one too
}

// HasEntry reports whether there is content besides the link.
func (l *Line) HasEntry() bool {
	return len(l.Request) > 0 || len(l.Response) > 0 || !empty(l.Envelope)
}

// ParseLine reads a line, given without its LF. It accepts exactly the texts
// that AppendLine writes: the line is written again from what was read and
// compared. Errors wrap ErrLine; for a spelling that differs, a *SpellingError.
func ParseLine(raw []byte) (*ParsedLine, error) {
	if len(raw) >= MaxLineBytes {
		return nil, tooLong()
	}
	l := new(ParsedLine)
	if !scanLine(raw, &l.Line) {
		if err := strictjson.UnmarshalToCompare(raw, &l.Line); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLine, err)
		}
	}
	entry := 0 // length of the entry's text, without the closing brace
	at, have, want := strictjson.Differs(raw, func(dst []byte) []byte {
		dst = appendEntry(dst, &l.Line)
		entry = len(dst)
		return closeLine(dst, &l.Line)
	})
	if at >= 0 {
		return nil, &SpellingError{At: at, Have: have, Want: want}
	}
	sum := sha256.Sum256(raw)
	l.Digest = hex.EncodeToString(sum[:])
	l.EntryDigest = entryDigest(raw[:entry])
	return l, nil
}

// scanLine reads a line as nearly all are: without escapes, each envelope with
// one signature. What it reads counts only if it is raw when written again.
func scanLine(raw []byte, l *Line) bool {
	s := strictjson.NewScan(raw)
	if s.Optional(`{"request":"`) {
		l.Request = s.Base64()
		if s.Optional(`,"response":"`) {
			l.Response = s.Base64()
		}
		s.Literal(`,"envelope":{`)
		l.Envelope = scanEnvelope(&s)
	} else if s.Optional(`{"envelope":{`) {
		l.Envelope = scanEnvelope(&s)
	}
	if l.Envelope == nil {
		s.Literal(`{"link":{`)
	} else {
		s.Literal(`,"link":{`)
	}
	l.Link = scanEnvelope(&s)
	if s.End("}") {
		return true
	}
	*l = Line{}
	return false
}

func scanEnvelope(s *strictjson.Scan) *dsse.Envelope {
	e := &dsse.Envelope{Signatures: make([]dsse.Signature, 1)}
	s.Literal(`"payloadType":"`)
	e.PayloadType = s.Text()
	s.Literal(`,"payload":"`)
	e.Payload = s.Text()
	s.Literal(`,"signatures":[{"keyid":"`)
	e.Signatures[0].KeyID = s.Text()
	s.Literal(`,"sig":"`)
	e.Signatures[0].Sig = s.Text()
	s.Literal(`}]}`)
	return e
}

// entryDigest is the digest of an entry, given open: without its last brace.
func entryDigest(open []byte) string {
	h := sha256.New()
	h.Write(open)
	h.Write([]byte{'}'})
	return hex.EncodeToString(h.Sum(nil))
}

// AppendLine appends the text of l without an LF, in its one spelling
// (docs/bundle-format.md, "Lines").
func AppendLine(dst []byte, l *Line) []byte {
	return closeLine(appendEntry(dst, l), l)
}

// appendEntry appends the members of the entry and leaves the object open.
func appendEntry(dst []byte, l *Line) []byte {
	dst = append(dst, '{')
	start := len(dst)
	if len(l.Request) > 0 {
		dst = append(dst, `"request":`...)
		dst = strictjson.AppendBase64(dst, l.Request)
	}
	if len(l.Response) > 0 {
		dst = appendName(dst, start, `"response":`)
		dst = strictjson.AppendBase64(dst, l.Response)
	}
	if !empty(l.Envelope) {
		dst = appendName(dst, start, `"envelope":`)
		dst = envelope.Append(dst, l.Envelope)
	}
	return dst
}

// closeLine appends the link to an open entry and closes the object.
func closeLine(dst []byte, l *Line) []byte {
	if !empty(l.Link) {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, `"link":`...)
		dst = envelope.Append(dst, l.Link)
	}
	return append(dst, '}')
}

func appendName(dst []byte, start int, name string) []byte {
	if len(dst) > start {
		dst = append(dst, ',')
	}
	return append(dst, name...)
}

// empty reports whether an envelope is one that is left out.
func empty(e *dsse.Envelope) bool {
	return e == nil || e.PayloadType == "" && e.Payload == "" && e.Signatures == nil
}

// A SpellingError says that a line is JSON but not the one spelling of what it
// holds. At is the offset in the line of the first byte that differs.
type SpellingError struct {
	At         int
	Have, Want string
}

func (e *SpellingError) Error() string {
	return mismatch.New(ErrLine, "not the canonical spelling: byte "+strconv.Itoa(e.At), e.Have, e.Want).Error()
}

// Unwrap returns ErrLine.
func (e *SpellingError) Unwrap() error { return ErrLine }

func tooLong() error { return fmt.Errorf("%w: %w", ErrLine, lines.ErrTooLong) }
