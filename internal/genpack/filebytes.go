package main

import (
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// fileBytes is group B: files that hold something else than lines, and abc with
// bytes between its lines.
func fileBytes(p *pack) {
	good, empty := linked(abc()[0]), linked()
	for i, c := range []struct {
		name, content, check string
		line                 int
	}{
		{"null", "null\n", "line", 1},
		{"an empty array", "[]\n", "line", 1},
		{"an empty object", "{}\n", "link", 1},
		{"a string", "\"\"\n", "line", 1},
		{"a number", "0\n", "line", 1},
		{"true", "true\n", "line", 1},
		{"a line feed", "\n", "line", 1},
		{"a space", " \n", "line", 1},
		{"a NUL", "\x00", "line", 1},
		{"a NUL and a line feed", "\x00\n", "line", 1},
		{"a byte order mark", "\xef\xbb\xbf", "line", 1},
		{"an opening brace", "{\n", "line", 1},
		{"an object without its line feed", "{}", "line", 1},
		{"text", "no bundle\n", "line", 1},
	} {
		p.add("B"+number(i+1), "a file of "+c.name, "", []byte(c.content)).refused(c.check, c.line)
	}

	array := "[" + strings.TrimSuffix(strings.ReplaceAll(string(good), "\n", ","), ",") + "]\n"
	p.add("B15", "all lines in an array", "", []byte(array)).refused("line", 1)
	p.add("B16", "the file in UTF-16", "", utf16LE(string(good))).refused("line", 1)
	p.add("B17", "CR for LF", "", []byte(strings.ReplaceAll(string(good), "\n", "\r"))).refused("line", 1)
	p.add("B18", "a line feed before the first line", "", append([]byte("\n"), good...)).refused("line", 1)
	p.add("B19", "no LF between two lines", "", []byte(strings.Replace(string(good), "\n", "", 1))).refused("line", 1)
	p.add("B20", "a NUL for the first LF", "", []byte(strings.Replace(string(good), "\n", "\x00", 1))).refused("line", 1)
	p.add("B21", "a NUL in a line", "", editLine(good, 1, func(line string) string { return first(line, `"sig":"`, "\"sig\":\"\x00") })).refused("line", 1)
	p.add("B22", "U+2028 for the first LF", "", []byte(strings.Replace(string(good), "\n", "\u2028", 1))).refused("line", 1)
	p.add("B23", "a byte order mark before a later line", "", editLine(good, 2, func(line string) string { return "\ufeff" + line })).refused("line", 2)
	p.add("B24", "a CR at the end of the last line", "", editLine(good, 2, func(line string) string { return line + "\r" })).refused("line", 2)
	p.add("B25", "a tab before the last line", "", editLine(good, 2, func(line string) string { return "\t" + line })).refused("line", 2)

	for i, c := range []struct{ name, text, check string }{
		{"a space", " ", "line"},
		{"a line with a space", " \n", "line"},
		{"an empty object", "{}\n", "link"},
		{"an object without its LF", "{}", "line"},
		{"the first byte of a line", "{", "line"},
		{"a call without a link", string(bundletest.Unlinked(harness, abc()[1])), "link"},
		{"null", "null\n", "line"},
		{"the end-of-file character of old systems", "\x1a", "line"},
		{"text", "# the end\n", "line"},
	} {
		p.add("B"+number(i+26), "after the checkpoint "+c.name, "", append(slices.Clone(empty), c.text...)).refused(c.check, 2)
	}
	p.add("B35", "half of the next line after the checkpoint", "a writer was killed", append(slices.Clone(empty), bundletest.Lines(linked(abc()...))[1][:400]...)).refused("line", 2)
	p.add("B36", "a checkpoint cut short", "a writer was killed", good[:len(good)-100]).refused("line", 2)

	for i, c := range []struct{ name, text string }{
		{"a lone high surrogate", `\ud800`},
		{"a lone low surrogate", `\udc00`},
		{"surrogates in the wrong order", `\udc00\ud800`},
		{"a pair of surrogates as escapes", `\ud83d\ude00`},
		{"a surrogate as bytes", "\xed\xa0\x80"},
		{"an overlong slash", "\xc0\xaf"},
		{"a character past U+10FFFF", "\xf4\x90\x80\x80"},
		{"a character cut short", "\xe4\xb8"},
		{"U+0000 as an escape of two digits", `\x00`},
	} {
		p.add("B"+number(i+37), c.name, "in a key ID", editLine(empty, 1, func(line string) string { return first(line, `"keyid":"`, `"keyid":"`+c.text) })).refused("line", 1)
	}

	deep := func(open, closing string, n int) string { return strings.Repeat(open, n) + strings.Repeat(closing, n) }
	for i, c := range []struct{ name, old, text string }{
		{"10,000 arrays for a request", `"request":"`, `"request":` + deep("[", "]", 10000) + `,"requests":"`},
		{"10,000 arrays in an unknown member", `{"request"`, `{"note":` + deep("[", "]", 10000) + `,"request"`},
		{"1,000 arrays for the signatures", `"signatures":[`, `"signatures":` + deep("[", "]", 1000) + `,"more":[`},
		{"1,000 objects for the envelope", `"envelope":{`, `"envelope":` + deep(`{"a":`, "}", 1000) + `,"envelopes":{`},
		{"1,000 arrays that never end", `"request":"`, `"request":` + strings.Repeat("[", 1000) + `"`},
	} {
		p.add("B"+number(i+46), c.name+", nested", "", editLine(good, 1, func(line string) string { return first(line, c.old, c.text) })).refused("line", 1)
	}
}

// number is n in two digits.
func number(n int) string {
	return string([]byte{byte('0' + n/10), byte('0' + n%10)})
}

func utf16LE(s string) []byte {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return b
}
