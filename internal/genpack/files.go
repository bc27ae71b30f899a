package main

import (
	"slices"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// files is group F: abc is lines 1 to 3, and the checkpoint 4.
func files(p *pack) {
	good := linked(abc()...)
	p.add("F01", "a line removed", "line 2", order(good, 1, 3, 4)).refused("link", 2)
	p.add("F02", "the first line removed", "", order(good, 2, 3, 4)).refused("link", 1)
	p.add("F03", "two lines swapped", "1 and 2", order(good, 2, 1, 3, 4)).refused("link", 1)
	p.add("F04", "a line twice", "line 2", order(good, 1, 2, 2, 3, 4)).refused("link", 3)
	p.add("F05", "the checkpoint removed", "", order(good, 1, 2, 3)).refused("incomplete", 0)
	p.add("F06", "the last call and the checkpoint removed", "", order(good, 1, 2)).refused("incomplete", 0)
	p.add("F07", "all but the first line removed", "", order(good, 1)).refused("incomplete", 0)
	p.add("F08", "an empty file", "", nil).refused("incomplete", 0)
	p.add("F09", "no links", "taken off every line, and no checkpoint", bundletest.Unlinked(harness, abc()...)).refused("link", 1)
	p.add("F10", "one link taken off", "of line 2", editParsed(good, 2, func(l *chain.Line) { l.Link = nil })).refused("link", 2)
	p.add("F11", "all links signed by another key", "", strangersLinks()).refused("signature", 1)
	p.add("F12", "a line of a bundle that another key linked", "line 2",
		bundletest.Join(slices.Concat(bundletest.Lines(good)[:1], bundletest.Lines(strangersLinks())[1:2], bundletest.Lines(good)[2:])...)).refused("signature", 2)
	first, second := parse(bundletest.Lines(good)[0]), parse(bundletest.Lines(good)[1])
	p.add("F13", "two links exchanged", "of lines 1 and 2", editParsed(
		editParsed(good, 1, func(l *chain.Line) { l.Link = second.Link }), 2, func(l *chain.Line) { l.Link = first.Link })).refused("link", 1)
	p.add("F14", "a byte of a stored output changed", "", editParsed(good, 2, func(l *chain.Line) {
		l.Response = once(l.Response, "\x0a\x021\n", "\x0a\x022\n")
	})).refused("link", 2)
	p.add("F15", "a stored trace ID changed", "the record's digests leave it out", editParsed(good, 2, func(l *chain.Line) {
		l.Request = once(l.Request, "\x1a\x01b", "\x1a\x01z")
	})).refused("link", 2)
	p.add("F16", "a stored duration changed", "the record's digests leave it out", editParsed(good, 2, func(l *chain.Line) {
		l.Response = once(l.Response, "\x18\x2a\x22", "\x18\x2b\x22")
	})).refused("link", 2)
	p.add("F17", "an unknown field added to a stored response", "field 999", editParsed(good, 2, func(l *chain.Line) { l.Response = appendField999(l.Response) })).
		refused("link", 2)
	p.add("F18", "a bundle twice in a file", "", slices.Concat(good, good)).refused("link", 5)
	p.add("F19", "a stored response removed", "", editParsed(good, 2, func(l *chain.Line) { l.Response = nil })).refused("link", 2)
	p.add("F20", "a bit of the last link's signature changed", "", editParsed(good, 4, func(l *chain.Line) { flip(l.Link) })).refused("signature", 4)
	p.add("F21", "a bit of a record's signature changed", "", editParsed(good, 2, func(l *chain.Line) { flip(l.Envelope) })).refused("link", 2)

	// Beyond the tables of the format.
	p.add("F22", "all lines in reverse", "", order(good, 4, 3, 2, 1)).refused("link", 1)
	p.add("F23", "the checkpoint moved to the start", "", order(good, 4, 1, 2, 3)).refused("link", 1)
	p.add("F24", "the checkpoint twice", "", order(good, 1, 2, 3, 4, 4)).refused("link", 5)
	p.add("F25", "a call after the checkpoint", "line 1 again", order(good, 1, 2, 3, 4, 1)).refused("link", 5)
	p.add("F26", "the second run of a resumed bundle without the first", "", order(resumed(), 4, 5)).refused("link", 1)
	p.add("F27", "a resumed bundle without its first checkpoint", "", order(resumed(), 1, 2, 4, 5)).refused("link", 3)
	p.add("F28", "a stored request removed", "", editParsed(good, 2, func(l *chain.Line) { l.Request = nil })).refused("link", 2)
	p.add("F29", "the envelope removed", "", editParsed(good, 2, func(l *chain.Line) { l.Envelope = nil })).refused("link", 2)
	p.add("F30", "request and response exchanged", "", editParsed(good, 2, func(l *chain.Line) { l.Request, l.Response = l.Response, l.Request })).refused("link", 2)
	p.add("F31", "every entry removed, the links kept", "", strippedEntries(good)).refused("link", 1)
}

func strangersLinks() []byte {
	w := bundletest.NewWriter(stranger)
	for _, e := range abc() {
		w.Line(chain.Line{Request: e.Request, Response: e.Response, Envelope: harness.Envelope(e.Payload)})
	}
	w.Entry(bundletest.Checkpoint)
	return w.Bundle()
}

func strippedEntries(good []byte) []byte {
	for n := range 3 {
		good = editParsed(good, n+1, func(l *chain.Line) { l.Request, l.Response, l.Envelope = nil, nil, nil })
	}
	return good
}
