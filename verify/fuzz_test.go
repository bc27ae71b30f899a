package verify_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// FuzzBundle changes bundles and looks at what verifies. bundle is taken as it
// is when edits is empty; else it is edited inside its lines and base64, and
// linked again by the key, so that more than the first check of a line is
// reached. Whatever verifies must verify by a second implementation, which is
// written here with encoding/json and shares nothing with the packages.
func FuzzBundle(f *testing.F) {
	s := bundletest.NewSession("s")
	call := bundletest.JavaScript("a", "1", "")
	call.Request.MinimumIsolation, call.Record.Environment, call.Record.Policy = "", "", ""
	single := call.Seal().Entry()
	session := []bundletest.Entry{
		s.Add(bundletest.Cell("c").Version(4)).Entry(),
		s.Add(bundletest.JavaScript("u", "1", "").Version(4).Unanswered("internal")).Entry(),
		s.Close(),
	}
	for _, bundle := range [][]byte{
		nil, []byte("{}\n"), bundletest.Linked(bundletest.Harness), bundletest.Linked(bundletest.Harness, bundletest.Checkpoint),
		bundletest.Linked(bundletest.Harness, single), bundletest.Linked(bundletest.Harness, session...),
		bundletest.Linked(bundletest.Stranger, single),
	} {
		f.Add(bundle, []byte(nil), false)
		f.Add(bundle, []byte{0, 0, 0, 0, 0, 1}, false)
		f.Add(bundle, []byte{0, 2, 0, 100, 1, ' ', 1, 3, 0, 7, 0, 0}, false)
	}
	f.Add(bundletest.Unlinked(bundletest.Harness, bundletest.Project("p").Version(1).Entry()), []byte(nil), true)
	f.Add(bundletest.Unlinked(bundletest.Harness, session[2]), []byte{0, 2, 0, 200, 2, '0'}, true)

	f.Fuzz(func(t *testing.T, bundle, edits []byte, unlinked bool) {
		if len(edits) > 0 {
			bundle = edit(bundle, edits, unlinked)
		}
		opts := verify.Options{
			Keys:     []*envelope.PublicKey{bundletest.Harness.Public, bundletest.Stranger.Public},
			Unlinked: unlinked,
			Workers:  1 + len(edits)%3,
		}
		calls := 0
		opts.Entry = func(e verify.Entry) error {
			if e.Call != nil {
				calls++
			}
			return nil
		}
		report, err := verify.Bundle(t.Context(), bytes.NewReader(bundle), opts)
		if err != nil {
			var refused *verify.Refusal
			if report != nil || !errors.As(err, &refused) {
				t.Fatalf("report %v and error %v, want a refusal", report, err)
			}
			if refused.Offset < 0 || refused.Offset > int64(len(bundle)) {
				t.Fatalf("offset %d in a bundle of %d bytes", refused.Offset, len(bundle))
			}
			return
		}
		if report.Calls != uint64(calls) || report.Bytes != int64(len(bundle)) {
			t.Fatalf("report %+v of %d calls and %d bytes", *report, calls, len(bundle))
		}
		if err := verifyAgain(bundle, unlinked, report); err != nil {
			t.Fatalf("verified, and yet %v:\n%s", err, bundle)
		}
	})
}

// edit applies edits of six bytes: which line; which part of it (0 to 2 request,
// response and statement, 3 the link's statement, 4 and 5 the envelope's and
// the link's key ID); where, in two bytes; what (replace, insert, remove); and a
// byte for it. What was edited is signed again by the harness, and links follow.
func edit(bundle, edits []byte, unlinked bool) []byte {
	w := bundletest.NewWriter(bundletest.Harness)
	for n, raw := range bundletest.Lines(bundle) {
		parsed, err := chain.ParseLine(raw)
		if err != nil {
			w.Raw(raw)
			continue
		}
		line := parsed.Line
		linkEdited := false
		if !unlinked {
			line.Link = nil
			right := w.LinkFor(&line)
			line.Link, _ = bundletest.Harness.Sign(linkPayload(right.Index, right.PreviousSHA256, right.EntrySHA256, right.Checkpoint, right.Lines))
		}
		for e := range slices.Chunk(edits, 6) {
			if len(e) < 6 || int(e[0])%8 != n {
				continue
			}
			at := int(binary.BigEndian.Uint16(e[2:]))
			switch e[1] % 6 {
			case 0:
				line.Request = editBytes(line.Request, at, e[4], e[5])
			case 1:
				line.Response = editBytes(line.Response, at, e[4], e[5])
			case 2:
				line.Envelope = editEnvelope(line.Envelope, at, e[4], e[5])
			case 3:
				line.Link, linkEdited = editEnvelope(line.Link, at, e[4], e[5]), true
			case 4:
				editKeyID(line.Envelope, at, e[4], e[5])
			case 5:
				editKeyID(line.Link, at, e[4], e[5])
				linkEdited = true
			}
		}
		if !unlinked && !linkEdited {
			line.Link = nil // made anew for what the entry is now
			w.Line(line)
			continue
		}
		w.Raw(chain.AppendLine(nil, &line))
	}
	return w.Bundle()
}

func linkPayload(index uint64, previous, entry string, checkpoint bool, lines uint64) []byte {
	about, rest := entry, `,"entry_sha256":"`+entry+`"`
	if checkpoint {
		about, rest = previous, `,"checkpoint":true`
		if lines > 0 {
			rest += `,"lines":` + strconv.FormatUint(lines, 10)
		}
	}
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"bundle-line","digest":{"sha256":"%s"}}],`+
		`"predicateType":"https://plimsollmark.github.io/plimsoll/bundle-link/v1","predicate":{"index":%d,"previous_sha256":"%s"%s}}`,
		about, index, previous, rest)
}

func editBytes(b []byte, at int, what, value byte) []byte {
	b = bytes.Clone(b)
	at %= len(b) + 1
	switch {
	case what%3 == 0 && at < len(b):
		b[at] = value
	case what%3 == 1:
		b = slices.Insert(b, at, value)
	case what%3 == 2 && at < len(b):
		b = slices.Delete(b, at, at+1)
	}
	return b
}

func editEnvelope(e *dsse.Envelope, at int, what, value byte) *dsse.Envelope {
	if e == nil {
		return nil
	}
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil {
		return e
	}
	return bundletest.Harness.Envelope(editBytes(payload, at, what, value))
}

func editKeyID(e *dsse.Envelope, at int, what, value byte) {
	if e != nil && len(e.Signatures) > 0 {
		e.Signatures[0].KeyID = string(editBytes([]byte(e.Signatures[0].KeyID), at, what, value))
	}
}

// The second implementation. It asks much less than the format does: that each
// envelope is signed, what links say of lines, and what records say of
// themselves and of each other.

type looseEnvelope struct {
	PayloadType string
	Payload     []byte
	Signatures  []struct {
		KeyID string
		Sig   []byte
	}
}

type looseStatement[P any] struct {
	Type    string `json:"_type"`
	Subject []struct {
		Name   string
		Digest map[string]string
	}
	PredicateType string
	Predicate     P
}

type looseLink struct {
	Index          uint64
	PreviousSHA256 string `json:"previous_sha256"`
	EntrySHA256    string `json:"entry_sha256"`
	Checkpoint     bool
	Lines          uint64
}

type looseClose struct {
	Session          string
	Calls            uint64
	LastRecordSHA256 string `json:"last_record_sha256"`
}

func verifyAgain(bundle []byte, unlinked bool, report *verify.Report) error {
	var public ed25519.PublicKey
	for _, k := range []*bundletest.Key{bundletest.Harness, bundletest.Stranger} {
		raw := k.Private.Public().(ed25519.PublicKey)
		der := append([]byte("\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"), raw...)
		if hexSHA256(der) == report.KeyID {
			public = raw
		}
	}
	if public == nil {
		return fmt.Errorf("no key %s was given", report.KeyID)
	}
	text, whole := bytes.CutSuffix(bundle, []byte("\n"))
	if !whole {
		return errors.New("the last line has no LF")
	}
	last, lastCheckpoint := "", false
	sessions := make(map[string]*looseClose) // what a close must say; Session is empty after one
	for n, line := range bytes.Split(text, []byte("\n")) {
		var l struct {
			Request, Response []byte
			Envelope, Link    *looseEnvelope
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		lastCheckpoint = false
		if !unlinked {
			link, err := checkLink(public, l.Link, line, uint64(n+1), last)
			if err != nil {
				return fmt.Errorf("line %d: link: %w", n+1, err)
			}
			lastCheckpoint = link.Checkpoint
		} else if l.Link != nil {
			return fmt.Errorf("line %d: a link", n+1)
		}
		last = hexSHA256(line)
		if lastCheckpoint {
			if l.Request != nil || l.Response != nil || l.Envelope != nil {
				return fmt.Errorf("line %d: a checkpoint with an entry", n+1)
			}
			continue
		}
		if err := checkEntry(public, l.Envelope, sessions); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	for name, s := range sessions {
		if s.Session != "" {
			return fmt.Errorf("session %s is open", name)
		}
	}
	if !unlinked && !lastCheckpoint {
		return errors.New("the last line is no checkpoint")
	}
	return nil
}

// open returns the payload that public signed.
func open(public ed25519.PublicKey, e *looseEnvelope) ([]byte, error) {
	if e == nil {
		return nil, errors.New("no envelope")
	}
	pae := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
	if len(e.Signatures) != 1 || !ed25519.Verify(public, pae, e.Signatures[0].Sig) {
		return nil, errors.New("not one signature by the key")
	}
	return e.Payload, nil
}

func checkLink(public ed25519.PublicKey, e *looseEnvelope, line []byte, index uint64, last string) (looseLink, error) {
	payload, err := open(public, e)
	if err != nil {
		return looseLink{}, err
	}
	var s looseStatement[looseLink]
	if err := json.Unmarshal(payload, &s); err != nil {
		return looseLink{}, err
	}
	// The entry is the text before the line's last member. Signatures cannot
	// hold this text: a quote in a string is escaped.
	at := bytes.LastIndex(line, []byte(`"link":{"payloadType"`))
	if at < 0 {
		return looseLink{}, errors.New("the link is not found in the text")
	}
	entry := append(bytes.TrimSuffix(bytes.Clone(line[:at]), []byte(",")), '}')
	link := s.Predicate
	about := link.EntrySHA256
	if link.Checkpoint {
		about = link.PreviousSHA256
	}
	switch {
	case s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://plimsollmark.github.io/plimsoll/bundle-link/v1":
		return link, errors.New("not a link's statement")
	case len(s.Subject) != 1 || s.Subject[0].Name != "bundle-line" || s.Subject[0].Digest["sha256"] != about:
		return link, errors.New("another subject")
	case link.Index != index || link.PreviousSHA256 != last:
		return link, errors.New("another place")
	case link.Checkpoint && (string(entry) != "{}" || link.Lines != index-1 || link.EntrySHA256 != ""):
		return link, errors.New("not a checkpoint")
	case !link.Checkpoint && (link.EntrySHA256 != hexSHA256(entry) || link.Lines != 0):
		return link, errors.New("another entry")
	}
	return link, nil
}

func checkEntry(public ed25519.PublicKey, e *looseEnvelope, sessions map[string]*looseClose) error {
	payload, err := open(public, e)
	if err != nil {
		return err
	}
	var s looseStatement[json.RawMessage]
	if err := json.Unmarshal(payload, &s); err != nil {
		return err
	}
	if s.Type != "https://in-toto.io/Statement/v1" || len(s.Subject) != 1 {
		return errors.New("not a statement of the format")
	}
	about := s.Subject[0].Digest["sha256"]
	switch s.PredicateType {
	case "https://plimsollmark.github.io/plimsoll/session-close/v1":
		var c looseClose
		if err := json.Unmarshal(s.Predicate, &c); err != nil {
			return err
		}
		seen := sessions[c.Session]
		if seen == nil {
			seen = &looseClose{Session: c.Session}
			sessions[c.Session] = seen
		} else if seen.Session == "" && c.Session != "" {
			return errors.New("a second close")
		}
		if about != c.Session || *seen != c {
			return fmt.Errorf("close %+v of %+v", c, *seen)
		}
		seen.Session = ""
		return nil
	case "https://plimsollmark.github.io/plimsoll/run-record/v1":
		return checkRecord(s.Predicate, about, sessions)
	}
	return errors.New("another predicate type")
}

// checkRecord digests a record as the format says and looks at its place in its
// session.
func checkRecord(predicate []byte, about string, sessions map[string]*looseClose) error {
	d := json.NewDecoder(bytes.NewReader(predicate))
	d.UseNumber()
	r := make(map[string]any)
	if err := d.Decode(&r); err != nil {
		return err
	}
	text := func(name string) string {
		if r[name] == nil {
			return ""
		}
		return fmt.Sprint(r[name])
	}
	version := text("version")
	fields := []string{"request_sha256", "result_sha256"}
	if version >= "3" {
		fields = append(fields, "unanswered")
	}
	fields = append(fields, "provider", "isolation", "environment", "policy")
	if version >= "2" {
		fields = append(fields, "software_identity", "software_rule_id")
	}
	if version >= "4" {
		fields = append(fields, "instance")
	}
	fields = append(fields, "started_unix_ms", "ended_unix_ms", "session", "sequence", "previous_sha256")
	var digested []byte
	value := func(s string) {
		digested = append(binary.BigEndian.AppendUint64(digested, uint64(len(s))), s...)
	}
	value("plimsoll.run-record.v" + version)
	for _, name := range fields {
		value(name)
		value(text(name))
	}
	digest := hexSHA256(digested)
	if text("record_sha256") != digest || about != digest {
		return fmt.Errorf("the record's digest is %s", digest)
	}
	if text("session") == "" {
		if text("sequence") != "0" || text("previous_sha256") != "" {
			return errors.New("a single run with a place in a session")
		}
		return nil
	}
	seen := sessions[text("session")]
	if seen == nil {
		seen = &looseClose{Session: text("session")}
		sessions[seen.Session] = seen
	}
	if seen.Session == "" || text("sequence") != strconv.FormatUint(seen.Calls+1, 10) || text("previous_sha256") != seen.LastRecordSHA256 {
		return fmt.Errorf("a call out of its place: %s after %+v", predicate, *seen)
	}
	seen.Calls, seen.LastRecordSHA256 = seen.Calls+1, digest
	return nil
}

func hexSHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestSecondImplementation gives the second implementation the bundles of the
// pack that verify, so that the fuzz target's property is known to hold for more
// than what fuzzing comes to.
func TestSecondImplementation(t *testing.T) {
	vectors, files := readPack(t)
	checked := 0
	for _, v := range vectors {
		if v.Verdict != "verified" || v.Report.KeyID != bundletest.Harness.ID() {
			continue
		}
		report := &verify.Report{KeyID: v.Report.KeyID}
		if err := verifyAgain(files[v.File], v.Args.Unlinked, report); err != nil {
			t.Errorf("%s: %v", v.ID, err)
		}
		checked++
	}
	if checked < 60 {
		t.Errorf("%d bundles", checked)
	}
}
