package visible

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for have, want := range map[string]string{
		"":                  "",
		"plain /path-1.x":   "plain /path-1.x",
		"naïve 中 😀 שלום":    "naïve 中 😀 שלום",
		"\x1b[2J":           "⟨U+001B⟩[2J",
		"a\nb\r\tc\x00\x7f": "a⟨U+000A⟩b⟨U+000D⟩⟨U+0009⟩c⟨U+0000⟩⟨U+007F⟩",
		"\u009b2J":          "⟨U+009B⟩2J",
		"\u202eevil\u2066":  "⟨U+202E⟩evil⟨U+2066⟩",
		"\u200b\u00ad\ufeff\u2060\u00a0\u2028\u3164\u2800\ufe0f\U000e0041": "⟨U+200B⟩⟨U+00AD⟩⟨U+FEFF⟩⟨U+2060⟩⟨U+00A0⟩⟨U+2028⟩⟨U+3164⟩⟨U+2800⟩⟨U+FE0F⟩⟨U+E0041⟩",
		"\xff\xc0\xaf":           "⟨byte ff⟩⟨byte c0⟩⟨byte af⟩",
		"\xed\xa0\x80":           "⟨byte ed⟩⟨byte a0⟩⟨byte 80⟩",
		"⟨U+001B⟩":               "⟨U+27E8⟩U+001B⟩",
		"\uFFFD":                 "\uFFFD",
		"\ue000\U0010ffff\u0378": "⟨U+E000⟩⟨U+10FFFF⟩⟨U+0378⟩",
		"z\u0301\u0302\u0303\u0304\u0305\u0306y\u0301": "z\u0301\u0302\u0303\u0304⟨U+0305⟩⟨U+0306⟩y\u0301",
	} {
		if got := Text(have); got != want {
			t.Errorf("%q: have %q, want %q", have, got, want)
		}
	}
}

// FuzzText: what comes out is safe, and no two texts look alike.
func FuzzText(f *testing.F) {
	f.Add("\x1b[31m⟨U+001B⟩", "⟨")
	f.Add("\x1b]0;x\x07\u202e", "\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		shownA := Text(a)
		if !utf8.ValidString(shownA) || strings.ContainsFunc(shownA, func(r rune) bool { return r != '⟨' && !shown(r) }) {
			t.Fatalf("%q is shown as %q", a, shownA)
		}
		if a != b && shownA == Text(b) {
			t.Fatalf("%q and %q are both shown as %q", a, b, shownA)
		}
	})
}
