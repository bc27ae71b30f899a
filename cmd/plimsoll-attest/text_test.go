package main

import (
	"math"
	"testing"
)

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
