package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// wire puts bytes together: a string is hex, with spaces.
func wire(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRequestEncodings(t *testing.T) {
	codec := codecs(t)[0]
	negZero := math.Copysign(0, -1)
	row := func(v ...float64) Request {
		return Request{Module: &ModuleRun{Rows: []ModuleRow{{Values: v}}}}
	}
	for _, c := range []struct {
		name, in string
		want     Request
	}{
		{"empty", "", Request{}},
		{"a zero written out", "08 00", Request{}},
		{"an empty string written out", "12 00", Request{}},
		{"a long varint", "08 82 80 80 00", Request{Protocol: 2}},
		{"a varint of ten bytes", "08 82 80 80 80 80 80 80 80 80 01", Request{Protocol: 2}}, // 2^63+2
		{"a long tag", "88 80 00 02", Request{Protocol: 2}},
		{"a tag of ten bytes", "88 80 80 80 80 80 80 80 80 00 02", Request{Protocol: 2}},
		{"uint32 takes the low bits", "08 82 80 80 80 10", Request{Protocol: 2}},
		{"int32 takes the low bits", "20 ff ff ff ff 0f", Request{TimeoutMS: -1}},
		{"int32 negative", "20 ff ff ff ff ff ff ff ff ff 01", Request{TimeoutMS: -1}},
		{"int32 least", "20 80 80 80 80 f8 ff ff ff ff 01", Request{TimeoutMS: math.MinInt32}},
		{"int32 past 32 bits", "20 81 80 80 80 70", Request{TimeoutMS: 1}},
		{"the last scalar", "08 01 12 01 61 08 02 12 01 62", Request{Protocol: 2, MinimumIsolation: "b"}},
		{"the last scalar is zero", "08 01 08 00", Request{}},
		{"order", "1a 01 74 08 02", Request{Protocol: 2, TraceID: "t"}},

		{"unknown varint", "a0 06 01 08 02", Request{Protocol: 2}},
		{"unknown fixed32", "a5 06 01 02 03 04 08 02", Request{Protocol: 2}},
		{"unknown fixed64", "a1 06 01 02 03 04 05 06 07 08 08 02", Request{Protocol: 2}},
		{"unknown bytes, not UTF-8", "a2 06 01 ff 08 02", Request{Protocol: 2}},
		{"unknown group", "a3 06 08 07 a4 06 08 02", Request{Protocol: 2}},
		{"unknown groups nested", "a3 06 ab 06 0b 0c ac 06 a4 06 08 02", Request{Protocol: 2}},
		{"the largest field number", "f8 ff ff ff 0f 01 08 02", Request{Protocol: 2}},
		{"a reserved field number", "c0 a9 09 01 08 02", Request{Protocol: 2}},

		{"uint32 as fixed32", "0d 02 00 00 00", Request{}},
		{"uint32 as bytes", "0a 01 02", Request{}},
		{"uint32 as group", "0b 08 02 0c", Request{}},
		{"string as varint", "10 05", Request{}},
		{"message as varint", "50 05", Request{}},
		{"message as group", "53 0a 01 61 54", Request{}},
		{"a wrong wire type after the right one", "12 01 61 10 05", Request{MinimumIsolation: "a"}},
		{"a oneof's other member as varint", "52 03 0a 01 61 58 05", Request{JavaScript: &JavaScriptRun{Code: "a"}}},

		{"an empty message", "2a 00", Request{SoftwareRule: &SoftwareRule{}}},
		{"a message merged", "2a 06 0a 01 6d 12 01 61 2a 06 12 00 12 02 62 63", Request{
			SoftwareRule: &SoftwareRule{Mode: "m", Identities: []string{"a", "", "bc"}},
		}},
		{"a merged message's last scalar", "2a 03 0a 01 6d 2a 02 0a 00", Request{SoftwareRule: &SoftwareRule{}}},
		{"an empty payload", "5a 00", Request{Project: &ProjectRun{}}},
		{"a payload merged", "52 03 0a 01 61 52 06 0a 01 62 12 01 67", Request{
			JavaScript: &JavaScriptRun{Code: "b", GrantProfile: "g"},
		}},
		{"a payload merged across others", "52 03 0a 01 61 08 02 52 03 12 01 67", Request{
			Protocol: 2, JavaScript: &JavaScriptRun{Code: "a", GrantProfile: "g"},
		}},
		{"the last payload", "52 03 0a 01 61 6a 03 12 01 62", Request{Cell: &CellRun{Code: "b"}}},
		{"the last payload is empty", "5a 03 12 01 61 52 00", Request{JavaScript: &JavaScriptRun{}}},
		{"a payload after another forgets", "52 03 0a 01 61 62 00 52 03 12 01 67", Request{
			JavaScript: &JavaScriptRun{GrantProfile: "g"},
		}},
		{"files merged in order", "5a 05 0a 03 0a 01 61 5a 07 12 01 78 0a 02 0a 00", Request{
			Project: &ProjectRun{Files: []ProjectFile{{Path: "a"}, {}}, Steps: []string{"x"}},
		}},
		{"project field 3 is no field of ours", "5a 05 1a 03 0a 01 61", Request{Project: &ProjectRun{}}},

		{"no rows", "62 00", Request{Module: &ModuleRun{}}},
		{"an empty row", "62 02 12 00", Request{Module: &ModuleRun{Rows: []ModuleRow{{}}}}},
		{"an empty packed field", "62 04 12 02 0a 00", Request{Module: &ModuleRun{Rows: []ModuleRow{{}}}}},
		{"packed", "62 14 12 12 0a 10 00 00 00 00 00 00 f0 3f 00 00 00 00 00 00 00 80", row(1, negZero)},
		{"not packed", "62 14 12 12 09 00 00 00 00 00 00 f0 3f 09 00 00 00 00 00 00 00 80", row(1, negZero)},
		{"packed and not", "62 1e 12 1c 09 00 00 00 00 00 00 f0 3f 0a 08 00 00 00 00 00 00 00 00 09 00 00 00 00 00 00 00 80", row(1, 0, negZero)},
		{"doubles as varint", "62 04 12 02 08 01", Request{Module: &ModuleRun{Rows: []ModuleRow{{}}}}},
		{"a double as packed", "62 0a 1a 08 00 00 00 00 00 00 f0 3f", Request{Module: &ModuleRun{}}},
		{"the last double", "62 12 19 00 00 00 00 00 00 f0 3f 19 00 00 00 00 00 00 00 80", Request{Module: &ModuleRun{EndTime: negZero}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := wire(t, c.in)
			have, err := ParseRequest(in)
			if err != nil {
				t.Fatal(err)
			}
			// Canonical bytes tell -0.0 from 0.0, which DeepEqual does not.
			if b, want := AppendRequest(nil, have), AppendRequest(nil, &c.want); !bytes.Equal(b, want) {
				t.Errorf("bytes: have %x, want %x", b, want)
			}
			if !reflect.DeepEqual(have, &c.want) {
				t.Errorf("have %+v, want %+v", have, &c.want)
			}
			agree(t, codec, in)
		})
	}
}

func TestRequestRefused(t *testing.T) {
	codec := codecs(t)[0]
	for _, c := range []struct {
		name, in string
		want     error
	}{
		{"half a tag", "88", errTruncated},
		{"a tag alone", "08", errTruncated},
		{"half a varint", "08 80", errTruncated},
		{"half a varint of nine bytes", "08 80 80 80 80 80 80 80 80 80", errTruncated},
		{"a varint of eleven bytes", "08 80 80 80 80 80 80 80 80 80 80 00", errOverflow},
		{"a varint past 64 bits", "08 80 80 80 80 80 80 80 80 80 02", errOverflow},
		{"a tag of eleven bytes", "88 80 80 80 80 80 80 80 80 80 00 02", errOverflow},
		{"an unknown varint of eleven bytes", "a0 06 80 80 80 80 80 80 80 80 80 80 00", errOverflow},
		{"fixed32 cut", "a5 06 01 02 03", errTruncated},
		{"fixed64 cut", "a1 06 01 02 03 04 05 06 07", errTruncated},
		{"no length", "12", errTruncated},
		{"a length past the end", "12 02 61", errTruncated},
		{"a length past 32 bits", "12 80 80 80 80 10 61", errTruncated},
		{"a length of 2^64-1", "12 ff ff ff ff ff ff ff ff ff 01 61", errTruncated},
		{"a length past 64 bits", "12 80 80 80 80 80 80 80 80 80 02", errOverflow},
		{"an unknown length past the end", "a2 06 02 61", errTruncated},
		{"a length past the end of the message around it", "52 02 0a 02 61 62", errTruncated},

		{"field number 0", "00 01", errFieldNumber},
		{"field number 0 as bytes", "02 00", errFieldNumber},
		{"field number 2^29", "80 80 80 80 10 01", errFieldNumber},
		{"field number 2^32+1", "88 80 80 80 80 01 01", errFieldNumber},
		{"field number 2^61-1", "f8 ff ff ff ff ff ff ff ff 01 01", errFieldNumber},
		{"field number 0 in a payload", "52 02 00 01", errFieldNumber},
		{"field number 0 in a group", "a3 06 00 01 a4 06", errFieldNumber},
		{"field number 2^29 in a group", "a3 06 80 80 80 80 10 01 a4 06", errFieldNumber},

		{"wire type 6", "0e", errWireType},
		{"wire type 7", "0f", errWireType},
		{"wire type 6 unknown", "a6 06 00", errWireType},
		{"wire type 7 in a group", "a3 06 0f a4 06", errWireType},
		{"the end of no group", "0c", errEndGroup},
		{"the end of no group, unknown", "a4 06", errEndGroup},
		{"the end of no group in a payload", "52 01 54", errEndGroup},
		{"the end of the group around a payload", "53 52 02 54", errTruncated},
		{"the end of another group", "a3 06 ac 06", errEndGroup},
		{"the ends of groups crossed", "a3 06 ab 06 a4 06 ac 06", errEndGroup},
		{"a group without an end", "a3 06", errOpenGroup},
		{"a group without an end after fields", "a3 06 08 01", errOpenGroup},
		{"an inner group without an end", "a3 06 ab 06 a4 06", errEndGroup},
		{"a group that ends outside its message", "52 01 0b 0c", errOpenGroup},
		{"a value cut in a group", "a3 06 12 02 61", errTruncated},

		{"a string that is not UTF-8", "12 01 ff", errUTF8},
		{"half a character", "12 01 c3", errUTF8},
		{"a surrogate", "1a 03 ed a0 80", errUTF8},
		{"an overlong slash", "1a 02 c0 af", errUTF8},
		{"a string that is not UTF-8, overwritten", "12 01 ff 12 01 61", errUTF8},
		{"a string that is not UTF-8 in a payload forgotten", "52 03 0a 01 ff 5a 00", errUTF8},
		{"a step that is not UTF-8", "5a 03 12 01 ff", errUTF8},
		{"a file's path that is not UTF-8", "5a 05 0a 03 0a 01 ff", errUTF8},

		{"packed doubles of 7 bytes", "62 0b 12 09 0a 07 00 00 00 00 00 00 f0", errPacked},
		{"packed doubles of 9 bytes", "62 0d 12 0b 0a 09 00 00 00 00 00 00 f0 3f 00", errPacked},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := wire(t, c.in)
			r, err := ParseRequest(in)
			if !errors.Is(err, ErrMessage) || !errors.Is(err, c.want) {
				t.Errorf("have %v, want %v", err, c.want)
			}
			if r != nil {
				t.Error("a request beside an error")
			}
			agree(t, codec, in)
		})
	}
}

func TestResponseEncodings(t *testing.T) {
	codec := codecs(t)[1]
	for _, c := range []struct {
		name, in string
		want     Response
	}{
		{"bytes need no UTF-8", "52 03 0a 01 ff", Response{JavaScript: &JavaScriptResult{Stdout: []byte{0xff}}}},
		{"empty bytes are absent", "52 02 0a 00", Response{JavaScript: &JavaScriptResult{}}},
		{"the last bytes", "52 05 0a 01 61 0a 00", Response{JavaScript: &JavaScriptResult{}}},
		{"a result given twice", "52 03 0a 01 61 52 03 0a 01 62", Response{JavaScript: &JavaScriptResult{Stdout: []byte("b")}}},
		{"a result of another kind after the first", "52 03 0a 01 61 5a 00", Response{Project: &ProjectResult{}}},
		{"the record merged", "22 02 08 02 22 02 58 01", Response{Record: &Record{Version: 2, Sequence: 1}}},
		{"sequence of 2^64-1", "22 0b 58 ff ff ff ff ff ff ff ff ff 01", Response{Record: &Record{Sequence: math.MaxUint64}}},
		{"a time before 1970", "22 0b 40 ff ff ff ff ff ff ff ff ff 01", Response{Record: &Record{StartedUnixMS: -1}}},
		{"an outcome without a name", "5a 02 18 63", Response{Project: &ProjectResult{Outcome: 99}}},
		{"a negative outcome", "5a 0b 18 ff ff ff ff ff ff ff ff ff 01", Response{Project: &ProjectResult{Outcome: -1}}},
		{"an outcome past 32 bits", "5a 06 18 81 80 80 80 10", Response{Project: &ProjectResult{Outcome: 1}}},
		{"true as 2^32", "52 06 20 80 80 80 80 10", Response{JavaScript: &JavaScriptResult{TimedOut: true}}},
		{"advice is kept", "52 04 52 02 48 07", Response{JavaScript: &JavaScriptResult{Advice: []AdviceFinding{{ExtraCalls: 7}}}}},
		{"field 999", "0a 01 73 ba 3e 01 78", Response{Sandbox: "s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := wire(t, c.in)
			have, err := ParseResponse(in)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(have, &c.want) {
				t.Errorf("have %+v, want %+v", have, &c.want)
			}
			agree(t, codec, in)
		})
	}
}

// TestGroupDepth is the bound on groups and one over. The protobuf library
// goes on to 10,000.
func TestGroupDepth(t *testing.T) {
	for _, c := range []struct {
		depth int
		want  error
	}{
		{maxGroupDepth, nil},
		{maxGroupDepth + 1, errGroupDepth},
		{1_000_000, errGroupDepth},
	} {
		in := bytes.Repeat([]byte{0x0b}, c.depth)
		in = append(in, bytes.Repeat([]byte{0x0c}, c.depth)...)
		if _, err := ParseRecord(in); !errors.Is(err, c.want) {
			t.Errorf("depth %d: have %v, want %v", c.depth, err, c.want)
		}
	}
}

// TestElementBound is the bound on elements and one over: in one list, and over
// lists of several messages together.
func TestElementBound(t *testing.T) {
	response := func(parts ...[]byte) []byte {
		var b []byte
		for _, p := range parts {
			b = protowire.AppendTag(b, 11, protowire.BytesType)
			b = protowire.AppendBytes(b, p)
		}
		return b
	}
	steps := func(n int) []byte { return bytes.Repeat([]byte{0x0a, 0}, n) }
	artifacts := func(n int) []byte { return bytes.Repeat([]byte{0x22, 0}, n) }

	for _, c := range []struct {
		name  string
		in    []byte
		want  error
		early bool // refused before the list that is too long is made
	}{
		{"at the bound", response(steps(maxElements)), nil, false},
		{"one over", response(steps(maxElements + 1)), errElements, true},
		{"two lists", response(append(steps(1000), artifacts(maxElements-999)...)), errElements, true},
		{"merged", response(steps(1000), steps(maxElements-1000)), nil, false},
		{"merged one by one, over", response(append([][]byte{steps(maxElements - 1000)}, slices.Repeat([][]byte{steps(1)}, 1001)...)...), errElements, false},
		{"merged, one over", response(steps(1000), steps(maxElements-999)), errElements, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			size := allocated(func() { _, err = ParseResponse(c.in) })
			if !errors.Is(err, c.want) {
				t.Errorf("have %v, want %v", err, c.want)
			}
			if c.early && size > 1<<20 {
				t.Errorf("%d bytes allocated for a list that is refused", size)
			}
		})
	}
}

// TestMemoryFollowsInput parses messages that are as costly as they can be for
// their size, at two sizes: what is allocated is bounded by a multiple of the
// input, and the multiple does not grow with it. The bounds leave room for the
// race detector, under which a growing slice costs twice.
func TestMemoryFollowsInput(t *testing.T) {
	nest := func(b []byte, nums ...protowire.Number) []byte {
		for _, num := range nums {
			b = protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
		}
		return b
	}
	repeat := func(b []byte, size int) []byte { return bytes.Repeat(b, size/len(b)) }
	group := func(b []byte) []byte {
		for range 10 {
			b = append(append([]byte{0x0b}, b...), 0x0c)
		}
		return b
	}
	request := func(b []byte) error { _, err := ParseRequest(b); return err }
	response := func(b []byte) error { _, err := ParseResponse(b); return err }

	for _, c := range []struct {
		name  string
		parse func([]byte) error
		make  func(size int) []byte
		bound float64 // bytes allocated for each of the input
	}{
		{"empty advice", response, func(n int) []byte { return nest(repeat([]byte{0x52, 0}, n), 10) }, 160},
		{"empty steps", response, func(n int) []byte { return nest(repeat([]byte{0x0a, 0}, n), 11) }, 100},
		{"empty identities", request, func(n int) []byte { return nest(repeat([]byte{0x12, 0}, n), 5) }, 20},
		{"rows of one value", request, func(n int) []byte {
			return nest(repeat(nest(nest(make([]byte, 8), 1), 2), n), 12)
		}, 12},
		{"doubles one by one", request, func(n int) []byte {
			return nest(repeat(append([]byte{9}, make([]byte, 8)...), n), 2, 12)
		}, 12},
		{"steps in merged messages", response, func(n int) []byte { return repeat(nest([]byte{0x0a, 0}, 11), n) }, 300},
		{"results that replace each other", response, func(n int) []byte {
			return repeat([]byte{0x52, 0, 0x5a, 0, 0x62, 0, 0x6a, 0}, n)
		}, 60},
		{"groups ten deep", request, func(n int) []byte { return repeat(group([]byte{8, 1}), n) }, 0.1},
		{"nested strings", request, func(n int) []byte { return nest(repeat(nest([]byte("x"), 2), n), 11) }, 24},
		{"one string", request, func(n int) []byte { return nest(make([]byte, n), 1, 10) }, 2.2},
		{"one output", response, func(n int) []byte { return nest(make([]byte, n), 1, 10) }, 0.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1 << 14, 1 << 20} {
				in := c.make(size)
				var err error
				have := allocated(func() { err = c.parse(in) })
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d bytes: %.1f for each", len(in), float64(have)/float64(len(in)))
				if float64(have) > c.bound*float64(len(in))+2048 {
					t.Errorf("%d bytes: %d allocated, want at most %.1f for each", len(in), have, c.bound)
				}
			}
		})
	}
}

// allocated returns how many bytes f allocates, what it gives back included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestAliasing: outputs are parts of the input, with no room to append into it;
// strings are copies.
func TestAliasing(t *testing.T) {
	in := AppendResponse(nil, &Response{
		Sandbox:    "docker",
		JavaScript: &JavaScriptResult{Stdout: []byte("out"), Stderr: []byte("err")},
	})
	r, err := ParseResponse(in)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(r.JavaScript.Stdout, "overwritten"...)
	if have := string(r.JavaScript.Stderr); have != "err" {
		t.Errorf("stderr is %q after an append to stdout", have)
	}
	clear(in)
	if r.Sandbox != "docker" {
		t.Errorf("sandbox is %q after a change of the input", r.Sandbox)
	}
	if have := string(r.JavaScript.Stdout); have != "\x00\x00\x00" {
		t.Errorf("stdout is %q: a copy", have)
	}
}

// TestAppendAfter: the Append functions extend dst and leave what it holds.
func TestAppendAfter(t *testing.T) {
	file := ProjectFile{Path: "a", Content: strings.Repeat("x", 300)}
	r := &Request{Protocol: 2, Project: &ProjectRun{Files: []ProjectFile{file}}}
	want := AppendRequest(nil, r)
	for _, room := range []int{0, 1, 200, 1000} {
		dst := append(make([]byte, 0, 3+room), "abc"...)
		if have := AppendRequest(dst, r); string(have) != "abc"+string(want) {
			t.Errorf("room %d: have %x", room, have)
		}
	}
}

// TestSeveralPayloads: what the type allows and the format does not is taken
// alike by Kind, digest and writer.
func TestSeveralPayloads(t *testing.T) {
	two := &Request{JavaScript: &JavaScriptRun{Code: "a"}, Cell: &CellRun{Code: "b"}}
	one := &Request{JavaScript: &JavaScriptRun{Code: "a"}}
	if two.Kind() != KindJavaScript || two.Digest() != one.Digest() ||
		!bytes.Equal(AppendRequest(nil, two), AppendRequest(nil, one)) {
		t.Error("a request with two payloads is not that of the first")
	}
	both := &Response{Project: &ProjectResult{Outcome: 1}, Module: &ModuleResult{Width: 1}}
	first := &Response{Project: &ProjectResult{Outcome: 1}}
	if both.Kind() != KindProject || both.ResultDigest() != first.ResultDigest() ||
		!bytes.Equal(AppendResponse(nil, both), AppendResponse(nil, first)) {
		t.Error("a response with two results is not that of the first")
	}
}

func TestErrorText(t *testing.T) {
	_, err := ParseRequest(wire(t, "5a 05 0a 03 0a 01 ff"))
	want := "malformed message: RunRequest: field 11: field 1: field 1: string is not UTF-8"
	if have := fmt.Sprint(err); have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}
