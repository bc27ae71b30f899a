package verify

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// ErrChain is wrapped when a call or close does not continue its session.
var ErrChain = errors.New("chain")

// Sessions follows the calls of sessions, by fingerprint, through a bundle or a
// run log. The zero value has seen none. Calls of different sessions and single
// runs may be interleaved; only the order inside a session counts.
//
// It keeps a digest of each session that was closed, since none may be opened
// again: some 60 bytes each.
type Sessions struct {
	// Both are by the digest of the fingerprint, which is any text.
	open   map[[sha256.Size]byte]*session
	closed map[[sha256.Size]byte]struct{}
}

type session struct {
	fingerprint string // as shown: the first bytes of what is not one
	calls       uint64
	last        string // record_sha256 of the last call
	version     uint32 // of the first call: 1, 2 for 2 and 3, 4
}

// Call takes the next call's record. Errors wrap ErrChain.
func (s *Sessions) Call(rec *record.Record) error {
	if rec.Session == "" {
		return checkSingle(rec)
	}
	key := sha256.Sum256([]byte(rec.Session))
	st, seen := s.open[key]
	if !seen {
		st = &session{fingerprint: strings.Clone(rec.Session[:min(len(rec.Session), maxFingerprint)])}
	}
	family := versionFamily(rec.Version)
	switch {
	case s.Closed(rec.Session):
		return fmt.Errorf("%w: a call after the close of session %s", ErrChain, mismatch.Show(rec.Session))
	case rec.Sequence != st.calls+1:
		return mismatch.New(ErrChain, "sequence", number(rec.Sequence), number(st.calls+1))
	case rec.PreviousSHA256 != st.last:
		return mismatch.New(ErrChain, "previous_sha256 is not the session's last record", rec.PreviousSHA256, st.last)
	case seen && family != st.version:
		return mismatch.New(ErrChain, "record version in a session that began with another", number(uint64(rec.Version)), number(uint64(st.version)))
	}
	if !seen {
		if s.open == nil {
			s.open = make(map[[sha256.Size]byte]*session)
		}
		s.open[key] = st
	}
	st.calls++
	st.last, st.version = rec.RecordSHA256, family
	return nil
}

// checkSingle checks a call outside any session.
func checkSingle(rec *record.Record) error {
	switch {
	case rec.Sequence != 0:
		return mismatch.New(ErrChain, "sequence of a single run", number(rec.Sequence), "0")
	case rec.PreviousSHA256 != "":
		return mismatch.New(ErrChain, "previous_sha256 of a single run", rec.PreviousSHA256, "")
	case rec.Unanswered != "":
		return mismatch.New(ErrChain, "unanswered single run", rec.Unanswered, "")
	}
	return nil
}

// Close takes a session's close. One of a session that no call was seen of must
// count zero calls. Errors wrap ErrChain.
func (s *Sessions) Close(c *statement.Close) error {
	key := sha256.Sum256([]byte(c.Session))
	st, seen := s.open[key]
	if !seen {
		st = new(session)
	}
	switch {
	case c.Session == "":
		return fmt.Errorf("%w: a close of no session", ErrChain)
	case s.Closed(c.Session):
		return fmt.Errorf("%w: a second close of session %s", ErrChain, mismatch.Show(c.Session))
	case c.Calls != st.calls:
		return mismatch.New(ErrChain, "calls of the session", number(c.Calls), number(st.calls))
	case c.LastRecordSHA256 != st.last:
		return mismatch.New(ErrChain, "last_record_sha256", c.LastRecordSHA256, st.last)
	}
	delete(s.open, key)
	if s.closed == nil {
		s.closed = make(map[[sha256.Size]byte]struct{})
	}
	s.closed[key] = struct{}{}
	return nil
}

// Open returns how many sessions have calls and no close.
func (s *Sessions) Open() int { return len(s.open) }

// Closed reports whether the session has been closed.
func (s *Sessions) Closed(fingerprint string) bool {
	_, closed := s.closed[sha256.Sum256([]byte(fingerprint))]
	return closed
}

// OpenSessions returns the fingerprints of the open sessions, sorted, with the
// number of calls of each.
func (s *Sessions) OpenSessions() []OpenSession {
	var open []OpenSession
	for _, st := range s.open {
		open = append(open, OpenSession{Session: st.fingerprint, Calls: st.calls})
	}
	slices.SortFunc(open, func(a, b OpenSession) int { return strings.Compare(a.Session, b.Session) })
	return open
}

// An OpenSession is a session with calls and no close.
type OpenSession struct {
	Session string // the fingerprint; of a longer text, the first 64 bytes
	Calls   uint64
}

// maxFingerprint is how long a fingerprint is.
const maxFingerprint = 64

// versionFamily maps record versions that may stand in one session to one
// number: a daemon speaks one protocol, and versions 2 and 3 are of one.
func versionFamily(version uint32) uint32 {
	if version == 3 {
		return 2
	}
	return version
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
