package attest

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"golang.org/x/crypto/ssh"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

const testPassphrase = "correct horse"

var testKey = ed25519.NewKeyFromSeed([]byte("seed of the tests' throw-away k."))

// given returns a PassphraseFunc for a fixed passphrase.
func given(p string) PassphraseFunc {
	return func() ([]byte, error) { return []byte(p), nil }
}

// unasked fails the test when a passphrase is asked for.
func unasked(t testing.TB) PassphraseFunc {
	return func() ([]byte, error) {
		t.Helper()
		t.Error("a passphrase was asked for")
		return nil, ErrNoPassphrase
	}
}

func encodePEM(kind string, parts ...[]byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes.Join(parts, nil)})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func pkcs8PEM(key any) []byte {
	return encodePEM("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
}

func opensshPEM(key crypto.PrivateKey, passphrase string) []byte {
	if passphrase == "" {
		return pem.EncodeToMemory(must(ssh.MarshalPrivateKey(key, "comment")))
	}
	return pem.EncodeToMemory(must(ssh.MarshalPrivateKeyWithPassphrase(key, "comment", []byte(passphrase))))
}

func sigstorePEM(key any, passphrase string) []byte {
	der := must(x509.MarshalPKCS8PrivateKey(key))
	// Legacy is the cheapest cost: the tests derive many keys.
	return encodePEM("ENCRYPTED SIGSTORE PRIVATE KEY",
		must(encrypted.EncryptWithCustomKDFParameters(der, []byte(passphrase), encrypted.Legacy)))
}

// Deriving a key is slow by design, so the tests share two encrypted files.
var (
	sigstoreKey = sync.OnceValue(func() []byte { return sigstorePEM(testKey, testPassphrase) })
	opensshKey  = sync.OnceValue(func() []byte { return opensshPEM(testKey, testPassphrase) })
)

func writeFile(t testing.TB, data []byte, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkSigner signs with s and verifies under public by the standard library.
func checkSigner(t testing.TB, s *Signer, public ed25519.PublicKey) {
	t.Helper()
	pae := []byte("DSSEv1 1 a 1 b")
	sig, err := s.Sign(pae)
	if err != nil {
		t.Fatal(err)
	}
	if !s.PublicKey().Raw().Equal(public) || !ed25519.Verify(public, pae, sig) {
		t.Error("signed with another key")
	}
}

func TestOpenSignerFiles(t *testing.T) {
	public := testKey.Public().(ed25519.PublicKey)
	var passphrase []byte
	asked := func() ([]byte, error) {
		passphrase = []byte(testPassphrase)
		return passphrase, nil
	}
	for _, tt := range []struct {
		name string
		data []byte
		pass PassphraseFunc
	}{
		{"PKCS#8", pkcs8PEM(testKey), unasked(t)},
		{"PKCS#8 with the public key", encodePEM("PRIVATE KEY", oneAsymmetricKey(public)), unasked(t)},
		{"CR LF", bytes.ReplaceAll(pkcs8PEM(testKey), []byte("\n"), []byte("\r\n")), unasked(t)},
		{"blank lines around", slices.Concat([]byte("\n"), pkcs8PEM(testKey), []byte("\n\n")), unasked(t)},
		{"cosign", bytes.ReplaceAll(sigstoreKey(), []byte("SIGSTORE"), []byte("COSIGN")), asked},
		{"OpenSSH", opensshPEM(testKey, ""), unasked(t)},
		{"OpenSSH encrypted", opensshKey(), asked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := OpenSigner(writeFile(t, tt.data, 0o600), tt.pass)
			if err != nil {
				t.Fatal(err)
			}
			checkSigner(t, s, public)
			if bytes.ContainsFunc(passphrase, func(r rune) bool { return r != 0 }) {
				t.Errorf("the passphrase is still in memory, as %q", passphrase)
			}
		})
	}
}

// oneAsymmetricKey is testKey as RFC 5958 writes it with a public key.
func oneAsymmetricKey(public []byte) []byte {
	return slices.Concat([]byte("\x30\x51\x02\x01\x01\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20"), testKey.Seed(), []byte("\x81\x21\x00"), public)
}

// Files written by other programs, and by earlier versions of the libraries.
func TestFrozenKeys(t *testing.T) {
	files, err := filepath.Glob("testdata/keys/*.key")
	if err != nil || len(files) == 0 {
		t.Fatalf("have %d keys, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := OpenSigner(writeFile(t, data, 0o600), given(testPassphrase))
			if err != nil {
				t.Fatal(err)
			}
			data, err = os.ReadFile(strings.TrimSuffix(file, "key") + "pub")
			if err != nil {
				t.Fatal(err)
			}
			checkSigner(t, s, must(envelope.ParsePublicKeys(data))[0].Raw())
		})
	}
}

func TestSSHKeygen(t *testing.T) {
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Log("no ssh-keygen here: testdata/keys has two of its keys")
		return
	}
	for _, passphrase := range []string{"", testPassphrase} {
		path := filepath.Join(t.TempDir(), "k")
		if out, err := exec.Command(program, "-q", "-t", "ed25519", "-N", passphrase, "-f", path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s, err := OpenSigner(path, given(passphrase))
		if err != nil {
			t.Fatal(err)
		}
		checkSigner(t, s, must(envelope.ParsePublicKeys(must(os.ReadFile(path + ".pub"))))[0].Raw())
	}
}

func TestCreateKey(t *testing.T) {
	for name, pass := range map[string]PassphraseFunc{"plain": nil, "encrypted": given(testPassphrase)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, pub := filepath.Join(dir, "k"), filepath.Join(dir, "p")
			key, err := CreateKey(path, pub, pass)
			if err != nil {
				t.Fatal(err)
			}
			if have := must(os.ReadFile(pub)); !bytes.Equal(have, key.MarshalPEM()) {
				t.Errorf("public file: have %q, want %q", have, key.MarshalPEM())
			}
			if info := must(os.Stat(path)); hasModes && info.Mode() != 0o600 {
				t.Errorf("private file: mode %v", info.Mode())
			}
			block, _ := pem.Decode(must(os.ReadFile(path)))
			if want := map[bool]string{true: "PRIVATE KEY", false: "ENCRYPTED SIGSTORE PRIVATE KEY"}[pass == nil]; block.Type != want {
				t.Errorf("have PEM type %q, want %q", block.Type, want)
			}
			s, err := OpenSigner(path, pass)
			if err != nil {
				t.Fatal(err)
			}
			checkSigner(t, s, key.Raw())
		})
	}
}

func TestCreateKeyOverwritesNothing(t *testing.T) {
	for _, tt := range []struct{ name, key, pub string }{
		{"private file exists", "old", "new"},
		{"public file exists", "new", "old"},
		{"private path is a link", "link", "new"},
		{"public path is a link", "new", "link"},
		{"one path for both", "new", "new"},
		{"no folder for the private file", "none/new", "new"},
		{"no folder for the public file", "new", "none/new"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			if err := os.WriteFile("old", []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("target", "link"); err != nil {
				t.Skip(err)
			}
			if k, err := CreateKey(tt.key, tt.pub, nil); !errors.Is(err, ErrKey) || k != nil {
				t.Errorf("have %v, %v, want ErrKey", k, err)
			}
			if have := must(os.ReadFile("old")); string(have) != "old" {
				t.Errorf("old file is now %q", have)
			}
			var names []string
			for _, e := range must(os.ReadDir(dir)) {
				names = append(names, e.Name())
			}
			if want := []string{"link", "old"}; !slices.Equal(names, want) {
				t.Errorf("have files %v, want %v", names, want)
			}
		})
	}
}

func TestCreateKeyWithoutPassphrase(t *testing.T) {
	failing := errors.New("failing")
	for name, tt := range map[string]struct {
		pass PassphraseFunc
		want error
	}{
		"none":     {func() ([]byte, error) { return nil, ErrNoPassphrase }, ErrNoPassphrase},
		"failing":  {func() ([]byte, error) { return nil, failing }, failing},
		"empty":    {given(""), ErrKey},
		"too long": {given(strings.Repeat("x", maxPassphrase+1)), ErrKey},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := CreateKey(filepath.Join(dir, "k"), filepath.Join(dir, "p"), tt.pass)
			if !errors.Is(err, tt.want) || !errors.Is(err, ErrKey) {
				t.Errorf("have %v, want %v", err, tt.want)
			}
			if files := must(os.ReadDir(dir)); len(files) > 0 {
				t.Errorf("files left behind: %v", files)
			}
		})
	}
}

func TestKeyFileModes(t *testing.T) {
	if !hasModes {
		t.Skip("no mode bits here")
	}
	for mode := range fs.FileMode(0o1000) {
		if mode&0o400 == 0 || mode&0o100 != 0 {
			continue
		}
		path := writeFile(t, pkcs8PEM(testKey), mode)
		_, err := OpenSigner(path, nil)
		if mode&0o077 == 0 && err != nil {
			t.Errorf("%04o: %v", mode, err)
		}
		if mode&0o077 != 0 && (!errors.Is(err, ErrKey) || !strings.Contains(err.Error(), fmt.Sprintf("mode is %04o", mode))) {
			t.Errorf("%04o: have %v, want ErrKey with the mode", mode, err)
		}
	}
}

func TestKeyFileKinds(t *testing.T) {
	good := writeFile(t, pkcs8PEM(testKey), 0o600)
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Skip(err)
	}
	if _, err := OpenSigner(link, nil); err != nil {
		t.Errorf("link to a good file: %v", err)
	}
	if err := os.Chmod(good, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSigner(link, nil); hasModes && !errors.Is(err, ErrKey) {
		t.Errorf("link to an open file: have %v, want ErrKey", err)
	}
	for name, path := range map[string]string{"folder": dir, "absent": filepath.Join(dir, "none"), "device": os.DevNull, "empty path": ""} {
		if _, err := OpenSigner(path, nil); !errors.Is(err, ErrKey) {
			t.Errorf("%s: have %v, want ErrKey", name, err)
		}
	}
	if _, err := OpenSigner(filepath.Join(dir, "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: have %v, want ErrNotExist", err)
	}
	atLimit := append(pkcs8PEM(testKey), bytes.Repeat([]byte("\n"), maxKeyFile-119)...)
	if _, err := OpenSigner(writeFile(t, atLimit, 0o600), nil); len(atLimit) != maxKeyFile || err != nil {
		t.Errorf("%d bytes: %v", len(atLimit), err)
	}
	if _, err := OpenSigner(writeFile(t, append(atLimit, '\n'), 0o600), nil); !errors.Is(err, ErrKey) {
		t.Errorf("one over: have %v, want ErrKey", err)
	}
}

// opensshFile returns an unencrypted OpenSSH key whose parts can be made wrong.
func opensshFile(outer, inner ed25519.PublicKey, private ed25519.PrivateKey, rest string) []byte {
	blob := must(ssh.NewPublicKey(outer)).Marshal()
	body := ssh.Marshal(struct {
		Check1, Check2 uint32
		Type           string
		Public         []byte
		Private        []byte
		Comment        string
		Padding        []byte `ssh:"rest"`
	}{1, 1, "ssh-ed25519", inner, private, "", []byte{1, 2, 3, 4, 5, 6, 7}[:5]})
	return encodePEM("OPENSSH PRIVATE KEY", []byte("openssh-key-v1\x00"), ssh.Marshal(struct {
		Cipher, KDF, Options string
		Keys                 uint32
		Public, Private      []byte
		Rest                 []byte `ssh:"rest"`
	}{"none", "none", "", 1, blob, body, []byte(rest)}))
}

// hostileBox is a Sigstore key that asks for the given key derivation.
func hostileBox(name, cost string) []byte {
	return encodePEM("ENCRYPTED SIGSTORE PRIVATE KEY", []byte(`{"kdf":{"name":"`+name+`","params":`+cost+`,"salt":"AAAA"},"cipher":{"name":"nacl/secretbox","nonce":"AAAA"},"ciphertext":"AAAA"}`))
}

// hostileBcrypt is an encrypted OpenSSH key that asks for so many rounds.
func hostileBcrypt(public crypto.PublicKey, rounds uint32) []byte {
	return encodePEM("OPENSSH PRIVATE KEY", []byte("openssh-key-v1\x00"), ssh.Marshal(struct {
		Cipher, KDF     string
		Options         []byte
		Keys            uint32
		Public, Private []byte
	}{"aes256-ctr", "bcrypt", ssh.Marshal(struct {
		Salt   string
		Rounds uint32
	}{"0123456789abcdef", rounds}), 1, must(ssh.NewPublicKey(public)).Marshal(), make([]byte, 144)}))
}

func TestParseKeyRefuses(t *testing.T) {
	public := testKey.Public().(ed25519.PublicKey)
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	otherPublic := other.Public().(ed25519.PublicKey)
	mixed := ed25519.PrivateKey(slices.Concat(testKey.Seed(), other[32:]))
	der := must(x509.MarshalPKCS8PrivateKey(testKey))
	good := pkcs8PEM(testKey)
	x := must(ecdh.X25519().GenerateKey(rand.Reader))
	ec := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	rsaKey := must(rsa.GenerateKey(rand.Reader, 2048))
	cert := encodePEM("CERTIFICATE", []byte("x"))
	pub := must(envelope.NewPublicKey(public)).MarshalPEM()
	set := func(b []byte, i int, v byte) []byte {
		b = bytes.Clone(b)
		b[i] = v
		return b
	}

	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "empty"},
		{"text", []byte("hello"), "not a PEM"},
		{"raw seed", testKey.Seed(), "not a PEM"},
		{"DER", der, "not a PEM"},
		{"public PEM", pub, "want the private key"},
		{"public OpenSSH", ssh.MarshalAuthorizedKey(must(ssh.NewPublicKey(public))), "a public key"},
		{"certificate", cert, "want the private key"},
		{"PuTTY", []byte("PuTTY-User-Key-File-3: ssh-ed25519\n"), "PuTTY"},
		{"PKCS#8 encryption", encodePEM("ENCRYPTED PRIVATE KEY", der), "PEM type"},
		{"EC", encodePEM("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ec))), "PEM type"},
		{"RSA", encodePEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), "PEM type"},
		{"PKCS#8 EC", pkcs8PEM(ec), "1.2.840.10045.2.1, want Ed25519"},
		{"PKCS#8 RSA", pkcs8PEM(rsaKey), "1.2.840.113549.1.1.1"},
		{"PKCS#8 X25519", pkcs8PEM(x), "1.3.101.110"},
		{"OpenSSH EC", opensshPEM(ec, ""), "ecdsa-sha2-nistp256"},
		{"OpenSSH RSA encrypted", hostileBcrypt(rsaKey.Public(), 16), "ssh-rsa"},
		{"text before", append([]byte("Bag Attributes\n"), good...), "not a PEM"},
		{"text after", append(bytes.Clone(good), "x"...), "data after"},
		{"two keys", append(bytes.Clone(good), good...), "more than one"},
		{"public after private", append(bytes.Clone(good), pub...), "more than one"},
		{"damaged block before", append([]byte("-----BEGIN X\n"), good...), "more than one"},
		{"cut off", good[:60], "damaged"},
		{"headers", bytes.Replace(good, []byte("KEY-----\n"), []byte("KEY-----\nProc-Type: 4,ENCRYPTED\n\n"), 1), "headers"},
		{"no DER", encodePEM("PRIVATE KEY", []byte("x")), "not a PKCS#8"},
		{"trailing bytes", encodePEM("PRIVATE KEY", der, []byte{5, 0}), "2 bytes after"},
		{"trailing element", encodePEM("PRIVATE KEY", set(der, 1, der[1]+2), []byte{5, 0}), "canonical"},
		{"long length", encodePEM("PRIVATE KEY", []byte{0x30, 0x81, der[1]}, der[2:]), "not a PKCS#8"},
		{"seed too short", encodePEM("PRIVATE KEY", []byte("\x30\x2d\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x21\x04\x1f"), testKey[:31]), "canonical"},
		{"inner trailing byte", encodePEM("PRIVATE KEY", []byte("\x30\x2f\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x23\x04\x20"), testKey[:33]), "canonical"},
		{"wrong public half", encodePEM("PRIVATE KEY", oneAsymmetricKey(other[32:])), "public half"},
		{"short public half", encodePEM("PRIVATE KEY", set(set(oneAsymmetricKey(public[:31]), 1, 0x50), 49, 0x20)), "public half"},
		{"OpenSSH no content", encodePEM("OPENSSH PRIVATE KEY"), "not an OpenSSH"},
		{"OpenSSH other magic", encodePEM("OPENSSH PRIVATE KEY", []byte("openssh-key-v2\x00")), "not an OpenSSH"},
		{"OpenSSH trailing bytes", opensshFile(public, public, testKey, "x"), "1 bytes after"},
		{"OpenSSH wrong outer public key", opensshFile(otherPublic, public, testKey, ""), "public half"},
		{"OpenSSH wrong public half", opensshFile(public, public, mixed, ""), "public half"},
		{"OpenSSH wrong everywhere", opensshFile(otherPublic, otherPublic, mixed, ""), "public half"},
		{"OpenSSH 2^31 rounds", hostileBcrypt(testKey.Public(), 1<<31), "2147483648 rounds"},
		{"OpenSSH rounds over the limit", hostileBcrypt(public, maxBcryptRounds+1), "rounds"},
		{"Sigstore no JSON", encodePEM("ENCRYPTED SIGSTORE PRIVATE KEY", der), "not an encrypted"},
		{"Sigstore no cost", hostileBox("scrypt", `{}`), "N=0"},
		{"Sigstore N=2^40", hostileBox("scrypt", `{"N":1099511627776,"r":8,"p":1}`), "N=1099511627776"},
		{"Sigstore N=2^64", hostileBox("scrypt", `{"N":18446744073709551616,"r":8,"p":1}`), "not an encrypted"},
		{"Sigstore N=-1", hostileBox("scrypt", `{"N":-1,"r":8,"p":1}`), "not an encrypted"},
		{"Sigstore r=2^30", hostileBox("scrypt", `{"N":2,"r":1073741824,"p":1}`), "r=1073741824"},
		{"Sigstore p=2^30", hostileBox("scrypt", `{"N":2,"r":8,"p":1073741824}`), "p=1073741824"},
		{"Sigstore other derivation", hostileBox("pbkdf2", `{"N":32768,"r":8,"p":1}`), "pbkdf2"},
		{"Sigstore cheap", hostileBox("scrypt", `{"N":2,"r":8,"p":1}`), "N=2"},
		{"Sigstore N=2^18", hostileBox("scrypt", `{"N":262144,"r":8,"p":1}`), "N=262144"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			_, err := OpenSigner(writeFile(t, tt.data, 0o600), unasked(t))
			if !errors.Is(err, ErrKey) || errors.Is(err, ErrWrongPassphrase) {
				t.Fatalf("have %v, want ErrKey", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("have %q, want it to say %q", err, tt.want)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

// An encrypted box may hold a key of any kind.
func TestEncryptedKeyOfAnotherKind(t *testing.T) {
	ec := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	_, err := parseKey(sigstorePEM(ec, testPassphrase), given(testPassphrase))
	if err == nil || errors.Is(err, ErrWrongPassphrase) || !strings.Contains(err.Error(), "ecdsa") {
		t.Errorf("have %v, want an error that names ECDSA", err)
	}
	// A box that is damaged otherwise cannot be told from a wrong passphrase.
	if _, err := parseKey(hostileBox("scrypt", `{"N":32768,"r":8,"p":1}`), given(testPassphrase)); !errors.Is(err, ErrWrongPassphrase) {
		t.Errorf("have %v, want ErrWrongPassphrase", err)
	}
}

func TestPassphraseOfKeys(t *testing.T) {
	failing := errors.New("failing")
	var wrong []byte
	for format, data := range map[string][]byte{
		"Sigstore": sigstoreKey(),
		"OpenSSH":  opensshKey(),
	} {
		wrong = []byte("battery staple")
		path := writeFile(t, data, 0o600)
		for name, tt := range map[string]struct {
			pass PassphraseFunc
			want error
		}{
			"wrong":    {func() ([]byte, error) { return wrong, nil }, ErrWrongPassphrase},
			"nil":      {nil, ErrNoPassphrase},
			"none":     {func() ([]byte, error) { return nil, ErrNoPassphrase }, ErrNoPassphrase},
			"failing":  {func() ([]byte, error) { return nil, failing }, failing},
			"empty":    {given(""), ErrKey},
			"too long": {given(strings.Repeat("x", maxPassphrase+1)), ErrKey},
		} {
			t.Run(format+"/"+name, func(t *testing.T) {
				s, err := OpenSigner(path, tt.pass)
				if !errors.Is(err, tt.want) || !errors.Is(err, ErrKey) || s != nil {
					t.Errorf("have %v, %v, want %v", s, err, tt.want)
				}
				if name == "wrong" && bytes.ContainsFunc(wrong, func(r rune) bool { return r != 0 }) {
					t.Errorf("the passphrase is still in memory, as %q", wrong)
				}
				if tt.want == ErrKey && (errors.Is(err, ErrWrongPassphrase) || errors.Is(err, ErrNoPassphrase)) {
					t.Errorf("have %v, want an error about the passphrase itself", err)
				}
			})
		}
	}
}

// No error shows a passphrase or any part of a key file.
func TestKeyErrorsKeepSecrets(t *testing.T) {
	const secret = "Tr0ub4dor-and-3"
	seed := base64.StdEncoding.EncodeToString(testKey.Seed())
	files := [][]byte{
		sigstoreKey(),
		opensshKey(),
		[]byte(seed),
		[]byte("-----BEGIN " + seed + "-----\n"),
		encodePEM("PRIVATE KEY", []byte(seed)),
		encodePEM("OPENSSH PRIVATE KEY", []byte(seed)),
		encodePEM("ENCRYPTED SIGSTORE PRIVATE KEY", []byte(`"`+seed+`"`)),
		encodePEM("ENCRYPTED SIGSTORE PRIVATE KEY", []byte(`{"kdf":{"params":{"N":"`+seed+`"}}}`)),
		append(pkcs8PEM(testKey), seed...),
	}
	for i, data := range files {
		_, err := OpenSigner(writeFile(t, data, 0o600), given(secret))
		if err == nil {
			t.Errorf("file %d: no error", i)
			continue
		}
		// What %v, %+v and %#v print is what a log would hold.
		text := fmt.Sprintf("%v %+v %#v", err, err, err)
		for _, s := range []string{secret, seed[:8], fmt.Sprintf("%x", testKey.Seed()[:8]), "MC4CAQAw"} {
			if strings.Contains(text, s) {
				t.Errorf("file %d: the error shows %q: %v", i, s, err)
			}
		}
	}
}

func FuzzParseKey(f *testing.F) {
	public := testKey.Public().(ed25519.PublicKey)
	f.Add(pkcs8PEM(testKey))
	f.Add(encodePEM("PRIVATE KEY", oneAsymmetricKey(public)))
	f.Add(opensshPEM(testKey, ""))
	f.Add(opensshFile(public, public, testKey, ""))
	f.Add(hostileBox("scrypt", `{"N":1099511627776,"r":8,"p":1}`))
	f.Add(hostileBcrypt(testKey.Public(), 1<<31))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxKeyFile {
			return
		}
		// No passphrase: deriving keys is the libraries' part, and is bounded.
		start := time.Now()
		priv, err := parseKey(data, nil)
		if d := time.Since(start); d > 2*time.Second {
			t.Fatalf("took %v", d)
		}
		if err != nil {
			return
		}
		if !ed25519.NewKeyFromSeed(priv.Seed()).Equal(priv) {
			t.Fatal("the halves of the key do not belong together")
		}
		again, err := parseKey(must(marshalKey(priv, nil)), nil)
		if err != nil || !again.Equal(priv) {
			t.Fatalf("written again: %v", err)
		}
	})
}
