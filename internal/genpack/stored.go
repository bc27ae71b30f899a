package main

import (
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
)

// stored is group S: one call on line 1 whose stored messages or record was
// changed, then signed and linked.
func stored(p *pack) {
	one, two := bundletest.ImageOne, bundletest.ImageTwo
	// after is a bundle of a good call that was changed and not sealed again.
	after := func(c *call, change func(c *call)) []byte {
		change(c)
		return sealed(c)
	}
	js := func(change func(c *call)) []byte { return after(snippet("a", "a()"), change) }
	ruled := func(c *call) []byte { return sealed(c) }

	p.add("S01", "a stored output changed", "stdout", js(func(c *call) { c.Response.JavaScript.Stdout = []byte("2\n") })).refused("stored", 1)
	p.add("S02", "a stored request changed", "the code", js(func(c *call) { c.Request.JavaScript.Code = "b()" })).refused("stored", 1)
	p.add("S03", "the response's own record states another result", "its own digest kept", js(func(c *call) { c.Response.Record.ResultSHA256 = c.Record.RequestSHA256 })).
		refused("stored", 1)
	p.add("S04", "another record in the response, whole in itself", "it ends a millisecond later", js(func(c *call) {
		c.Response.Record.EndedUnixMS++
		c.Response.Record.RecordSHA256 = digestOf(c.Response.Record)
	})).refused("stored", 1)
	p.add("S05", "the response names another provider", "", js(func(c *call) { c.Response.Sandbox = "docker" })).refused("stored", 1)
	p.add("S06", "the response states another tier", "", js(func(c *call) { c.Response.Isolation = record.TierKernel })).refused("stored", 1)
	p.add("S07", "the response states another environment", "", js(func(c *call) { c.Response.Environment = bundletest.Environment })).refused("stored", 1)
	p.add("S08", "the response states other software", "", js(func(c *call) { c.Response.SoftwareIdentity = one })).refused("stored", 1)
	p.add("S09", "software outside the rule", "an exact rule, another image", ruled(snippet("a", "a()").Under(rule("exact", one), two))).refused("stored", 1)
	p.add("S10", "a rule, and software that is not stated", "", ruled(snippet("a", "a()").Under(rule("exact", one), ""))).refused("stored", 1)
	p.add("S11", "the ID of another rule", "of the other image", after(snippet("a", "a()").Under(rule("exact", one), one), func(c *call) {
		c.Record.SoftwareRuleID = "exact:" + two
		c.SealRecord()
	})).refused("stored", 1)
	p.add("S12", "a rule, and no ID of it", "", after(snippet("a", "a()").Under(rule("exact", one), one), func(c *call) {
		c.Record.SoftwareRuleID = ""
		c.SealRecord()
	})).refused("stored", 1)
	p.add("S13", "the ID of a rule that was not sent", "", js(func(c *call) {
		c.Record.SoftwareRuleID = "exact:" + one
		c.SealRecord()
	})).refused("stored", 1)
	p.add("S14", "a malformed rule", "exact, with two identities", ruled(snippet("a", "a()").Under(rule("exact", one, two), one))).refused("stored", 1)
	p.add("S15", "a malformed rule", "an identity twice", ruled(snippet("a", "a()").Under(rule("approved", one, one), one))).refused("stored", 1)
	p.add("S16", "a malformed rule", "an identity with a space", ruled(snippet("a", "a()").Under(rule("exact", "node 22"), "node 22"))).refused("stored", 1)
	p.add("S17", "a malformed rule", "33 identities", ruled(snippet("a", "a()").Under(shortRule(33), "i"))).refused("stored", 1)
	p.add("S18", "a malformed rule", "a mode that is none", ruled(snippet("a", "a()").Under(rule("allowed", one), one))).refused("stored", 1)
	p.add("S19", "a malformed rule", "identities without a mode", ruled(snippet("a", "a()").Under(rule("", one), one))).refused("stored", 1)

	at := func(tier, floor string) *call {
		c := snippet("a", "a()")
		c.Record.Isolation, c.Request.MinimumIsolation = tier, floor
		return c.Seal()
	}
	p.add("S20", "a tier below the floor", "container for vm", sealed(at("container", "vm"))).refused("floor", 1)
	p.add("S21", "a floor, and no tier", "", sealed(at("", "process"))).refused("floor", 1)
	p.add("S22", "a floor, and a tier that is none", "fortress", sealed(at("fortress", "process"))).refused("floor", 1)
	p.add("S23", "a floor that nobody takes", "none", sealed(at("container", "none"))).refused("stored", 1)
	p.add("S24", "a floor that is no tier", "Container", sealed(at("container", "Container"))).refused("stored", 1)

	c := snippet("a", "a()").Entry()
	p.add("S25", "no response of an answered call", "", linked(entry{Request: c.Request, Payload: c.Payload})).refused("stored", 1)
	p.add("S26", "a response without its record", "", js(func(c *call) { c.Response.Record = nil })).refused("stored", 1)
	p.add("S27", "no request", "", linked(entry{Response: c.Response, Payload: c.Payload})).refused("stored", 1)
	p.add("S28", "a request that is no message", "its last byte cut off", linked(entry{Request: c.Request[:len(c.Request)-1], Response: c.Response, Payload: c.Payload})).
		refused("stored", 1)
	p.add("S29", "a response that is no message", "a length past its end", linked(entry{
		Request: c.Request, Response: append(slices.Clone(c.Response), 0x0a, 0x7f), Payload: c.Payload,
	})).refused("stored", 1)
	p.add("S30", "text in a response that is not UTF-8", "FF for a sandbox", js(func(c *call) { c.Response.Sandbox = "\xff" })).refused("stored", 1)

	files := snippet("a", "")
	files.Request.JavaScript, files.Response.JavaScript = nil, nil
	files.Request.Project = &record.ProjectRun{Files: []record.ProjectFile{{Path: "a.js", Content: "bc"}}, Steps: []string{"x", "y"}, Artifacts: []string{"out"}}
	files.Response.Project = &record.ProjectResult{
		Outcome: record.OutcomeCompleted, Steps: []record.StepResult{{Command: "x"}, {Command: "y", Stdout: []byte("2")}},
		Artifacts: []record.Artifact{{Path: "out", Content: []byte("2")}},
	}
	project := func(change func(c *call)) []byte { return after(clone(files.Seal()), change) }
	p.add("S31", "a byte moved from a content to its path", "a.jsb and c for a.js and bc", project(func(c *call) { c.Request.Project.Files[0] = record.ProjectFile{Path: "a.jsb", Content: "c"} })).
		refused("stored", 1)
	p.add("S32", "two steps joined", "xy for x and y", project(func(c *call) { c.Request.Project.Steps = []string{"xy"} })).refused("stored", 1)
	p.add("S33", "steps in another order", "", project(func(c *call) { c.Request.Project.Steps = []string{"y", "x"} })).refused("stored", 1)
	p.add("S34", "an artifact more asked for", "", project(func(c *call) { c.Request.Project.Artifacts = []string{"out", "more"} })).refused("stored", 1)
	p.add("S35", "a step's exit code changed", "of step 2", project(func(c *call) { c.Response.Project.Steps[1].ExitCode = 1 })).refused("stored", 1)
	p.add("S36", "the outcome changed", "timed out for completed", project(func(c *call) { c.Response.Project.Outcome = record.OutcomeTimedOut })).refused("stored", 1)
	p.add("S37", "an artifact's content changed", "", project(func(c *call) { c.Response.Project.Artifacts[0].Content = []byte("3") })).refused("stored", 1)
	p.add("S38", "an artifact dropped", "", project(func(c *call) { c.Response.Project.Artifacts = nil })).refused("stored", 1)

	module := func(change func(c *call)) []byte { return after(clone(bundletest.Module("m")), change) }
	p.add("S39", "the payload of a NaN changed", "7ff8000000000000 for 7ff8000000000001", module(func(c *call) {
		c.Response.Module.Runs[0].Outputs[1] = math.Float64frombits(0x7ff8000000000000)
	})).refused("stored", 1)
	p.add("S40", "the sign of a zero changed", "0.0 for -0.0", module(func(c *call) { c.Response.Module.Runs[0].Outputs[0] = 0 })).refused("stored", 1)
	p.add("S41", "rows divided otherwise", "a row of two values as two rows", module(func(c *call) {
		c.Request.Module.Rows = []record.ModuleRow{{Values: []float64{1}}, {Values: []float64{2}}, c.Request.Module.Rows[1]}
	})).refused("stored", 1)
	kind := snippet("a", "a()")
	kind.Response.JavaScript, kind.Response.Project = nil, &record.ProjectResult{Outcome: record.OutcomeCompleted}
	p.add("S42", "a result of another kind", "a snippet answered as a project, recorded so", sealed(kind.Seal())).refused("stored", 1).tightening()

	cell := func(change func(c *call)) []byte {
		s := bundletest.NewSession("cell")
		c := s.Add(clone(bundletest.Cell("c")))
		change(c)
		return linked(c.Entry(), s.Close())
	}
	p.add("S43", "the start of an interpreter hidden", "", cell(func(c *call) { c.Response.Cell.InterpreterStarted = false })).refused("stored", 1)
	p.add("S44", "a cell's language changed", "", cell(func(c *call) { c.Request.Cell.Language = "javascript" })).refused("stored", 1)
	p.add("S45", "a rule's identities in another order", "in the stored request", after(snippet("a", "a()").Under(rule("approved", one, two), one), func(c *call) {
		c.Request.SoftwareRule = rule("approved", two, one)
	})).refused("stored", 1)

	unanswered := func(change func(e *entry, c *call)) []byte {
		s := bundletest.NewSession("u")
		c := s.Add(snippet("a", "a()").Unanswered("unavailable"))
		e := c.Entry()
		change(&e, c)
		s.Last = c.Record.RecordSHA256
		return linked(e, s.Close())
	}
	restated := func(change func(c *call)) []byte {
		return unanswered(func(e *entry, c *call) {
			change(c)
			*e = c.SealRecord().Entry()
		})
	}
	p.add("S46", "a response of an unanswered call", "", unanswered(func(e *entry, _ *call) { e.Response = snippet("a", "a()").Entry().Response })).refused("stored", 1)
	p.add("S47", "the request of another call", "of an unanswered one", unanswered(func(e *entry, _ *call) { e.Request = snippet("a", "b()").Entry().Request })).refused("stored", 1)
	p.add("S48", "an unanswered record without a code of the list", "the relay said so", restated(func(c *call) { c.Record.Unanswered = "the relay said so" })).refused("stored", 1)
	p.add("S49", "an unanswered record that says ok", "", restated(func(c *call) { c.Record.Unanswered = "ok" })).refused("stored", 1)
	p.add("S50", "an unanswered record with a result", "", restated(func(c *call) { c.Record.ResultSHA256 = c.Record.RequestSHA256 })).refused("stored", 1)
	p.add("S51", "an unanswered call below its floor", "container for vm", restated(func(c *call) {
		c.Request.MinimumIsolation = record.TierVM
		c.Seal()
	})).refused("floor", 1)
	p.add("S52", "an unanswered call on software outside its rule", "", restated(func(c *call) { c.Under(rule("exact", one), two) })).refused("stored", 1)

	p.add("S53", "the response names another instance", "", after(snippet("a", "a()").Version(4), func(c *call) { c.Response.Instance = "k8s-pod-uid:ffff" })).
		refused("stored", 1).assumption()
	pod := snippet("a", "a()").Version(4)
	pod.Record.Instance = "pod 7"
	p.add("S54", "an instance that is no typed reference", "pod 7", sealed(pod.Seal())).refused("stored", 1).assumption()
	p.add("S55", "an instance in a version 2 response's record", "", js(func(c *call) { c.Response.Record.Instance = bundletest.Instance })).refused("stored", 1).tightening()
	p.add("S56", "an unanswered code in a version 2 response's record", "", js(func(c *call) { c.Response.Record.Unanswered = "internal" })).refused("stored", 1)
	second := snippet("a", "a()").Entry()
	second.Response = append(second.Response, resultField(10, "another\n")...)
	p.add("S57", "a second result after the first", "field 10 again: its stdout counts", linked(second)).refused("stored", 1)
	oneof := snippet("a", "a()").Entry()
	oneof.Response = append(oneof.Response, protowire.AppendBytes(protowire.AppendTag(nil, 11, protowire.BytesType), nil)...)
	p.add("S58", "a result of another kind after the first", "field 11 after 10: the last of a oneof counts", linked(oneof)).refused("stored", 1)

	// Beyond the tables of the format.
	p.add("S59", "a malformed rule", "an identity of 257 characters", ruled(snippet("a", "a()").Under(rule("exact", one+longRule(1).Identities[0][:257-len(one)]), one))).refused("stored", 1)
	p.add("S60", "a malformed rule", "an empty identity", ruled(snippet("a", "a()").Under(rule("exact", ""), ""))).refused("stored", 1)
	p.add("S61", "a malformed rule", "a mode without identities", ruled(snippet("a", "a()").Under(rule("approved"), one))).refused("stored", 1)
	p.add("S62", "a tier in another case under a floor", "Container for container", sealed(at("Container", "container"))).refused("floor", 1)
	p.add("S63", "a tier of none under a floor", "process", sealed(at("none", "process"))).refused("floor", 1)
	p.add("S64", "a tier that is the floor", "each of the four", linked(at("process", "process").Entry(), at("container", "container").Entry(), at("kernel", "kernel").Entry(), at("vm", "vm").Entry()))
	p.add("S65", "a tier above the floor", "vm for process", sealed(at("vm", "process")))
	p.add("S66", "the truncated flag of an output dropped", "", after(truncated(), func(c *call) { c.Response.JavaScript.StdoutTruncated = false })).refused("stored", 1)
	p.add("S67", "stdout and stderr exchanged", "", js(func(c *call) {
		r := c.Response.JavaScript
		r.Stdout, r.Stderr = r.Stderr, r.Stdout
	})).refused("stored", 1)
	p.add("S68", "an exit code of another sign", "", js(func(c *call) { c.Response.JavaScript.ExitCode = -1 })).refused("stored", 1)
	p.add("S69", "a step's duration changed", "in no digest, linked so: it verifies", project(func(c *call) { c.Response.Project.Steps[0].DurationMS = 1 }))
	p.add("S70", "advice on a result", "in no digest, linked so: it verifies", js(func(c *call) {
		c.Response.JavaScript.Advice = []record.AdviceFinding{{Pattern: "n+1", ExtraCalls: 9}}
	}))
	p.add("S71", "a minimum isolation dropped", "", after(at("container", "container"), func(c *call) { c.Request.MinimumIsolation = "" })).refused("stored", 1)
	p.add("S72", "a protocol changed", "3 for 2", js(func(c *call) { c.Request.Protocol = 3 })).refused("stored", 1)
	p.add("S73", "a grant added to a request", "", js(func(c *call) { c.Request.JavaScript.GrantProfile = "net" })).refused("stored", 1)
	p.add("S74", "a software rule added to a request", "", js(func(c *call) { c.Request.SoftwareRule = rule("exact", one) })).refused("stored", 1)
}

// clone is the call by way of its encoding, so that a change does not reach the
// lists of another.
func clone(c *call) *call {
	e := c.Entry()
	request, err := record.ParseRequest(e.Request)
	if err != nil {
		panic(err)
	}
	response, err := record.ParseResponse(e.Response)
	if err != nil {
		panic(err)
	}
	rec := *c.Record
	return &call{Request: request, Response: response, Record: &rec}
}

func digestOf(r *record.Record) string {
	digest, err := r.Digest()
	if err != nil {
		panic(err)
	}
	return digest
}

// shortRule is an approved rule of n identities of few characters: i, ii, …
func shortRule(n int) *record.SoftwareRule {
	r := rule("approved")
	for range n {
		last := ""
		if len(r.Identities) > 0 {
			last = r.Identities[len(r.Identities)-1]
		}
		r.Identities = append(r.Identities, last+"i")
	}
	return r
}

func truncated() *call {
	c := snippet("a", "a()")
	c.Response.JavaScript.StdoutTruncated = true
	return c.Seal()
}
