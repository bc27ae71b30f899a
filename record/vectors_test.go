package record

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// A vector is one message of testdata/vectors.json: its canonical bytes, its
// proto3 JSON where that can express it, and its digest.
type vector struct {
	Name   string
	Hex    string
	JSON   json.RawMessage
	SHA256 string
}

func (v vector) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type vectors struct {
	Requests, Results, Records []vector

	Fingerprints []struct {
		SessionID string `json:"session_id"`
		SHA256    string
	} `json:"session_fingerprints"`

	RuleIDs []struct {
		Name string
		Rule SoftwareRule
		ID   string
	} `json:"rule_ids"`
}

func readVectors(t testing.TB) *vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	v := new(vectors)
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{
		"requests":             len(v.Requests),
		"results":              len(v.Results),
		"records":              len(v.Records),
		"session_fingerprints": len(v.Fingerprints),
		"rule_ids":             len(v.RuleIDs),
	} {
		if n == 0 {
			t.Fatalf("no vectors under %q", name)
		}
	}
	return v
}

func TestGoldenRequests(t *testing.T) {
	for _, v := range readVectors(t).Requests {
		t.Run(v.Name, func(t *testing.T) {
			b := v.bytes(t)
			r, err := ParseRequest(b)
			if err != nil {
				t.Fatal(err)
			}
			if have := r.Digest(); have != v.SHA256 {
				t.Errorf("digest: have %s, want %s", have, v.SHA256)
			}
			if have := AppendRequest(nil, r); !bytes.Equal(have, b) {
				t.Errorf("bytes: have %x, want %x", have, b)
			}
		})
	}
}

func TestGoldenResults(t *testing.T) {
	for _, v := range readVectors(t).Results {
		t.Run(v.Name, func(t *testing.T) {
			b := v.bytes(t)
			r, err := ParseResponse(b)
			if err != nil {
				t.Fatal(err)
			}
			if have := r.ResultDigest(); have != v.SHA256 {
				t.Errorf("digest: have %s, want %s", have, v.SHA256)
			}
			if have := AppendResponse(nil, r); !bytes.Equal(have, b) {
				t.Errorf("bytes: have %x, want %x", have, b)
			}
		})
	}
}

func TestGoldenRecords(t *testing.T) {
	for _, v := range readVectors(t).Records {
		t.Run(v.Name, func(t *testing.T) {
			b := v.bytes(t)
			r, err := ParseRecord(b)
			if err != nil {
				t.Fatal(err)
			}
			have, err := r.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if have != v.SHA256 {
				t.Errorf("digest: have %s, want %s", have, v.SHA256)
			}
			if have := AppendRecord(nil, r); !bytes.Equal(have, b) {
				t.Errorf("bytes: have %x, want %x", have, b)
			}
		})
	}
}

func TestGoldenFingerprints(t *testing.T) {
	for _, v := range readVectors(t).Fingerprints {
		if have := Fingerprint(v.SessionID); have != v.SHA256 {
			t.Errorf("%q: have %s, want %s", v.SessionID, have, v.SHA256)
		}
	}
}

func TestGoldenRuleIDs(t *testing.T) {
	for _, v := range readVectors(t).RuleIDs {
		if err := v.Rule.Check(); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		if have := v.Rule.ID(); have != v.ID {
			t.Errorf("%s: have %s, want %s", v.Name, have, v.ID)
		}
	}
}
