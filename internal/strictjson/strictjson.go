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
// therefore hold no map, interface or raw value. A member of another JSON kind
// than the target's is passed over before it is refused, whatever it holds; its
// names are kept meanwhile by Unmarshal and not by UnmarshalToCompare.
package strictjson

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
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

// compared leaves repeated names to the comparison, which finds them for
// nothing. To find them while reading takes a set of all names: a line of 64 MiB
// that is one object of a wrong kind would cost half a minute and a gigabyte.
var compared = json.JoinOptions(strict, jsontext.AllowDuplicateNames(true))

// Unmarshal decodes data, which must be exactly one JSON value, into v. Errors
// name the byte offset and, where there is one, the member.
func Unmarshal(data []byte, v any) error { return unmarshal(data, v, strict) }

// UnmarshalToCompare is Unmarshal for a value that the caller writes again and
// compares with data. It takes repeated names, which that comparison refuses:
// nothing is ever written with a name twice.
func UnmarshalToCompare(data []byte, v any) error { return unmarshal(data, v, compared) }

func unmarshal(data []byte, v any, options json.Options) error {
	err := json.Unmarshal(data, v, options)
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

// Differs writes a value again, with write, which appends its text to what it is
// given, and reports where that is not data: the first byte that differs, and
// what is there and what would be. At is -1 when the text is data.
func Differs(data []byte, write func([]byte) []byte) (at int, have, want string) {
	scratch := scratches.Get().(*[]byte)
	text := write((*scratch)[:0])
	if bytes.Equal(data, text) {
		at = -1
	} else {
		for at < len(data) && at < len(text) && data[at] == text[at] {
			at++
		}
		const shown = 32
		have = string(data[at:min(len(data), at+shown)])
		want = string(text[at:min(len(text), at+shown)])
	}
	// Memory grown for one huge value is left to the collector.
	if cap(text) <= maxKept {
		*scratch = text
		scratches.Put(scratch)
	}
	return at, have, want
}

var scratches = sync.Pool{New: func() any { return new([]byte) }}

const maxKept = 1 << 20

const lowerHex = "0123456789abcdef"

// AppendString appends s as a JSON string in its one spelling
// (docs/bundle-format.md, "Lines"): short escapes where JSON has them, other
// control characters and < > & U+2028 U+2029 as \u with lower-case digits, and
// everything else as itself. Bytes that are not UTF-8 become U+FFFD, so that a
// string that holds some is never equal to what it was read from.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; ; {
		for i < len(s) && plain[s[i]] { // nearly all of nearly all strings
			i++
		}
		if i == len(s) {
			break
		}
		c := s[i]
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
