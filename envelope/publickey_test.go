package envelope

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/edwards25519"
)

// torsion are the eight points whose multiple by 8 is the identity: torsion[i]
// is i times a generator of them.
var torsion = func() (points [8]*edwards25519.Point) {
	g, err := new(edwards25519.Point).SetBytes(unhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"))
	if err != nil {
		panic(err)
	}
	points[0] = edwards25519.NewIdentityPoint()
	for i := 1; i < len(points); i++ {
		points[i] = new(edwards25519.Point).Add(points[i-1], g)
	}
	return points
}()

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// fieldPlus returns the 32 bytes of p + n, that is 2^255 - 19 + n, for n < 19.
func fieldPlus(n byte) []byte {
	b := bytes.Repeat([]byte{0xff}, 32)
	b[0], b[31] = 0xed+n, 0x7f
	return b
}

func withSign(b []byte) []byte {
	b = bytes.Clone(b)
	b[31] |= 0x80
	return b
}

func readKeyFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "publickeys", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parseOne(t testing.TB, data []byte) *PublicKey {
	t.Helper()
	keys, err := ParsePublicKeys(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != 1 {
		t.Fatalf("have %d keys, want 1", len(keys))
	}
	return keys[0]
}

func TestKeyID(t *testing.T) {
	for file, want := range map[string]string{
		"seed.pub":    "84338813b9ce78aa6c11cf59c1b5ef11f73971080b04c256a226fdded0afac50",
		"openssh.pub": "3d73d048652be5d0b0b6e67fdf1bc67731786ca199d8b3011d59a9d4aed285ae",
	} {
		k := parseOne(t, readKeyFile(t, file))
		if k.ID() != want {
			t.Errorf("%s: have ID %s, want %s", file, k.ID(), want)
		}
	}
}

func TestMarshalPEM(t *testing.T) {
	data := readKeyFile(t, "seed.pub")
	k := parseOne(t, data)
	if have := k.MarshalPEM(); !bytes.Equal(have, data) {
		t.Errorf("have %q, want %q", have, data)
	}
	std, err := x509.MarshalPKIXPublicKey(k.Raw())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(k.pkix(), std) {
		t.Errorf("have DER %x, want crypto/x509's %x", k.pkix(), std)
	}
	k.Raw()[0] ^= 1
	if !bytes.Equal(k.MarshalPEM(), data) {
		t.Error("writing to Raw's result changed the key")
	}
}

func TestNewPublicKeyRefuses(t *testing.T) {
	good := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	type test struct {
		name string
		raw  []byte
		want string
	}
	tests := []test{
		{"nil", nil, "have 0 bytes"},
		{"short", good[:31], "have 31 bytes"},
		{"long", append(bytes.Clone(good), 0), "have 33 bytes"},
		{"not on the curve", append([]byte{2}, make([]byte, 31)...), "not a point"},
		{"y = p", fieldPlus(0), "canonical"},
		{"y = p with sign", withSign(fieldPlus(0)), "canonical"},
		{"y = p+1", fieldPlus(1), "canonical"},
		{"y = p+1 with sign", withSign(fieldPlus(1)), "canonical"},
		{"y = p+3, of large order", fieldPlus(3), "canonical"},
		{"y = p+3 with sign", withSign(fieldPlus(3)), "canonical"},
		{"y = p+18, the largest", fieldPlus(18), "canonical"},
		{"x = 0 with sign, y = 1", withSign(torsion[0].Bytes()), "canonical"},
		{"x = 0 with sign, y = -1", withSign(torsion[4].Bytes()), "canonical"},
	}
	for i, p := range torsion {
		tests = append(tests, test{fmt.Sprintf("torsion %d", i), p.Bytes(), "small order"})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, err := NewPublicKey(tt.raw)
			if !errors.Is(err, ErrKey) || k != nil {
				t.Fatalf("have %v, %v, want ErrKey and no key", k, err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("have %q, want it to say %q", err, tt.want)
			}
		})
	}
}

// A key with a part of small order is a key to crypto/ed25519, and so to us.
func TestMixedOrderKeyAccepted(t *testing.T) {
	a, err := new(edwards25519.Point).SetBytes(ed25519.NewKeyFromSeed(make([]byte, 32))[32:])
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range torsion {
		if _, err := NewPublicKey(new(edwards25519.Point).Add(a, p).Bytes()); err != nil {
			t.Errorf("torsion %d: %v", i, err)
		}
	}
}

func TestParsePublicKeys(t *testing.T) {
	pemA, pemB := string(readKeyFile(t, "key.pub")), string(readKeyFile(t, "other.pub"))
	ssh := string(readKeyFile(t, "openssh.pub"))
	a, b, c := parseOne(t, []byte(pemA)).ID(), parseOne(t, []byte(pemB)).ID(), parseOne(t, []byte(ssh)).ID()
	sshOfA := "ssh-ed25519 " + base64.StdEncoding.EncodeToString(append(bytes.Clone(openSSHPrefix), parseOne(t, []byte(pemA)).Raw()...))

	for _, tt := range []struct {
		name, data string
		want       []string
	}{
		{"PEM", pemA, []string{a}},
		{"OpenSSH", ssh, []string{c}},
		{"order of the file", pemB + ssh + pemA, []string{b, c, a}},
		{"one key twice", pemA + pemB + pemA, []string{a, b}},
		{"one key in both forms", sshOfA + "\n" + pemA, []string{a}},
		{"no comment", sshOfA + "\n", []string{a}},
		{"comment of several words", sshOfA + " a b c\n", []string{a}},
		{"tabs and spaces", " \t" + strings.Replace(sshOfA, " ", "\t ", 1) + " \n", []string{a}},
		{"no final newline", sshOfA, []string{a}},
		{"PEM without final newline", strings.TrimSuffix(pemA, "\n"), []string{a}},
		{"CR LF", strings.ReplaceAll(pemA+"\n"+ssh, "\n", "\r\n"), []string{a, c}},
		{"comments and blank lines", "# keys\n\n" + pemA + "  \n\t# more\n" + ssh + "\n#end", []string{a, c}},
		{"PEM in short lines", strings.Replace(pemA, "BQYDK2Vw", "BQ\nYDK\r\n2Vw", 1), []string{a}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := ParsePublicKeys([]byte(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, k := range keys {
				have = append(have, k.ID())
			}
			if fmt.Sprint(have) != fmt.Sprint(tt.want) {
				t.Errorf("have %v, want %v", have, tt.want)
			}
		})
	}
}

func TestParsePublicKeysRefuses(t *testing.T) {
	good := string(readKeyFile(t, "key.pub"))
	raw := parseOne(t, []byte(good)).Raw()
	block := func(kind string, der ...[]byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes.Join(der, nil)}))
	}
	ssh := func(blob ...[]byte) string {
		return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(bytes.Join(blob, nil)) + "\n"
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return string(readKeyFile(t, name)) }
	strayBits := strings.TrimSuffix(ssh(openSSHPrefix, raw[:31]), "\n") // 50 bytes: two free bits

	for _, tt := range []struct{ name, data, want string }{
		{"empty", "", "no key in 0 bytes"},
		{"blank", " \n\n", "no key in 3 bytes"},
		{"comments alone", "# ssh-ed25519\n", "no key"},
		{"RSA", file("rsa.pub"), "line 1: algorithm RSA, want Ed25519"},
		{"P-256", file("p256.pub"), "algorithm ECDSA"},
		{"X25519", file("x25519.pub"), "algorithm X25519"},
		{"Ed448", file("ed448.pub"), "algorithm Ed448"},
		{"unknown algorithm", block("PUBLIC KEY", unhex("300b300406022a0303030001ff")), "algorithm 1.2.3"},
		{"no DER", file("garbage.pub"), "not a public key"},
		{"certificate", file("certificate.pem"), `PEM type "CERTIFICATE"`},
		{"OpenSSH certificate", file("openssh-cert.pub"), "an OpenSSH certificate"},
		{"OpenSSH ECDSA", file("openssh-ecdsa.pub"), "type ecdsa-sha2-nistp256"},
		{"OpenSSH RSA", "ssh-rsa AAAA", "type ssh-rsa"},
		{"security key", "sk-ssh-ed25519@openssh.com AAAA", "type sk-ssh-ed25519@openssh.com"},
		{"SSH2", file("ssh2.pub"), "neither"},
		{"PKCS#8", block("PRIVATE KEY", pkcs8), "a private key"},
		{"PKCS#8 after a good key", good + block("PRIVATE KEY", pkcs8), "line 4: a private key"},
		{"encrypted", block("ENCRYPTED SIGSTORE PRIVATE KEY", []byte("{}")), "a private key"},
		{"OpenSSH private", block("OPENSSH PRIVATE KEY", []byte("openssh-key-v1\x00")), "a private key"},
		{"cut-off private", "-----BEGIN PRIVATE KEY-----\nAAAA", "without an end"},
		{"PuTTY private", "PuTTY-User-Key-File-3: ssh-ed25519\n", "a private key"},
		{"private DER as public", block("PUBLIC KEY", pkcs8), "not a public key"},
		{"binary", string(pkixPrefix) + string(raw), "binary"},
		{"UTF-16", "s\x00s\x00h\x00", "binary"},
		{"byte order mark", "\xef\xbb\xbf" + good, "byte order mark"},
		{"headers", strings.Replace(good, "KEY-----\n", "KEY-----\nProc-Type: 4\n\n", 1), "headers"},
		{"trailing bytes", block("PUBLIC KEY", pkixPrefix, raw, []byte{5, 0}), "2 bytes after"},
		{"NULL parameters", block("PUBLIC KEY", unhex("302c300706032b65700500032100"), raw), "canonical DER"},
		{"long length", block("PUBLIC KEY", unhex("30812a300506032b6570032100"), raw), "not a public key"},
		{"unused bits", block("PUBLIC KEY", pkixPrefix[:11], []byte{1}, raw[:31], []byte{2}), "canonical DER"},
		{"33 bytes", block("PUBLIC KEY", unhex("302b300506032b6570032200"), raw, []byte{0}), "canonical DER"},
		{"small order in PEM", block("PUBLIC KEY", pkixPrefix, torsion[1].Bytes()), "line 1: a point of small order"},
		{"not canonical in OpenSSH", ssh(openSSHPrefix, fieldPlus(3)), "not the canonical encoding"},
		{"text before PEM", "my key:\n" + good, "line 1: neither"},
		{"text after PEM", good + "\nmy key\n", "line 5: neither"},
		{"text on the first line", "x" + good, "line 1: neither"},
		{"text on the last line", strings.TrimSuffix(good, "\n") + "x\n", "damaged"},
		{"indented PEM", " " + good, "neither"},
		{"end alone", "-----END PUBLIC KEY-----\n", "neither"},
		{"no end", strings.Split(good, "-----END")[0], "without an end"},
		{"no end before the next", strings.Split(good, "-----END")[0] + good, "inside another"},
		{"another end", strings.Replace(good, "END PUBLIC", "END PRIVATE", 1), "damaged"},
		{"bad base64", strings.Replace(good, "MCow", "MC*w", 1), "damaged"},
		{"OpenSSH without a key", "ssh-ed25519\n", "without a key"},
		{"OpenSSH bad base64", "ssh-ed25519 AAA*", "not base64"},
		{"OpenSSH stray bits", strayBits[:len(strayBits)-2] + "R=", "not base64"},
		{"OpenSSH 31 bytes", ssh(openSSHPrefix, raw[:31]), "not ssh-ed25519"},
		{"OpenSSH trailing bytes", ssh(openSSHPrefix, raw, []byte{0}), "not ssh-ed25519"},
		{"OpenSSH other type inside", ssh([]byte("\x00\x00\x00\x07ssh-rsa"), raw), "not ssh-ed25519"},
		{"authorized_keys options", "restrict " + file("openssh.pub"), "text before"},
		{"known_hosts", "host " + file("openssh.pub"), "text before"},
		{"too long", strings.Repeat("\n", maxPublicKeyFile) + good, "limit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := ParsePublicKeys([]byte(tt.data))
			if !errors.Is(err, ErrKey) || keys != nil {
				t.Fatalf("have %v, %v, want ErrKey and no keys", keys, err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("have %q, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestPublicKeyLimits(t *testing.T) {
	var data []byte
	add := func() {
		pub, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		k, err := NewPublicKey(pub)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, k.MarshalPEM()...)
	}
	for range maxPublicKeys {
		add()
	}
	if keys, err := ParsePublicKeys(append(data, data...)); err != nil || len(keys) != maxPublicKeys {
		t.Errorf("at the limit: have %d keys, %v", len(keys), err)
	}
	atLimit := append(bytes.Clone(data), bytes.Repeat([]byte("\n"), maxPublicKeyFile-len(data))...)
	if _, err := ParsePublicKeys(atLimit); err != nil {
		t.Errorf("%d bytes: %v", len(atLimit), err)
	}
	add()
	if _, err := ParsePublicKeys(data); !errors.Is(err, ErrKey) {
		t.Errorf("one over: have %v, want ErrKey", err)
	}
}

// What a user passes by mistake may be a private key in any state.
func TestErrorsKeepSecrets(t *testing.T) {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	secret := base64.StdEncoding.EncodeToString(seed)
	for _, data := range []string{
		secret,
		"ssh-ed25519 " + secret,
		"-----BEGIN PUBLIC KEY-----\n" + secret + "\n-----END PUBLIC KEY-----\n",
		"-----BEGIN PRIVATE KEY-----\n" + secret,
		"AGE-SECRET-KEY " + secret + " ssh-ed25519",
	} {
		if _, err := ParsePublicKeys([]byte(data)); err == nil || strings.Contains(err.Error(), secret[:8]) {
			t.Errorf("have %v, want an error without the text", err)
		}
	}
}

func FuzzParsePublicKeys(f *testing.F) {
	for _, name := range []string{"key.pub", "openssh.pub", "rsa.pub", "openssh-cert.pub", "ssh2.pub"} {
		f.Add(readKeyFile(f, name))
	}
	f.Add([]byte("# two\n" + string(readKeyFile(f, "key.pub")) + string(readKeyFile(f, "openssh.pub"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := ParsePublicKeys(data)
		if err != nil {
			if !errors.Is(err, ErrKey) || keys != nil {
				t.Fatalf("have %v, %v, want ErrKey and no keys", keys, err)
			}
			return
		}
		if len(keys) == 0 {
			t.Fatal("no key and no error")
		}
		ids := make(map[string]bool)
		var all []byte
		for _, k := range keys {
			if ids[k.ID()] {
				t.Fatalf("key %s twice", k.ID())
			}
			ids[k.ID()] = true
			all = append(all, k.MarshalPEM()...)
		}
		again, err := ParsePublicKeys(all)
		if err != nil || len(again) != len(keys) {
			t.Fatalf("written again: have %d keys, %v, want %d", len(again), err, len(keys))
		}
		for i, k := range again {
			if k.ID() != keys[i].ID() || !k.Raw().Equal(keys[i].Raw()) {
				t.Fatalf("key %d changed", i)
			}
		}
	})
}
