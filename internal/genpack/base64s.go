package main

import (
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// base64s is group D: base64 that has another spelling than the one of its
// bytes. In a stored message the line is refused; in an envelope, whose base64
// is text to a line, the envelope is.
func base64s(p *pack) {
	spellings := []struct {
		name string
		of   func(s string) string
	}{
		{"a line break", func(s string) string { return s[:8] + "\n" + s[8:] }},
		{"a carriage return", func(s string) string { return s[:8] + "\r" + s[8:] }},
		{"a space at the end", func(s string) string { return s + " " }},
		{"no padding", func(s string) string { return strings.TrimRight(s, "=") }},
		{"a padding character more", func(s string) string { return s + "=" }},
		{"stray bits", stray},
		{"padding in the middle", func(s string) string { return s[:4] + "====" + s[4:] }},
		{"the URL-safe alphabet", func(s string) string { return strings.NewReplacer("+", "-", "/", "_").Replace(s) }},
		{"a character of no alphabet", func(s string) string { return s[:8] + "!" + s[9:] }},
		{"a length that no bytes have", func(s string) string { return strings.TrimRight(s, "=")[:len(s)/4*4-3] }},
	}
	n := 0
	add := func(name string, bundle []byte, check string) {
		n++
		p.add("D"+number(n), name, "", bundle).refused(check, 1)
	}

	// A request whose base64 has padding and characters of both alphabets. The
	// links are made for the text as it stands.
	c := snippet("aa", "???>>>~~~")
	entry := c.Entry()
	text := string(bundletest.Lines(bundletest.Unlinked(harness, entry))[0])
	request := b64(entry.Request)
	if !strings.ContainsAny(request, "+/") || !strings.HasSuffix(request, "=") {
		panic("the request serves no case: " + request)
	}
	for _, s := range spellings {
		add("a stored request with "+s.name, rawEntry(once(text, `"`+request+`"`, `"`+escapeBreaks(s.of(request))+`"`)), "line")
	}
	for _, s := range spellings {
		add("a record's payload with "+s.name, respelled(padded(), func(e *dsse.Envelope) { e.Payload = changed(s.name, e.Payload, s.of) }), "statement")
	}
	for _, s := range spellings {
		add("a record's signature with "+s.name, respelled(padded(), func(e *dsse.Envelope) {
			e.Signatures[0].Sig = changed(s.name, e.Signatures[0].Sig, s.of)
		}), "signature")
	}
	for _, s := range spellings {
		addLink(p, &n, "a link's payload with "+s.name, "statement", func(e *dsse.Envelope) *string { return &e.Payload }, s.of)
	}
	for _, s := range spellings {
		addLink(p, &n, "a link's signature with "+s.name, "signature", func(e *dsse.Envelope) *string { return &e.Signatures[0].Sig }, s.of)
	}
}

// addLink adds a vector for the first link of a small bundle that the spelling
// changes; no vector when there is none, as there is no link whose payload the
// URL-safe alphabet writes otherwise.
func addLink(p *pack, n *int, name, check string, field func(e *dsse.Envelope) *string, of func(string) string) {
	for line := 1; line <= 2; line++ {
		found := false
		bundle := withLink(line, []entry{bundletest.Checkpoint}, func(right statement.Link) *dsse.Envelope {
			e := harness.Envelope(statement.AppendLink(nil, right))
			text := field(e)
			if padded := strings.HasSuffix(*text, "="); !padded && strings.Contains(name, "bits") {
				return e
			}
			other := of(*text)
			found = other != *text
			*text = other
			return e
		})
		if found {
			*n++
			p.add("D"+number(*n), name, "", bundle).refused(check, line)
			return
		}
	}
}

func escapeBreaks(s string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(s)
}

// changed is s spelled otherwise. A spelling that is no other would be a good
// bundle.
func changed(name, s string, of func(string) string) string {
	other := of(s)
	if other == s {
		panic("no other spelling: " + name)
	}
	return other
}

// padded is a call whose statement's base64 has unused bits, and a character
// that the URL-safe alphabet writes otherwise.
func padded() *call {
	for n := range 8 {
		c := snippet("a", "a()")
		c.Record.Provider = "??>>~~"[n%4:] + strings.Repeat("?", n/2)
		c.Seal()
		s := b64(payloadOf(c))
		if strings.HasSuffix(s, "=") && strings.ContainsAny(s, "+/") {
			return c
		}
	}
	panic("no such call")
}

// respelled is a bundle of one call whose envelope was changed after signing.
func respelled(c *call, change func(e *dsse.Envelope)) []byte {
	envelope := harness.Envelope(payloadOf(c))
	change(envelope)
	return enveloped(c, envelope)
}
