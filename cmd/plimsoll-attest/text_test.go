package main

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
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
		if got := visible(have); got != want {
			t.Errorf("%q: have %q, want %q", have, got, want)
		}
	}
}

// FuzzVisible: what comes out is safe, and no two texts look alike.
func FuzzVisible(f *testing.F) {
	f.Add("\x1b[31m⟨U+001B⟩", "⟨")
	f.Add(hostile, "\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		shownA := visible(a)
		if !utf8.ValidString(shownA) || strings.ContainsFunc(shownA, func(r rune) bool { return r != '⟨' && !shown(r) }) {
			t.Fatalf("%q is shown as %q", a, shownA)
		}
		if a != b && shownA == visible(b) {
			t.Fatalf("%q and %q are both shown as %q", a, b, shownA)
		}
	})
}

func TestWhen(t *testing.T) {
	for ms, want := range map[int64]string{
		0:               "1970-01-01T00:00:00.000Z",
		-1:              "1969-12-31T23:59:59.999Z",
		1790000004210:   "2026-09-21T14:13:24.210Z",
		math.MaxInt64:   "9223372036854775807 ms after 1970, no date",
		math.MinInt64:   "-9223372036854775808 ms after 1970, no date",
		253402300800e3:  "253402300800000 ms after 1970, no date",
		253402300799999: "9999-12-31T23:59:59.999Z",
	} {
		if have := when(ms); have != want {
			t.Errorf("%d: have %s, want %s", ms, have, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		s     string
		limit int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aé", 2, "a…"},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80…"},
		{"", 0, ""},
	} {
		if have := shorten(c.s, c.limit); have != c.want {
			t.Errorf("%q to %d: have %q, want %q", c.s, c.limit, have, c.want)
		}
	}
}
