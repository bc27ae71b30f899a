package main

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// when shows a record's time: RFC 3339 in UTC where that can express it. The
// time is what a runner stated and may be any int64.
func when(unixMS int64) string {
	t := time.UnixMilli(unixMS).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(unixMS, 10) + " ms after 1970, no date"
	}
	return t.Format("2006-01-02T15:04:05.000Z")
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
