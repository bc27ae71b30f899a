// Package visible makes text of others fit for a terminal.
package visible

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Text returns s fit to stand on one line of a terminal, whoever wrote it:
// control characters (ANSI escapes with them), bidi controls, invisible and
// unassigned characters are shown as ⟨U+001B⟩, bytes that are not UTF-8 as
// ⟨byte ff⟩. The opening ⟨ itself is shown as ⟨U+27E8⟩, so that no text can
// pretend to have been escaped. Of combining marks in a row, which stack up over
// the lines above, those past the fourth are shown so too.
func Text(s string) string { return string(Append(nil, s, false)) }

// Append is Text for a line of a longer text, where tabs may stay.
func Append(dst []byte, s string, keepTabs bool) []byte {
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
