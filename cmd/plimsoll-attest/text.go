package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// visible returns s fit to stand on one line of a terminal, whoever wrote it:
// control characters (ANSI escapes with them), bidi controls, invisible and
// unassigned characters are shown as ⟨U+001B⟩, bytes that are not UTF-8 as
// ⟨byte ff⟩. The opening ⟨ itself is shown as ⟨U+27E8⟩, so that no text can
// pretend to have been escaped. Of combining marks in a row, which stack up over
// the lines above, those past the fourth are shown so too.
func visible(s string) string { return string(appendVisible(nil, s, false)) }

// appendVisible is visible for a line of a longer text, where tabs may stay.
func appendVisible(dst []byte, s string, keepTabs bool) []byte {
	marks := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
			marks = 0
		}
		switch {
		case marks > maxMarks:
			dst = fmt.Appendf(dst, "⟨%U⟩", r)
		case r == utf8.RuneError && size == 1:
			dst = fmt.Appendf(dst, "⟨byte %02x⟩", s[i])
		case r == '\t' && keepTabs, shown(r):
			dst = append(dst, s[i:i+size]...)
		default:
			dst = fmt.Appendf(dst, "⟨%U⟩", r)
		}
		i += size
	}
	return dst
}

// maxMarks is how many combining marks a letter of any script needs.
const maxMarks = 4

// shown reports whether r can be seen and does nothing but be seen.
func shown(r rune) bool {
	if r >= ' ' && r <= '~' {
		return true
	}
	switch r {
	case '⟨':
		return false
	case '\u2800', '\U0001D159': // blank symbols
		return false
	}
	return unicode.IsPrint(r) &&
		!unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && // Hangul fillers and the like
		!unicode.Is(unicode.Variation_Selector, r)
}

// when shows a record's time: RFC 3339 in UTC where that can express it. The
// time is what a runner stated and may be any int64.
func when(unixMS int64) string {
	t := time.UnixMilli(unixMS).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(unixMS, 10) + " ms after 1970, no date"
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

// fileError drops what os adds to an error: the path, which the caller states.
func fileError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func outputError(err error) error { return fmt.Errorf("standard output: %w", fileError(err)) }

// plural is "1 line", "2 lines".
func plural[N int | int64 | uint64](n N, noun string) string {
	s := strconv.FormatInt(int64(n), 10) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}

// shorten bounds a text for a report, at a whole character where it has some.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > limit-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.Clone(s[:cut]) + "…"
}
