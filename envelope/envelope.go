package envelope

import (
	"encoding/base64"
	"errors"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
)

// PayloadType is the one payload type of the format.
const PayloadType = "application/vnd.in-toto+json"

var (
	// ErrForm is wrapped when an envelope is not one of the format's: another
	// payload type, payload base64 that is not canonical, or not exactly one
	// signature naming the key.
	ErrForm = errors.New("statement")
	// ErrSignature is wrapped when no signature of the key verifies.
	ErrSignature = errors.New("signature")
)

// b64 takes standard, padded base64. Strict refuses stray bits in the last
// character; line breaks, which the package lets pass, are refused in decode.
var b64 = base64.StdEncoding.Strict()

func decode(s string) ([]byte, error) {
	b, err := b64.DecodeString(s)
	if err != nil {
		return nil, err
	}
	// The decoder skips CR and LF: then the text is longer than its bytes make.
	if len(s) != b64.EncodedLen(len(b)) {
		return nil, errors.New("line break in base64")
	}
	return b, nil
}

// maxTried bounds the signatures that are tried on one envelope. More than one
// is refused whatever they are; without a bound a line of half a million
// signatures would cost a minute to refuse.
const maxTried = 16

// Verify checks that e is an envelope of the format signed by key, and returns
// the payload that was verified: the very bytes the signature covers, which are
// the only ones a caller may read.
//
// The order is that of docs/bundle-format.md, "Verifying a bundle", steps 3 to
// 5: payload type and base64 (ErrForm), then a signature of this key over the
// PAE (ErrSignature; signatures naming another key are passed over), then that
// it is the only one and names the key (ErrForm). A signature is good exactly
// when crypto/ed25519 accepts it.
func Verify(e *dsse.Envelope, key *PublicKey) ([]byte, error) {
	if e.PayloadType != PayloadType {
		return nil, mismatch.New(ErrForm, "payload type", e.PayloadType, PayloadType)
	}
	payload, err := decode(e.Payload)
	if err != nil {
		return nil, mismatch.New(ErrForm, "payload", err.Error(), "standard, padded, canonical base64")
	}
	pae := dsse.PAE(e.PayloadType, payload)
	good, tried := false, 0
	for _, s := range e.Signatures {
		if s.KeyID != "" && s.KeyID != key.ID() {
			continue
		}
		if tried++; tried > maxTried {
			break
		}
		if sig, err := decode(s.Sig); err == nil && key.Verify(pae, sig) {
			good = true
			break
		}
	}
	if !good {
		return nil, mismatch.New(ErrSignature, "signatures", describe(e.Signatures, key.ID()), "a good one by key "+key.ID())
	}
	if len(e.Signatures) != 1 {
		return nil, mismatch.New(ErrForm, "signatures", describe(e.Signatures, key.ID()), "exactly one")
	}
	if e.Signatures[0].KeyID != key.ID() {
		return nil, mismatch.New(ErrForm, "keyid", e.Signatures[0].KeyID, key.ID())
	}
	return payload, nil
}

// describe says what signatures are there, without repeating hostile text.
func describe(sigs []dsse.Signature, keyID string) string {
	switch {
	case len(sigs) == 0:
		return "none"
	case len(sigs) > 1:
		return "several"
	case sigs[0].KeyID == keyID:
		return "one naming this key that does not verify"
	case sigs[0].KeyID == "":
		return "one naming no key"
	}
	return "one by key " + sigs[0].KeyID
}

// New returns the envelope of payload with one signature, sig, made over
// PAE(PayloadType, payload) by the key with this ID.
func New(payload []byte, keyID string, sig []byte) *dsse.Envelope {
	return &dsse.Envelope{
		PayloadType: PayloadType,
		Payload:     base64.StdEncoding.EncodeToString(payload),
		Signatures:  []dsse.Signature{{KeyID: keyID, Sig: base64.StdEncoding.EncodeToString(sig)}},
	}
}

// PAE returns the bytes that are signed for payload, by the DSSE protocol.
func PAE(payload []byte) []byte { return dsse.PAE(PayloadType, payload) }

// Append appends e as canonical JSON (docs/bundle-format.md, "Envelopes and
// keys"). A nil list of signatures is written null, as the format has it.
func Append(dst []byte, e *dsse.Envelope) []byte {
	dst = append(dst, `{"payloadType":`...)
	dst = strictjson.AppendString(dst, e.PayloadType)
	dst = append(dst, `,"payload":`...)
	dst = strictjson.AppendString(dst, e.Payload)
	dst = append(dst, `,"signatures":`...)
	if e.Signatures == nil {
		return append(dst, "null}"...)
	}
	dst = append(dst, '[')
	for i, s := range e.Signatures {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"keyid":`...)
		dst = strictjson.AppendString(dst, s.KeyID)
		dst = append(dst, `,"sig":`...)
		dst = strictjson.AppendString(dst, s.Sig)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}
