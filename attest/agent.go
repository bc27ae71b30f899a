package attest

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

// ErrAgent is wrapped by every error of an ssh-agent.
var ErrAgent = errors.New("ssh-agent")

const (
	agentPrefix  = "agent:"
	agentSockEnv = "SSH_AUTH_SOCK"
	// agentTimeout bounds each exchange with the agent, its connection
	// included. A signer waits for it with the bundle locked.
	agentTimeout = 10 * time.Second
)

// openAgent returns the signer of the agent's key with the given fingerprint.
func openAgent(fingerprint string) (*Signer, error) {
	socket := os.Getenv(agentSockEnv)
	if socket == "" {
		return nil, fmt.Errorf("%w: no agent, %s is not set", ErrAgent, agentSockEnv)
	}
	s, err := findAgentKey(socket, agentTimeout, fingerprint)
	if err != nil {
		return nil, err
	}
	return signerBehind(s, socket)
}

// An agentSigner is a signature.Signer whose key stays in an ssh-agent. It
// connects for every signature: that costs little, leaves nothing to close, and
// an answer that came too late can never be taken for the next one.
type agentSigner struct {
	socket  string
	timeout time.Duration
	key     ssh.PublicKey
	public  ed25519.PublicKey
}

var _ signature.Signer = (*agentSigner)(nil)

// findAgentKey looks for an Ed25519 key by its fingerprint or key ID.
func findAgentKey(socket string, timeout time.Duration, fingerprint string) (*agentSigner, error) {
	if err := checkFingerprint(fingerprint); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAgent, err)
	}
	var keys []*agent.Key
	err := callAgent(socket, timeout, func(a agent.Agent) (err error) {
		keys, err = a.List()
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no keys in the agent, or it is locked", ErrAgent)
	}
	for _, k := range keys {
		found := ssh.FingerprintSHA256(k) == fingerprint
		if k.Format != ssh.KeyAlgoED25519 {
			if found {
				return nil, fmt.Errorf("%w: key %s is of type %.60q, want %s", ErrAgent, fingerprint, k.Format, ssh.KeyAlgoED25519)
			}
			continue
		}
		key, err := ssh.ParsePublicKey(k.Blob)
		if err != nil {
			continue // another key's trouble, unless it is the one, which is then not found
		}
		raw, ok := key.(ssh.CryptoPublicKey).CryptoPublicKey().(ed25519.PublicKey)
		if !ok {
			continue
		}
		public, err := envelope.NewPublicKey(raw)
		switch {
		case err == nil && (found || public.ID() == fingerprint):
			return &agentSigner{socket, timeout, key, raw}, nil
		case found:
			return nil, fmt.Errorf("%w: key %s: %w", ErrAgent, fingerprint, err)
		}
	}
	return nil, fmt.Errorf("%w: key %s is not among the agent's %d keys", ErrAgent, fingerprint, len(keys))
}

// checkFingerprint tells a mistyped fingerprint from one the agent lacks.
func checkFingerprint(s string) error {
	digest, err := hex.DecodeString(s)
	if rest, ok := strings.CutPrefix(s, "SHA256:"); ok {
		digest, err = base64.RawStdEncoding.Strict().DecodeString(rest)
	}
	if err != nil || len(digest) != 32 || strings.ContainsAny(s, "\r\n") {
		return fmt.Errorf("fingerprint %.80q, want SHA256:… as ssh-add -l prints it, or a key ID of 64 hex digits", s)
	}
	return nil
}

func (s *agentSigner) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return s.public, nil
}

// SignMessage has the agent sign the message. What is signed is the message
// itself, as for any Ed25519 key; the pre-auth encoding starts with "DSSEv1",
// so it cannot pass for the login data that the agent signs for ssh, which
// starts with a length.
func (s *agentSigner) SignMessage(message io.Reader, _ ...signature.SignOption) ([]byte, error) {
	data, err := io.ReadAll(message)
	if err != nil {
		return nil, err
	}
	var sig *ssh.Signature
	err = callAgent(s.socket, s.timeout, func(a agent.Agent) (err error) {
		sig, err = a.Sign(s.key, data)
		return err
	})
	if err != nil {
		return nil, err
	}
	if sig.Format != ssh.KeyAlgoED25519 {
		return nil, fmt.Errorf("%w: a signature of type %.60q, want %s", ErrAgent, sig.Format, ssh.KeyAlgoED25519)
	}
	return sig.Blob, nil
}

// callAgent connects to the agent and makes one call. An agent that does not
// answer in time is given up.
func callAgent(socket string, timeout time.Duration, call func(agent.Agent) error) error {
	deadline := time.Now().Add(timeout)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("%w: cannot be reached (%s): %w", ErrAgent, agentSockEnv, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	// The client drops the cause of an error that it reports.
	rw := &errRecorder{rw: conn}
	err = call(agent.NewClient(rw))
	switch {
	case err == nil:
		return nil
	case errors.Is(rw.err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: no answer in %v", ErrAgent, timeout)
	case rw.err != nil:
		return fmt.Errorf("%w: connection lost: %w", ErrAgent, rw.err)
	default:
		return fmt.Errorf("%w: refused, or answered what cannot be read: %w", ErrAgent, err)
	}
}

// An errRecorder passes reads and writes on and keeps the first error. It has
// no Close, so that the client makes its calls without a goroutine.
type errRecorder struct {
	rw  io.ReadWriter
	err error
}

func (r *errRecorder) Read(p []byte) (int, error) {
	n, err := r.rw.Read(p)
	return n, r.record(err)
}

func (r *errRecorder) Write(p []byte) (int, error) {
	n, err := r.rw.Write(p)
	return n, r.record(err)
}

func (r *errRecorder) record(err error) error {
	if r.err == nil {
		r.err = err
	}
	return err
}
