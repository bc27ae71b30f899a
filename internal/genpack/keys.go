package main

import (
	"bytes"
	"crypto/ecdh"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// keys is group P: a good bundle, and other public keys. It makes the key files
// of the other groups too.
func keys(p *pack) {
	good := linked(abc()[0])
	harnessPEM, strangerPEM := harness.Public.MarshalPEM(), stranger.Public.MarshalPEM()
	p.pubs[harnessPub], p.pubs["stranger"] = harnessPEM, strangerPEM

	p.add("P01", "another key", "", good).keys("stranger").refused("signature", 1)
	scalar, err := ecdh.P256().NewPrivateKey(append(make([]byte, 31), 7))
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKIXPublicKey(scalar.PublicKey())
	if err != nil {
		panic(err)
	}
	p.pubs["p256"] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	p.add("P02", "a key that is not Ed25519", "P-256", good).keys("p256").unusable()
	der, err = x509.MarshalPKCS8PrivateKey(harness.Private)
	if err != nil {
		panic(err)
	}
	p.pubs["private"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	p.add("P03", "a private key", "the test key that signed the bundle", good).keys("private").unusable()
	p.pubs["zeros"] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: make([]byte, 3)})
	p.add("P04", "a file that holds no key", "three zero bytes in PEM", good).keys("zeros").unusable()

	// Beyond the tables of the format.
	p.add("P05", "no key", "none was given", good).keys().unusable()
	p.add("P06", "no key, and one in the bundle", "the PEM text of the signing key stands in its key ID", carriesKey()).keys().unusable()
	p.add("P07", "another key, and the signing key in the bundle", "the PEM text stands in its key ID", carriesKey()).keys("stranger").refused("signature", 1)
	p.pubs["empty"] = []byte{}
	p.add("P08", "an empty key file", "", good).keys("empty").unusable()
	p.pubs["openssh"] = []byte(openSSH(harness.Public.Raw()) + " harness@example\n")
	p.add("P09", "an OpenSSH line", "", good).keys("openssh").own()
	p.pubs["both"] = slices.Concat(harnessPEM, p.pubs["openssh"])
	p.add("P10", "one key twice in a file", "PEM and OpenSSH: it counts once", good).keys("both").own()
	p.add("P11", "one key in two files", "", good).keys(harnessPub, "openssh").own()
	p.pubs["several"] = slices.Concat([]byte("# keys of two harnesses\n\n"), strangerPEM, harnessPEM)
	p.add("P12", "the right key second in a file", "after a comment and another key", good).keys("several").own()
	p.add("P13", "the right key in the second file", "", good).keys("stranger", harnessPub).own()
	p.pubs["p521-line"] = []byte("ecdsa-sha2-nistp521 AAAA harness@example\n")
	p.add("P14", "an OpenSSH line of another kind", "ecdsa-sha2-nistp521", good).keys("p521-line").unusable()
	p.pubs["crlf"] = bytes.ReplaceAll(harnessPEM, []byte("\n"), []byte("\r\n"))
	p.add("P15", "a key file with CR LF", "", good).keys("crlf").own()
	p.pubs["half"] = harnessPEM[:len(harnessPEM)/2]
	p.add("P16", "a key file cut short", "", good).keys("half").unusable()
	p.add("P17", "one usable key and one that is not", "the P-256 key beside the right one", good).keys(harnessPub, "p256").unusable()
	p.pubs["trailing"] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: append(pkix(harness.Public.Raw()), 0)})
	p.add("P18", "a byte after the key's DER", "", good).keys("trailing").unusable()
	p.pubs["certificate"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pkix(harness.Public.Raw())})
	p.add("P19", "another PEM type", "CERTIFICATE around the right key", good).keys("certificate").unusable()

	for i, k := range badPoints {
		raw, err := hex.DecodeString(k.key)
		if err != nil {
			panic(err)
		}
		name := fmt.Sprintf("point-%02d", i+1)
		p.pubs[name] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix(raw)})
		p.add(fmt.Sprintf("P%02d", 20+i), k.what, k.key, good).keys(name).unusable().own()
	}
}

// badPoints are keys under which no honest signer signs: the points of small
// order in all their encodings, encodings of other points with y past the
// field's prime, and a y that is on no point.
var badPoints = []struct{ what, key string }{
	{"a point of small order, 1", "0100000000000000000000000000000000000000000000000000000000000000"},
	{"a point of small order, 2", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"a point of small order, 4", "0000000000000000000000000000000000000000000000000000000000000000"},
	{"a point of small order, 4, the other sign", "0000000000000000000000000000000000000000000000000000000000000080"},
	{"a point of small order, 8", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"},
	{"a point of small order, 8, the other sign", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"},
	{"a point of small order, 8, the other y", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"},
	{"a point of small order, 8, both other", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"},
	{"a point of small order, 1, y past the prime", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"a point of small order, 4, y past the prime", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"a point of small order, 4, both", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
	{"a point of small order, 1, zero with a sign", "0100000000000000000000000000000000000000000000000000000000000080"},
	{"a point of small order, 2, zero with a sign", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
	{"a point of small order, 1, y past the prime and a sign", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
	{"a point of large order, y past the prime", "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"no point of the curve", "0200000000000000000000000000000000000000000000000000000000000000"},
}

func pkix(raw []byte) []byte {
	return append([]byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}, raw...)
}

func openSSH(raw []byte) string {
	blob := slices.Concat([]byte("\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"), raw)
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(blob)
}

// carriesKey is a bundle whose links name their key by its PEM text.
func carriesKey() []byte {
	return reLinked(linked(abc()[0]), func(e *dsse.Envelope) { e.Signatures[0].KeyID = string(harness.Public.MarshalPEM()) })
}
