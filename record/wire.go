package record

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMessage is wrapped by every error of the Parse functions: the bytes are
// not protobuf, or are past a bound of this package.
var ErrMessage = errors.New("malformed message")

// Bounds on what a Parse function takes. A message without groups cannot nest
// deeper than its type.
const (
	// maxGroupDepth bounds the nesting of groups, which no message of
	// plimsoll.v1 has and which are therefore skipped.
	maxGroupDepth = 100

	// maxElements bounds the elements of all repeated strings and messages of
	// one message together. An empty element takes 2 bytes on the wire and up
	// to 152 in memory; servers take at most 100,000 rows, 200 files, 100
	// artifacts and 20 steps.
	maxElements = 1 << 20
)

// Wire types, to be combined with a field number into a reader's key.
const (
	varint     = uint64(protowire.VarintType)
	fixed64    = uint64(protowire.Fixed64Type)
	length     = uint64(protowire.BytesType)
	startGroup = uint64(protowire.StartGroupType)
	endGroup   = uint64(protowire.EndGroupType)
	fixed32    = uint64(protowire.Fixed32Type)
)

// What can be wrong with a field. The texts are ours because those of protowire
// differ from one build to the next.
var (
	errTruncated   = errors.New("cut short")
	errOverflow    = errors.New("varint past 64 bits")
	errFieldNumber = errors.New("field number out of range")
	errWireType    = errors.New("unknown wire type")
	errEndGroup    = errors.New("end of a group that is not open")
	errOpenGroup   = errors.New("group without an end")
	errGroupDepth  = fmt.Errorf("groups nested deeper than %d", maxGroupDepth)
	errElements    = fmt.Errorf("more than %d elements in all", maxElements)
	errUTF8        = errors.New("string is not UTF-8")
	errPacked      = errors.New("packed doubles are no multiple of 8 bytes")
)

// A message is one that can be read from its bytes. Parsing into a message
// that has content merges, as protobuf demands of a field that comes twice.
type message interface {
	parse(b []byte, left *int) error
}

// A reader walks over the fields of one message. It reads a field's value
// before anyone looks at its number, so that a field nobody asks for, unknown
// or of another wire type than expected, is skipped by doing nothing.
type reader struct {
	b    []byte // what is left
	left *int   // how many more elements the whole message may have
	err  error

	key uint64 // field number << 3 | wire type
	u   uint64 // the value of a varint or fixed64
	p   []byte // the value of a length-delimited field, part of the input
}

// next reads a field and reports whether there was one. It returns false at
// the end and after an error, also one that the caller's handling of the field
// before has left.
func (r *reader) next() bool {
	if !r.step() {
		return false
	}
	switch r.key & 7 {
	case startGroup:
		return r.skipGroup()
	case endGroup:
		return r.fail(errEndGroup)
	}
	return true
}

// step is next for one tag and its value. The marks of a group are fields
// without a value to it.
func (r *reader) step() bool {
	if len(r.b) == 0 || r.err != nil {
		return false
	}
	tag, n := protowire.ConsumeVarint(r.b)
	if n < 0 {
		r.err = fmt.Errorf("tag: %w", wireError(n))
		return false
	}
	r.key = tag
	if num := tag >> 3; num < uint64(protowire.MinValidNumber) || num > uint64(protowire.MaxValidNumber) {
		return r.fail(errFieldNumber)
	}
	b := r.b[n:]
	switch tag & 7 {
	case varint:
		r.u, n = protowire.ConsumeVarint(b)
	case fixed64:
		r.u, n = protowire.ConsumeFixed64(b)
	case length:
		r.p, n = protowire.ConsumeBytes(b)
	case fixed32:
		_, n = protowire.ConsumeFixed32(b)
	case startGroup, endGroup:
		n = 0
	default:
		return r.fail(errWireType)
	}
	if n < 0 {
		return r.fail(wireError(n))
	}
	r.b = b[n:]
	return true
}

// skipGroup goes on to the end of the group that has just begun. The bytes of
// a stranger choose the depth, so this keeps its own short stack where protowire
// recurses ten thousand deep.
func (r *reader) skipGroup() bool {
	var open [maxGroupDepth]uint32 // numbers of the open groups
	open[0] = uint32(r.key >> 3)
	for depth := 1; depth > 0; {
		if !r.step() {
			return r.fail(errOpenGroup)
		}
		num := uint32(r.key >> 3)
		switch r.key & 7 {
		case startGroup:
			if depth == len(open) {
				return r.fail(errGroupDepth)
			}
			open[depth] = num
			depth++
		case endGroup:
			depth--
			if num != open[depth] {
				return r.fail(errEndGroup)
			}
		}
	}
	return true
}

// fail ends the reading with an error about the current field, unless it has
// ended with one before. It returns false.
func (r *reader) fail(err error) bool {
	if r.err == nil {
		r.err = fmt.Errorf("field %d: %w", r.key>>3, err)
	}
	return false
}

// wireError returns what a negative length of protowire means.
func wireError(n int) error {
	if errors.Is(protowire.ParseError(n), io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return errOverflow
}

// string returns a copy of the current field.
func (r *reader) string() string {
	if !utf8.Valid(r.p) {
		r.fail(errUTF8)
		return ""
	}
	return string(r.p)
}

// bytes returns the current field, which stays part of the input. Absent and
// empty are the same, so both are nil.
func (r *reader) bytes() []byte {
	if len(r.p) == 0 {
		return nil
	}
	return r.p[:len(r.p):len(r.p)]
}

func (r *reader) bool() bool      { return r.u != 0 }
func (r *reader) int32() int32    { return int32(r.u) } // the low 32 bits, as protobuf has it
func (r *reader) double() float64 { return math.Float64frombits(r.u) }

// message parses the current field into m.
func (r *reader) message(m message) {
	if err := m.parse(r.p, r.left); err != nil {
		r.fail(err)
	}
}

// merge parses the current field into *m, which it makes when there is none.
func merge[T any, P interface {
	*T
	message
}](r *reader, m *P) {
	if *m == nil {
		*m = new(T)
	}
	r.message(*m)
}

// element parses the current field as one more element of s.
func element[T any, P interface {
	*T
	message
}](r *reader, s []T) []T {
	if s = grow(r, s); r.err == nil {
		s = append(s, *new(T))
		r.message(P(&s[len(s)-1]))
	}
	return s
}

// stringElement appends the current field to s.
func stringElement(r *reader, s []string) []string {
	if s = grow(r, s); r.err == nil {
		s = append(s, r.string())
	}
	return s
}

// grow makes room in s for the current field. It counts the fields to come
// once, so that a list is allocated once, at its size, and not before it is
// known to be within the bound.
func grow[T any](r *reader, s []T) []T {
	if len(s) == cap(s) {
		n := 1
		for ahead := *r; ahead.next(); {
			if ahead.key == r.key {
				n++
			}
		}
		if n > *r.left {
			r.fail(errElements)
			return s
		}
		s = slices.Grow(s, n)
	}
	if *r.left--; *r.left < 0 {
		r.fail(errElements)
	}
	return s
}

// packed appends the doubles of the current field to s.
func (r *reader) packed(s []float64) []float64 {
	if len(r.p)%8 != 0 {
		r.fail(errPacked)
		return s
	}
	if len(r.p) == 0 {
		return s
	}
	s = slices.Grow(s, len(r.p)/8)
	for p := r.p; len(p) > 0; p = p[8:] {
		v, _ := protowire.ConsumeFixed64(p)
		s = append(s, math.Float64frombits(v))
	}
	return s
}

// Append functions for the fields of a message. A zero value is left out.

func appendString(dst []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return appendStringElement(dst, num, s)
}

func appendBytes(dst []byte, num protowire.Number, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), b)
}

func appendUint(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
}

// appendInt writes a negative number as protobuf does, sign extended to 64 bits.
func appendInt(dst []byte, num protowire.Number, v int64) []byte {
	return appendUint(dst, num, uint64(v))
}

func appendBool(dst []byte, num protowire.Number, v bool) []byte {
	return appendUint(dst, num, protowire.EncodeBool(v))
}

// appendDouble leaves out 0.0 alone: -0.0 has a bit set and is written.
func appendDouble(dst []byte, num protowire.Number, v float64) []byte {
	bits := math.Float64bits(v)
	if bits == 0 {
		return dst
	}
	return protowire.AppendFixed64(protowire.AppendTag(dst, num, protowire.Fixed64Type), bits)
}

func appendDoubles(dst []byte, num protowire.Number, v []float64) []byte {
	if len(v) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(v))*8)
	for _, x := range v {
		dst = protowire.AppendFixed64(dst, math.Float64bits(x))
	}
	return dst
}

// appendStringElement writes an element of a repeated field, empty or not.
func appendStringElement(dst []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), s)
}

// appendMessage writes m, empty or not. The length goes in once the content is
// there, which costs a move of the content and saves a second set of functions
// that know every field.
func appendMessage(dst []byte, num protowire.Number, m interface{ append(dst []byte) []byte }) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	start := len(dst)
	dst = m.append(dst)
	var size [10]byte
	return slices.Insert(dst, start, protowire.AppendVarint(size[:0], uint64(len(dst)-start))...)
}
