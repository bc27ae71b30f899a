package main

import (
	"fmt"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// numbers is group N: numbers in signed statements. A number that another
// decoder rounds, wraps or reads from a string must not be read otherwise here.
func numbers(p *pack) {
	n := 0
	add := func(name, what string, bundle []byte, check string, line int) {
		n++
		p.add("N"+number(n), name, what, bundle).refused(check, line)
	}

	// An index of line 2. What is a number of the format is only wrong for its
	// place.
	for _, c := range []struct{ index, check string }{
		{"-1", "statement"},
		{"-2", "statement"},
		{"2.00", "statement"},
		{"2e0", "statement"},
		{"0.2e1", "statement"},
		{"02", "statement"},
		{"+2", "statement"},
		{"0x2", "statement"},
		{"-0", "statement"},
		{`"2"`, "statement"},
		{"null", "statement"},
		{"true", "statement"},
		{"[2]", "statement"},
		{"{}", "statement"},
		{"", "statement"},
		{"NaN", "statement"},
		{"9007199254740992", "link"},
		{"9007199254740993", "link"},
		{"18446744073709551615", "link"},
		{"18446744073709551616", "statement"},
		{"4294967298", "link"},
		{"1e999999999", "statement"},
		{"2" + fmt.Sprintf("%0400d", 0), "statement"},
	} {
		name := c.index
		if len(name) > 24 {
			name = "of 401 digits"
		}
		add("an index "+name, "on line 2", secondCheckpoint(`"index":2`, `"index":`+c.index), c.check, 2)
	}
	add("an index 1.0", "on line 1", firstIndex("1.0"), "statement", 1)
	add("an index 1e0", "on line 1", firstIndex("1e0"), "statement", 1)
	add("no index", "", secondCheckpoint(`"index":2,`, ""), "statement", 2)
	for _, lines := range []string{"-1", "1.0", "18446744073709551617", `"1"`} {
		add("a checkpoint with lines "+lines, "over one line", secondCheckpoint(`"lines":1`, `"lines":`+lines), "statement", 2)
	}
	add("a checkpoint with lines 2^64-1", "over one line", secondCheckpoint(`"lines":1`, `"lines":18446744073709551615`), "link", 2)
	for _, flag := range []string{"1", `"true"`, "null", "True"} {
		add("a checkpoint with checkpoint "+flag, "", secondCheckpoint(`"checkpoint":true`, `"checkpoint":`+flag), "statement", 2)
	}

	for _, c := range []struct{ name, old, text string }{
		{"version 2.0", `"version":2`, `"version":2.0`},
		{"version 2^32+2", `"version":2`, `"version":4294967298`},
		{"version 2^64+2", `"version":2`, `"version":18446744073709551618`},
		{"version -2", `"version":2`, `"version":-2`},
		{"version as a string", `"version":2`, `"version":"2"`},
		{"no version", `"version":2,`, ``},
		{"sequence -1", `"sequence":0`, `"sequence":-1`},
		{"sequence -0", `"sequence":0`, `"sequence":-0`},
		{"sequence 2^64", `"sequence":0`, `"sequence":18446744073709551616`},
		{"sequence 0e0", `"sequence":0`, `"sequence":0e0`},
		{"a start of 2^63", `"started_unix_ms":1790000000000`, `"started_unix_ms":9223372036854775808`},
		{"a start with a fraction", `"started_unix_ms":1790000000000`, `"started_unix_ms":1790000000000.0`},
		{"an end of -2^63-1", `"ended_unix_ms":1790000004210`, `"ended_unix_ms":-9223372036854775809`},
	} {
		add(c.name, "in a record", edited(c.old, c.text), "statement", 1)
	}

	closing := string(bundletest.NewSession("s").Close().Payload)
	for _, calls := range []string{"-1", "0.0", "0e0", "00", `"0"`, "18446744073709551616", "null"} {
		add("a close that counts "+calls, "of no call", linked(entry{Payload: []byte(once(closing, `"calls":0`, `"calls":`+calls))}), "statement", 1)
	}
	add("a close that counts 2^64-1", "of no call", linked(entry{Payload: []byte(once(closing, `"calls":0`, `"calls":18446744073709551615`))}), "chain", 1)
}

// secondCheckpoint is a bundle of two checkpoints with edits of the second's
// link.
func secondCheckpoint(edits ...string) []byte {
	return withLinkPayload(2, []entry{bundletest.Checkpoint}, editor(edits...))
}

// firstIndex is a bundle of one call with another index on its link.
func firstIndex(index string) []byte {
	return withLinkPayload(1, abc()[:1], editor(`"index":1`, `"index":`+index))
}
