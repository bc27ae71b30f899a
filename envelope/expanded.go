package envelope

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/binary"
	"hash"
	"sync"
	"sync/atomic"

	"filippo.io/edwards25519"
	"filippo.io/edwards25519/field"
)

// expandAfter is the number of verifications after which a key gets its table.
// The table pays after some 25 more, and so does that of the base point, which
// all keys share; a short bundle should not wait for either.
const expandAfter = 64

// An expansion is the table of one key, once the key has been used enough.
type expansion struct {
	verified atomic.Int64
	table    atomic.Pointer[multiples]
}

// Verify reports whether sig is this key's Ed25519 signature of message: for
// any input its answer is that of crypto/ed25519.Verify. It may be called
// concurrently. Its time depends on its inputs, which are all public.
func (k *PublicKey) Verify(message, sig []byte) bool {
	if a := k.expanded.table.Load(); a != nil {
		return k.verifyExpanded(a, message, sig)
	}
	// Exactly one goroutine counts to expandAfter and makes the table; the
	// others go on without it until it is there.
	if k.expanded.verified.Add(1) == expandAfter {
		k.expand()
	}
	return ed25519.Verify(k.raw[:], message, sig)
}

func (k *PublicKey) expand() {
	baseMultiples()
	k.expanded.table.Store(newMultiples(&k.minusA))
}

// scratch is what one verification needs; reused, so that none allocates.
type scratch struct {
	hash   hash.Hash
	digest [sha512.Size]byte
	terms  [2 * windows]term
}

var scratchPool = sync.Pool{New: func() any { return &scratch{hash: sha512.New()} }}

// verifyExpanded does what the standard library does: it computes S·B + h·(-A),
// where h is the hash of R, A and the message, and compares the encoding of the
// sum with R, the first half of sig. Only how the two products are added up
// differs.
//
// Checking many signatures at once would be faster still, but is another check:
// it has to multiply the equation by 8 or depend on chance, and so accepts
// signatures with a part of small order that the standard library refuses.
func (k *PublicKey) verifyExpanded(minusA *multiples, message, sig []byte) bool {
	if len(sig) != ed25519.SignatureSize {
		return false
	}
	var s, h edwards25519.Scalar
	if _, err := s.SetCanonicalBytes(sig[32:]); err != nil {
		return false // S + L would be a second signature of the same message
	}
	tmp := scratchPool.Get().(*scratch)
	defer scratchPool.Put(tmp)
	tmp.hash.Reset()
	tmp.hash.Write(sig[:32])
	tmp.hash.Write(k.raw[:])
	tmp.hash.Write(message)
	if _, err := h.SetUniformBytes(tmp.hash.Sum(tmp.digest[:0])); err != nil {
		return false
	}
	n := baseMultiples().product(tmp.terms[:], sig[32:])
	n += minusA.product(tmp.terms[n:], h.Bytes())
	sum := newAccumulator()
	for i := range tmp.terms[:n] {
		sum.add(&tmp.terms[i])
	}
	var r edwards25519.Point
	if _, err := r.SetExtendedCoordinates(&sum.x, &sum.y, &sum.z, &sum.t); err != nil {
		return false // not on the curve, which cannot be
	}
	return bytes.Equal(r.Bytes(), sig[:32])
}

const (
	// A scalar, which is below 2^253, has 37 digits from -64 to 63 in base 128.
	// Wider windows need fewer additions, but tables that do not fit into the
	// inner caches; 6 bits and 8 bits are no faster.
	windowBits = 7
	windows    = 37
)

// multiples holds, for a point P, j·128^i·P at [i][j-1], for j from 1 to 64, so
// that a product with a scalar is a sum of at most 37 entries, without doublings.
type multiples [windows][1 << (windowBits - 1)]affine

// affine is a point (x, y) in the form in which it is cheapest to add to
// another: y+x, y-x and 2dxy.
type affine struct{ yPlusX, yMinusX, xy2d field.Element }

// A term is an entry of a table, to be added or subtracted.
type term struct {
	affine
	minus bool
}

var baseMultiples = sync.OnceValue(func() *multiples {
	return newMultiples(edwards25519.NewGeneratorPoint())
})

// twiceD is 2d of the curve equation, d = -121665/121666 (RFC 8032, 5.1).
var twiceD = func() *field.Element {
	one := new(field.Element).One()
	d := new(field.Element).Invert(new(field.Element).Mult32(one, 121666))
	d.Multiply(d, new(field.Element).Mult32(one, 121665))
	d.Negate(d)
	return d.Add(d, d)
}()

func newMultiples(p *edwards25519.Point) *multiples {
	m := new(multiples)
	points := make([]edwards25519.Point, 0, windows*len(m[0]))
	base := new(edwards25519.Point).Set(p)
	for range m {
		for j := range m[0] {
			next := *base
			if j > 0 {
				next.Add(&points[len(points)-1], base)
			}
			points = append(points, next)
		}
		last := &points[len(points)-1]
		base.Add(last, last)
	}

	// Z of all points is inverted at once: the product is, and then unwound.
	products := make([]field.Element, len(points)+1)
	products[0].One()
	for i := range points {
		_, _, z, _ := points[i].ExtendedCoordinates()
		products[i+1].Multiply(&products[i], z)
	}
	inverse := new(field.Element).Invert(&products[len(points)])
	for i := len(points) - 1; i >= 0; i-- {
		x, y, z, _ := points[i].ExtendedCoordinates()
		zInv := new(field.Element).Multiply(inverse, &products[i])
		inverse.Multiply(inverse, z)
		x.Multiply(x, zInv)
		y.Multiply(y, zInv)
		e := &m[i/len(m[0])][i%len(m[0])]
		e.yPlusX.Add(y, x)
		e.yMinusX.Subtract(y, x)
		e.xy2d.Multiply(x, y)
		e.xy2d.Multiply(&e.xy2d, twiceD)
	}
	return m
}

// product writes to terms those whose sum is s·P, and returns how many. s is
// little-endian and reduced modulo the group order.
//
// The entries are copied out before any is added: the copies wait for memory
// together, where each addition would wait for its own entry.
func (m *multiples) product(terms []term, s []byte) (n int) {
	const base, half = 1 << windowBits, 1 << (windowBits - 1)
	var words [5]uint64 // and one of zeros, for the last digit's upper bits
	for i := range words[:4] {
		words[i] = binary.LittleEndian.Uint64(s[8*i:])
	}
	carry := 0
	for i := range m {
		word, bit := i*windowBits/64, i*windowBits%64
		digit := int((words[word]>>bit|words[word+1]<<(64-bit))%base) + carry
		carry = (digit + half) / base
		digit -= carry * base
		switch {
		case digit > 0:
			terms[n].affine = m[i][digit-1]
			terms[n].minus = false
			n++
		case digit < 0:
			terms[n].affine = m[i][-digit-1]
			terms[n].minus = true
			n++
		}
	}
	return n
}

// An accumulator is a point in extended coordinates: x = X/Z, y = Y/Z, xy = T/Z.
type accumulator struct{ x, y, z, t field.Element }

// newAccumulator returns the neutral element.
func newAccumulator() (p accumulator) {
	p.y.One()
	p.z.One()
	return p
}

// add adds q, by the formulas for a = -1 of Hisil, Wong, Carter and Dawson
// ("Twisted Edwards Curves Revisited", 3.1), as the standard library does. They
// hold for all pairs of points of this curve, equal and neutral ones included.
func (p *accumulator) add(q *term) {
	plus, minus := &q.yPlusX, &q.yMinusX
	if q.minus {
		plus, minus = minus, plus
	}
	var a, b, c, d field.Element
	a.Subtract(&p.y, &p.x)
	a.Multiply(&a, minus)
	b.Add(&p.y, &p.x)
	b.Multiply(&b, plus)
	c.Multiply(&p.t, &q.xy2d)
	d.Add(&p.z, &p.z)

	var e, f, g, h field.Element
	e.Subtract(&b, &a)
	h.Add(&b, &a)
	f.Subtract(&d, &c)
	g.Add(&d, &c)
	if q.minus {
		f, g = g, f // -q has the opposite x, and so the opposite 2dxy
	}
	p.x.Multiply(&e, &f)
	p.y.Multiply(&g, &h)
	p.z.Multiply(&f, &g)
	p.t.Multiply(&e, &h)
}
