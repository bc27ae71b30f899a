package record

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// agree fails unless this package and the protobuf library take the same from
// b, or both refuse it. It returns whether they take it. There are three
// differences, all of them refusals of ours: groups nested past our bound (the
// library's is 10,000), more elements than our bound, and, inside an unknown
// group only, field numbers past 2^29-1, which the library lets pass there.
func agree(t *testing.T, c *codec, b []byte) bool {
	t.Helper()
	ours, ourErr := c.canonical(b)
	theirs, theirErr := c.library(b)
	switch {
	case ourErr != nil && theirErr != nil:
		return false
	case errors.Is(ourErr, errGroupDepth), errors.Is(ourErr, errElements), errors.Is(ourErr, errFieldNumber):
		return false
	case ourErr != nil || theirErr != nil:
		t.Fatalf("%s %x:\nours    %v\nlibrary %v", c.name, b, ourErr, theirErr)
	case !bytes.Equal(ours, theirs):
		t.Fatalf("%s %x:\nours    %x\nlibrary %x", c.name, b, ours, theirs)
	}
	return true
}

// TestRandomMessages holds parser and writer against the protobuf library over
// encodings as odd as the format allows, and some that it does not.
func TestRandomMessages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := 5000
	if testing.Short() {
		n = 500
	}
	for _, c := range codecs(t) {
		taken := 0
		for range n {
			b := appendRandom(nil, rng, c.md)
			if rng.IntN(4) == 0 && len(b) > 0 {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
			if agree(t, c, b) {
				taken++
			}
		}
		t.Logf("%s: %d of %d taken", c.name, taken, n)
		if taken < n/4 || taken == n {
			t.Errorf("%s: %d of %d taken: the generator tests one side only", c.name, taken, n)
		}
	}
}

func TestAgreeOnGolden(t *testing.T) {
	v, c := readVectors(t), codecs(t)
	for i, list := range [][]vector{v.Requests, v.Results, v.Records} {
		for _, v := range list {
			b := v.bytes(t)
			if !agree(t, c[i], b) {
				t.Errorf("%s: refused", v.Name)
			}
			for n := range b {
				agree(t, c[i], b[:n])
			}
		}
	}
}

// appendRandom appends fields of md in any order and number, a few with another
// wire type than theirs, a few unknown.
func appendRandom(dst []byte, rng *rand.Rand, md protoreflect.MessageDescriptor) []byte {
	for range rng.IntN(8) {
		if rng.IntN(8) == 0 {
			dst = appendUnknown(dst, rng, protowire.Number(1+rng.IntN(25)), 0)
			continue
		}
		dst = appendField(dst, rng, md.Fields().Get(rng.IntN(md.Fields().Len())))
	}
	return dst
}

func appendField(dst []byte, rng *rand.Rand, f protoreflect.FieldDescriptor) []byte {
	switch num := f.Number(); f.Kind() {
	case protoreflect.MessageKind:
		dst = protowire.AppendTag(dst, num, protowire.BytesType)
		return protowire.AppendBytes(dst, appendRandom(nil, rng, f.Message()))
	case protoreflect.StringKind:
		text := []string{"", "a", "é中😀", "\x00", "x\xff", "\xed\xa0\x80"}
		n := 4
		if rng.IntN(30) == 0 {
			n = len(text)
		}
		dst = protowire.AppendTag(dst, num, protowire.BytesType)
		return protowire.AppendString(dst, text[rng.IntN(n)])
	case protoreflect.BytesKind:
		dst = protowire.AppendTag(dst, num, protowire.BytesType)
		return protowire.AppendBytes(dst, [][]byte{nil, {0}, {0xff, 'x'}, make([]byte, 130)}[rng.IntN(4)])
	case protoreflect.DoubleKind:
		if !f.IsList() || rng.IntN(2) == 0 {
			dst = protowire.AppendTag(dst, num, protowire.Fixed64Type)
			return protowire.AppendFixed64(dst, randomDouble(rng))
		}
		var packed []byte
		for range rng.IntN(4) {
			packed = protowire.AppendFixed64(packed, randomDouble(rng))
		}
		if rng.IntN(30) == 0 {
			packed = append(packed, 0)
		}
		dst = protowire.AppendTag(dst, num, protowire.BytesType)
		return protowire.AppendBytes(dst, packed)
	default:
		dst = protowire.AppendTag(dst, num, protowire.VarintType)
		return appendLongVarint(dst, rng, randomUint(rng))
	}
}

func randomDouble(rng *rand.Rand) uint64 {
	return []uint64{
		0, 1 << 63, 1, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000001, 0x7ff0000000000001,
		math.Float64bits(1.5), rng.Uint64(),
	}[rng.IntN(9)]
}

func randomUint(rng *rand.Rand) uint64 {
	return []uint64{0, 1, 5, 127, 128, 1 << 31, 1<<32 - 1, 1 << 32, math.MaxInt64, 1 << 63, math.MaxUint64, rng.Uint64()}[rng.IntN(12)]
}

// appendLongVarint appends v in its shortest form, or in a longer one.
func appendLongVarint(dst []byte, rng *rand.Rand, v uint64) []byte {
	start := len(dst)
	dst = protowire.AppendVarint(dst, v)
	for rng.IntN(4) == 0 && len(dst)-start < 10 {
		dst[len(dst)-1] |= 0x80
		dst = append(dst, 0)
	}
	return dst
}

func appendUnknown(dst []byte, rng *rand.Rand, num protowire.Number, depth int) []byte {
	typ := protowire.Type(rng.IntN(6))
	switch {
	case typ == protowire.EndGroupType && rng.IntN(4) > 0:
		typ = protowire.VarintType
	case typ == protowire.StartGroupType && depth > 3:
		typ = protowire.BytesType
	}
	dst = protowire.AppendTag(dst, num, typ)
	switch typ {
	case protowire.VarintType:
		return appendLongVarint(dst, rng, randomUint(rng))
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(dst, rng.Uint32())
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(dst, rng.Uint64())
	case protowire.BytesType:
		return protowire.AppendBytes(dst, make([]byte, rng.IntN(3)))
	case protowire.StartGroupType:
		for range rng.IntN(4) {
			dst = appendUnknown(dst, rng, protowire.Number(1+rng.IntN(25)), depth+1)
		}
		if rng.IntN(20) > 0 {
			dst = protowire.AppendTag(dst, num, protowire.EndGroupType)
		}
	}
	return dst
}
