package main

import (
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// lists is group X: abc, and what its caller says it was.
func lists(p *pack) {
	good := linked(abc()...)
	digest := func(code string) string { return snippet("", code).Record.RequestSHA256 }
	a, b, c := digest("a()"), digest("b()"), digest("c()")

	p.add("X01", "a resumed bundle without its second run", "only the list shows it", order(resumed(), 1, 2, 3)).expect(a, b, c).refused("expect", 0)
	p.add("X02", "a listed call that is not there", "", good).expect(a, b, c, digest("d()")).refused("expect", 0)
	p.add("X03", "a call that is not listed", "", good).expect(a, b).refused("expect", 0)
	p.add("X04", "another call than the listed one", "", good).expect(a, b, digest("d()")).refused("expect", 0)
	p.add("X05", "an empty list", "", good).expect().refused("expect", 0)
	p.add("X06", "a call listed twice", "", good).expect(a, b, c, c).refused("expect", 0)
	p.add("X07", "a digest in capitals", "it reads as a trace ID, and mixes the list", good).expect(a, b, upper(c)).refused("expect", 0)
	p.add("X08", "digests and a trace ID in one list", "", good).expect(a, b, "c").refused("expect", 0)
	p.add("X09", "other code under a listed trace ID", "the list is of digests", linked(abc()[0], snippet("b", "evil()").Entry(), abc()[2])).expect(a, b, c).refused("expect", 0)
	p.add("X10", "a request made twice and listed once", "", linked(abc()[0], abc()[1], snippet("again", "b()").Entry())).expect(a, b).refused("expect", 0)
	p.add("X11", "another count", "4 for 3", good).count(4).refused("expect", 0)
	s := bundletest.NewSession("s")
	p.add("X12", "an unanswered call that is not listed", "", linked(s.Add(snippet("a", "a()")).Entry(), s.Add(snippet("b", "b()").Unanswered("internal")).Entry(), s.Close())).
		expect(a).refused("expect", 0)
	p.add("X13", "a listed trace ID that is not there", "a, b and d", good).expect("a", "b", "d").refused("expect", 0)

	// Beyond the tables of the format.
	p.add("X14", "an empty list for a bundle without calls", "", linked()).expect().count(0)
	p.add("X15", "a list for a bundle without calls", "", linked()).expect("a").refused("expect", 0)
	p.add("X16", "a call without a trace ID, and a list of trace IDs", "it is on no such list", linked(abc()[0], snippet("", "b()").Entry())).expect("a").refused("expect", 0)
	p.add("X17", "a call without a trace ID, and a list of digests", "", linked(abc()[0], snippet("", "b()").Entry())).expect(a, b)
	p.add("X18", "one trace ID for two calls, listed twice", "", linked(abc()[0], snippet("a", "b()").Entry())).expect("a", "a")
	p.add("X19", "one trace ID for two calls, listed once", "", linked(abc()[0], snippet("a", "b()").Entry())).expect("a").refused("expect", 0)
	p.add("X20", "a list in CR LF, with no end to its last line", "", good).expectText("a\r\nb\r\n\r\nc")
	p.add("X21", "a list and a count that does not agree", "", good).expect("a", "b", "c").count(2).refused("expect", 0)
	p.add("X22", "a trace ID in another case", "", good).expect("A", "b", "c").refused("expect", 0)
	p.add("X23", "a count of 0 for a bundle with calls", "", good).count(0).refused("expect", 0)
	p.add("X24", "a list that is right, of a bundle that is not", "the list is looked at last", editLine(good, 3, func(line string) string { return line + " " })).expect("a", "b", "c").refused("line", 3)
	p.add("X25", "record digests for request digests", "", good).expect(recordOf(abc()[0]), recordOf(abc()[1]), recordOf(abc()[2])).refused("expect", 0)
	p.add("X26", "a trace ID of 64 digits on a list of digests", "the request's own trace ID reads as a digest", linked(snippet(a, "b()").Entry())).expect(a).refused("expect", 0)
	p.add("X27", "no calls at all, and a count", "closes do not count", linked(bundletest.NewSession("s").Close())).count(0)
}
