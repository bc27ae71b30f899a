package envelope_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

var (
	private  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	stranger = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
)

func public(tb testing.TB, private ed25519.PrivateKey) *envelope.PublicKey {
	tb.Helper()
	key, err := envelope.NewPublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func TestPAE(t *testing.T) {
	for _, c := range []struct{ payload, want string }{
		{"", "DSSEv1 28 application/vnd.in-toto+json 0 "},
		{"{}", "DSSEv1 28 application/vnd.in-toto+json 2 {}"},
		{"é", "DSSEv1 28 application/vnd.in-toto+json 2 é"},
	} {
		if have := string(envelope.PAE([]byte(c.payload))); have != c.want {
			t.Errorf("have %q, want %q", have, c.want)
		}
	}
	// The published vectors of the protocol, for the library that writes it.
	if have := hex.EncodeToString(dsse.PAE("http://example.com/HelloWorld", []byte("hello world"))); have !=
		"44535345763120323920687474703a2f2f6578616d706c652e636f6d2f48656c6c6f576f726c642031312068656c6c6f20776f726c64" {
		t.Errorf("have %s", have)
	}
}

func TestVerify(t *testing.T) {
	key := public(t, private)
	payload := []byte(`{"a":"paddec"}`)
	sign := func(k ed25519.PrivateKey, message []byte) string {
		return base64.StdEncoding.EncodeToString(ed25519.Sign(k, message))
	}
	good := sign(private, envelope.PAE(payload))
	other := public(t, stranger).ID()
	text := base64.StdEncoding.EncodeToString(payload)
	if !strings.HasSuffix(text, "=") {
		t.Fatal("the payload needs padding for these cases")
	}
	if !strings.ContainsAny(good, "+/") {
		t.Fatal("the signature needs a character that the alphabets differ in")
	}
	one := func(sig string) []dsse.Signature { return []dsse.Signature{{KeyID: key.ID(), Sig: sig}} }
	hashed, err := private.Sign(nil, bytes.Repeat([]byte{3}, 64), &ed25519.Options{Hash: crypto.SHA512})
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		change func(*dsse.Envelope)
		want   error
	}{
		"good":                      {func(*dsse.Envelope) {}, nil},
		"other payload type":        {func(e *dsse.Envelope) { e.PayloadType = "application/json" }, envelope.ErrForm},
		"empty payload type":        {func(e *dsse.Envelope) { e.PayloadType = "" }, envelope.ErrForm},
		"payload type, other case":  {func(e *dsse.Envelope) { e.PayloadType = strings.ToUpper(e.PayloadType) }, envelope.ErrForm},
		"payload, line break":       {func(e *dsse.Envelope) { e.Payload = text[:4] + "\n" + text[4:] }, envelope.ErrForm},
		"payload, carriage return":  {func(e *dsse.Envelope) { e.Payload = text + "\r" }, envelope.ErrForm},
		"payload, space":            {func(e *dsse.Envelope) { e.Payload = text[:4] + " " + text[4:] }, envelope.ErrForm},
		"payload, no padding":       {func(e *dsse.Envelope) { e.Payload = strings.TrimRight(text, "=") }, envelope.ErrForm},
		"payload, surplus padding":  {func(e *dsse.Envelope) { e.Payload = text + "====" }, envelope.ErrForm},
		"payload changed":           {func(e *dsse.Envelope) { e.Payload = "e30=" }, envelope.ErrSignature},
		"payload empty":             {func(e *dsse.Envelope) { e.Payload = "" }, envelope.ErrSignature},
		"no signatures":             {func(e *dsse.Envelope) { e.Signatures = nil }, envelope.ErrSignature},
		"empty list":                {func(e *dsse.Envelope) { e.Signatures = []dsse.Signature{} }, envelope.ErrSignature},
		"empty signature":           {func(e *dsse.Envelope) { e.Signatures = one("") }, envelope.ErrSignature},
		"signature, line break":     {func(e *dsse.Envelope) { e.Signatures = one(good[:8] + "\n" + good[8:]) }, envelope.ErrSignature},
		"signature, no padding":     {func(e *dsse.Envelope) { e.Signatures = one(strings.TrimRight(good, "=")) }, envelope.ErrSignature},
		"signature, URL alphabet":   {func(e *dsse.Envelope) { e.Signatures = one(strings.NewReplacer("+", "-", "/", "_").Replace(good)) }, envelope.ErrSignature},
		"signature of 63 bytes":     {func(e *dsse.Envelope) { e.Signatures = one(base64.StdEncoding.EncodeToString(make([]byte, 63))) }, envelope.ErrSignature},
		"signature of zeros":        {func(e *dsse.Envelope) { e.Signatures = one(base64.StdEncoding.EncodeToString(make([]byte, 64))) }, envelope.ErrSignature},
		"over the bare payload":     {func(e *dsse.Envelope) { e.Signatures = one(sign(private, payload)) }, envelope.ErrSignature},
		"over another type":         {func(e *dsse.Envelope) { e.Signatures = one(sign(private, dsse.PAE("x", payload))) }, envelope.ErrSignature},
		"Ed25519ph":                 {func(e *dsse.Envelope) { e.Signatures = one(base64.StdEncoding.EncodeToString(hashed)) }, envelope.ErrSignature},
		"stranger under our name":   {func(e *dsse.Envelope) { e.Signatures = one(sign(stranger, envelope.PAE(payload))) }, envelope.ErrSignature},
		"stranger":                  {func(e *dsse.Envelope) { e.Signatures = []dsse.Signature{{KeyID: other, Sig: good}} }, envelope.ErrSignature},
		"no key named":              {func(e *dsse.Envelope) { e.Signatures = []dsse.Signature{{Sig: good}} }, envelope.ErrForm},
		"key ID in capitals":        {func(e *dsse.Envelope) { e.Signatures[0].KeyID = strings.ToUpper(key.ID()) }, envelope.ErrSignature},
		"the same twice":            {func(e *dsse.Envelope) { e.Signatures = append(e.Signatures, e.Signatures[0]) }, envelope.ErrForm},
		"a stranger's beside it":    {func(e *dsse.Envelope) { e.Signatures = append(e.Signatures, dsse.Signature{KeyID: other, Sig: good}) }, envelope.ErrForm},
		"a worthless one before it": {func(e *dsse.Envelope) { e.Signatures = append(one("AAAA"), e.Signatures...) }, envelope.ErrForm},
		"good one after too many":   {func(e *dsse.Envelope) { e.Signatures = append(repeat(one("AAAA")[0], 100), e.Signatures...) }, envelope.ErrSignature},
		"many by others, then good": {func(e *dsse.Envelope) {
			e.Signatures = append(repeat(dsse.Signature{KeyID: other}, 100), e.Signatures...)
		}, envelope.ErrForm},
	} {
		t.Run(name, func(t *testing.T) {
			e := envelope.New(payload, key.ID(), ed25519.Sign(private, envelope.PAE(payload)))
			c.change(e)
			have, err := envelope.Verify(e, key)
			if !errors.Is(err, c.want) {
				t.Fatalf("have %v, want %v", err, c.want)
			}
			if c.want == nil && !bytes.Equal(have, payload) {
				t.Errorf("payload: have %q, want %q", have, payload)
			}
			if c.want != nil && have != nil {
				t.Error("a payload beside an error")
			}
		})
	}
}

func repeat(s dsse.Signature, n int) []dsse.Signature {
	all := make([]dsse.Signature, n)
	for i := range all {
		all[i] = s
	}
	return all
}

// TestStrictBase64 puts stray bits into every payload length.
func TestStrictBase64(t *testing.T) {
	key := public(t, private)
	for n := 1; n < 7; n++ {
		payload := bytes.Repeat([]byte{'x'}, n)
		e := envelope.New(payload, key.ID(), ed25519.Sign(private, envelope.PAE(payload)))
		if _, err := envelope.Verify(e, key); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			continue
		}
		last := strings.IndexByte(e.Payload, '=') - 1
		e.Payload = e.Payload[:last] + string(e.Payload[last]+1) + e.Payload[last+1:]
		if _, err := envelope.Verify(e, key); !errors.Is(err, envelope.ErrForm) {
			t.Errorf("%d bytes: have %v, want ErrForm", n, err)
		}
	}
}

func TestAppend(t *testing.T) {
	for want, e := range map[string]*dsse.Envelope{
		`{"payloadType":"","payload":"","signatures":null}`:                                              {},
		`{"payloadType":"a<","payload":"b","signatures":[]}`:                                             {PayloadType: "a<", Payload: "b", Signatures: []dsse.Signature{}},
		`{"payloadType":"","payload":"","signatures":[{"keyid":"","sig":""}]}`:                           {Signatures: []dsse.Signature{{}}},
		`{"payloadType":"","payload":"","signatures":[{"keyid":"k","sig":"s"},{"keyid":"","sig":"\n"}]}`: {Signatures: []dsse.Signature{{KeyID: "k", Sig: "s"}, {Sig: "\n"}}},
	} {
		want = strings.ReplaceAll(want, "<", `\u003c`)
		if have := string(envelope.Append(nil, e)); have != want {
			t.Errorf("have %s, want %s", have, want)
		}
	}
}

func ExampleVerify() {
	private := ed25519.NewKeyFromSeed(make([]byte, 32)) // an example's key, no secret
	key, err := envelope.NewPublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		fmt.Println(err)
		return
	}
	payload := []byte(`{"_type":"https://in-toto.io/Statement/v1"}`)
	e := envelope.New(payload, key.ID(), ed25519.Sign(private, envelope.PAE(payload)))

	verified, err := envelope.Verify(e, key)
	fmt.Println(string(verified), err)
	e.PayloadType = "text/plain"
	_, err = envelope.Verify(e, key)
	fmt.Println(err)
	// Output:
	// {"_type":"https://in-toto.io/Statement/v1"} <nil>
	// statement: payload type: have text/plain, want application/vnd.in-toto+json
}
