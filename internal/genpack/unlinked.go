package main

import (
	"slices"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// unlinked is group U: a session of three version 1 calls and its close.
func unlinked(p *pack) {
	s := sessionOf(1)
	good := bundletest.Unlinked(harness, s...)
	of := func(entries ...entry) []byte { return bundletest.Unlinked(harness, entries...) }
	replaced := func(n int, e entry) []byte {
		all := slices.Clone(s)
		all[n-1] = e
		return of(all...)
	}

	p.add("U01", "an unlinked bundle, not asked for", "", good).refused("link", 1)
	p.add("U02", "a linked bundle, asked for as unlinked", "", linked(abc()...)).unlinked().refused("line", 1)
	p.add("U03", "a call in the middle is missing", "call 2 of 3", order(good, 1, 3, 4)).unlinked().refused("chain", 2)
	p.add("U04", "the close is missing", "", order(good, 1, 2, 3)).unlinked().refused("chain", 0)
	output := editParsed(good, 2, func(l *chain.Line) { l.Response = once(l.Response, "\x0a\x021\n", "\x0a\x022\n") })
	p.add("U05", "a stored output changed", "of call 2", output).unlinked().refused("stored", 2)
	p.add("U06", "the response's own record changed", "policy, its digest kept", editParsed(good, 2, func(l *chain.Line) {
		l.Response = once(l.Response, policy, "openshell-policy:sha256:ee")
	})).unlinked().refused("stored", 2)

	f := bundletest.NewSession("s")
	p.add("U07", "versions 1 and 2 in one session", "call 2 is version 2", of(
		f.Add(snippet("one", "one()").Version(1)).Entry(), f.Add(snippet("two", "two()")).Entry(), f.Close())).unlinked().refused("chain", 2)
	two := snippet("a", "a()").Version(1)
	two.Request.Protocol = 2
	p.add("U08", "a version 1 record of a protocol 2 request", "", of(two.Seal().Entry())).unlinked().refused("stored", 1)
	software := snippet("a", "a()").Version(1)
	software.Record.SoftwareIdentity = bundletest.ImageOne
	p.add("U09", "a version 1 record with software", "which it does not digest", of(software.SealRecord().Entry())).unlinked().refused("statement", 1)
	p.add("U10", "a record signed by another key", "call 2", editParsed(good, 2, func(l *chain.Line) { l.Envelope = stranger.Envelope(s[1].Payload) })).unlinked().refused("signature", 2)
	p.add("U11", "a blank line", "after line 1", editLine(good, 1, func(line string) string { return line + "\n" })).unlinked().refused("line", 2).tightening()
	p.add("U12", "a version 4 record", "never written without links", of(snippet("a", "a()").Version(4).Entry())).unlinked().refused("statement", 1).assumption()
	p.add("U13", "a call after the close", "call 3 again", order(good, 1, 2, 3, 4, 3)).unlinked().refused("chain", 5)
	p.add("U14", "a linked line among unlinked ones", "line 1", editLine(good, 1, func(string) string {
		return string(bundletest.Lines(linked(s[0]))[0])
	})).unlinked().refused("line", 1)

	// Beyond the tables of the format.
	p.add("U15", "an empty file", "", nil).unlinked().refused("incomplete", 0)
	p.add("U16", "an empty object", "", []byte("{}\n")).unlinked().refused("statement", 1)
	p.add("U17", "a checkpoint at the end", "a line with a link", slices.Concat(good, linked())).unlinked().refused("line", 5)
	p.add("U18", "a call in the middle moved behind the close of another session", "lines of different sessions can move: it verifies", movedUnlinked()).unlinked()
	p.add("U19", "a single run cut off", "nothing shows it: it verifies", order(of(append(slices.Clone(s), snippet("x", "1").Version(1).Entry())...), 1, 2, 3, 4)).unlinked()
	p.add("U20", "a remembered end for an unlinked bundle", "it has none", good).unlinked().state(4, parsed(good, 4).Digest, harness.ID()).unusable().own()
	p.add("U21", "a list for an unlinked bundle", "", good).unlinked().expect("one", "two", "three").count(3)
	p.add("U22", "a list that the unlinked bundle does not hold", "", good).unlinked().expect("one", "two").refused("expect", 0)
	p.add("U23", "a close with a response", "", replaced(4, entry{Response: s[0].Response, Payload: s[3].Payload})).unlinked().refused("stored", 4).tightening()
}

func movedUnlinked() []byte {
	a, b := bundletest.NewSession("a"), bundletest.NewSession("b")
	all := bundletest.Unlinked(harness, a.Add(snippet("a1", "1").Version(1)).Entry(), a.Add(snippet("a2", "2").Version(1)).Entry(),
		b.Add(snippet("b1", "1").Version(1)).Entry(), b.Close(), a.Close())
	return order(all, 1, 3, 4, 2, 5)
}
