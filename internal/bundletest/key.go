package bundletest

import (
	"crypto/ed25519"
	"crypto/sha256"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

// A Key is an Ed25519 key pair that signs. It is a chain.Signer.
type Key struct {
	Private ed25519.PrivateKey
	Public  *envelope.PublicKey
}

var (
	// Harness is the key that signs unless a test says otherwise.
	Harness = NamedKey("harness")
	// Stranger is another key.
	Stranger = NamedKey("stranger")
)

// NewKey returns the key with this seed.
func NewKey(seed [ed25519.SeedSize]byte) *Key {
	private := ed25519.NewKeyFromSeed(seed[:])
	public, err := envelope.NewPublicKey(private.Public().(ed25519.PublicKey))
	must(err)
	return &Key{Private: private, Public: public}
}

// NamedKey returns the key whose seed is the SHA-256 of the name.
func NamedKey(name string) *Key { return NewKey(sha256.Sum256([]byte(name))) }

// ID returns the key ID.
func (k *Key) ID() string { return k.Public.ID() }

// Sign returns the envelope of payload. The error is always nil.
func (k *Key) Sign(payload []byte) (*dsse.Envelope, error) { return k.Envelope(payload), nil }

// Envelope returns the envelope of payload, which may be anything.
func (k *Key) Envelope(payload []byte) *dsse.Envelope {
	return envelope.New(payload, k.ID(), ed25519.Sign(k.Private, envelope.PAE(payload)))
}

// EnvelopeOfType is Envelope for another payload type, signed as such.
func (k *Key) EnvelopeOfType(payloadType string, payload []byte) *dsse.Envelope {
	e := envelope.New(payload, k.ID(), ed25519.Sign(k.Private, dsse.PAE(payloadType, payload)))
	e.PayloadType = payloadType
	return e
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
