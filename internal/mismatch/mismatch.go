// Package mismatch is the shape of a refusal's reason: which fact did not
// hold, what was found and what was wanted.
package mismatch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An Error says that a fact is not what the check Err wants. What names the
// fact in the format's words. Have and Want are as they stand in the bundle,
// unescaped and possibly hostile.
type Error struct {
	Err        error
	What       string
	Have, Want string
}

// New returns an *Error.
func New(check error, what, have, want string) error {
	return &Error{Err: check, What: what, Have: have, Want: want}
}

// Error shows What, Have and Want on one line; see Show.
func (e *Error) Error() string {
	return fmt.Sprintf("%v: %s: have %s, want %s", e.Err, e.What, Show(e.Have), Show(e.Want))
}

// Unwrap returns the check.
func (e *Error) Unwrap() error { return e.Err }

// Of returns the first *Error in err's tree, nil without one.
func Of(err error) *Error {
	var m *Error
	if errors.As(err, &m) {
		return m
	}
	return nil
}

// maxShown is how many bytes of a value Show lets through: a digest and a few
// words about it fit.
const maxShown = 128

// Show makes a value fit to stand in an error line: shortened past 128 bytes,
// quoted with its control characters escaped unless it is a plain word, and
// "nothing" when empty.
func Show(s string) string {
	if s == "" {
		return "nothing"
	}
	cut := ""
	if len(s) > maxShown {
		n := maxShown
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s, cut = s[:n], "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return strconv.QuoteToGraphic(s) + cut
	}
	return s + cut
}
