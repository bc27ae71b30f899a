package attest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

// A fakeSigner is a signature.Signer that answers what it is told to.
type fakeSigner struct {
	key    crypto.PublicKey
	keyErr error
	sign   func(message []byte) ([]byte, error)
}

func (f fakeSigner) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return f.key, f.keyErr
}

func (f fakeSigner) SignMessage(m io.Reader, _ ...signature.SignOption) ([]byte, error) {
	data, err := io.ReadAll(m)
	if err != nil {
		return nil, err
	}
	return f.sign(data)
}

func TestNewSignerRefuses(t *testing.T) {
	away := errors.New("away")
	for name, tt := range map[string]struct {
		key  crypto.PublicKey
		err  error
		want error
	}{
		"no answer":   {nil, away, away},
		"nil":         {nil, nil, ErrKey},
		"ECDSA":       {must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Public(), nil, ErrKey},
		"short":       {ed25519.PublicKey("short"), nil, envelope.ErrKey},
		"small order": {make(ed25519.PublicKey, 32), nil, envelope.ErrKey},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSigner(fakeSigner{key: tt.key, keyErr: tt.err})
			if !errors.Is(err, tt.want) || !errors.Is(err, ErrKey) || s != nil {
				t.Errorf("have %v, %v, want %v", s, err, tt.want)
			}
		})
	}
}

// A signature that does not hold stays inside, whoever made it.
func TestWrongSignatureIsWithheld(t *testing.T) {
	away := errors.New("away")
	pae := []byte("DSSEv1 1 a 1 b")
	good := ed25519.Sign(testKey, pae)
	ph := must(testKey.Sign(nil, make([]byte, 64), &ed25519.Options{Hash: crypto.SHA512}))
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	for name, tt := range map[string]struct {
		sig  []byte
		err  error
		want error
	}{
		"good":        {good, nil, nil},
		"failing":     {nil, away, away},
		"nil":         {nil, nil, ErrSigner},
		"short":       {good[:63], nil, ErrSigner},
		"long":        {append(bytes.Clone(good), 0), nil, ErrSigner},
		"changed":     {append([]byte{good[0] ^ 1}, good[1:]...), nil, ErrSigner},
		"other key":   {ed25519.Sign(other, pae), nil, ErrSigner},
		"other bytes": {ed25519.Sign(testKey, pae[1:]), nil, ErrSigner},
		"Ed25519ph":   {ph, nil, ErrSigner},
	} {
		t.Run(name, func(t *testing.T) {
			s := must(NewSigner(fakeSigner{key: testKey.Public(), sign: func([]byte) ([]byte, error) { return tt.sig, tt.err }}))
			sig, err := s.Sign(pae)
			if tt.want == nil {
				if err != nil || !bytes.Equal(sig, good) {
					t.Errorf("have %x, %v, want the signature", sig, err)
				}
				return
			}
			if !errors.Is(err, tt.want) || !errors.Is(err, ErrSigner) || sig != nil {
				t.Errorf("have %x, %v, want %v and no signature", sig, err, tt.want)
			}
		})
	}
}

// Signing the same bytes again gives the same signature.
func TestSignTwice(t *testing.T) {
	s := must(OpenSigner(writeFile(t, pkcs8PEM(testKey), 0o600), nil))
	pae := []byte("DSSEv1 1 a 1 b")
	if a, b := must(s.Sign(pae)), must(s.Sign(pae)); !bytes.Equal(a, b) || !bytes.Equal(a, ed25519.Sign(testKey, pae)) {
		t.Error("two signatures differ")
	}
	if _, err := s.Sign(nil); err != nil {
		t.Errorf("no bytes: %v", err)
	}
}

func BenchmarkSign(b *testing.B) {
	pae := make([]byte, 600)
	b.Run("crypto/ed25519", func(b *testing.B) {
		for b.Loop() {
			ed25519.Sign(testKey, pae)
		}
	})
	b.Run("Signer", func(b *testing.B) {
		s := must(OpenSigner(writeFile(b, pkcs8PEM(testKey), 0o600), nil))
		for b.Loop() {
			must(s.Sign(pae))
		}
	})
}
