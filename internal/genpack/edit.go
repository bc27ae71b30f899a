package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
)

type (
	entry = bundletest.Entry
	call  = bundletest.Call
)

var (
	harness  = bundletest.Harness
	stranger = bundletest.Stranger
)

// policy is that of snippet. It is short, as the pack holds a thousand of it.
const policy = "openshell-policy:sha256:cd"

// snippet is the smallest call: no floor and an environment that is not stated.
func snippet(traceID, code string) *call {
	c := bundletest.JavaScript(traceID, code, "1\n")
	c.Request.MinimumIsolation, c.Record.Environment, c.Record.Policy = "", "", policy
	return c.Seal()
}

// abc are three single runs.
func abc() []entry {
	return []entry{snippet("a", "a()").Entry(), snippet("b", "b()").Entry(), snippet("c", "c()").Entry()}
}

// session3 is a session of three calls and its close.
func session3() []entry {
	s := bundletest.NewSession("s")
	return []entry{
		s.Add(snippet("one", "one()")).Entry(),
		s.Add(snippet("two", "two()")).Entry(),
		s.Add(snippet("three", "three()")).Entry(),
		s.Close(),
	}
}

// linked is a linked bundle of the entries, and Of a checkpoint.
func linked(entries ...entry) []byte { return bundletest.Linked(harness, entries...) }

// resumed is a bundle of two runs.
func resumed() []byte {
	e := abc()
	return bundletest.Extend(harness, linked(e[0], e[1]), e[2], bundletest.Checkpoint)
}

// sealed is a bundle of one call as it is.
func sealed(c *call) []byte { return linked(c.Entry()) }

// pick returns the entries with these numbers, from 1.
func pick(entries []entry, numbers ...int) []entry {
	var picked []entry
	for _, n := range numbers {
		picked = append(picked, entries[n-1])
	}
	return picked
}

// once replaces the one occurrence of old in s.
func once[T ~string | ~[]byte](s T, old, text string) T {
	if n := strings.Count(string(s), old); n != 1 {
		panic(fmt.Sprintf("%q occurs %d times in %q", old, n, string(s)))
	}
	return T(strings.Replace(string(s), old, text, 1))
}

// first replaces the first occurrence of old in s.
func first[T ~string | ~[]byte](s T, old, text string) T {
	if !strings.Contains(string(s), old) {
		panic(fmt.Sprintf("no %q in %q", old, string(s)))
	}
	return T(strings.Replace(string(s), old, text, 1))
}

// payloadOf is the record statement of the call, with edits: pairs of what is
// there once and what to put in its place.
func payloadOf(c *call, edits ...string) []byte {
	payload := statement.AppendRecord(nil, c.Record)
	for i := 0; i < len(edits); i += 2 {
		payload = once(payload, edits[i], edits[i+1])
	}
	return payload
}

// stating is a bundle of one call whose signed statement is payload.
func stating(c *call, payload []byte) []byte {
	e := c.Entry()
	e.Payload = payload
	return linked(e)
}

// edited is a bundle of one snippet whose statement was edited, then signed.
func edited(edits ...string) []byte {
	c := snippet("a", "a()")
	return stating(c, payloadOf(c, edits...))
}

// enveloped is a bundle of one call with an envelope of any kind.
func enveloped(c *call, envelope *dsse.Envelope) []byte {
	e := c.Entry()
	w := bundletest.NewWriter(harness)
	w.Line(chain.Line{Request: e.Request, Response: e.Response, Envelope: envelope})
	w.Entry(bundletest.Checkpoint)
	return w.Bundle()
}

// reEnveloped is a bundle of one snippet whose good envelope was changed.
func reEnveloped(change func(e *dsse.Envelope)) []byte {
	c := snippet("a", "a()")
	envelope := harness.Envelope(payloadOf(c))
	change(envelope)
	return enveloped(c, envelope)
}

// withLink is a bundle of the entries and a checkpoint in which line at has
// another link than the right one. The lines after it follow it.
func withLink(at int, entries []entry, link func(right statement.Link) *dsse.Envelope) []byte {
	w := bundletest.NewWriter(harness)
	for i, e := range append(slices.Clone(entries), bundletest.Checkpoint) {
		l := chain.Line{Request: e.Request, Response: e.Response}
		if e.Payload != nil {
			l.Envelope = harness.Envelope(e.Payload)
		}
		if i+1 == at {
			l.Link = link(w.LinkFor(&l))
		}
		w.Line(l)
	}
	return w.Bundle()
}

// withLinkPayload is withLink for another payload, signed.
func withLinkPayload(at int, entries []entry, payload func(right statement.Link) []byte) []byte {
	return withLink(at, entries, func(right statement.Link) *dsse.Envelope {
		return harness.Envelope(payload(right))
	})
}

// editor edits the payload of a link: pairs of what is there once and what to
// put in its place.
func editor(edits ...string) func(right statement.Link) []byte {
	return func(right statement.Link) []byte {
		payload := statement.AppendLink(nil, right)
		for i := 0; i < len(edits); i += 2 {
			payload = once(payload, edits[i], edits[i+1])
		}
		return payload
	}
}

// editedLink is a bundle of two calls with edits of line 2's link.
func editedLink(edits ...string) []byte { return withLinkPayload(2, abc()[:2], editor(edits...)) }

// editedCheckpoint is editedLink for the checkpoint, line 3.
func editedCheckpoint(edits ...string) []byte { return withLinkPayload(3, abc()[:2], editor(edits...)) }

// changedLink is withLink for a link of line 2 over two calls that is signed,
// and then changed.
func changedLink(change func(e *dsse.Envelope)) []byte {
	return withLink(2, abc()[:2], func(right statement.Link) *dsse.Envelope {
		e := harness.Envelope(statement.AppendLink(nil, right))
		change(e)
		return e
	})
}

// editLine changes the text of one line and nothing else.
func editLine(bundle []byte, number int, edit func(line string) string) []byte {
	all := bundletest.Lines(bundle)
	all[number-1] = []byte(edit(string(all[number-1])))
	return bundletest.Join(all...)
}

// editParsed changes the content of one line, its link kept.
func editParsed(bundle []byte, number int, edit func(l *chain.Line)) []byte {
	return editLine(bundle, number, func(text string) string {
		l := parse([]byte(text))
		edit(l)
		return string(chain.AppendLine(nil, l))
	})
}

func parse(raw []byte) *chain.Line {
	parsed, err := chain.ParseLine(raw)
	if err != nil {
		panic(err)
	}
	return &parsed.Line
}

// order is the bundle with its lines in another order, some left out or again.
func order(bundle []byte, numbers ...int) []byte {
	all := bundletest.Lines(bundle)
	var chosen [][]byte
	for _, n := range numbers {
		chosen = append(chosen, all[n-1])
	}
	return bundletest.Join(chosen...)
}

// flip changes the first bit of the signature's first byte.
func flip(e *dsse.Envelope) {
	sig := sigOf(e)
	sig[0] ^= 1
	setSig(e, sig)
}

func sigOf(e *dsse.Envelope) []byte {
	sig, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	if err != nil {
		panic(err)
	}
	return sig
}

func setSig(e *dsse.Envelope, sig []byte) {
	e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(sig)
}

// member is the JSON text of a line's member request or response.
func member(line, name string) string {
	_, rest, ok := strings.Cut(line, `"`+name+`":`)
	if !ok {
		panic("no member " + name)
	}
	end := strings.IndexByte(rest[1:], '"')
	return `"` + name + `":` + rest[:end+2]
}

// rule is a software rule of a mode.
func rule(mode string, identities ...string) *record.SoftwareRule {
	return &record.SoftwareRule{Mode: mode, Identities: identities}
}

// replaceBytes is bytes.Replace of the one occurrence.
func replaceBytes(b, old, text []byte) []byte {
	if bytes.Count(b, old) != 1 {
		panic("not once")
	}
	return bytes.Replace(b, old, text, 1)
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// stray sets the unused bits of padded base64.
func stray(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	end := len(strings.TrimRight(s, "="))
	if end == len(s) {
		panic("no unused bits")
	}
	last := strings.IndexByte(alphabet, s[end-1])
	return s[:end-1] + string(alphabet[last|1]) + s[end:]
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// doubles are the eight bytes of each value as protobuf has them.
func doubles(values ...float64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// reLinked is the bundle with every link changed after it was signed. Each link
// follows the line before as it then is.
func reLinked(bundle []byte, change func(e *dsse.Envelope)) []byte {
	w := bundletest.NewWriter(harness)
	for _, raw := range bundletest.Lines(bundle) {
		l := parse(raw)
		l.Link = nil
		l.Link = harness.Envelope(statement.AppendLink(nil, w.LinkFor(l)))
		change(l.Link)
		w.Line(*l)
	}
	return w.Bundle()
}

// rawEntry is a bundle of one line whose entry is any text, linked and sealed
// by the key.
func rawEntry(text string) []byte {
	w := bundletest.NewWriter(harness)
	w.RawEntry([]byte(text))
	w.Entry(bundletest.Checkpoint)
	return w.Bundle()
}

// entryText is the text of a snippet's line without its link.
func entryText() string {
	e := snippet("a", "a()").Entry()
	return string(chain.AppendLine(nil, &chain.Line{Request: e.Request, Response: e.Response, Envelope: harness.Envelope(e.Payload)}))
}
