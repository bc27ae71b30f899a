package main

import (
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// links is group K: two calls and a checkpoint, the link of line 2 or 3 signed
// again.
func links(p *pack) {
	ab := abc()[:2]
	with := func(at int, edit func(l *statement.Link)) []byte {
		return withLinkPayload(at, ab, func(right statement.Link) []byte {
			edit(&right)
			return statement.AppendLink(nil, right)
		})
	}
	good := linked(ab...)
	line1, line2 := parsed(good, 1), parsed(good, 2)

	p.add("K01", "a link at another place", "index 3 on line 2", with(2, func(l *statement.Link) { l.Index = 3 })).refused("link", 2)
	p.add("K02", "a link after another line", "previous_sha256 of line 2 is the digest of its own entry",
		with(2, func(l *statement.Link) { l.PreviousSHA256 = line2.EntryDigest })).refused("link", 2)
	p.add("K03", "a link of another entry", "line 2 with entry and subject of line 1", with(2, func(l *statement.Link) { l.EntrySHA256 = line1.EntryDigest })).refused("link", 2)
	p.add("K04", "a link whose subject is another entry", "", withLinkPayload(2, ab, func(right statement.Link) []byte {
		return swapFirst(statement.AppendLink(nil, right), right.EntrySHA256, line1.EntryDigest)
	})).refused("statement", 2)
	p.add("K05", "a checkpoint that counts wrong", "lines 1 on line 3", with(3, func(l *statement.Link) { l.Lines = 1 })).refused("link", 3)
	p.add("K06", "a checkpoint that names an entry", "", with(3, func(l *statement.Link) { l.EntrySHA256 = line1.EntryDigest })).refused("link", 3)
	p.add("K07", "an entry's link that counts lines", "lines 1", with(2, func(l *statement.Link) { l.Lines = 1 })).refused("link", 2)
	p.add("K08", "a record's statement for a link", "line 2's own record", withLink(2, ab, func(statement.Link) *dsse.Envelope {
		return harness.Envelope(ab[1].Payload)
	})).refused("statement", 2)
	p.add("K09", "another type of statement", "v0.1", editedLink("Statement/v1", "Statement/v0.1")).refused("statement", 2)
	p.add("K10", "another subject name", "line", editedLink(`"name":"bundle-line"`, `"name":"line"`)).refused("statement", 2)
	p.add("K11", "a second subject", "", editedLink(`}}],"predicateType"`, `}},{"name":"more","digest":{"sha256":""}}],"predicateType"`)).refused("statement", 2)
	p.add("K12", "a second digest in the subject", "sha512", editedLink(`"}}],`, `","sha512":""}}],`)).refused("statement", 2)
	p.add("K13", "another payload type", "application/json, signed so", withLink(2, ab, func(right statement.Link) *dsse.Envelope {
		return harness.EnvelopeOfType("application/json", statement.AppendLink(nil, right))
	})).refused("statement", 2)
	p.add("K14", "an unknown member", "note in the predicate", editedLink(`"predicate":{`, `"predicate":{"note":"",`)).refused("statement", 2)
	p.add("K15", "a link's signature that names no key", "", changedLink(func(e *dsse.Envelope) { e.Signatures[0].KeyID = "" })).refused("statement", 2)
	p.add("K16", "a link signed twice", "the same signature", changedLink(func(e *dsse.Envelope) { e.Signatures = append(e.Signatures, e.Signatures[0]) })).refused("statement", 2)
	p.add("K17", "a checkpoint with a request", "", requestOnCheckpoint(ab)).refused("link", 3)
	p.add("K18", "an index that is no integer", "2.0", editedLink(`"index":2`, `"index":2.0`)).refused("statement", 2)
	p.add("K19", "an index past 64 bits", "18446744073709551618, which is 2 in 64 bits", editedLink(`"index":2`, `"index":18446744073709551618`)).refused("statement", 2)
	p.add("K20", "white space in a link's statement", "after a colon", editedLink(`"index":2`, `"index": 2`)).refused("statement", 2).tightening()
	p.add("K21", "text after a link's statement", "a second object", withLinkPayload(2, ab, func(right statement.Link) []byte {
		return append(statement.AppendLink(nil, right), `{"index":3}`...)
	})).refused("statement", 2).tightening()
	p.add("K22", "a repeated name in a link's statement", "index", editedLink(`"index":2`, `"index":2,"index":2`)).refused("statement", 2).tightening()
	p.add("K23", "a name in another case in a link's statement", "Index", editedLink(`"index":2`, `"Index":2`)).refused("statement", 2).tightening()
	p.add("K24", "a link alone on its line that is no checkpoint", "the entry is {}", emptyEntry(ab)).refused("statement", 2)
	other := linked(snippet("z", "z()").Entry(), ab[1])
	p.add("K25", "a line of another bundle by the same key", "line 2 after another line 1", splice(good, other, 2)).refused("link", 2)
	p.add("K26", "the checkpoint of another bundle by the same key", "of three lines too", splice(good, other, 3)).refused("link", 3)
	p.add("K27", "the first of two checkpoints moved up", "a line early", order(resumed(), 1, 3, 2, 4, 5)).refused("link", 2)
	p.add("K28", "a resumed bundle without its last checkpoint", "", order(resumed(), 1, 2, 3, 4)).refused("incomplete", 0)

	// Beyond the tables of the format.
	p.add("K29", "an entry's link with checkpoint false", "left out when false", withLinkPayload(2, ab, func(right statement.Link) []byte {
		text := statement.AppendLink(nil, right)
		return append(text[:len(text)-2], `,"checkpoint":false}}`...)
	})).refused("statement", 2).tightening()
	p.add("K30", "an entry's link with lines 0", "left out when 0", withLinkPayload(2, ab, func(right statement.Link) []byte {
		text := statement.AppendLink(nil, right)
		return append(text[:len(text)-2], `,"lines":0}}`...)
	})).refused("statement", 2).tightening()
	p.add("K31", "a checkpoint with an empty entry_sha256", "left out when empty", editedCheckpoint(`,"checkpoint":true`, `,"entry_sha256":"","checkpoint":true`)).refused("statement", 3).tightening()
	p.add("K32", "a first checkpoint with lines 0, written", "left out when 0", withLinkPayload(1, nil, func(right statement.Link) []byte {
		text := statement.AppendLink(nil, right)
		return append(text[:len(text)-2], `,"lines":0}}`...)
	})).refused("statement", 1).tightening()
	p.add("K33", "a checkpoint that claims to be an entry's link", "no checkpoint, no lines, no entry_sha256", editedCheckpoint(`,"checkpoint":true,"lines":2`, "")).refused("statement", 3)
	p.add("K34", "a checkpoint's link on an entry", "", with(2, func(l *statement.Link) { l.EntrySHA256, l.Checkpoint, l.Lines = "", true, 1 })).refused("link", 2)
	p.add("K35", "index 0", "", with(2, func(l *statement.Link) { l.Index = 0 })).refused("link", 2)
	p.add("K36", "a link that counts from 0", "index 1 on line 2", with(2, func(l *statement.Link) { l.Index = 1 })).refused("link", 2)
	p.add("K37", "a first line that names a line before it", "", withLinkPayload(1, ab, func(right statement.Link) []byte {
		right.PreviousSHA256 = line2.Digest
		return statement.AppendLink(nil, right)
	})).refused("link", 1)
	p.add("K38", "a later line that names no line before it", "", with(2, func(l *statement.Link) { l.PreviousSHA256 = "" })).refused("link", 2)
	p.add("K39", "previous_sha256 in capitals", "", with(2, func(l *statement.Link) { l.PreviousSHA256 = upper(l.PreviousSHA256) })).refused("link", 2)
	p.add("K40", "a checkpoint whose subject is empty", "not the line before", withLinkPayload(3, ab, func(right statement.Link) []byte {
		return swapFirst(statement.AppendLink(nil, right), right.PreviousSHA256, "")
	})).refused("statement", 3)
	p.add("K41", "a checkpoint that counts itself", "lines 3 on line 3", with(3, func(l *statement.Link) { l.Lines = 3 })).refused("link", 3)
	p.add("K42", "a checkpoint without lines", "", with(3, func(l *statement.Link) { l.Lines = 0 })).refused("link", 3)
}

func parsed(bundle []byte, number int) *chain.ParsedLine {
	l, err := chain.ParseLine(bundletest.Lines(bundle)[number-1])
	if err != nil {
		panic(err)
	}
	return l
}

// splice is the bundle with one line of another.
func splice(bundle, other []byte, number int) []byte {
	all := bundletest.Lines(bundle)
	all[number-1] = bundletest.Lines(other)[number-1]
	return bundletest.Join(all...)
}

func requestOnCheckpoint(entries []entry) []byte {
	w := bundletest.NewWriter(harness)
	for _, e := range entries {
		w.Entry(e)
	}
	right := w.LinkFor(&chain.Line{})
	w.Line(chain.Line{Request: entries[0].Request, Link: harness.Envelope(statement.AppendLink(nil, right))})
	return w.Bundle()
}

func emptyEntry(entries []entry) []byte {
	w := bundletest.NewWriter(harness)
	w.Entry(entries[0])
	at := w.At()
	w.Line(chain.Line{Link: harness.Envelope(statement.AppendLink(nil, statement.Link{
		Index: at.Lines + 1, PreviousSHA256: at.Digest, EntrySHA256: sha256Hex("{}"),
	}))})
	w.Entry(bundletest.Checkpoint)
	return w.Bundle()
}
