package chain_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// seed is the real session's bundle.
func seed(tb testing.TB) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "seed-session", "bundle.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestRealSessionDigests holds the published length and digests of each line
// of the real session.
func TestRealSessionDigests(t *testing.T) {
	want := []struct {
		length       int
		entry, whole string
	}{
		{3177, "d8b4fa9c785dd56d849a1fb1f672d1d2486f50dc110a8c2bb462bdc244d1afbe", "6768a134c3f21465822bb69e289b2966a5031d72c5c30caba95c639b4b54e4c6"},
		{3289, "6fd826240e163bfab9b731c7a34b99702037bc140ea4c421b39965bec5c05914", "900dde9ce5a2300e816faf360fd9f76d12f8ac8d55c1b6ed1b11c3fb5a16706f"},
		{3109, "43aa960e7476956c003539266c0e0d174ef934f9e0648814cb936733af5fa587", "acfeafa2a75ac938c56935d5bb770d169c347ceb98b0cda6df27895ddedb899d"},
		{3353, "7b1f0f80a8efc946fbeac4d199e1ed17711f9eb8907a29108a13ec10949706ce", "b69a882489810bf83f9eb6c007c477158f48499abe9633a3f990397d8ff4bf8f"},
		{3753, "d1b9566762387c7a5531d99e00af0b984b24c708f9b0e808c020d02e799d75b8", "e5f1e70fc69f477147868c94356655668f5b127b1058f0961f70bce6f20230d4"},
		{1658, "de9de41ba0f0ca142244fed2cc8552a37126910b5ca99f508e130285a4c0a100", "53c548a6975ae7a1c742379817557c6daa8eb8fd7960e7f5d220d644116c1910"},
		{758, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "0a8ace549d5364c69fc8e129ae55a1a6440829257ecb7bc211fb55b74f237346"},
	}
	lines := bundletest.Lines(seed(t))
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d", len(lines), len(want))
	}
	for i, raw := range lines {
		l, err := chain.ParseLine(raw)
		if err != nil {
			t.Fatal(err)
		}
		w := want[i]
		if len(raw)+1 != w.length || l.Digest != w.whole || l.EntryDigest != w.entry {
			t.Errorf("line %d: have %d, %s, %s, want %d, %s, %s", i+1, len(raw)+1, l.EntryDigest, l.Digest, w.length, w.entry, w.whole)
		}
		if again := chain.AppendLine(nil, &l.Line); !bytes.Equal(again, raw) {
			t.Errorf("line %d is not written as it was read", i+1)
		}
	}
}

// TestOneSpelling changes one thing in a good line's bytes.
func TestOneSpelling(t *testing.T) {
	good := string(bundletest.Lines(seed(t))[0])
	edit := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("nothing to edit: %s", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	request, _, _ := strings.Cut(strings.TrimPrefix(good, `{"request":"`), `"`)
	if !strings.HasSuffix(request, "==") {
		t.Fatal("the request needs padding for these cases")
	}
	base := strings.TrimRight(request, "=")
	for name, text := range map[string]string{
		"nothing":                    "",
		"null":                       "null",
		"array":                      "[]",
		"scalar":                     "1",
		"byte order mark":            "\ufeff" + good,
		"leading space":              " " + good,
		"trailing space":             good + " ",
		"carriage return":            good + "\r",
		"NUL":                        good + "\x00",
		"second object":              good + good,
		"cut short":                  good[:len(good)/2],
		"space after colon":          edit(`"request":`, `"request": `),
		"members swapped":            edit(good, `{"response":"AA==","request":"AA=="}`),
		"unknown member":             edit(`{"request"`, `{"note":"","request"`),
		"deep unknown member":        edit(`{"request"`, `{"note":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`,"request"`),
		"deep member":                edit(`"envelope":{`, `"envelope":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`,"x":{`),
		"repeated member":            edit(`{"request"`, `{"request":"AA==","request"`),
		"repeated member, escaped":   edit(`{"request"`, `{"\u0072equest":"AA==","request"`),
		"repeated in an envelope":    edit(`"signatures":[{`, `"signatures":[{"keyid":"",`),
		"other case":                 edit(`{"request"`, `{"Request"`),
		"escaped name":               edit(`{"request"`, `{"\u0072equest"`),
		"escaped slash":              edit(`application/`, `application\/`),
		"escaped letter":             edit(`application/`, `\u0061pplication/`),
		"raw bracket":                edit(`application/`, `<`),
		"lone surrogate":             edit(`application/`, `\ud800`),
		"not UTF-8":                  edit(`application/`, "\xff"),
		"null member":                `{"request":null}`,
		"empty member":               `{"request":""}`,
		"null envelope":              `{"envelope":null}`,
		"empty envelope":             `{"envelope":{"payloadType":"","payload":"","signatures":null}}`,
		"envelope without a member":  `{"envelope":{"payloadType":"x","payload":"y"}}`,
		"signature without a member": `{"envelope":{"payloadType":"x","payload":"y","signatures":[{"keyid":""}]}}`,
		"null signature":             `{"envelope":{"payloadType":"x","payload":"y","signatures":[null]}}`,
		"signatures an object":       `{"envelope":{"payloadType":"x","payload":"y","signatures":{}}}`,
		"base64, line break":         edit(request, request[:8]+`\n`+request[8:]),
		"base64, space":              edit(request, request[:8]+` `+request[8:]),
		"base64, no padding":         edit(request, base),
		"base64, surplus padding":    edit(request, request+"===="),
		"base64, stray bits":         edit(request, base[:len(base)-1]+string(base[len(base)-1]+1)+"=="),
		"base64, URL alphabet":       `{"request":"-_8="}`,
		"base64 of 1 character":      `{"request":"A"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := chain.ParseLine([]byte(text)); !errors.Is(err, chain.ErrLine) {
				t.Fatalf("have %v, want ErrLine", err)
			}
		})
	}
	for _, text := range []string{
		`{}`, `{"request":"+/8="}`, `{"response":"AA=="}`,
		`{"envelope":{"payloadType":"","payload":"","signatures":[]}}`,
		`{"link":{"payloadType":"x","payload":"\n","signatures":null}}`,
	} {
		if _, err := chain.ParseLine([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSpellingErrorPlace: the error names the first byte that differs.
func TestSpellingErrorPlace(t *testing.T) {
	_, err := chain.ParseLine([]byte(`{"request":"AA==", "response":"AA=="}`))
	var s *chain.SpellingError
	if !errors.As(err, &s) {
		t.Fatalf("have %v", err)
	}
	if s.At != 18 || s.Have != ` "response":"AA=="}` || s.Want != `"response":"AA=="}` {
		t.Errorf("have %+v", s)
	}
}

// TestLineBound: a line may have MaxLineBytes with its LF, and no more.
func TestLineBound(t *testing.T) {
	if testing.Short() {
		t.Skip("128 MiB of text")
	}
	// Base64 grows by 4 bytes; the envelope's text takes up the rest.
	frame := len(`{"request":"","envelope":{"payloadType":"","payload":"","signatures":null}}`)
	request := make([]byte, (chain.MaxLineBytes-frame-8)/4*3)
	rest := chain.MaxLineBytes - 1 - frame - base64.StdEncoding.EncodedLen(len(request))
	for extra, want := range []error{nil, chain.ErrLine} {
		raw := fmt.Appendf(nil, `{"request":"%s","envelope":{"payloadType":"","payload":"%s","signatures":null}}`,
			base64.StdEncoding.EncodeToString(request), strings.Repeat("x", rest+extra))
		if len(raw) != chain.MaxLineBytes-1+extra {
			t.Fatalf("made %d bytes", len(raw))
		}
		if _, err := chain.ParseLine(raw); !errors.Is(err, want) {
			t.Errorf("%d bytes: have %v, want %v", len(raw)+1, err, want)
		}
		if _, err := chain.NewReader(bytes.NewReader(append(raw, '\n'))).Next(); !errors.Is(err, want) {
			t.Errorf("read %d bytes: have %v, want %v", len(raw)+1, err, want)
		}
	}
}

// FuzzParseLine: what parses is written again byte for byte, and is what a plain
// JSON reader finds in the same bytes.
func FuzzParseLine(f *testing.F) {
	for _, raw := range bundletest.Lines(seed(f))[4:] {
		f.Add(raw)
	}
	f.Add([]byte(`{"request":"AA==","envelope":{"payloadType":"\u003c","payload":"","signatures":[{"keyid":"","sig":""}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := chain.ParseLine(raw)
		if err != nil {
			if !errors.Is(err, chain.ErrLine) {
				t.Fatalf("%v does not wrap ErrLine", err)
			}
			return
		}
		if again := chain.AppendLine(nil, &l.Line); !bytes.Equal(again, raw) {
			t.Fatalf("have %s, want %s", again, raw)
		}
		var plain chain.Line
		if err := json.Unmarshal(raw, &plain); err != nil || !reflect.DeepEqual(plain, l.Line) {
			t.Fatalf("have %+v, want %+v (%v)", l.Line, plain, err)
		}
	})
}

func ExampleReader() {
	r := chain.NewReader(strings.NewReader("{\"request\":\"AA==\"}\n{\"request\":\"AA==\"}\n{\"requ"))
	for {
		raw, err := r.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		line, err := chain.ParseLine(raw)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(line.Digest[:8], line.Request)
	}
	// Output:
	// 10e30d7e [0]
	// 10e30d7e [0]
	// line: no newline at the end after 6 bytes
}
