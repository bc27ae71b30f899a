package main

import (
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
)

// version4 is group V: how a version 4 record may be spelled. No bundle with one
// was seen, so more is accepted than is written: instance at any place, and
// empty optional members.
func version4(p *pack) {
	const instance = `"instance":"` + bundletest.Instance + `",`
	c := func() *call { return snippet("a", "a()").Version(4) }
	bare := c()
	bare.Record.Instance = ""
	bare.Seal()
	spelled := func(c *call, edits ...string) []byte { return stating(c, payloadOf(c, edits...)) }

	p.add("V01", "instance as the first member", "", spelled(c(), instance, "", `"version":4,`, instance+`"version":4,`)).assumption()
	lastMember := func(c *call) string { return `"record_sha256":"` + c.Record.RecordSHA256 + `"` }
	p.add("V02", "instance as the last member", "", spelled(c(), instance, "", lastMember(c()), lastMember(c())+`,`+strings.TrimSuffix(instance, ","))).assumption()
	p.add("V03", "instance after policy", "", spelled(c(), instance, "", `"started_unix_ms"`, instance+`"started_unix_ms"`)).assumption()
	p.add("V04", "an empty instance, written", "", spelled(bare, `"policy":`, `"instance":"","policy":`)).assumption()
	p.add("V05", "an empty instance, written at the end", "", spelled(bare, lastMember(bare), lastMember(bare)+`,"instance":""`)).assumption()
	p.add("V06", "empty software members, written", "", spelled(bare, `"policy":`, `"software_identity":"","software_rule_id":"","policy":`)).assumption()
	p.add("V07", "an empty unanswered, written", "", spelled(bare, `"record_sha256":`, `"unanswered":"","record_sha256":`)).assumption()
	p.add("V08", "every optional member, written", "", spelled(c(),
		instance, `"software_identity":"","software_rule_id":"",`+instance, `"record_sha256":`, `"unanswered":"","record_sha256":`)).assumption()
	bad := func(id, name, what string, bundle []byte) {
		p.add(id, name, what, bundle).refused("statement", 1).assumption()
	}
	bad("V09", "other members in another order", "policy before environment", spelled(c(),
		`"policy":"`+policy+`",`, "", `"environment":`, `"policy":"`+policy+`","environment":`))
	bad("V10", "an empty optional member at another place", "unanswered first", spelled(bare, `"version":4,`, `"unanswered":"","version":4,`))
	bad("V11", "instance twice", "", spelled(c(), instance, instance+instance))
	bad("V12", "instance and an empty instance", "", spelled(c(), `"version":4,`, `"instance":"","version":4,`))
	bad("V13", "a member that is always written, left out", "session", spelled(c(), `"session":"",`, ""))
	bad("V14", "white space", "after a colon", spelled(c(), `"version":4`, `"version": 4`))
	bad("V15", "an instance that the digest does not cover", "added to the statement", spelled(bare, `"policy":`, instance+`"policy":`))
	bad("V16", "instance in another case", "", spelled(c(), `"instance"`, `"Instance"`))
	bad("V17", "an unknown member", "node", spelled(c(), instance, instance+`"node":"",`))
	bad("V18", "an instance that is null", "", spelled(bare, `"policy":`, `"instance":null,"policy":`))
	bad("V19", "an escape in an instance", "", spelled(c(), `k8s`, `\u006b8s`))
	p.add("V20", "an empty instance, written in a version 2 record", "", edited(`"policy":`, `"instance":"","policy":`)).refused("statement", 1)

	for i, v := range []struct{ name, instance string }{
		{"the longest type and reference", strings.Repeat("a", 32) + ":" + strings.Repeat("Z", 127)},
		{"every character", "a-9z:AZaz09._:-"},
	} {
		c := c()
		c.Record.Instance = v.instance
		p.add("V"+number(21+i), "an instance: "+v.name, "", sealed(c.Seal())).assumption()
	}
	for i, v := range []struct{ name, instance string }{
		{"no colon", "pod"},
		{"no type", ":0a1b"},
		{"no reference", "k8s-pod-uid:"},
		{"a type with a capital", "K8s:0a1b"},
		{"a type that starts with a digit", "8s:0a1b"},
		{"a type of 33 characters", strings.Repeat("a", 33) + ":1"},
		{"a reference of 128 characters", "a:" + strings.Repeat("Z", 128)},
		{"a reference with a solidus", "a:b/c"},
		{"a reference with a line feed", "a:b\n"},
		{"a reference beyond ASCII", "a:é"},
	} {
		c := c()
		c.Record.Instance = v.instance
		p.add("V"+number(23+i), "an instance: "+v.name, "", sealed(c.Seal())).refused("stored", 1).assumption()
	}
	four := c()
	four.Request.Protocol = 2
	p.add("V33", "a version 4 record of a protocol 2 request", "no rule is against it", sealed(four.Seal())).assumption()
	inner := c()
	inner.Response.Record = new(record.Record)
	*inner.Response.Record = *inner.Record
	inner.Response.Record.Instance = ""
	p.add("V34", "an instance that the response's own record has not", "", sealed(inner)).refused("stored", 1).assumption()
	s := bundletest.NewSession("s")
	answered := s.Add(snippet("a", "a()").Version(4).Unanswered("internal"))
	e := answered.Entry()
	e.Response = snippet("a", "a()").Entry().Response
	p.add("V35", "a response of an unanswered version 4 call", "", linked(e, s.Close())).refused("stored", 1).assumption()
	p.add("V36", "an unanswered single run of version 4", "", sealed(snippet("a", "a()").Version(4).Unanswered("internal"))).refused("chain", 1).assumption()
}
