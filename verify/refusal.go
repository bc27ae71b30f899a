package verify

import (
	"errors"
	"fmt"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// The checks that need the whole bundle.
var (
	// ErrIncomplete is wrapped when the last line is no checkpoint.
	ErrIncomplete = errors.New("incomplete")
	// ErrExpect is wrapped when the calls are not the caller's own list.
	ErrExpect = errors.New("expect")
	// ErrState is wrapped when a bundle does not extend its remembered end.
	ErrState = errors.New("state")
)

// A Check names what a bundle was refused by. The names are the format's
// (docs/bundle-format.md, "Verifying a bundle"), but for CheckState.
type Check string

// The checks.
const (
	CheckLine       Check = "line"
	CheckLink       Check = "link"
	CheckStatement  Check = "statement"
	CheckSignature  Check = "signature"
	CheckStored     Check = "stored"
	CheckFloor      Check = "floor"
	CheckChain      Check = "chain"
	CheckIncomplete Check = "incomplete"
	CheckExpect     Check = "expect"
	CheckState      Check = "state"
)

// checkOf maps the sentinels of all packages to the checks.
var checkOf = []struct {
	err   error
	check Check
}{
	{chain.ErrLine, CheckLine},
	{chain.ErrLink, CheckLink},
	{envelope.ErrForm, CheckStatement},
	{statement.ErrStatement, CheckStatement},
	{ErrRecord, CheckStatement},
	{envelope.ErrSignature, CheckSignature},
	{ErrStored, CheckStored},
	{ErrFloor, CheckFloor},
	{ErrChain, CheckChain},
	{ErrIncomplete, CheckIncomplete},
	{ErrExpect, CheckExpect},
	{ErrState, CheckState},
}

// CheckOf returns the check that err wraps, and false when it wraps none.
func CheckOf(err error) (Check, bool) {
	for _, c := range checkOf {
		if errors.Is(err, c.err) {
			return c.check, true
		}
	}
	return "", false
}

// A Refusal says why a bundle does not verify. Nothing in a refused bundle is
// verified, the lines before Line included.
type Refusal struct {
	Check  Check
	Line   uint64 // from 1; 0 for the bundle as a whole
	Offset int64  // where in the file: the line's start, or the first byte that is wrong
	Have   string // as found, possibly hostile text; empty when there is nothing to compare
	Want   string
	Err    error // wraps the sentinel of Check
}

// Error is one line: place, check, reason, have and want, without control
// characters.
func (r *Refusal) Error() string {
	if r.Line == 0 {
		return r.Err.Error()
	}
	return fmt.Sprintf("line %d: %v", r.Line, r.Err)
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// refuse returns the refusal for err, which wraps a check's sentinel.
func refuse(line uint64, offset int64, err error) error {
	check, ok := CheckOf(err)
	if !ok {
		return err
	}
	r := &Refusal{Check: check, Line: line, Offset: offset, Err: err}
	if m := mismatch.Of(err); m != nil {
		r.Have, r.Want = m.Have, m.Want
	}
	var s *chain.SpellingError
	if errors.As(err, &s) {
		r.Offset += int64(s.At)
		r.Have, r.Want = s.Have, s.Want
	}
	return r
}
