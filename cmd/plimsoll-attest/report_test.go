package main

import "testing"

// TestQuoted: the command on a page is safe to paste, whatever files are called.
func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"bundle.jsonl":  "bundle.jsonl",
		"a/b-c_d@1,2=+": "a/b-c_d@1,2=+",
		"":              "''",
		"a b":           "'a b'",
		"$(id)":         "'$(id)'",
		"it's":          `'it'\''s'`,
		"a\nb":          "'a\nb'",
		"~root":         "'~root'",
	} {
		if have := quoted(in); have != want {
			t.Errorf("%q: have %s, want %s", in, have, want)
		}
	}
}
