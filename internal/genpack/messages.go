package main

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plimsoll-attest/plimsoll/record"
)

// messages is group W: stored messages in unusual protobuf, signed and linked as
// they are.
func messages(p *pack) {
	c := snippet("a", "a()")
	base := c.Entry()
	tag := func(n protowire.Number, t protowire.Type) []byte { return protowire.AppendTag(nil, n, t) }
	request := func(edit func(b []byte) []byte) []byte {
		e := base
		e.Request = edit(slices.Clone(base.Request))
		return linked(e)
	}
	response := func(edit func(b []byte) []byte) []byte {
		e := base
		e.Response = edit(slices.Clone(base.Response))
		return linked(e)
	}
	with := func(parts ...[]byte) func(b []byte) []byte {
		return func(b []byte) []byte { return append(b, slices.Concat(parts...)...) }
	}
	before := func(parts ...[]byte) func(b []byte) []byte {
		return func(b []byte) []byte { return append(slices.Concat(parts...), b...) }
	}

	// What protobuf allows.
	p.add("W01", "fields in another order", "a request's trace ID last", request(func(b []byte) []byte {
		return append(once(b, "\x1a\x01a", ""), "\x1a\x01a"...)
	}))
	p.add("W02", "a scalar twice, the right value last", "protocol", request(before(tag(1, protowire.VarintType), []byte{9})))
	p.add("W03", "a known field of another wire type", "protocol as a string: passed over", request(with(tag(1, protowire.BytesType), []byte{1, 'x'})))
	p.add("W04", "a group", "field 99, with fields inside: passed over", request(with(tag(99, protowire.StartGroupType), tag(1, protowire.VarintType), []byte{1}, tag(99, protowire.EndGroupType))))
	p.add("W05", "fixed fields", "of unknown numbers, 4 and 8 bytes", request(with(tag(98, protowire.Fixed32Type), make([]byte, 4), tag(97, protowire.Fixed64Type), make([]byte, 8))))
	p.add("W06", "bytes that are not UTF-8 in an unknown field", "", request(with(tag(98, protowire.BytesType), []byte{1, 0xff})))
	p.add("W07", "a number in more bytes than it needs", "protocol 2 in three bytes", request(func(b []byte) []byte { return once(b, "\x08\x02", "\x08\x82\x80\x00") }))
	p.add("W08", "a zero value, written", "an empty floor", request(with(tag(2, protowire.BytesType), []byte{0})))
	p.add("W09", "a message in two parts", "the snippet's code, then its empty grant", request(with(tag(10, protowire.BytesType), []byte{2, 0x12, 0})))
	p.add("W10", "a record in two parts", "the response's own: the last values count", response(before(tag(4, protowire.BytesType), []byte{2, 0x08, 0x01})))
	enum := snippet("p", "")
	enum.Request.JavaScript, enum.Response.JavaScript = nil, nil
	enum.Request.Project, enum.Response.Project = &record.ProjectRun{Steps: []string{"x"}}, &record.ProjectResult{Outcome: 99}
	p.add("W11", "an outcome without a name", "99, recorded so", sealed(enum.Seal()))
	outcome := clone(enum)
	outcome.Response.Project.Outcome = -1
	p.add("W12", "a negative outcome", "-1 in ten bytes, recorded so", sealed(outcome.Seal()))
	timeout := snippet("a", "a()")
	timeout.Request.TimeoutMS = -1
	p.add("W13", "a negative timeout", "in ten bytes", sealed(timeout.Seal()))
	p.add("W14", "a number past its field's width", "timeout 2^32 + 5000, which reads as 5000", request(func(b []byte) []byte {
		return once(b, "\x20\x88\x27", string(append([]byte{0x20}, protowire.AppendVarint(nil, 1<<32+5000)...)))
	}))
	p.add("W15", "a snippet and then a project, and then the snippet again", "the last of a oneof counts, whole", request(func(b []byte) []byte {
		return slices.Concat([]byte("\x52\x04\x0a\x02xx"), []byte("\x5a\x00"), b)
	}))

	// What it does not.
	for i, m := range []struct {
		name string
		add  []byte
	}{
		{"a tag cut short", []byte{0x80}},
		{"a number cut short", []byte{0x08, 0x80}},
		{"a number of eleven bytes", append([]byte{0x08}, strings.Repeat("\x80", 10)+"\x01"...)},
		{"a number past 64 bits", append([]byte{0x08}, strings.Repeat("\xff", 9)+"\x02"...)},
		{"a length past the end", []byte{0x12, 0x10, 'x'}},
		{"a length of 2^63", append([]byte{0x12}, strings.Repeat("\x80", 9)+"\x01"...)},
		{"four bytes that are three", append(tag(98, protowire.Fixed32Type), 0, 0, 0)},
		{"eight bytes that are seven", append(tag(98, protowire.Fixed64Type), make([]byte, 7)...)},
		{"field number 0", []byte{0x00, 0x00}},
		{"a field number past 2^29", protowire.AppendVarint(nil, 1<<32)},
		{"wire type 6", []byte{0x0e}},
		{"wire type 7", []byte{0x0f}},
		{"a group without an end", tag(99, protowire.StartGroupType)},
		{"an end without a group", tag(99, protowire.EndGroupType)},
		{"a group that ends as another", slices.Concat(tag(99, protowire.StartGroupType), tag(98, protowire.EndGroupType))},
		{"1,000 nested groups", []byte(strings.Repeat("\x9b\x06", 1000) + strings.Repeat("\x9c\x06", 1000))},
		{"text that is not UTF-8", []byte{0x12, 1, 0xff}},
		{"a surrogate in text", []byte{0x12, 3, 0xed, 0xa0, 0x80}},
	} {
		in, side := request, "request"
		if i%2 == 1 {
			in, side = response, "response"
		}
		p.add("W"+number(16+i), "a "+side+" with "+m.name, "", in(with(m.add))).refused("stored", 1)
	}
	const next = 34
	for i, m := range []struct {
		name, what string
		bundle     []byte
	}{
		{"a scalar twice, another value last", "protocol 9", request(with([]byte{0x08, 9}))},
		{"a floor twice, an empty one last", "the request had one", floorTwice()},
		{"a message in two parts, other code last", "", request(with([]byte("\x52\x03\x0a\x01z")))},
		{"a file more in a second part of a project", "", secondFile()},
		{"a software rule in two parts", "an identity more in the second", secondIdentity()},
		{"a record in two parts, another policy last", "", response(with([]byte("\x22\x03\x3a\x01z")))},
		{"a response's text with a part of a character", "in the sandbox", response(with([]byte{0x0a, 1, 0xc3}))},
		{"packed doubles that are no multiple of eight bytes", "", shortDoubles()},
		{"text that is no message at all", "", request(func([]byte) []byte { return []byte("console.log(1)") })},
		{"JSON for a request", "", request(func([]byte) []byte { return []byte(`{"protocol":2}`) })},
	} {
		p.add("W"+number(next+i), m.name, m.what, m.bundle).refused("stored", 1)
	}
}

func floorTwice() []byte {
	c := snippet("a", "a()")
	c.Request.MinimumIsolation = record.TierProcess
	e := c.Seal().Entry()
	e.Request = append(e.Request, 0x12, 0)
	return linked(e)
}

func secondFile() []byte {
	c := snippet("a", "")
	c.Request.JavaScript, c.Response.JavaScript = nil, nil
	c.Request.Project, c.Response.Project = &record.ProjectRun{Steps: []string{"x"}}, &record.ProjectResult{Outcome: record.OutcomeCompleted}
	e := c.Seal().Entry()
	e.Request = append(e.Request, "\x5a\x05\x0a\x03\x0a\x01f"...)
	return linked(e)
}

func secondIdentity() []byte {
	e := snippet("a", "a()").Under(rule("approved", "one"), "one").Entry()
	e.Request = append(e.Request, "\x2a\x05\x12\x03two"...)
	return linked(e)
}

func shortDoubles() []byte {
	e := unpacked()
	e.Request = append(e.Request, "\x62\x05\x12\x03\x0a\x01\x00"...)
	return linked(e)
}
