package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const fieldDir = "../../testdata/field"

// A vector is a case of testdata/field/manifest.json.
type vector struct {
	ID, File, Pub, Verdict, Check string
	Line                          uint64
	Args                          struct {
		Unlinked    bool
		Expect      *string
		ExpectCount *uint64 `json:"expect_count"`
	}
}

func vectors(t *testing.T) []vector {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fieldDir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Cases []vector }
	if err := json.Unmarshal(data, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Cases) < 100 {
		t.Fatalf("have %d cases, want 100 and more", len(manifest.Cases))
	}
	return manifest.Cases
}

// args returns the arguments of verify for the vector.
func (v *vector) args(t *testing.T, format string) []string {
	args := []string{"verify", "--pub", filepath.Join(fieldDir, v.Pub), "--format", format}
	if v.Args.Unlinked {
		args = append(args, "-unlinked")
	}
	if v.Args.Expect != nil {
		list := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(list, []byte(*v.Args.Expect), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-expect", list)
	}
	if n := v.Args.ExpectCount; n != nil {
		args = append(args, fmt.Sprintf("--expect-count=%d", *n))
	}
	return append(args, filepath.Join(fieldDir, v.File))
}

// runCommand runs the program in this process.
func runCommand(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// TestFieldVectors runs every bundle of the field through the command.
func TestFieldVectors(t *testing.T) {
	exits := map[string]int{"verified": exitDone, "refused": exitRefused, "error": exitNoVerdict}
	for _, v := range vectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			code, stdout, stderr := runCommand("", v.args(t, "json")...)
			if code != exits[v.Verdict] {
				t.Errorf("exit status: have %d, want %d: %s", code, exits[v.Verdict], stderr)
			}
			r := decodeReport(t, stdout)
			if r.Verdict != v.Verdict {
				t.Errorf("verdict: have %s, want %s: %s", r.Verdict, v.Verdict, r.Reason)
			}
			if v.Verdict == "refused" && (r.JSONRefusal == nil || string(r.Check) != v.Check || r.Line != v.Line) {
				t.Errorf("refusal: have %+v, want %s at line %d", r.JSONRefusal, v.Check, v.Line)
			}

			code, stdout, stderr = runCommand("", v.args(t, "text")...)
			if code != exits[v.Verdict] {
				t.Errorf("exit status as text: have %d, want %d", code, exits[v.Verdict])
			}
			if first, _, _ := strings.Cut(stdout, "\n"); first != filepath.Join(fieldDir, v.File)+": "+v.Verdict {
				t.Errorf("first line: have %q", first)
			}
			if v.Verdict == "refused" {
				if strings.Count(stdout, "\n") != 1 || strings.Count(stderr, "\n") != 1 {
					t.Errorf("want one line each: have stdout %q, stderr %q", stdout, stderr)
				}
				if !strings.Contains(stderr, v.Check+":") {
					t.Errorf("stderr does not name the check %s: %s", v.Check, stderr)
				}
			}
		})
	}
}

// decodeReport decodes the one report in text, which must be of the published
// schema.
func decodeReport(t *testing.T, text string) *jsonReport {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Fatalf("want one line: have %q", text)
	}
	for _, problem := range reportSchemaFile(t).check(text) {
		t.Errorf("not of the schema: %s: %s", problem, text)
	}
	r := new(jsonReport)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}

// TestRefusedHasNoFacts looks for facts beside a refusal.
func TestRefusedHasNoFacts(t *testing.T) {
	for _, v := range vectors(t) {
		_, stdout, _ := runCommand("", v.args(t, "json")...)
		var members map[string]any
		if err := json.Unmarshal([]byte(stdout), &members); err != nil {
			t.Fatalf("%s: %v", v.ID, err)
		}
		want := map[string][]string{
			"refused": {"schema", "bundle", "verdict", "check", "line", "offset", "have", "want", "reason"},
			"error":   {"schema", "bundle", "verdict", "reason"},
		}[v.Verdict]
		if want == nil {
			continue
		}
		for _, name := range want {
			if _, ok := members[name]; !ok {
				t.Errorf("%s: no member %s", v.ID, name)
			}
			delete(members, name)
		}
		if diff := cmp.Diff(map[string]any{}, members); diff != "" {
			t.Errorf("%s: more than a refusal (-want +have):\n%s", v.ID, diff)
		}
	}
}
