package verify

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

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
// It keeps some hundred bytes for each session seen, closed ones included: a
// closed session must not be opened again.
type Sessions struct {
	bySession map[string]*session
	open      int
}

type session struct {
	calls   uint64
	last    string // record_sha256 of the last call
	closed  bool
	version uint32 // of the first call: 1, 2 for 2 and 3, 4
}

// Call takes the next call's record. Errors wrap ErrChain.
func (s *Sessions) Call(rec *record.Record) error {
	if rec.Session == "" {
		return checkSingle(rec)
	}
	st, seen := s.bySession[rec.Session]
	if !seen {
		st = new(session)
	}
	family := versionFamily(rec.Version)
	switch {
	case st.closed:
		return fmt.Errorf("%w: a call after the close of session %s", ErrChain, mismatch.Show(rec.Session))
	case rec.Sequence != st.calls+1:
		return mismatch.New(ErrChain, "sequence", number(rec.Sequence), number(st.calls+1))
	case rec.PreviousSHA256 != st.last:
		return mismatch.New(ErrChain, "previous_sha256 is not the session's last record", rec.PreviousSHA256, st.last)
	case st.calls > 0 && family != st.version:
		return mismatch.New(ErrChain, "record version in a session that began with another", number(uint64(rec.Version)), number(uint64(st.version)))
	}
	if !seen {
		s.add(rec.Session, st)
		s.open++
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
	st, seen := s.bySession[c.Session]
	if !seen {
		st = new(session)
	}
	switch {
	case c.Session == "":
		return fmt.Errorf("%w: a close of no session", ErrChain)
	case st.closed:
		return fmt.Errorf("%w: a second close of session %s", ErrChain, mismatch.Show(c.Session))
	case c.Calls != st.calls:
		return mismatch.New(ErrChain, "calls of the session", number(c.Calls), number(st.calls))
	case c.LastRecordSHA256 != st.last:
		return mismatch.New(ErrChain, "last_record_sha256", c.LastRecordSHA256, st.last)
	}
	if seen {
		s.open--
	} else {
		s.add(c.Session, st)
	}
	st.closed = true
	return nil
}

func (s *Sessions) add(fingerprint string, st *session) {
	if s.bySession == nil {
		s.bySession = make(map[string]*session)
	}
	s.bySession[fingerprint] = st
}

// Open returns how many sessions have calls and no close.
func (s *Sessions) Open() int { return s.open }

// Seen returns how many sessions there were, closed ones and empty ones included.
func (s *Sessions) Seen() int { return len(s.bySession) }

// Closed reports whether the session has been closed.
func (s *Sessions) Closed(fingerprint string) bool {
	st, ok := s.bySession[fingerprint]
	return ok && st.closed
}

// OpenSessions returns the fingerprints of the open sessions, sorted, with the
// number of calls of each.
func (s *Sessions) OpenSessions() []OpenSession {
	var open []OpenSession
	for fingerprint, st := range s.bySession {
		if !st.closed {
			open = append(open, OpenSession{Session: fingerprint, Calls: st.calls})
		}
	}
	slices.SortFunc(open, func(a, b OpenSession) int {
		if a.Session < b.Session {
			return -1
		}
		return 1
	})
	return open
}

// An OpenSession is a session with calls and no close.
type OpenSession struct {
	Session string
	Calls   uint64
}

// versionFamily maps record versions that may stand in one session to one
// number: a daemon speaks one protocol, and versions 2 and 3 are of one.
func versionFamily(version uint32) uint32 {
	if version == 3 {
		return 2
	}
	return version
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
