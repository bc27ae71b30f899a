package main

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
)

// accepted is group A.
func accepted(p *pack) {
	p.add("A01", "a bundle as it was written", "three single runs", linked(abc()...))
	p.add("A02", "a resumed bundle", "two runs, a checkpoint after each", resumed())
	p.add("A03", "a resumed bundle, cut back", "the second run and its checkpoint are gone: whole in itself", order(resumed(), 1, 2, 3))
	p.add("A04", "a checkpoint and nothing else", "no call was handed in", linked())
	p.add("A05", "two checkpoints in a row", "", linked(abc()[0], bundletest.Checkpoint))
	p.add("A06", "a project", "files, steps, an artifact", sealed(bundletest.Project("p")))
	p.add("A07", "a module run", "a NaN with bits 7ff8000000000001 and a negative zero", sealed(bundletest.Module("m")))

	s := bundletest.NewSession("cell")
	p.add("A08", "a cell", "in its session, closed", linked(s.Add(bundletest.Cell("c")).Entry(), s.Close()))
	p.add("A09", "an approved rule", "two identities, the second was selected",
		sealed(snippet("a", "a()").Under(rule("approved", bundletest.ImageOne, bundletest.ImageTwo), bundletest.ImageTwo)))
	p.add("A10", "an approved rule of one identity", "its ID is that of an exact rule",
		sealed(snippet("a", "a()").Under(rule("approved", bundletest.ImageOne), bundletest.ImageOne)))

	s = bundletest.NewSession("unanswered")
	p.add("A11", "an unanswered call", "version 3, the request alone", linked(s.Add(snippet("a", "a()").Unanswered("unavailable")).Entry(), s.Close()))
	p.add("A12", "a version 4 record", "with an instance", sealed(snippet("a", "a()").Version(4))).assumption()
	bare := snippet("a", "a()").Version(4)
	bare.Record.Instance = ""
	p.add("A13", "a version 4 record that names no instance", "", sealed(bare.Seal())).assumption()

	s = bundletest.NewSession("four")
	p.add("A14", "an unanswered version 4 call", "after an answered one, then the close", linked(
		s.Add(snippet("a", "a()").Version(4)).Entry(),
		s.Add(snippet("b", "b()").Version(4).Unanswered("deadline_exceeded")).Entry(), s.Close())).assumption()

	a, b := bundletest.NewSession("a"), bundletest.NewSession("b")
	p.add("A15", "two sessions and a single run, in turns", "", linked(
		a.Add(snippet("a1", "1")).Entry(), b.Add(snippet("b1", "1")).Entry(), snippet("alone", "1").Entry(),
		a.Add(snippet("a2", "2")).Entry(), a.Close(), b.Add(snippet("b2", "2")).Entry(), b.Close()))
	a, b = bundletest.NewSession("a"), bundletest.NewSession("b")
	p.add("A16", "a session closed before its first call", "between another session's calls", linked(
		a.Add(snippet("a1", "1")).Entry(), b.Close(), a.Add(snippet("a2", "2")).Entry(), a.Close()))
	s = bundletest.NewSession("mixed")
	p.add("A17", "an unanswered call between answered ones", "versions 2, 3, 2", linked(
		s.Add(snippet("a", "a()")).Entry(), s.Add(snippet("b", "b()").Unanswered("canceled")).Entry(), s.Add(snippet("c", "c()")).Entry(), s.Close()))

	p.add("A18", "an unlinked bundle, asked for", "version 1: a session and a single run",
		bundletest.Unlinked(harness, append(sessionOf(1), snippet("alone", "1").Version(1).Entry())...)).unlinked()
	s = bundletest.NewSession("mixed")
	p.add("A19", "an unlinked bundle of versions 2 and 3", "", bundletest.Unlinked(harness,
		s.Add(snippet("a", "a()")).Entry(), s.Add(snippet("b", "b()").Unanswered("internal")).Entry(), s.Close())).unlinked()
	renamed := snippet("a", "a()").Version(1)
	renamed.Request.TraceID = "z"
	p.add("A20", "a trace ID changed in an unlinked bundle", "no signature covers it there",
		bundletest.Unlinked(harness, renamed.Entry())).unlinked()

	digests := []string{snippet("a", "a()").Record.RequestSHA256, snippet("b", "b()").Record.RequestSHA256, snippet("c", "c()").Record.RequestSHA256}
	p.add("A21", "a list of digests", "with labels and an empty line, in another order", linked(abc()...)).
		expect(digests[2]+" the last one", "", digests[0]+"\ta", digests[1])
	p.add("A22", "a list of trace IDs", "", linked(abc()...)).expect("c", "a", "b")
	p.add("A23", "a count", "", linked(abc()...)).count(3)
	p.add("A24", "other code under a listed trace ID", "a list of names cannot tell", linked(abc()[0], snippet("b", "evil()").Entry(), abc()[2])).
		expect("a", "b", "c")
	twice := []entry{abc()[0], abc()[1], snippet("again", "b()").Entry()}
	p.add("A25", "a request made twice and listed twice", "", linked(twice...)).expect(digests[1], digests[0], digests[1])
	s = bundletest.NewSession("s")
	p.add("A26", "an unanswered call counts", "close and checkpoint do not", linked(
		s.Add(snippet("a", "a()")).Entry(), s.Add(snippet("b", "b()").Unanswered("internal")).Entry(), s.Close())).count(2).expect("a", "b")

	p.add("A27", "a result stored twice", "field 10 first with another output: the last value counts", linked(prefixed(snippet("a", "a()"), resultField(10, "not it\n"))))
	unknown := snippet("a", "a()").Entry()
	unknown.Request = appendField999(unknown.Request)
	unknown.Response = appendField999(unknown.Response)
	p.add("A28", "unknown fields in stored messages", "field 999 in both, written so", linked(unknown))
	p.add("A29", "doubles that are not packed", "a row's values, each in a field of its own", linked(unpacked()))
	negative := snippet("a", "a()")
	negative.Response.JavaScript.ExitCode, negative.Response.JavaScript.Stderr = -9, []byte{0xff, 0}
	p.add("A30", "a negative exit code, output that is no text", "-9, and stderr FF 00", sealed(negative.Seal()))
	escaped := snippet("a", "a()")
	escaped.Record.Policy, escaped.Record.Provider = "<p> & \u2028\u2029 \b\f\n\r\t\x01\x1f\x7f", `the "shell" \ /`
	p.add("A31", "strings with escapes", "every one that the format has", sealed(escaped.Seal()))
	wide := snippet("a", "// é中😀\n\"<>&\u2028\"")
	wide.Record.Isolation = "böse 中😀"
	p.add("A32", "text beyond ASCII", "in the code, and in a tier that no floor asks about", sealed(wide.Seal()))
	early := snippet("a", "a()")
	early.Record.EndedUnixMS = early.Record.StartedUnixMS - 1
	p.add("A33", "a record that ends before it starts", "times are not compared", sealed(early.Seal()))
	s = bundletest.NewSession("tiers")
	kernel := snippet("b", "b()")
	kernel.Record.Isolation, kernel.Record.Provider = record.TierKernel, "docker"
	p.add("A34", "a session whose tier changes", "container, then kernel", linked(s.Add(snippet("a", "a()")).Entry(), s.Add(kernel).Entry(), s.Close()))

	// Beyond the tables of the format.
	none := snippet("a", "")
	none.Request.JavaScript, none.Response.JavaScript = nil, nil
	p.add("A35", "a request without a payload, answered without a result", "of one kind: none", sealed(none.Seal()))
	huge := snippet("a", "a()")
	huge.Record.StartedUnixMS, huge.Record.EndedUnixMS = -1<<63, 1<<63-1
	p.add("A36", "the smallest and the largest time", "", sealed(huge.Seal()))
	p.add("A37", "a rule of 32 identities of 256 characters", "the most that a rule has", sealed(snippet("a", "a()").Under(longRule(32), longRule(32).Identities[31])))
	same := bundletest.NewSession("")
	p.add("A38", "an empty output, empty code", "", linked(same.Add(blank()).Entry(), same.Close()))
	p.add("A39", "every code of an unanswered call", "a session of sixteen", linked(everyCode()...))
	p.add("A40", "a call with no floor at each tier", "none, process, container, kernel, vm, an unknown one, the empty one", linked(everyTier()...))
	p.add("A41", "a single run twice", "the same bytes, written twice by the key's holder: two calls", linked(abc()[0], abc()[0])).count(2)
}

// sessionOf is session3 under another record version.
func sessionOf(version uint32) []entry {
	s := bundletest.NewSession("s")
	return []entry{
		s.Add(snippet("one", "one()").Version(version)).Entry(),
		s.Add(snippet("two", "two()").Version(version)).Entry(),
		s.Add(snippet("three", "three()").Version(version)).Entry(),
		s.Close(),
	}
}

var connectCodes = []string{
	"canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied", "resource_exhausted",
	"failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
}

func everyCode() []entry {
	s := bundletest.NewSession("codes")
	var entries []entry
	for _, code := range connectCodes {
		entries = append(entries, s.Add(snippet("", "1").Unanswered(code)).Entry())
	}
	return append(entries, s.Close())
}

func everyTier() []entry {
	var entries []entry
	for _, tier := range []string{"none", "process", "container", "kernel", "vm", "fortress", ""} {
		c := snippet("", "1")
		c.Record.Isolation = tier
		entries = append(entries, c.Seal().Entry())
	}
	return entries
}

func blank() *call {
	c := snippet("", "")
	c.Response.JavaScript.Stdout = nil
	return c.Seal()
}

// longRule is an approved rule of n identities of 256 characters.
func longRule(n int) *record.SoftwareRule {
	r := rule("approved")
	for i := range n {
		r.Identities = append(r.Identities, strings.Repeat("0", 254)+string(rune('A'+i/26))+string(rune('a'+i%26)))
	}
	return r
}

// resultField is a response field that holds a result whose stdout is text.
func resultField(number protowire.Number, stdout string) []byte {
	inner := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), stdout)
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
}

func appendField999(message []byte) []byte {
	return protowire.AppendString(protowire.AppendTag(slices.Clone(message), 999, protowire.BytesType), "unknown")
}

// prefixed is the call with bytes before its stored response.
func prefixed(c *call, field []byte) entry {
	e := c.Entry()
	e.Response = append(slices.Clone(field), e.Response...)
	return e
}

// unpacked is a module call whose first row is written value by value.
func unpacked() entry {
	c := bundletest.Module("m")
	c.Request.Module.Rows = []record.ModuleRow{{Values: []float64{1, 2}}}
	e := c.Seal().Entry()
	packed := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), doubles(1, 2))
	var single []byte
	for _, v := range []float64{1, 2} {
		single = append(protowire.AppendTag(single, 1, protowire.Fixed64Type), doubles(v)...)
	}
	// Both forms of two doubles are 18 bytes, so no length around them changes.
	e.Request = replaceBytes(e.Request, packed, single)
	return e
}
