package envelope

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/edwards25519"
)

const (
	// maxPublicKeyFile bounds the content given to ParsePublicKeys, in bytes.
	maxPublicKeyFile = 1 << 20
	// maxPublicKeys bounds the different keys of one file. A bundle is
	// verified under one key, so more than a handful is a mistake already.
	maxPublicKeys = 256

	publicKeyPEMType = "PUBLIC KEY"
	openSSHKeyType   = "ssh-ed25519"
)

// ErrKey is wrapped by every error about a public key: a file that holds no
// key, something else than Ed25519 keys, or a key that no honest signer has.
var ErrKey = errors.New("unusable public key")

var (
	// pkixPrefix is the DER of a SubjectPublicKeyInfo with algorithm Ed25519 up
	// to the 32 key bytes (RFC 8410). DER leaves no other way to write it.
	pkixPrefix = []byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}
	// openSSHPrefix is what stands before the 32 key bytes in OpenSSH's wire
	// form (RFC 8709, section 4).
	openSSHPrefix = []byte("\x00\x00\x00\x0b" + openSSHKeyType + "\x00\x00\x00\x20")
)

// A PublicKey is an Ed25519 public key that was checked when it was made. Its
// methods may be called concurrently. A key that has verified many signatures
// keeps a table of 280 KiB that makes further ones cheaper.
type PublicKey struct {
	raw      [ed25519.PublicKeySize]byte
	id       string
	minusA   edwards25519.Point
	expanded expansion
}

// NewPublicKey returns the key with the given 32 bytes. Errors wrap ErrKey. It
// refuses what is not the one encoding of a point on the curve, since two
// spellings of one key would have two key IDs, and the eight points of small
// order, under which anybody can make signatures.
func NewPublicKey(raw ed25519.PublicKey) (*PublicKey, error) {
	k, err := newPublicKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return k, nil
}

func newPublicKey(raw []byte) (*PublicKey, error) {
	if len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("have %d bytes, want %d", len(raw), ed25519.PublicKeySize)
	}
	a, err := new(edwards25519.Point).SetBytes(raw)
	if err != nil {
		return nil, errors.New("not a point on the curve")
	}
	// SetBytes also reads y ≥ p, and x = 0 with a sign; Bytes never writes them.
	if !bytes.Equal(a.Bytes(), raw) {
		return nil, errors.New("not the canonical encoding of its point")
	}
	if new(edwards25519.Point).MultByCofactor(a).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return nil, errors.New("a point of small order, under which anybody can sign")
	}
	k := &PublicKey{raw: [ed25519.PublicKeySize]byte(raw)}
	sum := sha256.Sum256(k.pkix())
	k.id = hex.EncodeToString(sum[:])
	k.minusA.Negate(a)
	return k, nil
}

// ID returns the key ID: the lower-case hex SHA-256 of the key's PKIX DER
// (docs/bundle-format.md, Envelopes and keys). In an envelope it is a hint that
// says which key to try, never proof.
func (k *PublicKey) ID() string { return k.id }

// Raw returns a copy of the 32 key bytes.
func (k *PublicKey) Raw() ed25519.PublicKey { return slices.Clone(k.raw[:]) }

// MarshalPEM returns the key as one PEM block "PUBLIC KEY" holding PKIX DER,
// the form of a public key file. ParsePublicKeys reads it.
func (k *PublicKey) MarshalPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: publicKeyPEMType, Bytes: k.pkix()})
}

func (k *PublicKey) pkix() []byte { return append(slices.Clone(pkixPrefix), k.raw[:]...) }

// ParsePublicKeys reads the content of a public key file: PEM blocks
// "PUBLIC KEY" with PKIX DER, and OpenSSH lines ("ssh-ed25519 AAAA… comment"),
// in any number and mixture. Blank lines and lines that start with # are passed
// over, lines may end in CR LF. The keys are returned in the order of the file,
// each once. The content is at most 1 MiB, with at most 256 different keys.
//
// Everything else is an error that wraps ErrKey and names the line and what was
// found there, never its text: the file may be a private key given by mistake.
// A byte order mark is refused as OpenSSL and OpenSSH do, so that a file does
// not mean a key to one tool and nothing to the next.
func ParsePublicKeys(data []byte) ([]*PublicKey, error) {
	if len(data) > maxPublicKeyFile {
		return nil, fmt.Errorf("%w: have %d bytes, limit %d", ErrKey, len(data), maxPublicKeyFile)
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, fmt.Errorf("%w: binary data, want PEM or an OpenSSH line", ErrKey)
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, fmt.Errorf("%w: line 1: a byte order mark, want plain text", ErrKey)
	}

	var keys []*PublicKey
	seen := make(map[string]bool)
	for line, rest := 1, data; len(rest) > 0; {
		raw, after, err := nextPublicKey(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrKey, line, err)
		}
		if raw != nil && !seen[string(raw)] {
			if len(keys) == maxPublicKeys {
				return nil, fmt.Errorf("%w: line %d: more than %d keys", ErrKey, line, maxPublicKeys)
			}
			k, err := newPublicKey(raw)
			if err != nil {
				return nil, fmt.Errorf("%w: line %d: %w", ErrKey, line, err)
			}
			seen[string(raw)] = true
			keys = append(keys, k)
		}
		line += bytes.Count(rest[:len(rest)-len(after)], []byte("\n"))
		rest = after
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no key in %d bytes", ErrKey, len(data))
	}
	return keys, nil
}

// nextPublicKey reads the blank line, comment, OpenSSH line or PEM block at the
// start of data and returns the key bytes, if it is a key, and what follows.
func nextPublicKey(data []byte) (raw, after []byte, err error) {
	line, after := cutLine(data)
	fields := bytes.Fields(line)
	switch {
	case len(fields) == 0 || fields[0][0] == '#':
		return nil, after, nil
	case bytes.HasPrefix(line, []byte("-----BEGIN ")):
		return pemPublicKey(data)
	default:
		raw, err = openSSHPublicKey(fields)
		return raw, after, err
	}
}

// cutLine returns data's first line without its LF or CR LF, and what follows.
func cutLine(data []byte) (line, after []byte) {
	line, after, _ = bytes.Cut(data, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), after
}

// pemPublicKey reads the PEM block that data starts with.
func pemPublicKey(data []byte) (raw, after []byte, err error) {
	// pem.Decode passes over what it cannot read and takes a later block
	// instead, so it is shown one block only, from its first to its last line.
	first, after := cutLine(data)
	for {
		if len(after) == 0 {
			return nil, nil, errors.New("a PEM block without an end")
		}
		var line []byte
		line, after = cutLine(after)
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			return nil, nil, errors.New("a PEM block that starts inside another")
		}
		if bytes.HasPrefix(line, []byte("-----END ")) {
			break
		}
	}
	label := strings.TrimSuffix(strings.TrimPrefix(string(first), "-----BEGIN "), "-----")
	switch {
	case strings.Contains(label, "PRIVATE KEY"):
		return nil, nil, errors.New("a private key, want the public one")
	case label != publicKeyPEMType:
		return nil, nil, fmt.Errorf("PEM type %.40q, want %q", label, publicKeyPEMType)
	}
	block, rest := pem.Decode(data[:len(data)-len(after)])
	if block == nil || len(rest) > 0 {
		return nil, nil, errors.New("damaged PEM block")
	}
	if len(block.Headers) > 0 {
		return nil, nil, errors.New("a PEM block with headers")
	}
	if raw, ok := bytes.CutPrefix(block.Bytes, pkixPrefix); ok && len(raw) == ed25519.PublicKeySize {
		return raw, after, nil
	}
	return nil, nil, describePKIX(block.Bytes)
}

// describePKIX says why der is not the PKIX form of an Ed25519 key.
func describePKIX(der []byte) error {
	var info struct {
		Algorithm struct {
			ID         asn1.ObjectIdentifier
			Parameters asn1.RawValue `asn1:"optional"`
		}
		Key asn1.BitString
	}
	rest, err := asn1.Unmarshal(der, &info)
	if err != nil {
		return errors.New("its DER is not a public key")
	}
	if id := info.Algorithm.ID.String(); id != "1.3.101.112" {
		if name, ok := algorithmNames[id]; ok {
			id = name
		}
		return fmt.Errorf("algorithm %.60s, want Ed25519", id)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes after the key's DER", len(rest))
	}
	return errors.New("not the canonical DER of an Ed25519 key")
}

var algorithmNames = map[string]string{
	"1.2.840.113549.1.1.1": "RSA",
	"1.2.840.10040.4.1":    "DSA",
	"1.2.840.10045.2.1":    "ECDSA",
	"1.3.101.110":          "X25519",
	"1.3.101.111":          "X448",
	"1.3.101.113":          "Ed448",
}

var otherOpenSSHTypes = []string{
	"ssh-rsa", "ssh-dss", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
	"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
}

// openSSHPublicKey reads the fields of a line: key type, base64, comment.
func openSSHPublicKey(fields [][]byte) ([]byte, error) {
	kind := string(fields[0])
	switch {
	case kind == openSSHKeyType:
	case strings.HasSuffix(kind, "-cert-v01@openssh.com"):
		return nil, errors.New("an OpenSSH certificate, want a key")
	case slices.Contains(otherOpenSSHTypes, kind):
		return nil, fmt.Errorf("an OpenSSH key of type %s, want %s", kind, openSSHKeyType)
	case strings.HasPrefix(kind, "PuTTY-User-Key-File-"):
		return nil, errors.New("a private key, want the public one")
	case slices.ContainsFunc(fields[1:], func(f []byte) bool { return string(f) == openSSHKeyType }):
		return nil, errors.New("text before the type of an OpenSSH key")
	default:
		return nil, errors.New("neither PEM nor an OpenSSH line")
	}
	if len(fields) < 2 {
		return nil, errors.New("an OpenSSH line without a key")
	}
	blob, err := base64.StdEncoding.Strict().AppendDecode(nil, fields[1])
	if err != nil {
		return nil, errors.New("an OpenSSH line whose key is not base64")
	}
	raw, ok := bytes.CutPrefix(blob, openSSHPrefix)
	if !ok || len(raw) != ed25519.PublicKeySize {
		return nil, errors.New("an OpenSSH line whose key is not " + openSSHKeyType)
	}
	return raw, nil
}
