package attest

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

// ErrSigner is wrapped by every error of Signer.Sign.
var ErrSigner = errors.New("signer")

// A Signer signs with one Ed25519 key, wherever that key is: in this process,
// in an agent, in a key management service.
type Signer struct {
	signer signature.Signer
	public *envelope.PublicKey
	local  bool   // the key is in this process and crypto/ed25519 signs
	secret string // the key's file or the agent's socket; empty where only its maker knows
}

// NewSigner returns a Signer for anything that implements Sigstore's interface
// and holds an Ed25519 key that signs the message itself (no pre-hash). Errors
// wrap ErrKey.
func NewSigner(s signature.Signer) (*Signer, error) {
	key, err := s.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	raw, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%w: a key of type %T, want Ed25519", ErrKey, key)
	}
	public, err := envelope.NewPublicKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	_, local := s.(*signature.ED25519Signer)
	return &Signer{signer: s, public: public, local: local}, nil
}

// OpenSigner returns the signer that spec names: "agent:FINGERPRINT" for a key
// that an ssh-agent holds, anything else for the path of a private key file.
//
// FINGERPRINT is OpenSSH's ("SHA256:…", as ssh-add -l prints it) or a key ID.
// The agent is the one at SSH_AUTH_SOCK; errors wrap ErrAgent.
//
// A file is at most 64 KiB: PKCS#8 PEM, an encrypted key of Sigstore's, or an
// OpenSSH private key, plain or encrypted. It must be a regular file without
// any permission for group or others (Windows apart). Errors wrap ErrKey;
// ErrWrongPassphrase or ErrNoPassphrase too where it is that. pass is called
// at most once, and only for an encrypted Ed25519 key; nil has no passphrase.
//
// On Linux the process is protected first, for as long as it lives: no core files,
// no look into its memory by others of its user.
func OpenSigner(spec string, pass PassphraseFunc) (*Signer, error) {
	if err := protect(); err != nil {
		return nil, err
	}
	if fingerprint, ok := strings.CutPrefix(spec, agentPrefix); ok {
		return openAgent(fingerprint)
	}
	priv, err := loadKey(spec, pass)
	if err != nil {
		return nil, err
	}
	s, err := signature.LoadED25519Signer(priv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return signerBehind(s, spec)
}

// signerBehind is NewSigner of a key that is in a file, or an agent behind a socket.
func signerBehind(s signature.Signer, secret string) (*Signer, error) {
	signer, err := NewSigner(s)
	if err != nil {
		return nil, err
	}
	signer.secret = secret
	return signer, nil
}

// PublicKey returns the key that verifies what s signs.
func (s *Signer) PublicKey() *envelope.PublicKey { return s.public }

// Sign returns the 64-byte Ed25519 signature of pae, which is the pre-auth
// encoding of a payload. Errors wrap ErrSigner. It may be called concurrently
// if the signer given to NewSigner may; those of OpenSigner may.
//
// A signature from another process or machine leaves Sign only if it verifies: a
// bundle with a wrong one is refused whole, the lines before it included. One
// made here is not checked again, which would double the cost of a line.
func (s *Signer) Sign(pae []byte) ([]byte, error) {
	sig, err := s.signer.SignMessage(bytes.NewReader(pae))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	if !s.local && !s.public.Verify(pae, sig) {
		return nil, fmt.Errorf("%w: the signature does not verify under key %.8s", ErrSigner, s.public.ID())
	}
	return sig, nil
}
