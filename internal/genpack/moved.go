package main

import (
	"slices"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// moved is group M: whole lines, or parts of them, at other places, each time
// linked again by the key. What holds then is what the statements say of
// themselves.
func moved(p *pack) {
	s := session3()
	good := linked(s...)
	relinked := func(numbers ...int) []byte { return bundletest.Relink(harness, order(good, numbers...), 1) }
	p.add("M01", "a session's lines in reverse", "", relinked(4, 3, 2, 1, 5)).refused("chain", 1)
	p.add("M02", "the close moved up", "before call 3", relinked(1, 2, 4, 3, 5)).refused("chain", 3)
	p.add("M03", "the checkpoint in the middle, and none at the end", "", bundletest.Relink(harness, order(good, 1, 2, 5, 3, 4), 1)).refused("incomplete", 0)
	p.add("M04", "checkpoints everywhere", "before, between and after", linked(bundletest.Checkpoint, s[0], bundletest.Checkpoint, s[1], s[2], bundletest.Checkpoint, s[3], bundletest.Checkpoint))

	a, b := bundletest.NewSession("a"), bundletest.NewSession("b")
	a1, b1 := a.Add(snippet("a1", "1")).Entry(), b.Add(snippet("b1", "1")).Entry()
	a2, b2 := a.Add(snippet("a2", "2")).Entry(), b.Add(snippet("b2", "2")).Entry()
	p.add("M05", "the second calls of two sessions exchanged in the file", "each is still after its own first", linked(a1, b1, b2, a2, a.Close(), b.Close()))
	p.add("M06", "a call that was moved before its session's first", "", linked(a2, a1, b1, b2, a.Close(), b.Close())).refused("chain", 1)
	p.add("M07", "the closes of two sessions exchanged in the file", "each is still after its calls", linked(a1, a2, b1, b2, b.Close(), a.Close()))

	other := bundletest.NewSession("s")
	other.Add(snippet("one", "other()"))
	otherSecond := other.Add(snippet("two", "two()")).Entry()
	p.add("M08", "a call of the session of that name in another bundle", "its first call was another", linked(s[0], otherSecond, s[2], s[3])).refused("chain", 2)
	p.add("M09", "the close of the session of that name in another bundle", "", linked(s[0], s[1], s[2], closeAfter(otherSecond))).refused("chain", 4)

	x, y := snippet("x", "x()"), snippet("y", "y()")
	swap := func(edit func(first, second *entry)) []byte {
		e, f := x.Entry(), y.Entry()
		edit(&e, &f)
		return linked(e, f)
	}
	p.add("M10", "two records exchanged", "requests and responses stay", swap(func(e, f *entry) { e.Payload, f.Payload = f.Payload, e.Payload })).refused("stored", 1)
	p.add("M11", "two responses exchanged", "", swap(func(e, f *entry) { e.Response, f.Response = f.Response, e.Response })).refused("stored", 1)
	p.add("M12", "two requests exchanged", "", swap(func(e, f *entry) { e.Request, f.Request = f.Request, e.Request })).refused("stored", 1)
	p.add("M13", "two calls exchanged whole", "single runs have no order: it verifies", linked(y.Entry(), x.Entry()))
	again := snippet("y", "x()")
	e, f := x.Entry(), again.Entry()
	e.Request, f.Request = f.Request, e.Request
	p.add("M14", "two equal requests exchanged", "they differ in their trace IDs, which no digest covers: it verifies", linked(e, f)).expect("y", "x")
	p.add("M15", "a session's call put into a bundle as a single run", "its record says that it is none", linked(s[0])).refused("chain", 0)
	p.add("M16", "a single run put between the calls of a session", "", linked(s[0], x.Entry(), s[1], s[2], s[3]))
	p.add("M17", "a close as the statement of a call", "request and response of the session's last call", linked(s[0], s[1], entry{Request: s[2].Request, Response: s[2].Response, Payload: s[3].Payload})).
		refused("stored", 3).tightening()
	p.add("M18", "a call as the close of its session", "the record alone, no messages", linked(s[0], s[1], entry{Payload: s[2].Payload}, s[3])).refused("stored", 3)
	p.add("M19", "two lines removed from the middle of a resumed bundle", "relinked from there", bundletest.Relink(harness, order(resumed(), 1, 4, 5), 2))
	p.add("M20", "a bundle relinked from its second line", "the entries are as they were: the same bytes", bundletest.Relink(harness, good, 2))
	p.add("M21", "one link of a bundle left as it was", "the first line is another now", bundletest.Join(slices.Concat(
		bundletest.Lines(linked(x.Entry()))[:1], bundletest.Lines(good)[1:])...)).refused("link", 2)
	p.add("M22", "a line of an unlinked bundle under a link of its own", "the two forms hold the same entries", bundletest.Relink(harness, bundletest.Unlinked(harness, abc()[0]), 1)).
		refused("incomplete", 0)
	p.add("M23", "an envelope of one line as the link of the next", "a record", editParsed(linked(abc()...), 2, func(l *chain.Line) { l.Link = parse(bundletest.Lines(linked(abc()...))[0]).Envelope })).
		refused("statement", 2)
}

// closeAfter is the close of session3 with another last record.
func closeAfter(last entry) entry {
	s := bundletest.NewSession("s")
	s.Calls, s.Last = 3, recordOf(last)
	return s.Close()
}
