package strictjson_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
)

type target struct {
	A string   `json:"a"`
	B []nested `json:"b"`
	N uint64   `json:"n"`
}

type nested struct {
	C *string `json:"c"`
}

func TestUnmarshal(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"empty object":             {`{}`, true},
		"all members":              {`{"a":"x","b":[{"c":"y"},{}],"n":18446744073709551615}`, true},
		"nothing":                  {``, false},
		"scalar":                   {`1`, false},
		"array":                    {`[]`, false},
		"two values":               {`{}{}`, false},
		"text after":               {`{} x`, false},
		"NUL after":                {"{}\x00", false},
		"byte order mark":          {"\ufeff{}", false},
		"repeated name":            {`{"a":"x","a":"x"}`, false},
		"repeated, escaped":        {`{"a":"x","\u0061":"x"}`, false},
		"repeated below":           {`{"b":[{"c":"x","c":"x"}]}`, false},
		"other case":               {`{"A":"x"}`, false},
		"other case below":         {`{"b":[{"C":"x"}]}`, false},
		"unknown":                  {`{"z":1}`, false},
		"unknown below":            {`{"b":[{"z":1}]}`, false},
		"not UTF-8":                {"{\"a\":\"\xff\"}", false},
		"not UTF-8 in a name":      {"{\"\xff\":1}", false},
		"lone surrogate":           {`{"a":"\ud800"}`, false},
		"surrogates the wrong way": {`{"a":"\udc00\ud800"}`, false},
		"surrogate pair":           {`{"a":"\ud83d\ude00"}`, true},
		"comment":                  {`{/**/}`, false},
		"trailing comma":           {`{"a":"x",}`, false},
		"single quotes":            {`{'a':'x'}`, false},
		"raw newline in a string":  {"{\"a\":\"\n\"}", false},
		"fraction":                 {`{"n":1.0}`, false},
		"exponent":                 {`{"n":1e0}`, false},
		"negative":                 {`{"n":-1}`, false},
		"past 64 bits":             {`{"n":18446744073709551616}`, false},
		"number as text":           {`{"n":"1"}`, false},
		"not a number":             {`{"n":NaN}`, false},
		"cut short":                {`{"a":"x`, false},
		"deep array":               {`{"b":` + strings.Repeat("[", 1e6), false},
		"deep unknown":             {`{"z":` + strings.Repeat("[", 1e6), false},
	} {
		t.Run(name, func(t *testing.T) {
			var v target
			if err := strictjson.Unmarshal([]byte(c.text), &v); (err == nil) != c.ok {
				t.Fatalf("have %v, want accepted %v", err, c.ok)
			}
		})
	}
}

// TestMillionMembers: a flood of members ends at the first unknown one.
func TestMillionMembers(t *testing.T) {
	flood := "{" + strings.Repeat(`"z":1,`, 1e6) + `"z":1}`
	allocs := testing.AllocsPerRun(1, func() {
		if strictjson.Unmarshal([]byte(flood), new(target)) == nil {
			t.Fatal("accepted")
		}
	})
	if allocs > 1000 {
		t.Errorf("%v allocations for a refusal at the first member", allocs)
	}
}

// TestToCompare: repeated names pass, nothing else does that Unmarshal refuses.
func TestToCompare(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"a":"x","a":"y"}`: true,
		`{"z":1}`:           false,
		`{"A":"x"}`:         false,
		`{}{}`:              false,
		"{\"a\":\"\xff\"}":  false,
	} {
		if err := strictjson.UnmarshalToCompare([]byte(text), new(target)); (err == nil) != ok {
			t.Errorf("%s: have %v, want accepted %v", text, err, ok)
		}
	}
}

// TestWrongKind: the names of a huge object where none belongs are not kept.
func TestWrongKind(t *testing.T) {
	text := []byte(`{"a":{`)
	for i := range 200_000 {
		text = fmt.Appendf(text, `"%x":0,`, i)
	}
	text = append(text, `"z":0}}`...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if strictjson.UnmarshalToCompare(text, new(target)) == nil {
		t.Fatal("accepted")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes allocated to refuse %d", n, len(text))
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `""`,
		"plain":                  `"plain"`,
		`"\/`:                    `"\"\\/"`,
		"\b\f\n\r\t":             `"\b\f\n\r\t"`,
		"\x00\x01\x1f\x7f":       `"\u0000\u0001\u001f` + "\x7f" + `"`,
		"<>&":                    `"\u003c\u003e\u0026"`,
		"a\u2028b\u2029c\u202ad": `"a\u2028b\u2029c` + "\u202a" + `d"`,
		"é中😀\ufffd":              `"é中😀` + "\ufffd" + `"`,
		"a\xffb\xc3":             `"a` + "\ufffd" + `b` + "\ufffd" + `"`,
	} {
		if have := string(strictjson.AppendString(nil, in)); have != want {
			t.Errorf("%q: have %s, want %s", in, have, want)
		}
	}
}

// FuzzAppendString: the text is what encoding/json writes, and reads back as
// the string.
func FuzzAppendString(f *testing.F) {
	f.Add("a<b>&\u2028\x00\xff\U0001f600")
	f.Fuzz(func(t *testing.T, s string) {
		have := strictjson.AppendString(nil, s)
		if utf8.ValidString(s) {
			want, err := json.Marshal(s)
			if err != nil || string(want) != string(have) {
				t.Fatalf("have %s, want %s (%v)", have, want, err)
			}
		}
		var v struct {
			A string `json:"a"`
		}
		if err := strictjson.Unmarshal(append(append([]byte(`{"a":`), have...), '}'), &v); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && v.A != want {
			t.Fatalf("have %q, want %q", v.A, want)
		}
	})
}
