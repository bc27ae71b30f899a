package statement

import (
	"bytes"
	"errors"
	"fmt"

	intoto "github.com/in-toto/attestation/go/v1"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
	"github.com/plimsoll-attest/plimsoll/record"
)

// ErrStatement is wrapped when a payload is not a statement of the format in
// its exact form.
var ErrStatement = errors.New("statement")

// The predicate types of the format.
const (
	RunRecordType    = "https://plimsollmark.github.io/plimsoll/run-record/v1"
	SessionCloseType = "https://plimsollmark.github.io/plimsoll/session-close/v1"
	BundleLinkType   = "https://plimsollmark.github.io/plimsoll/bundle-link/v1"
)

// The subject names of the format, one a predicate type.
const (
	runRecordSubject    = "run-record"
	sessionCloseSubject = "session"
	bundleLinkSubject   = "bundle-line"
)

// MaxBytes bounds a payload before it is decoded. The longest field of a
// record, its software identity, has a few hundred bytes; free text (provider,
// environment, policy) comes from the runner and is not bounded by the format.
const MaxBytes = 1 << 20

// An Entry is what the envelope of a bundle line, or a line of a run log,
// states. Exactly one of the two is set.
type Entry struct {
	Record *record.Record
	Close  *Close
}

// ParseEntry reads the payload of an entry: a run-record or a session-close. A
// link is refused: it is a statement about a line, never its content.
func ParseEntry(payload []byte) (Entry, error) {
	switch {
	case named(payload, runRecordSubject):
		r, err := ParseRecord(payload)
		return Entry{Record: r}, err
	case named(payload, sessionCloseSubject):
		c, err := ParseClose(payload)
		if err != nil {
			return Entry{}, err
		}
		return Entry{Close: &c}, nil
	}
	return Entry{}, unknown(payload, RunRecordType+" or "+SessionCloseType)
}

// header is the start of every canonical statement, up to its subject's name.
const header = `{"_type":"` + intoto.StatementTypeUri + `","subject":[{"name":"`

// named reports whether payload starts as the canonical statement with this
// subject name does. The name and the predicate type determine each other, and
// the bytes are compared whole later.
func named(payload []byte, subject string) bool {
	if len(payload) > MaxBytes {
		return false // unknown says so
	}
	rest, ok := bytes.CutPrefix(payload, []byte(header+subject+`"`))
	return ok && len(rest) > 0
}

// envelopeOf is the statement around a predicate.
type envelopeOf[P any] struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     P         `json:"predicate"`
}

type subject struct {
	Name   string `json:"name"`
	Digest struct {
		SHA256 string `json:"sha256"`
	} `json:"digest"`
}

// decode reads into p the predicate of a payload that is named as p's kind. It does not look at the rest of the
// statement: the caller writes it again and compares.
func decode[P any](payload []byte, predicateType string, p *P) error {
	var s envelopeOf[P]
	if err := strictjson.UnmarshalToCompare(payload, &s); err != nil {
		return fmt.Errorf("%w: not a %s statement: %w", ErrStatement, short(predicateType), err)
	}
	*p = s.Predicate
	return nil
}

// unknown explains why a payload is none of the wanted statements.
func unknown(payload []byte, want string) error {
	if len(payload) > MaxBytes {
		return mismatch.New(ErrStatement, "payload", fmt.Sprint(len(payload), " bytes"), fmt.Sprint("at most ", MaxBytes))
	}
	if _, after, ok := bytes.Cut(payload, []byte(`"predicateType":"`)); ok && bytes.HasPrefix(payload, []byte(header)) {
		if have, _, ok := bytes.Cut(after, []byte{'"'}); ok {
			return mismatch.New(ErrStatement, "predicate type or subject", string(have), want)
		}
	}
	return mismatch.New(ErrStatement, "payload starts with", string(payload[:min(len(payload), 64)]), header)
}

// exact compares a payload with the one spelling, which write appends, of what
// was read from it.
func exact(payload []byte, write func([]byte) []byte) error {
	at, have, want := strictjson.Differs(payload, write)
	if at < 0 {
		return nil
	}
	return mismatch.New(ErrStatement, fmt.Sprintf("not in its exact form: byte %d", at), have, want)
}

func short(predicateType string) string {
	switch predicateType {
	case RunRecordType:
		return "run-record"
	case SessionCloseType:
		return "session-close"
	}
	return "bundle-link"
}

func appendStart(dst []byte, subjectName, digest, predicateType string) []byte {
	dst = append(dst, header...)
	dst = append(dst, subjectName...)
	dst = append(dst, `","digest":{"sha256":`...)
	dst = strictjson.AppendString(dst, digest)
	dst = append(dst, `}}],"predicateType":"`...)
	dst = append(dst, predicateType...)
	return append(dst, `","predicate":{`...)
}

func appendEnd(dst []byte) []byte { return append(dst, "}}"...) }
