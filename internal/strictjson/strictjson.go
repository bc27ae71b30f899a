// Package strictjson is the one JSON reader for bytes from strangers, and the
// one writer of the format's canonical text.
//
// Unmarshal refuses what encoding/json lets pass: repeated names at any level,
// names in another case, members the target does not have, text that is not
// UTF-8, lone surrogates and anything after the value. It does not ask for the
// canonical spelling (white space, order, escapes): callers write the value
// again with Append functions and compare the bytes, which is stricter and
// needs no second parser.
//
// Nesting is bounded by the target: a member that the target does not have is
// refused at its name, so hostile depth is never walked into. Targets must
// therefore hold no map, interface or raw value.
package strictjson

import (
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var strict = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.MatchCaseInsensitiveNames(false),
	jsontext.AllowDuplicateNames(false),
	jsontext.AllowInvalidUTF8(false),
)

// Unmarshal decodes data, which must be exactly one JSON value, into v. Errors
// name the byte offset and, where there is one, the member.
func Unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v, strict)
	if err == nil {
		return nil
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return fmt.Errorf("byte %d: %w", syntactic.ByteOffset, syntactic.Err)
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		what := semantic.Err
		if what == nil {
			what = fmt.Errorf("unexpected JSON %s", semantic.JSONKind)
		}
		if at := semantic.JSONPointer; at != "" {
			return fmt.Errorf("byte %d, member %.64q: %w", semantic.ByteOffset, string(at), what)
		}
		return fmt.Errorf("byte %d: %w", semantic.ByteOffset, what)
	}
	return err
}

const lowerHex = "0123456789abcdef"

// AppendString appends s as a JSON string in its one spelling
// (docs/bundle-format.md, "Lines"): short escapes where JSON has them, other
// control characters and < > & U+2028 U+2029 as \u with lower-case digits, and
// everything else as itself. Bytes that are not UTF-8 become U+FFFD, so that a
// string that holds some is never equal to what it was read from.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			if short := shortEscape(c); short != 0 {
				dst = append(dst, '\\', short)
			} else {
				dst = append(dst, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&0xf])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\ufffd"...)
			start = i + size
		case r == '\u2028' || r == '\u2029':
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, lowerHex[r&0xf])
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// AppendBase64 appends b as a JSON string in standard padded base64.
func AppendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// plain holds the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = true
	}
	for _, c := range `"\<>&` {
		t[c] = false
	}
	return t
}()

func shortEscape(c byte) byte {
	switch c {
	case '"', '\\':
		return c
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	}
	return 0
}
