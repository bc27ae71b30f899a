package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Visible returns s fit to stand on one line of a terminal, whoever wrote it:
// control characters (ANSI escapes with them), bidi controls, invisible and
// unassigned characters are shown as ⟨U+001B⟩, bytes that are not UTF-8 as
// ⟨byte ff⟩. The opening ⟨ itself is shown as ⟨U+27E8⟩, so that no text can
// pretend to have been escaped. Of combining marks in a row, which stack up over
// the lines above, those past the fourth are shown so too.
func Visible(s string) string { return string(AppendVisible(nil, s, false)) }

// AppendVisible is Visible for a line of a longer text, where tabs may stay.
func AppendVisible(dst []byte, s string, keepTabs bool) []byte {
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

// FileError drops what os adds to an error: the path, which the caller states.
func FileError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// OutputError is the error of a write to standard output.
func OutputError(err error) error { return fmt.Errorf("standard output: %w", FileError(err)) }

// Plural is "1 line", "2 lines".
func Plural[N int | int64 | uint64](n N, noun string) string {
	s := strconv.FormatInt(int64(n), 10) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}
