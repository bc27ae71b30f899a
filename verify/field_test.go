package verify_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// A vector is one bundle and the verdict it must get.
type vector struct {
	ID   string `json:"id"`
	File string `json:"file"`
	Pub  string `json:"pub"`
	Args struct {
		Unlinked    bool    `json:"unlinked"`
		Expect      *string `json:"expect"`
		ExpectCount *uint64 `json:"expect_count"`
	} `json:"args"`
	Verdict string       `json:"verdict"`
	Check   verify.Check `json:"check"`
	Line    uint64       `json:"line"`
}

// TestFieldBundles gives every bundle of testdata/field, made by another
// implementation of the format, the verdict, check and line its manifest says.
func TestFieldBundles(t *testing.T) {
	dir := filepath.Join("..", "testdata", "field")
	data, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Cases []vector `json:"cases"`
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Cases) < 145 {
		t.Fatalf("manifest has %d cases, want 145", len(manifest.Cases))
	}
	for _, c := range manifest.Cases {
		t.Run(c.ID, func(t *testing.T) { checkVector(t, dir, c) })
	}
}

func checkVector(t *testing.T, dir string, c vector) {
	t.Helper()
	pub, err := os.ReadFile(filepath.Join(dir, c.Pub))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(filepath.Join(dir, c.File))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := envelope.ParsePublicKeys(pub)
	if c.Verdict == "error" {
		if err == nil {
			t.Fatal("the public key was accepted")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, workers := range []int{1, 2, 7} {
		opts := verify.Options{Keys: keys, Unlinked: c.Args.Unlinked, ExpectCount: c.Args.ExpectCount, Workers: workers}
		if c.Args.Expect != nil {
			if opts.Expect, err = verify.ParseExpected(strings.NewReader(*c.Args.Expect)); err != nil {
				t.Fatal(err)
			}
		}
		report, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), opts)
		if c.Verdict == "verified" {
			if err != nil {
				t.Fatalf("%d workers: %v", workers, err)
			}
			if report.Signatures == 0 {
				t.Fatal("verified without a signature")
			}
			continue
		}
		var refusal *verify.Refusal
		if !errors.As(err, &refusal) {
			t.Fatalf("%d workers: have %v, want a refusal", workers, err)
		}
		if refusal.Check != c.Check || refusal.Line != c.Line {
			t.Fatalf("%d workers: refused by %s at line %d (%v), want %s at line %d",
				workers, refusal.Check, refusal.Line, err, c.Check, c.Line)
		}
		if report != nil {
			t.Fatal("a report beside a refusal")
		}
	}
}
