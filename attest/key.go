package attest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"golang.org/x/crypto/ssh"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

// ErrKey is wrapped by every error about a private key that cannot be made,
// read or used. No such error holds any part of the key's file.
var ErrKey = errors.New("private key")

const (
	// maxKeyFile bounds a private key file, in bytes; an Ed25519 key takes a
	// few hundred.
	maxKeyFile = 64 << 10
	// maxBcryptRounds bounds the time that opening an OpenSSH key takes to
	// some seconds. ssh-keygen writes 16 or 24, or what its -a says.
	maxBcryptRounds = 1 << 9

	openSSHPEMType = "OPENSSH PRIVATE KEY"
	// Files of cosign before its second version; the content is the same.
	cosignPEMType = "ENCRYPTED COSIGN PRIVATE KEY"
)

// CreateKey makes an Ed25519 key and writes two new files: keyPath, mode 0600,
// with the private key, and pubPath, mode 0644, with the public key as PKIX PEM.
// The private key is written as PKCS#8 PEM when pass is nil, and else encrypted
// under the passphrase that pass returns, in Sigstore's format.
//
// Neither path may exist, not even as a symbolic link; nothing is overwritten.
// Both files are on disk when CreateKey returns, and after an error neither is
// there. Errors wrap ErrKey; ErrNoPassphrase too where pass has none.
// The process is protected as by OpenSigner.
func CreateKey(keyPath, pubPath string, pass PassphraseFunc) (*envelope.PublicKey, error) {
	if err := protect(); err != nil {
		return nil, err
	}
	if strings.HasPrefix(keyPath, agentPrefix) {
		return nil, fmt.Errorf("%w: %s names a key in an agent, not a file; say ./%s for a file of that name", ErrKey, keyPath, keyPath)
	}
	// The creation below decides. Looking first spares a user the passphrase.
	for _, path := range []string{keyPath, pubPath} {
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%w: %s exists already", ErrKey, path)
		}
	}
	public, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	defer clear(priv)
	key, err := envelope.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	data, err := marshalKey(priv, pass)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	defer clear(data)
	if err := writeNew(keyPath, data, 0o600); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if err := writeNew(pubPath, key.MarshalPEM(), 0o644); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, errors.Join(err, os.Remove(keyPath)))
	}
	return key, nil
}

// writeNew writes a file that must not exist, and has it on disk or not there.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// marshalKey returns the PEM of priv, encrypted unless pass is nil.
func marshalKey(priv ed25519.PrivateKey, pass PassphraseFunc) ([]byte, error) {
	if pass == nil {
		return cryptoutils.MarshalPrivateKeyToPEM(priv)
	}
	passphrase, err := pass.read()
	if err != nil {
		return nil, err
	}
	defer clear(passphrase)
	box, err := cryptoutils.MarshalPrivateKeyToEncryptedDER(priv, cryptoutils.StaticPasswordFunc(passphrase))
	if err != nil {
		return nil, err
	}
	return cryptoutils.PEMEncode(cryptoutils.EncryptedSigstorePrivateKeyPEMType, box), nil
}

// loadKey reads the private key file at path.
func loadKey(path string, pass PassphraseFunc) (ed25519.PrivateKey, error) {
	data, err := readSecret(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	defer clear(data)
	priv, err := parseKey(data, pass)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKey, path, err)
	}
	return priv, nil
}

// readSecret returns the content of a regular file of at most limit bytes that
// nobody else may read or write. All of that is asked of the opened file, not
// of its path, which may name another file a moment later. For the same reason
// a symbolic link is fine: what it leads to is what is checked, and mounted
// secrets are often links.
func readSecret(path string, limit int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openWithoutWaiting, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if mode := info.Mode().Perm(); hasModes && mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: mode is %04o, want none for group and others (chmod 600)", path, mode)
	}
	// One buffer of the full size, so that growing it leaves no copies behind.
	data := make([]byte, limit+1)
	n, err := io.ReadFull(f, data)
	switch {
	case err == nil:
		clear(data)
		return nil, fmt.Errorf("%s: more than %d bytes", path, limit)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		clear(data)
		return nil, err
	}
	return data[:n], nil
}

// parseKey reads the content of a private key file, which is one PEM block and
// nothing else. It calls pass only for an encrypted key of the right kind.
func parseKey(data []byte, pass PassphraseFunc) (ed25519.PrivateKey, error) {
	data = bytes.TrimSpace(data)
	begin := []byte("-----BEGIN ")
	switch {
	case len(data) == 0:
		return nil, errors.New("the file is empty")
	case bytes.HasPrefix(data, []byte("ssh-")), bytes.HasPrefix(data, []byte("---- BEGIN SSH2 PUBLIC KEY")):
		return nil, errors.New("a public key, want the private one")
	case bytes.HasPrefix(data, []byte("PuTTY-User-Key-File-")):
		return nil, errors.New("a key of PuTTY; export it in the OpenSSH format")
	case !bytes.HasPrefix(data, begin):
		return nil, errors.New("not a PEM file")
	// pem.Decode passes over a block that it cannot read and takes the next.
	case bytes.Count(data, begin) > 1:
		return nil, errors.New("more than one PEM block")
	}
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, errors.New("damaged PEM block")
	}
	defer clear(block.Bytes)
	if len(rest) > 0 {
		return nil, errors.New("data after the PEM block")
	}
	if len(block.Headers) > 0 {
		return nil, errors.New("a PEM block with headers, such as OpenSSL's old encryption; want PKCS#8")
	}
	switch block.Type {
	case string(cryptoutils.PrivateKeyPEMType):
		return parsePKCS8(block.Bytes)
	case string(cryptoutils.EncryptedSigstorePrivateKeyPEMType), cosignPEMType:
		return parseSigstore(block, pass)
	case openSSHPEMType:
		return parseOpenSSH(block, pass)
	case "PUBLIC KEY", "RSA PUBLIC KEY", "CERTIFICATE":
		return nil, fmt.Errorf("PEM type %q, want the private key", block.Type)
	default:
		return nil, fmt.Errorf("PEM type %.40q, want an Ed25519 key as PKCS#8, Sigstore's encrypted key or OpenSSH", block.Type)
	}
}

// scryptN lists the costs that Sigstore's library writes and reads; the largest
// takes 128 MiB. A key file states its cost before anything that the passphrase
// protects, so whoever can change the file could ask for all memory.
var scryptN = []uint64{1 << 15, 1 << 16, 1 << 17}

// oidEd25519 is the algorithm of RFC 8410, in SubjectPublicKeyInfo and PKCS#8.
var oidEd25519 = asn1.ObjectIdentifier{1, 3, 101, 112}

// parsePKCS8 reads an unencrypted key, in the form of RFC 5208 or, with the
// public key beside it, of RFC 5958.
func parsePKCS8(der []byte) (ed25519.PrivateKey, error) {
	var k struct {
		Version    int
		Algorithm  pkix.AlgorithmIdentifier
		PrivateKey []byte
		PublicKey  asn1.BitString `asn1:"optional,tag:1"`
	}
	rest, err := asn1.Unmarshal(der, &k)
	if err != nil {
		return nil, errors.New("its DER is not a PKCS#8 key")
	}
	defer clear(k.PrivateKey)
	if !k.Algorithm.Algorithm.Equal(oidEd25519) {
		return nil, fmt.Errorf("a key of algorithm %.60v, want Ed25519 (%v)", k.Algorithm.Algorithm, oidEd25519)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the key's DER", len(rest))
	}
	// Both decoders skip what they do not know at the end of a sequence.
	again, err := asn1.Marshal(k)
	defer clear(again)
	if err != nil || !bytes.Equal(again, der) || len(k.PrivateKey) != 2+ed25519.SeedSize {
		return nil, errors.New("not the canonical DER of an Ed25519 key")
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("its DER is not an Ed25519 key")
	}
	priv, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("its DER is not an Ed25519 key")
	}
	if n := k.PublicKey.BitLength; n > 0 && (n != 8*ed25519.PublicKeySize || !bytes.Equal(k.PublicKey.Bytes, priv[ed25519.SeedSize:])) {
		return nil, errors.New("its public half does not belong to its private half")
	}
	return priv, nil
}

// parseSigstore reads a key that Sigstore's tools encrypted: JSON that names
// scrypt and its cost, and a box that holds PKCS#8.
func parseSigstore(block *pem.Block, pass PassphraseFunc) (ed25519.PrivateKey, error) {
	var box struct {
		KDF struct {
			Name   string                   `json:"name"`
			Params struct{ N, R, P uint64 } `json:"params"`
		} `json:"kdf"`
	}
	if err := json.Unmarshal(block.Bytes, &box); err != nil {
		return nil, errors.New("not an encrypted Sigstore key")
	}
	if p := box.KDF.Params; box.KDF.Name != "scrypt" || !slices.Contains(scryptN, p.N) || p.R != 8 || p.P != 1 {
		return nil, fmt.Errorf("key derivation %.20q with N=%d r=%d p=%d, want \"scrypt\" with N one of %d, r=8 p=1",
			box.KDF.Name, p.N, p.R, p.P, scryptN)
	}
	passphrase, err := pass.read()
	if err != nil {
		return nil, err
	}
	defer clear(passphrase)
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(pem.EncodeToMemory(block), cryptoutils.StaticPasswordFunc(passphrase))
	if err != nil {
		return nil, fmt.Errorf("%w, or a damaged file", ErrWrongPassphrase)
	}
	priv, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T, want Ed25519", key)
	}
	return priv, nil
}

// parseOpenSSH reads a key of OpenSSH's own format (its PROTOCOL.key).
func parseOpenSSH(block *pem.Block, pass PassphraseFunc) (ed25519.PrivateKey, error) {
	var file struct {
		Cipher, KDF, KDFOptions string
		Keys                    uint32
		PublicKey, PrivateKey   []byte
		Rest                    []byte `ssh:"rest"`
	}
	body, ok := bytes.CutPrefix(block.Bytes, []byte("openssh-key-v1\x00"))
	if !ok || ssh.Unmarshal(body, &file) != nil {
		return nil, errors.New("not an OpenSSH private key")
	}
	if len(file.Rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the OpenSSH key", len(file.Rest))
	}
	// The public key is in clear: a key of the wrong kind costs no passphrase.
	public, err := ssh.ParsePublicKey(file.PublicKey)
	if err != nil {
		return nil, errors.New("an OpenSSH key whose public half cannot be read")
	}
	if public.Type() != ssh.KeyAlgoED25519 {
		return nil, fmt.Errorf("an OpenSSH key of type %s, want %s", public.Type(), ssh.KeyAlgoED25519)
	}

	data := pem.EncodeToMemory(block)
	defer clear(data)
	var key any
	if file.KDF == "none" && file.Cipher == "none" {
		key, err = ssh.ParseRawPrivateKey(data)
	} else {
		key, err = parseEncryptedOpenSSH(data, file.KDF, file.KDFOptions, pass)
	}
	if err != nil {
		return nil, err
	}
	priv, ok := key.(*ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("an OpenSSH key of type %T, want Ed25519", key)
	}
	// The file holds the public key three times and the library believes the
	// copy inside the private key. To sign with another one than the private
	// half's gives the private key away.
	good := ed25519.NewKeyFromSeed(priv.Seed())
	if !good.Equal(*priv) || !bytes.Equal(public.(ssh.CryptoPublicKey).CryptoPublicKey().(ed25519.PublicKey), good[ed25519.SeedSize:]) {
		return nil, errors.New("its public half does not belong to its private half")
	}
	return good, nil
}

func parseEncryptedOpenSSH(data []byte, kdf, options string, pass PassphraseFunc) (any, error) {
	var cost struct {
		Salt   string
		Rounds uint32
	}
	if kdf != "bcrypt" || ssh.Unmarshal([]byte(options), &cost) != nil {
		return nil, fmt.Errorf("key derivation %.20q, want \"bcrypt\"", kdf)
	}
	if cost.Rounds > maxBcryptRounds {
		return nil, fmt.Errorf("key derivation of %d rounds, limit %d", cost.Rounds, maxBcryptRounds)
	}
	passphrase, err := pass.read()
	if err != nil {
		return nil, err
	}
	defer clear(passphrase)
	key, err := ssh.ParseRawPrivateKeyWithPassphrase(data, passphrase)
	if errors.Is(err, x509.IncorrectPasswordError) {
		return nil, ErrWrongPassphrase
	}
	return key, err
}
