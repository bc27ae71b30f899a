package envelope

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"testing"

	"filippo.io/edwards25519"
)

// A testSigner signs by the equation, so that it can also make what no honest
// signer makes: keys and signatures with a part of small order.
type testSigner struct {
	a      *edwards25519.Scalar
	key    *PublicKey
	keyTor int
}

var testSigners [8]testSigner // by the small-order part of the key

func init() {
	for i := range testSigners {
		s := sha512.Sum512([]byte("key"))
		a, err := new(edwards25519.Scalar).SetUniformBytes(s[:])
		if err != nil {
			panic(err)
		}
		p := new(edwards25519.Point).ScalarBaseMult(a)
		k, err := NewPublicKey(p.Add(p, torsion[i]).Bytes())
		if err != nil {
			panic(err)
		}
		k.expand()
		testSigners[i] = testSigner{a, k, i}
	}
}

func (s testSigner) challenge(r, message []byte) *edwards25519.Scalar {
	sum := sha512.Sum512(slices.Concat(r, s.key.raw[:], message))
	k, err := new(edwards25519.Scalar).SetUniformBytes(sum[:])
	if err != nil {
		panic(err)
	}
	return k
}

// signWith returns R ‖ S for the encoding r of R = nonce·B + a small-order part.
func (s testSigner) signWith(nonce *edwards25519.Scalar, r, message []byte) []byte {
	k := s.challenge(r, message)
	return append(slices.Clone(r), new(edwards25519.Scalar).MultiplyAdd(k, s.a, nonce).Bytes()...)
}

// sign returns a signature that holds when the small-order parts cancel, which
// they do for one choice of tor in eight: R's must be -k times the key's.
func (s testSigner) sign(tor int, message []byte) (sig []byte, holds bool) {
	sum := sha512.Sum512(append([]byte{byte(tor)}, message...))
	nonce, err := new(edwards25519.Scalar).SetUniformBytes(sum[:])
	if err != nil {
		panic(err)
	}
	r := new(edwards25519.Point).ScalarBaseMult(nonce)
	sig = s.signWith(nonce, r.Add(r, torsion[tor]).Bytes(), message)
	k := int(s.challenge(sig[:32], message).Bytes()[0])
	return sig, (tor+k*s.keyTor)%8 == 0
}

// verifyBoth returns the answer on which the two ways agree.
func verifyBoth(t testing.TB, k *PublicKey, message, sig []byte) bool {
	t.Helper()
	want := ed25519.Verify(k.raw[:], message, sig)
	table := k.expanded.table.Load()
	if table == nil {
		table = newMultiples(&k.minusA)
	}
	if have := k.verifyExpanded(table, message, sig); have != want {
		t.Fatalf("key %x, message %x, signature %x: have %v, want crypto/ed25519's %v", k.raw, message, sig, have, want)
	}
	return want
}

// scalarOf returns the scalar that is n modulo the group order.
func scalarOf(n *big.Int) *edwards25519.Scalar {
	b := littleEndian(new(big.Int).Mod(n, groupOrder))
	s, err := new(edwards25519.Scalar).SetCanonicalBytes(b)
	if err != nil {
		panic(err)
	}
	return s
}

// groupOrder is L, the prime order of the base point (RFC 8032, 5.1).
var groupOrder, _ = new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)

// Products from the table are those of the library, for scalars whose digits
// carry, borrow or vanish, and for points with a part of small order.
func TestMultiples(t *testing.T) {
	var scalars []*big.Int
	for _, n := range []int64{0, 1, 2, 62, 63, 64, 65, 66, 126, 127, 128, 129, 8191, 8192, 1 << 20, -1, -2, -64, -65} {
		scalars = append(scalars, big.NewInt(n))
	}
	for _, digit := range []int64{63, 64, 65, 127} { // the same digit everywhere
		n := new(big.Int)
		for range 36 {
			n.Add(n.Lsh(n, windowBits), big.NewInt(digit))
		}
		scalars = append(scalars, n)
	}
	for bit := uint(0); bit < 253; bit += 5 {
		n := new(big.Int).Lsh(big.NewInt(1), bit)
		scalars = append(scalars, n, new(big.Int).Sub(n, big.NewInt(1)))
	}
	points := []*edwards25519.Point{edwards25519.NewGeneratorPoint(), edwards25519.NewIdentityPoint(), torsion[1], torsion[4]}
	points = append(points, &testSigners[0].key.minusA, &testSigners[5].key.minusA)
	for i, p := range points {
		table := newMultiples(p)
		for _, n := range scalars {
			s := scalarOf(n)
			var terms [windows]term
			sum := newAccumulator()
			for j := range table.product(terms[:], s.Bytes()) {
				sum.add(&terms[j])
			}
			have, err := new(edwards25519.Point).SetExtendedCoordinates(&sum.x, &sum.y, &sum.z, &sum.t)
			if err != nil {
				t.Fatalf("point %d, scalar %v: %v", i, n, err)
			}
			if want := new(edwards25519.Point).ScalarMult(s, p); have.Equal(want) != 1 {
				t.Errorf("point %d, scalar %v: have %x, want %x", i, n, have.Bytes(), want.Bytes())
			}
		}
	}
}

func TestExpandedFlippedBits(t *testing.T) {
	priv := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	k, err := NewPublicKey(priv.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	k.expand()
	message := []byte("DSSEv1 1 a 1 b")
	sig := ed25519.Sign(priv, message)
	if !verifyBoth(t, k, message, sig) {
		t.Fatal("a good signature was refused")
	}
	for _, b := range [][]byte{message, sig} {
		for bit := range 8 * len(b) {
			b[bit/8] ^= 1 << (bit % 8)
			if verifyBoth(t, k, message, sig) {
				t.Errorf("accepted with bit %d of %d changed", bit, 8*len(b))
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
	}
	for n := range 130 {
		if s := append(slices.Clone(sig), sig...)[:min(n, 128)]; verifyBoth(t, k, message, s) != (n == 64) {
			t.Errorf("accepted with %d bytes", n)
		}
	}
	for n := range 300 { // across SHA-512's block boundary
		m := bytes.Repeat([]byte{byte(n)}, n)
		if !verifyBoth(t, k, m, ed25519.Sign(priv, m)) {
			t.Errorf("message of %d bytes refused", n)
		}
	}
}

// littleEndian returns the 32 bytes of n.
func littleEndian(n *big.Int) []byte {
	b := n.FillBytes(make([]byte, 32))
	slices.Reverse(b)
	return b
}

func TestExpandedEdges(t *testing.T) {
	l := groupOrder
	plus := func(b []byte, n *big.Int) []byte {
		b = slices.Clone(b)
		slices.Reverse(b)
		return littleEndian(n.Add(n, new(big.Int).SetBytes(b)))
	}
	s := testSigners[0]
	message := []byte("message")
	good, _ := s.sign(0, message)
	zero := new(edwards25519.Scalar)
	negA := new(edwards25519.Scalar).Negate(s.a)
	// With R = r·B and S chosen freely, the message's hash cannot be met; only
	// the digits of S are of interest here.
	withS := func(n *big.Int) []byte { return append(slices.Clone(good[:32]), littleEndian(n)...) }
	one := big.NewInt(1)

	for _, tt := range []struct {
		name string
		sig  []byte
		want bool
	}{
		{"good", good, true},
		{"S + L", append(slices.Clone(good[:32]), plus(good[32:], new(big.Int).Set(l))...), false},
		{"S + 2L", append(slices.Clone(good[:32]), plus(good[32:], new(big.Int).Lsh(l, 1))...), false},
		{"S = 0", withS(new(big.Int)), false},
		{"S = L-1", withS(new(big.Int).Sub(l, one)), false},
		{"S = L", withS(l), false},
		{"S = L+1", withS(new(big.Int).Add(l, one)), false},
		{"S = 2^256-1", append(slices.Clone(good[:32]), bytes.Repeat([]byte{0xff}, 32)...), false},
		{"R the identity", s.signWith(zero, torsion[0].Bytes(), message), true},
		{"R the identity, y = p+1", s.signWith(zero, fieldPlus(1), message), false},
		{"R the identity, with sign", s.signWith(zero, withSign(torsion[0].Bytes()), message), false},
		{"R = -A", s.signWith(negA, new(edwards25519.Point).ScalarBaseMult(negA).Bytes(), message), true},
		{"R no point", s.signWith(zero, append([]byte{2}, make([]byte, 31)...), message), false},
		{"R = p", s.signWith(zero, fieldPlus(0), message), false},
		{"R all ones", s.signWith(zero, bytes.Repeat([]byte{0xff}, 32), message), false},
		{"zeros", make([]byte, 64), false},
		{"nil", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if have := verifyBoth(t, s.key, message, tt.sig); have != tt.want {
				t.Errorf("have %v, want %v", have, tt.want)
			}
		})
	}
	for i := 1; i < 8; i++ {
		if verifyBoth(t, s.key, message, s.signWith(zero, torsion[i].Bytes(), message)) {
			t.Errorf("R of small order, torsion %d: accepted", i)
		}
	}
}

// For every small-order part of the key there are signatures that hold and
// others that a check multiplied by 8, as in batch verification, would pass.
func TestExpandedMixedTorsion(t *testing.T) {
	for keyTor, s := range testSigners {
		held := 0
		for i := range 20 {
			for tor := range torsion {
				message := fmt.Appendf(nil, "message %d", i)
				sig, want := s.sign(tor, message)
				if have := verifyBoth(t, s.key, message, sig); have != want {
					t.Errorf("key torsion %d, R torsion %d, message %d: have %v, want %v", keyTor, tor, i, have, want)
				}
				if want {
					held++
				}
			}
		}
		if held == 0 || held == 8*20 {
			t.Errorf("key torsion %d: %d of %d signatures hold, want some", keyTor, held, 8*20)
		}
	}
}

// A signature of a published case that only batch verification accepts.
func TestMixedTorsionVectorRefused(t *testing.T) {
	k, err := NewPublicKey(unhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"))
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("DSSEv1 28 application/vnd.in-toto+json 2 {}")
	sig := unhex("186ed2bdbd1a36f6437c5168b0221914018ea4f32a1c3fcd1c1794d64fbd596e9ffc9929d5d891ee879ae59ec7fb161f66b85de560ffab802453b4129038f707")
	if verifyBoth(t, k, message, sig) {
		t.Error("accepted")
	}
	for i := range 2 * expandAfter {
		if k.Verify(message, sig) {
			t.Fatalf("call %d: accepted", i)
		}
	}
}

func TestOtherModesRefused(t *testing.T) {
	priv := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	k, err := NewPublicKey(priv.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha512.Sum512([]byte("message"))
	for _, opts := range []*ed25519.Options{
		{Hash: crypto.SHA512},
		{Hash: crypto.SHA512, Context: "c"},
		{Context: "c"},
	} {
		sig, err := priv.Sign(nil, digest[:], opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range [][]byte{digest[:], []byte("message")} {
			if verifyBoth(t, k, message, sig) {
				t.Errorf("%+v: accepted", *opts)
			}
		}
	}
}

// Whatever order the goroutines run in, each call gets the right answer, and
// the table is there once a key has been used enough.
func TestVerifyConcurrently(t *testing.T) {
	priv := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	k, err := NewPublicKey(priv.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range expandAfter {
				message := binary.BigEndian.AppendUint32(nil, uint32(i*8+g))
				sig := ed25519.Sign(priv, message)
				if !k.Verify(message, sig) {
					t.Errorf("message %d of %d refused", i, g)
				}
				sig[i%64] ^= 1
				if k.Verify(message, sig) {
					t.Errorf("message %d of %d accepted with a changed signature", i, g)
				}
			}
		})
	}
	wg.Wait()
	if k.expanded.table.Load() == nil {
		t.Error("no table after", 16*expandAfter, "calls")
	}
}

func TestVerifyDoesNotAllocate(t *testing.T) {
	s := testSigners[0]
	message := []byte("message")
	sig, _ := s.sign(0, message)
	// Not zero, since a garbage collection may empty the pool meanwhile.
	if n := testing.AllocsPerRun(200, func() { s.key.Verify(message, sig) }); n >= 1 {
		t.Errorf("have %v allocations a call", n)
	}
}

func FuzzExpandedMatchesStdlib(f *testing.F) {
	f.Add(uint8(0), uint8(0), []byte("message"), []byte{})
	f.Add(uint8(3), uint8(5), []byte{}, []byte{1})
	f.Add(uint8(0x80), uint8(0), []byte("m"), make([]byte, 64))
	f.Add(uint8(0x81), uint8(0), []byte("m"), bytes.Repeat([]byte{0xff}, 64))
	// With the high bit of mode the bytes are the signature, else they change a
	// good one: random bytes alone would never pass the first test.
	f.Fuzz(func(t *testing.T, mode, tor uint8, message, change []byte) {
		s := testSigners[mode%8]
		sig, want := change, false
		if mode&0x80 == 0 {
			sig, want = s.sign(int(tor%8), message)
			for i, b := range change {
				sig[i%64] ^= b
				want = want && b == 0
			}
		}
		have := verifyBoth(t, s.key, message, sig)
		if want && !have {
			t.Fatal("a good signature was refused")
		}
	})
}

// FuzzExpandedAnyKey does the same for keys nobody holds.
func FuzzExpandedAnyKey(f *testing.F) {
	for i, s := range testSigners {
		sig, _ := s.sign(i, []byte("m"))
		f.Add(s.key.raw[:], []byte("m"), sig)
	}
	f.Fuzz(func(t *testing.T, raw, message, sig []byte) {
		k, err := NewPublicKey(raw)
		if err != nil {
			return
		}
		verifyBoth(t, k, message, sig)
	})
}

func BenchmarkVerify(b *testing.B) {
	priv := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	k, err := NewPublicKey(priv.Public().(ed25519.PublicKey))
	if err != nil {
		b.Fatal(err)
	}
	// Different signatures use different entries of a table that is larger than
	// the inner caches; a benchmark of one signature would flatter it.
	var messages, sigs [1024][]byte
	for i := range messages {
		messages[i] = binary.BigEndian.AppendUint32(make([]byte, 600), uint32(i))
		sigs[i] = ed25519.Sign(priv, messages[i])
	}
	run := func(name string, verify func(message, sig []byte) bool) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if !verify(messages[i%1024], sigs[i%1024]) {
					b.Fatal("refused")
				}
			}
		})
	}
	run("stdlib", func(message, sig []byte) bool { return ed25519.Verify(k.raw[:], message, sig) })
	k.expand()
	run("expanded", k.Verify)
	b.Run("expand", func(b *testing.B) {
		for b.Loop() {
			newMultiples(&k.minusA)
		}
	})
}
