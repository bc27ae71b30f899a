package main

import (
	"slices"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// chains is group C. session3 is calls 1 to 3 and the close, 4.
func chains(p *pack) {
	s := session3()
	p.add("C01", "a call in the middle is missing", "call 2 of 3", linked(pick(s, 1, 3, 4)...)).refused("chain", 2)
	p.add("C02", "two calls in the wrong order", "calls 1 and 2", linked(pick(s, 2, 1, 3, 4)...)).refused("chain", 1)
	p.add("C03", "the last call and the close are missing", "sealed after call 2", linked(pick(s, 1, 2)...)).refused("chain", 0)
	p.add("C04", "the last call is missing, the close is there", "call 3", linked(pick(s, 1, 2, 4)...)).refused("chain", 3)
	p.add("C05", "a call twice", "call 2", linked(pick(s, 1, 2, 2, 3, 4)...)).refused("chain", 3)
	p.add("C06", "a call after the close", "call 3 again", linked(pick(s, 1, 2, 3, 4, 3)...)).refused("chain", 5)
	p.add("C07", "a close without the calls it counts", "", linked(pick(s, 4)...)).refused("chain", 1)
	b := bundletest.NewSession("b")
	b.Add(snippet("b1", "1"))
	p.add("C08", "the second call of a session whose first is not there", "after another session", linked(append(slices.Clone(s), b.Add(snippet("b2", "2")).Entry())...)).
		refused("chain", 5)

	closing := func(edit func(c *statement.Close)) []byte {
		return linked(append(slices.Clone(s[:3]), editedClose(s[3], edit))...)
	}
	p.add("C09", "a close that counts one call less", "2 for 3", closing(func(c *statement.Close) { c.Calls = 2 })).refused("chain", 4)
	p.add("C10", "a close that names another last record", "the first", closing(func(c *statement.Close) { c.LastRecordSHA256 = recordOf(s[0]) })).refused("chain", 4)
	p.add("C11", "a second close", "", linked(pick(s, 1, 2, 3, 4, 4)...)).refused("chain", 5)

	empty := bundletest.NewSession("empty")
	none := empty.Close()
	p.add("C12", "the close of an empty session counts a call", "", linked(editedClose(none, func(c *statement.Close) { c.Calls = 1 }))).refused("chain", 1)
	p.add("C13", "the close of an empty session names a record", "", linked(editedClose(none, func(c *statement.Close) { c.LastRecordSHA256 = recordOf(s[0]) }))).refused("chain", 1)
	p.add("C14", "an empty session closed twice", "", linked(none, none)).refused("chain", 2)
	p.add("C15", "a call after the close of an empty session", "", linked(none, empty.Add(snippet("late", "1")).Entry())).refused("chain", 2)

	p.add("C16", "a session that starts at 2", "no record before it is named", linked(placed("s", 2, "").Entry())).refused("chain", 1)
	p.add("C17", "a session that starts at 0", "", linked(placed("s", 0, "").Entry())).refused("chain", 1)
	p.add("C18", "a first call that names a record before it", "", linked(placed("s", 1, recordOf(s[0])).Entry())).refused("chain", 1)
	p.add("C19", "a single run with a number", "sequence 1", linked(placed("", 1, "").Entry())).refused("chain", 1)
	p.add("C20", "a single run that names a record before it", "", linked(placed("", 0, recordOf(s[0])).Entry())).refused("chain", 1)
	p.add("C21", "an unanswered single run", "version 3, no session", linked(snippet("a", "a()").Unanswered("internal").Entry())).refused("chain", 1)
	p.add("C22", "a first call that somebody else made", "call 2 names it, the bundle has it not", linked(pick(s, 2, 3, 4)...)).refused("chain", 1)

	other := bundletest.NewSession("s")
	first := other.Add(snippet("one", "one()")).Entry()
	second := snippet("two", "two()")
	other.Add(second)
	second.Record.PreviousSHA256 = second.Record.RequestSHA256
	p.add("C23", "a call that names another record before it", "its number is right", linked(first, second.SealRecord().Entry(), other.Close())).refused("chain", 2)

	p.add("C24", "a close signed by another key", "linked by the right one", strangersClose(s)).refused("signature", 4)
	p.add("C25", "a close with the subject of another session", "", linked(append(slices.Clone(s[:3]), entry{
		Payload: swapFirst(s[3].Payload, other.Fingerprint, bundletest.NewSession("b").Fingerprint),
	})...)).refused("statement", 4)
	p.add("C26", "a close that stores a request", "", linked(append(slices.Clone(s[:3]), entry{Request: s[0].Request, Payload: s[3].Payload})...)).
		refused("stored", 4).tightening()

	u := bundletest.NewSession("u")
	unanswered := []entry{
		u.Add(snippet("a", "a()")).Entry(), u.Add(snippet("b", "b()")).Entry(),
		u.Add(snippet("c", "c()").Unanswered("unavailable")).Entry(), u.Close(),
	}
	p.add("C27", "a close that leaves out the unanswered call", "2 for 3",
		linked(append(unanswered[:3:3], editedClose(unanswered[3], func(c *statement.Close) { c.Calls = 2 }))...)).refused("chain", 4)
	f := bundletest.NewSession("f")
	p.add("C28", "versions 2 and 4 in one session", "call 2 is version 4", linked(
		f.Add(snippet("a", "a()")).Entry(), f.Add(snippet("b", "b()").Version(4)).Entry(), f.Close())).refused("chain", 2).assumption()
	p.add("C29", "a close that counts below zero", "-1", linked(append(slices.Clone(s[:3]), entry{Payload: once(s[3].Payload, `"calls":3`, `"calls":-1`)})...)).
		refused("statement", 4)
	o := bundletest.NewSession("open")
	p.add("C30", "one session of two without its close", "", linked(append(slices.Clone(s), o.Add(snippet("x", "1")).Entry())...)).refused("chain", 0)

	// Beyond the tables of the format.
	f = bundletest.NewSession("f")
	p.add("C31", "versions 4 and 3 in one session", "call 2 is version 3", linked(
		f.Add(snippet("a", "a()").Version(4)).Entry(), f.Add(snippet("b", "b()").Unanswered("internal")).Entry(), f.Close())).refused("chain", 2).assumption()
	p.add("C32", "a close of an empty session, then its calls and another close", "", linked(append([]entry{bundletest.NewSession("s").Close()}, s...)...)).refused("chain", 2)
	p.add("C33", "a checkpoint while a session is open", "allowed: the last line decides", linked(s[0], bundletest.Checkpoint, s[1], s[2], s[3]))
	p.add("C34", "the last of two sessions to open is closed first", "", interleaved())
	p.add("C35", "two sessions, none of them closed", "", linked(
		bundletest.NewSession("x").Add(snippet("x", "1")).Entry(), bundletest.NewSession("y").Add(snippet("y", "1")).Entry())).refused("chain", 0)
	p.add("C36", "a close that counts one call more", "4 for 3", closing(func(c *statement.Close) { c.Calls = 4 })).refused("chain", 4)
	p.add("C37", "a close without its last record", "", closing(func(c *statement.Close) { c.LastRecordSHA256 = "" })).refused("chain", 4)
	p.add("C38", "a close with a digest in capitals", "", closing(func(c *statement.Close) { c.LastRecordSHA256 = upper(c.LastRecordSHA256) })).refused("chain", 4)
	p.add("C39", "a sequence of 2^64-1", "", linked(placed("s", 1<<64-1, "").Entry())).refused("chain", 1)
}

// placed is a call with these session fields; no session when name is empty.
func placed(name string, sequence uint64, previous string) *call {
	c := snippet("a", "a()")
	if name != "" {
		c.Record.Session = bundletest.NewSession(name).Fingerprint
	}
	c.Record.Sequence, c.Record.PreviousSHA256 = sequence, previous
	return c.SealRecord()
}

func editedClose(e entry, edit func(c *statement.Close)) entry {
	c, err := statement.ParseClose(e.Payload)
	if err != nil {
		panic(err)
	}
	edit(&c)
	return entry{Payload: statement.AppendClose(nil, c)}
}

// recordOf is the record_sha256 of an entry.
func recordOf(e entry) string {
	r, err := statement.ParseRecord(e.Payload)
	if err != nil {
		panic(err)
	}
	return r.RecordSHA256
}

func strangersClose(s []entry) []byte {
	w := bundletest.NewWriter(harness)
	for _, e := range s[:3] {
		w.Entry(e)
	}
	w.Line(chain.Line{Envelope: stranger.Envelope(s[3].Payload)})
	w.Entry(bundletest.Checkpoint)
	return w.Bundle()
}

func interleaved() []byte {
	a, b := bundletest.NewSession("a"), bundletest.NewSession("b")
	return linked(a.Add(snippet("a1", "1")).Entry(), b.Add(snippet("b1", "1")).Entry(), b.Close(), a.Add(snippet("a2", "2")).Entry(), a.Close())
}
