package record

import (
	"bytes"
	"reflect"
	"regexp"
	"testing"
)

// instanceForm is the form of an instance reference as the format states it.
var instanceForm = regexp.MustCompile(`^([a-z][a-z0-9-]{0,31}:[A-Za-z0-9._:-]{1,127})?$`)

// The three parsers have one property: what parses is written canonically, the
// canonical bytes parse to the same and are written as they are, and the
// protobuf library sees the same in both.

func FuzzParseRequest(f *testing.F) {
	seed(f, readVectors(f).Requests)
	c := codecs(f)[0]
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := ParseRequest(b)
		if agree(t, c, b); err != nil {
			return
		}
		canonical := AppendRequest(nil, first)
		second, err := ParseRequest(canonical)
		if err != nil {
			t.Fatalf("canonical bytes: %v", err)
		}
		if again := AppendRequest(nil, second); !bytes.Equal(again, canonical) {
			t.Fatalf("have %x, want %x", again, canonical)
		}
		if have, want := second.Digest(), first.Digest(); have != want {
			t.Fatalf("digest: have %s, want %s", have, want)
		}
		// A NaN is not equal to itself; the bytes above compare its bits.
		if first.Module == nil && !reflect.DeepEqual(second, first) {
			t.Fatalf("have %+v, want %+v", second, first)
		}
	})
}

func FuzzParseResponse(f *testing.F) {
	seed(f, readVectors(f).Results)
	c := codecs(f)[1]
	f.Fuzz(func(t *testing.T, b []byte) {
		in := bytes.Clone(b)
		first, err := ParseResponse(b)
		if agree(t, c, b); err != nil {
			return
		}
		canonical := AppendResponse(nil, first)
		second, err := ParseResponse(canonical)
		if err != nil {
			t.Fatalf("canonical bytes: %v", err)
		}
		if again := AppendResponse(nil, second); !bytes.Equal(again, canonical) {
			t.Fatalf("have %x, want %x", again, canonical)
		}
		if have, want := second.ResultDigest(), first.ResultDigest(); have != want {
			t.Fatalf("digest: have %s, want %s", have, want)
		}
		if first.Module == nil && !reflect.DeepEqual(second, first) { // as above
			t.Fatalf("have %+v, want %+v", second, first)
		}
		if !bytes.Equal(b, in) {
			t.Fatal("the input was changed")
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	seed(f, readVectors(f).Records)
	c := codecs(f)[2]
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := ParseRecord(b)
		if agree(t, c, b); err != nil {
			return
		}
		canonical := AppendRecord(nil, first)
		second, err := ParseRecord(canonical)
		if err != nil {
			t.Fatalf("canonical bytes: %v", err)
		}
		if *second != *first {
			t.Fatalf("have %+v, want %+v", second, first)
		}
		if again := AppendRecord(nil, second); !bytes.Equal(again, canonical) {
			t.Fatalf("have %x, want %x", again, canonical)
		}
		if digest, err := first.Digest(); (err == nil) != (len(digest) == 64) {
			t.Fatalf("digest %q, %v", digest, err)
		}
	})
}

// FuzzCheckInstance holds the check against the form as a regular expression.
func FuzzCheckInstance(f *testing.F) {
	for _, s := range []string{"", "k8s-pod-uid:0a1b", "a:b", "a::", "9:b", "a:\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if have, want := CheckInstance(s) == nil, instanceForm.MatchString(s); have != want {
			t.Fatalf("%q: have %t, want %t", s, have, want)
		}
	})
}

func seed(f *testing.F, list []vector) {
	f.Helper()
	for _, v := range list {
		f.Add(v.bytes(f))
	}
	for _, s := range []string{
		"", "a3 06 08 07 a4 06 08 02", "2a 06 0a 01 6d 12 01 61 2a 06 12 00 12 02 62 63",
		"52 03 0a 01 61 62 00 52 03 12 01 67", "62 14 12 12 09 00 00 00 00 00 00 f0 3f 09 00 00 00 00 00 00 00 80",
	} {
		f.Add(wire(f, s))
	}
}
