package strictjson

import (
	"bytes"
	"encoding/base64"
	"strconv"
)

// A Scan reads canonical text, member by member, at a fraction of the cost of a
// JSON reader. It knows no escapes and no order but the caller's, and it checks
// nothing: what was read counts only if it gives the same bytes when written
// again. At anything else it fails, and Unmarshal says what is wrong, if
// something is.
type Scan struct {
	rest   []byte
	failed bool
}

// NewScan returns a Scan of text.
func NewScan(text []byte) Scan { return Scan{rest: text} }

// Literal takes text that must come next.
func (s *Scan) Literal(text string) {
	if !s.Optional(text) {
		s.failed = true
	}
}

// Optional takes text if it comes next, and reports whether it did.
func (s *Scan) Optional(text string) bool {
	rest, ok := bytes.CutPrefix(s.rest, []byte(text))
	if ok {
		s.rest = rest
	}
	return ok
}

// Text takes the rest of a string whose opening quote has been taken.
func (s *Scan) Text() string {
	text := s.raw()
	if bytes.IndexByte(text, '\\') >= 0 {
		s.failed = true
		return ""
	}
	return string(text)
}

// Base64 takes the rest of a string whose opening quote has been taken.
func (s *Scan) Base64() []byte {
	text := s.raw()
	b, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))), text)
	if err != nil {
		s.failed = true
		return nil
	}
	return b
}

// raw takes what stands before the next quote, and the quote.
func (s *Scan) raw() []byte {
	text, rest, ok := bytes.Cut(s.rest, []byte{'"'})
	if !ok {
		s.failed = true
		return nil
	}
	s.rest = rest
	return text
}

// Unsigned takes a number of at most this many bits.
func (s *Scan) Unsigned(bits int) uint64 {
	n, err := strconv.ParseUint(s.digits(), 10, bits)
	s.failed = s.failed || err != nil
	return n
}

// Signed takes a number of 64 bits.
func (s *Scan) Signed() int64 {
	n, err := strconv.ParseInt(s.digits(), 10, 64)
	s.failed = s.failed || err != nil
	return n
}

// digits takes what strconv may make a number of.
func (s *Scan) digits() string {
	n := 0
	for n < len(s.rest) && (s.rest[n] == '-' || '0' <= s.rest[n] && s.rest[n] <= '9') {
		n++
	}
	digits := string(s.rest[:n])
	s.rest = s.rest[n:]
	return digits
}

// End takes text, which must be all that is left, and reports whether
// everything was read.
func (s *Scan) End(text string) bool { return !s.failed && string(s.rest) == text }
