package main

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"filippo.io/edwards25519"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// signatures is group G: what a lenient verifier takes for an Ed25519 signature,
// and what a strict one refuses and must take.
func signatures(p *pack) {
	c := snippet("a", "a()")
	payload := payloadOf(c)
	record := func(change func(e *dsse.Envelope)) []byte { return reEnveloped(change) }
	link := func(change func(e *dsse.Envelope)) []byte { return firstLink(change) }
	paeOf := func(e *dsse.Envelope) []byte { return dsse.PAE(e.PayloadType, payloadBytes(e)) }

	both := func(id int, name, what string, change func(e *dsse.Envelope)) {
		p.add("G"+number(id), name, on("a record", what), record(change)).refused("signature", 1)
		p.add("G"+number(id+1), name, on("a link", what), link(change)).refused("signature", 1)
	}
	both(1, "an Ed25519ph signature", "of the SHA-512 of the right bytes", func(e *dsse.Envelope) {
		digest := sha512.Sum512(paeOf(e))
		sig, err := harness.Private.Sign(nil, digest[:], &ed25519.Options{Hash: crypto.SHA512})
		setSig(e, must(sig, err))
	})
	both(3, "an Ed25519ctx signature", "with the payload type for its context", func(e *dsse.Envelope) {
		sig, err := harness.Private.Sign(nil, paeOf(e), &ed25519.Options{Context: envelope.PayloadType})
		setSig(e, must(sig, err))
	})
	both(5, "a signature with S + L", "the same point, another number", func(e *dsse.Envelope) { setSig(e, plusOrder(sigOf(e))) })
	both(7, "a signature over the SHA-256 of the right bytes", "", func(e *dsse.Envelope) {
		setSig(e, ed25519.Sign(harness.Private, []byte(sha256Hex(string(paeOf(e))))))
	})
	both(9, "a signature whose R has a part of small order", "good with the cofactor, not without", func(e *dsse.Envelope) {
		setSig(e, honest(harness.Private).sign(paeOf(e), orderEight(), nil))
	})
	both(11, "a signature of 63 bytes", "", func(e *dsse.Envelope) { setSig(e, sigOf(e)[:63]) })
	both(13, "a signature of 65 bytes", "", func(e *dsse.Envelope) { setSig(e, append(sigOf(e), 0)) })
	both(15, "an empty signature", "", func(e *dsse.Envelope) { e.Signatures[0].Sig = "" })
	both(17, "a signature of zeros", "", func(e *dsse.Envelope) { setSig(e, make([]byte, 64)) })
	both(19, "a signature in hex", "", func(e *dsse.Envelope) { e.Signatures[0].Sig = hex.EncodeToString(sigOf(e)) })
	both(21, "a good signature under another key's ID", "it is passed over", func(e *dsse.Envelope) { e.Signatures[0].KeyID = stranger.ID() })
	both(23, "a good signature under the key ID in capitals", "it names no key", func(e *dsse.Envelope) { e.Signatures[0].KeyID = upper(harness.ID()) })
	both(25, "a good signature under another sort of key ID", "the SHA-256 of the key bytes alone", func(e *dsse.Envelope) {
		e.Signatures[0].KeyID = sha256Hex(string(harness.Public.Raw()))
	})
	both(27, "the signature of another statement", "by the same key", func(e *dsse.Envelope) { e.Signatures[0].Sig = harness.Envelope([]byte("{}")).Signatures[0].Sig })
	both(29, "a signature without the type in what is signed", "the payload's own PAE under an empty type", func(e *dsse.Envelope) {
		setSig(e, ed25519.Sign(harness.Private, dsse.PAE("", payloadBytes(e))))
	})

	several := func(id int, name, what string, change func(e *dsse.Envelope)) {
		p.add("G"+number(id), name, on("a record", what), record(change)).refused("statement", 1).tightening()
		p.add("G"+number(id+1), name, on("a link", what), link(change)).refused("statement", 1)
	}
	several(31, "one key under two names", "the same signature, once naming no key", func(e *dsse.Envelope) {
		e.Signatures = append(e.Signatures, dsse.Signature{Sig: e.Signatures[0].Sig})
	})
	several(33, "a signature of no key before the good one", "another key ID, no signature at all", func(e *dsse.Envelope) {
		e.Signatures = []dsse.Signature{{KeyID: strings.Repeat("0", 64), Sig: ""}, e.Signatures[0]}
	})
	several(35, "two signatures of the key", "the second worthless", func(e *dsse.Envelope) {
		e.Signatures = append(e.Signatures, dsse.Signature{KeyID: harness.ID(), Sig: b64(make([]byte, 64))})
	})
	several(37, "two signatures of the key", "the first worthless", func(e *dsse.Envelope) {
		e.Signatures = []dsse.Signature{{KeyID: harness.ID(), Sig: b64(make([]byte, 64))}, e.Signatures[0]}
	})
	p.add("G39", "one key under two names, both given", "the signature twice, under the IDs of two keys that are given", record(func(e *dsse.Envelope) {
		e.Signatures = append(e.Signatures, dsse.Signature{KeyID: stranger.ID(), Sig: e.Signatures[0].Sig})
	})).keys(harnessPub, "stranger").refused("statement", 1).tightening()
	p.add("G40", "two keys sign one link", "both are given", link(func(e *dsse.Envelope) {
		e.Signatures = append(e.Signatures, stranger.Envelope(payloadBytes(e)).Signatures[0])
	})).keys(harnessPub, "stranger").refused("statement", 1)
	p.add("G41", "a hundred signatures under another key's ID, then none", "", record(func(e *dsse.Envelope) {
		e.Signatures = slices.Repeat([]dsse.Signature{{KeyID: "k", Sig: "AA=="}}, 100)
	})).refused("signature", 1)

	// Keys whose points are not in the group of the base point alone. Such a
	// key is unusual and usable; the cofactor decides what it has signed.
	raw, err := hex.DecodeString("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
	p.pubs["mixed"] = pemOf(must(raw, err))
	sig, err := hex.DecodeString("186ed2bdbd1a36f6437c5168b0221914018ea4f32a1c3fcd1c1794d64fbd596e" +
		"9ffc9929d5d891ee879ae59ec7fb161f66b85de560ffab802453b4129038f707")
	known := envelope.New([]byte("{}"), sha256Hex(string(pkix(raw))), must(sig, err))
	w := bundletest.NewWriter(harness)
	w.Line(chain.Line{Request: c.Entry().Request, Response: c.Entry().Response, Envelope: known, Link: known})
	w.Entry(bundletest.Checkpoint)
	p.add("G42", "a key of mixed order, a signature that is good with the cofactor only", "published key and signature, over the payload {}", w.Bundle()).
		keys("mixed").refused("signature", 1)

	mixed := mixedOrder("genpack mixed order")
	p.pubs["mixed-own"] = pemOf(mixed.public)
	good := bundletest.Linked(mixed, c.Entry())
	p.add("G43", "a key of mixed order", "every signature is good without the cofactor", good).keys("mixed-own").own()
	p.add("G44", "a key of mixed order, a link that is good with the cofactor only", "the checkpoint's", editParsed(good, 2, func(l *chain.Line) {
		setSig(l.Link, mixed.sign(paeOf(l.Link), nil, func(k byte) bool { return k%8 != 0 }))
	})).keys("mixed-own").refused("signature", 2)
	p.add("G45", "a key of mixed order, S + L", "the checkpoint's", editParsed(good, 2, func(l *chain.Line) { setSig(l.Link, plusOrder(sigOf(l.Link))) })).
		keys("mixed-own").refused("signature", 2)

	// R may be any point, also one that honest signers never come to.
	zero := honest(harness.Private)
	zero.nonce = edwards25519.NewScalar()
	p.add("G46", "a signature whose R is the neutral point", "it is good: R is compared, not judged", resigned(func(e *dsse.Envelope) { setSig(e, zero.sign(paeOf(e), nil, nil)) })).own()
	both(47, "the neutral point with y past the prime for R", "another spelling of the same point", func(e *dsse.Envelope) {
		s := zero.signAs(paeOf(e), "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f")
		setSig(e, s)
	})
	p.add("G49", "the two halves of a signature exchanged", "", record(func(e *dsse.Envelope) {
		s := sigOf(e)
		setSig(e, append(bytes.Clone(s[32:]), s[:32]...))
	})).refused("signature", 1)
	p.add("G50", "a signature of the payload's base64 text", "not of the bytes", record(func(e *dsse.Envelope) {
		setSig(e, ed25519.Sign(harness.Private, dsse.PAE(e.PayloadType, []byte(e.Payload))))
	})).refused("signature", 1)
	p.add("G51", "a signature over the first version of the encoding in other numbers", "lengths in hex", record(func(e *dsse.Envelope) {
		setSig(e, ed25519.Sign(harness.Private, fmt.Appendf(nil, "DSSEv1 1c %s %x %s", envelope.PayloadType, len(payload), payload)))
	})).refused("signature", 1)
}

// on says what was done and to what.
func on(where, what string) string { return strings.TrimPrefix(what+"; on "+where, "; ") }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func pemOf(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix(raw)})
}

func payloadBytes(e *dsse.Envelope) []byte { return must(e.DecodeB64Payload()) }

// firstLink is a checkpoint whose link was changed after signing.
func firstLink(change func(e *dsse.Envelope)) []byte {
	return withLink(1, nil, func(right statement.Link) *dsse.Envelope {
		e := harness.Envelope(statement.AppendLink(nil, right))
		change(e)
		return e
	})
}

// resigned is a bundle of one call with all three envelopes signed otherwise.
func resigned(change func(e *dsse.Envelope)) []byte {
	return bundletest.Linked(signerFunc(func(payload []byte) *dsse.Envelope {
		e := harness.Envelope(payload)
		change(e)
		return e
	}), abc()[0])
}

type signerFunc func(payload []byte) *dsse.Envelope

func (f signerFunc) Sign(payload []byte) (*dsse.Envelope, error) { return f(payload), nil }

// plusOrder adds the order of the group to a signature's S. A verifier that
// does not compare S with the order computes the same as before.
func plusOrder(sig []byte) []byte {
	order := must(hex.DecodeString("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010"))
	out := bytes.Clone(sig)
	carry := 0
	for i, o := range order {
		carry += int(out[32+i]) + int(o)
		out[32+i] = byte(carry)
		carry >>= 8
	}
	return out
}

// orderEight is a point of order 8.
func orderEight() *edwards25519.Point {
	return must(new(edwards25519.Point).SetBytes(must(hex.DecodeString("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"))))
}

// A maker makes signatures that honest signers do not.
type maker struct {
	scalar *edwards25519.Scalar
	public []byte
	seed   string
	nonce  *edwards25519.Scalar // for every signature; made from the message when nil
}

// honest is a maker with an ordinary key.
func honest(private ed25519.PrivateKey) *maker {
	h := sha512.Sum512(private.Seed())
	scalar := must(edwards25519.NewScalar().SetBytesWithClamping(h[:32]))
	return &maker{scalar: scalar, public: private.Public().(ed25519.PublicKey), seed: string(h[32:])}
}

// mixedOrder is a maker whose public key has a part of order 8.
func mixedOrder(seed string) *maker {
	h := sha512.Sum512([]byte(seed))
	scalar := must(edwards25519.NewScalar().SetBytesWithClamping(h[:32]))
	public := new(edwards25519.Point).ScalarBaseMult(scalar)
	public.Add(public, orderEight())
	return &maker{scalar: scalar, public: public.Bytes(), seed: seed}
}

// sign returns a signature with add added to its R, and with a hash that pass
// takes: its lowest byte decides what becomes of a part of order 8.
func (m *maker) sign(message []byte, add *edwards25519.Point, pass func(k byte) bool) []byte {
	for n := 0; ; n++ {
		nonce := m.nonce
		if nonce == nil {
			h := sha512.Sum512(fmt.Appendf(nil, "%s %d %s", m.seed, n, message))
			nonce = must(edwards25519.NewScalar().SetUniformBytes(h[:]))
		}
		r := new(edwards25519.Point).ScalarBaseMult(nonce)
		if add != nil {
			r.Add(r, add)
		}
		k := m.hash(r.Bytes(), message)
		if pass != nil && !pass(k.Bytes()[0]) {
			continue
		}
		return append(r.Bytes(), edwards25519.NewScalar().MultiplyAdd(k, m.scalar, nonce).Bytes()...)
	}
}

// signAs is sign with an R that is spelled so.
func (m *maker) signAs(message []byte, r string) []byte {
	raw := must(hex.DecodeString(r))
	k := m.hash(raw, message)
	return append(raw, edwards25519.NewScalar().MultiplyAdd(k, m.scalar, m.nonce).Bytes()...)
}

func (m *maker) hash(r, message []byte) *edwards25519.Scalar {
	h := sha512.Sum512(slices.Concat(r, m.public, message))
	return must(edwards25519.NewScalar().SetUniformBytes(h[:]))
}

// Sign makes m a chain.Signer, of signatures that are good without the cofactor.
func (m *maker) Sign(payload []byte) (*dsse.Envelope, error) {
	sig := m.sign(envelope.PAE(payload), nil, func(k byte) bool { return k%8 == 0 })
	return envelope.New(payload, sha256Hex(string(pkix(m.public))), sig), nil
}
