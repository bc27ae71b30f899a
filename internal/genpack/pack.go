package main

import (
	"bytes"
	encjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

const schema = "plimsoll.conformance/v1"

// A vector is a bundle, what it is verified against and the verdict.
type vector struct {
	ID      string   `json:"id"`
	Group   string   `json:"group"`
	Name    string   `json:"name"`
	What    string   `json:"what,omitempty"`
	File    string   `json:"file"`
	Pub     []string `json:"pub"`
	Args    args     `json:"args"`
	Verdict string   `json:"verdict"`
	Check   string   `json:"check,omitempty"`
	Line    *int     `json:"line,omitempty"`
	Offset  *int     `json:"offset,omitempty"`
	Report  *report  `json:"report,omitempty"`
	Status  string   `json:"status,omitempty"`

	bundle []byte
}

// args are what a verifier is told besides bundle and keys.
type args struct {
	Unlinked     bool    `json:"unlinked,omitempty"`
	Expect       *string `json:"expect,omitempty"` // the text of the list
	ExpectCount  *int    `json:"expect_count,omitempty"`
	MinIsolation string  `json:"min_isolation,omitempty"`
	State        string  `json:"state,omitempty"` // the text of the state file
}

// A report is what a verifier must have seen in a bundle that it accepts.
type report struct {
	KeyID      string `json:"key_id"`
	Lines      int    `json:"lines"`
	Calls      int    `json:"calls"`
	Unanswered int    `json:"unanswered"`
	Sessions   int    `json:"sessions"`
}

const about = "Bundles, and the verdict that a verifier of the format must give each. " +
	"verdict: verified (exit status 0), refused (1) or error (2: there is no question to answer). " +
	"check and line: where it is refused, line 0 being the bundle as a whole; offset: the byte of the file at which that line starts. " +
	"pub: public key files, all given at once. args: unlinked asks for the older form; expect is the text of the caller's list, " +
	"expect_count the caller's number of calls, min_isolation a tier floor, state the text of a state file. " +
	"report: what the bundle holds. status: nothing for rules of the format, tightening where a verifier of the original format may accept, " +
	"assumption where record version 4 is concerned, own for checks that this project adds. See README.md."

var groups = map[string]string{
	"A": "bundles that verify",
	"B": "bytes of a file that are no lines",
	"C": "session chains and closes",
	"D": "base64",
	"E": "envelopes and statements of records",
	"F": "lines removed, moved or edited by someone without the key",
	"G": "signatures",
	"J": "JSON, also under a good signature",
	"K": "links and checkpoints, signed by the key",
	"L": "the spelling of a line",
	"M": "lines and parts of lines moved, and linked again by the key",
	"N": "numbers",
	"O": "options: tier floor, remembered end, several keys",
	"P": "public keys",
	"S": "stored messages against the signed record",
	"U": "the older form without links",
	"V": "the spelling of version 4 records",
	"W": "stored messages as protobuf",
	"X": "the caller's list",
}

// A pack collects vectors and key files.
type pack struct {
	vectors []*vector
	pubs    map[string][]byte
}

func newPack() *pack { return &pack{pubs: make(map[string][]byte)} }

// harnessPub is the key file of vectors that name no other.
const harnessPub = "harness"

// add adds a vector, to be verified as a linked bundle under the harness's key
// unless the methods of the vector say otherwise.
func (p *pack) add(id, name, what string, bundle []byte) *vector {
	v := &vector{ID: id, Group: id[:1], Name: name, What: what, Verdict: "verified", bundle: bundle}
	v.keys(harnessPub)
	p.vectors = append(p.vectors, v)
	return v
}

// refused says that the check refuses line, 0 being the bundle.
func (v *vector) refused(check string, line int) *vector {
	v.Verdict, v.Check, v.Line = "refused", check, &line
	if line > 0 {
		v.Offset = new(offsetOf(v.bundle, line))
	}
	return v
}

// unusable says that there is no verdict.
func (v *vector) unusable() *vector {
	v.Verdict = "error"
	return v
}

// keys replaces the public key files.
func (v *vector) keys(names ...string) *vector {
	v.Pub = []string{}
	for _, name := range names {
		v.Pub = append(v.Pub, "keys/"+name+".pub")
	}
	return v
}

func (v *vector) unlinked() *vector {
	v.Args.Unlinked = true
	return v
}

func (v *vector) expect(items ...string) *vector {
	text := strings.Join(items, "\n")
	if text != "" {
		text += "\n"
	}
	return v.expectText(text)
}

func (v *vector) expectText(text string) *vector {
	v.Args.Expect = &text
	return v
}

func (v *vector) count(n int) *vector {
	v.Args.ExpectCount = &n
	return v
}

func (v *vector) floor(tier string) *vector {
	v.Args.MinIsolation = tier
	return v
}

func (v *vector) state(lines int, digest, keyID string) *vector {
	v.Args.State = fmt.Sprintf(`{"schema":"plimsoll.verify-state/v1","lines":%d,"digest":"%s","key_id":"%s"}`+"\n", lines, digest, keyID)
	return v
}

func (v *vector) tightening() *vector {
	v.Status = "tightening"
	return v
}

func (v *vector) assumption() *vector {
	v.Status = "assumption"
	return v
}

func (v *vector) own() *vector {
	v.Status = "own"
	return v
}

// offsetOf returns where the line starts.
func offsetOf(bundle []byte, line int) int {
	at := 0
	for range line - 1 {
		lf := bytes.IndexByte(bundle[at:], '\n')
		if lf < 0 {
			panic(fmt.Sprintf("no line %d", line))
		}
		at += lf + 1
	}
	return at
}

// files returns the pack's files, by path below testdata. Vectors with the same
// bytes share a file.
func (p *pack) files() (map[string][]byte, error) {
	files := make(map[string][]byte)
	for name, pub := range p.pubs {
		files["bundles/keys/"+name+".pub"] = pub
	}
	byBytes, ids := make(map[string]string), make(map[string]bool)
	for _, v := range p.vectors {
		if ids[v.ID] || groups[v.Group] == "" {
			return nil, fmt.Errorf("vector %s: repeated, or of no group", v.ID)
		}
		ids[v.ID] = true
		for _, pub := range v.Pub {
			if files["bundles/"+pub] == nil {
				return nil, fmt.Errorf("vector %s: no key file %s", v.ID, pub)
			}
		}
		if v.Verdict == "verified" {
			var err error
			if v.Report, err = look(v.bundle); err != nil {
				return nil, fmt.Errorf("vector %s: %w", v.ID, err)
			}
		}
		file, ok := byBytes[string(v.bundle)]
		if !ok {
			file = "cases/" + v.ID + ".jsonl"
			byBytes[string(v.bundle)] = file
			files["bundles/"+file] = v.bundle
		}
		v.File = file
	}

	text, err := p.manifest()
	if err != nil {
		return nil, err
	}
	files["bundles/manifest.json"] = text
	return files, nil
}

// manifest is the text of the manifest, a vector a line.
func (p *pack) manifest() ([]byte, error) {
	var text bytes.Buffer
	e := encjson.NewEncoder(&text)
	e.SetEscapeHTML(false)
	put := func(name string, value any, end string) error {
		fmt.Fprintf(&text, "%q: ", name)
		err := e.Encode(value)
		text.Truncate(text.Len() - 1)
		text.WriteString(end)
		return err
	}
	text.WriteString("{\n")
	if err := errors.Join(put("schema", schema, ",\n"), put("about", about, ",\n"), put("groups", groups, ",\n")); err != nil {
		return nil, err
	}
	text.WriteString(`"vectors": [`)
	for i, v := range p.vectors {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('\n')
		if err := e.Encode(v); err != nil {
			return nil, err
		}
		text.Truncate(text.Len() - 1)
	}
	text.WriteString("\n]\n}\n")
	return text.Bytes(), nil
}

// look counts what a good bundle holds, by the members of its lines.
func look(bundle []byte) (*report, error) {
	r := new(report)
	for _, raw := range bundletest.Lines(bundle) {
		var line struct {
			Request, Response string
			Envelope, Link    *struct{ Signatures []struct{ KeyID string } }
		}
		if err := encjson.Unmarshal(raw, &line); err != nil {
			return nil, err
		}
		r.Lines++
		switch {
		case line.Request != "":
			r.Calls++
			if line.Response == "" {
				r.Unanswered++
			}
		case line.Envelope != nil:
			r.Sessions++
		}
		signed := line.Link
		if signed == nil {
			signed = line.Envelope
		}
		r.KeyID = signed.Signatures[0].KeyID
	}
	return r, nil
}
