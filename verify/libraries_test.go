package verify_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// libraryVerifier is the DSSE library's verifier of one key.
func libraryVerifier(t *testing.T, key *envelope.PublicKey) *dsse.EnvelopeVerifier {
	t.Helper()
	ed, err := signerverifier.NewED25519SignerVerifierFromSSLibKey(&signerverifier.SSLibKey{
		KeyID:  key.ID(),
		KeyVal: signerverifier.KeyVal{Public: hex.EncodeToString(key.Raw())},
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := dsse.NewEnvelopeVerifier(ed)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// atMostLibrary fails when envelope.Verify takes what the library refuses, or
// another payload than the library. It reports whether each took it.
func atMostLibrary(t *testing.T, library *dsse.EnvelopeVerifier, key *envelope.PublicKey, e *dsse.Envelope) (ours, theirs bool) {
	t.Helper()
	_, body, libraryErr := library.VerifyAndDecode(t.Context(), e)
	payload, err := envelope.Verify(e, key)
	if err == nil && libraryErr != nil {
		t.Errorf("we take an envelope that the library refuses: %v: %+v", libraryErr, e)
	}
	if err == nil && !bytes.Equal(payload, body) {
		t.Errorf("payload: have %q, the library has %q", payload, body)
	}
	return err == nil, libraryErr == nil
}

// TestLibraryRefusesNothingMore shows, on every envelope of the conformance
// pack under every key of it, that what the DSSE library refuses we refuse.
func TestLibraryRefusesNothingMore(t *testing.T) {
	vectors, files := readPack(t)
	keys := make(map[string]*envelope.PublicKey)
	libraries := make(map[string]*dsse.EnvelopeVerifier)
	for _, data := range files {
		found, err := envelope.ParsePublicKeys(data)
		if err != nil || len(found) != 1 {
			continue // a bundle, or a key file that is wrong, or of several
		}
		if id := found[0].ID(); keys[id] == nil {
			keys[id], libraries[id] = found[0], libraryVerifier(t, found[0])
		}
	}
	if len(keys) < 4 {
		t.Fatalf("%d keys", len(keys))
	}
	var envelopes, ours, theirs int
	seen := make(map[string]bool)
	for _, v := range vectors {
		for _, raw := range bundletest.Lines(files[v.File]) {
			line, err := chain.ParseLine(raw)
			if err != nil || seen[string(raw)] {
				continue
			}
			seen[string(raw)] = true
			for _, e := range []*dsse.Envelope{line.Envelope, line.Link} {
				if e == nil {
					continue
				}
				envelopes++
				for id, key := range keys {
					us, they := atMostLibrary(t, libraries[id], key, e)
					if us {
						ours++
					}
					if they {
						theirs++
					}
				}
			}
		}
	}
	t.Logf("%d envelopes, under %d keys each: we take %d, the library %d", envelopes, len(keys), ours, theirs)
	if ours < 500 || theirs <= ours {
		t.Errorf("of %d envelopes we take %d and the library %d: the test sees too little", envelopes, ours, theirs)
	}
}

// TestLibraryOnChangedEnvelopes does the same on a good envelope with one
// character changed, added or removed at each place of its strings.
func TestLibraryOnChangedEnvelopes(t *testing.T) {
	key := bundletest.Harness
	library := libraryVerifier(t, key.Public)
	good := key.Envelope([]byte(`{"a":"??>>"}`))
	if us, they := atMostLibrary(t, library, key.Public, good); !us || !they {
		t.Fatalf("the good envelope: we %v, the library %v", us, they)
	}
	fields := []func(e *dsse.Envelope) *string{
		func(e *dsse.Envelope) *string { return &e.PayloadType },
		func(e *dsse.Envelope) *string { return &e.Payload },
		func(e *dsse.Envelope) *string { return &e.Signatures[0].KeyID },
		func(e *dsse.Envelope) *string { return &e.Signatures[0].Sig },
	}
	for n, field := range fields {
		text := *field(good)
		for i := range len(text) + 1 {
			var changed []string
			for _, c := range []string{"", "A", "B", "/", "+", "-", "_", "=", "\n", "\r", " ", "\x00", "é"} {
				changed = append(changed, text[:i]+c+text[i:])
				if i < len(text) {
					changed = append(changed, text[:i]+c+text[i+1:])
				}
			}
			for _, s := range changed {
				if s == text {
					continue
				}
				e := *good
				e.Signatures = slices.Clone(good.Signatures)
				*field(&e) = s
				if us, _ := atMostLibrary(t, library, key.Public, &e); us {
					t.Errorf("field %d: %q is taken for %q", n, s, text)
				}
			}
		}
	}
}

// TestStatementsAreInToto reads every statement of every bundle that verifies
// with the in-toto library and asks it whether it is one. The library wants a
// digest in each subject; the link of a first line that is a checkpoint has
// none to state.
func TestStatementsAreInToto(t *testing.T) {
	vectors, files := readPack(t)
	statements, empty := 0, 0
	check := func(e *dsse.Envelope) {
		if e == nil {
			return
		}
		payload, err := e.DecodeB64Payload()
		if err != nil {
			t.Fatal(err)
		}
		s := new(intoto.Statement)
		if err := protojson.Unmarshal(payload, s); err != nil {
			t.Fatalf("%v: %s", err, payload)
		}
		statements++
		err = s.Validate()
		if errors.Is(err, intoto.ErrIncorrectDigestLength) && s.GetPredicateType() == "https://plimsollmark.github.io/plimsoll/bundle-link/v1" &&
			s.GetPredicate().GetFields()["index"].GetNumberValue() == 1 && s.GetSubject()[0].GetDigest()["sha256"] == "" {
			empty++
		} else if err != nil {
			t.Errorf("%v: %s", err, payload)
		}
	}
	for _, v := range vectors {
		if v.Verdict != "verified" {
			continue
		}
		for _, raw := range bundletest.Lines(files[v.File]) {
			line, err := chain.ParseLine(raw)
			if err != nil {
				t.Fatal(err)
			}
			check(line.Envelope)
			check(line.Link)
		}
	}
	if statements < 400 || empty == 0 {
		t.Errorf("%d statements, %d without a digest: the test sees too little", statements, empty)
	}
}
