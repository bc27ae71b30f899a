package main

import (
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// json is group J. The first part is text of a line, linked by the key as it
// stands; the second is statements, signed as they stand.
func json(p *pack) {
	text := entryText()
	request := member(text, "request")
	n := 0
	add := func(name, what string, bundle []byte, check string, line int) *vector {
		n++
		return p.add("J"+number(n), name, what, bundle).refused(check, line)
	}

	for _, c := range []struct{ name, what, old, text string }{
		{"request twice", "the same", `{"request":`, `{` + request + `,"request":`},
		{"request twice, once as an escape", `\u0072equest`, `{"request":`, `{"\u0072equest":"","request":`},
		{"response twice", "", `"response":`, `"response":"","response":`},
		{"envelope twice", "", `"envelope":{`, `"envelope":null,"envelope":{`},
		{"payloadType twice", "", `"payloadType":`, `"payloadType":"","payloadType":`},
		{"payloadType twice, once as an escape", `payload\u0054ype`, `"payloadType":`, `"payload\u0054ype":"","payloadType":`},
		{"payload twice", "", `"payload":`, `"payload":"","payload":`},
		{"signatures twice", "", `"signatures":`, `"signatures":[],"signatures":`},
		{"keyid twice", "", `"keyid":`, `"keyid":"","keyid":`},
		{"sig twice", "", `"sig":`, `"sig":"","sig":`},
		{"sig twice, once as an escape", `\u0073ig`, `"sig":`, `"\u0073ig":"","sig":`},
		{"a name in another case beside the right one", "Request", `{"request":`, `{"Request":"","request":`},
		{"a name in another case inside an envelope", "PayloadType", `"payloadType":`, `"PayloadType":`},
		{"white space inside an envelope", "", `"signatures":[`, `"signatures": [`},
		{"a tab inside an envelope", "after a colon", `"envelope":`, `"envelope":` + "\t"},
		{"signatures that are an object", "", `"signatures":[{`, `"signatures":{"0":[{`},
		{"a payload that is an array", "", `"payload":"`, `"payload":[],"payloads":"`},
		{"an unknown member under a good link", "key", `{"request":`, `{"key":"","request":`},
		{"a link before the entry's end", "a second link member", `{"request":`, `{"link":null,"request":`},
	} {
		add(c.name, strings.TrimPrefix(c.what+"; in a line, under a good link", "; "), rawEntry(first(text, c.old, c.text)), "line", 1)
	}

	// Statements of records.
	twice := func(name, what string, edits ...string) {
		add(name, what, edited(edits...), "statement", 1)
	}
	for _, c := range []struct{ name, what, old, text string }{
		{"_type twice", "", `{"_type":`, `{"_type":"","_type":`},
		{"subject twice", "", `"subject":`, `"subject":[],"subject":`},
		{"the subject's name twice", "", `"name":`, `"name":"","name":`},
		{"digest twice", "", `"digest":`, `"digest":{},"digest":`},
		{"sha256 twice", "", `{"sha256":`, `{"sha256":"","sha256":`},
		{"predicateType twice", "", `"predicateType":`, `"predicateType":"","predicateType":`},
		{"predicate twice", "", `"predicate":`, `"predicate":{},"predicate":`},
		{"predicate twice, once as an escape", `\u0070redicate`, `"predicate":`, `"\u0070redicate":{},"predicate":`},
		{"version twice", "", `"version":2`, `"version":2,"version":2`},
		{"version twice, once as an escape", `\u0076ersion`, `"version":2`, `"\u0076ersion":1,"version":2`},
		{"isolation twice", "vm first", `"isolation":"container"`, `"isolation":"vm","isolation":"container"`},
		{"isolation twice, the second in another case", "Isolation", `"isolation":"container"`, `"isolation":"container","Isolation":"vm"`},
		{"record_sha256 twice", "", `"record_sha256":`, `"record_sha256":"","record_sha256":`},
		{"a name in another case", "Provider", `"provider"`, `"Provider"`},
		{"a name with an escape", `\u0070rovider`, `"provider"`, `"\u0070rovider"`},
		{"an unknown member beside the predicate", "", `,"predicate":`, `,"note":"","predicate":`},
		{"an unknown member of the subject", "uri", `{"name":`, `{"uri":"","name":`},
		{"a digest of another kind in the subject", "gitCommit", `"digest":{`, `"digest":{"gitCommit":"",`},
		{"a space", "after a comma", `,"provider":`, `, "provider":`},
		{"a line feed", "after a brace", `"predicate":{`, `"predicate":{` + "\n"},
		{"an escape that is not due", `open\u0073hell`, `"openshell"`, `"open\u0073hell"`},
		{"a solidus with an escape", `in-toto.io\/Statement`, `in-toto.io/`, `in-toto.io\/`},
		{"a character that must be escaped and is not", "& in the policy", `"policy":"`, `"policy":"&`},
		{"upper-case digits in an escape", `\u003C in the policy`, `"policy":"`, `"policy":"\u003C`},
		{"a lone surrogate", `\ud800 in the policy`, `"policy":"`, `"policy":"\ud800`},
		{"bytes that are not UTF-8", "FF in the policy", `"policy":"`, "\"policy\":\"\xff"},
		{"a NUL in a string", "a raw 00 in the policy", `"policy":"`, "\"policy\":\"\x00"},
		{"null for a string", "session", `"session":""`, `"session":null`},
		{"null for a number", "sequence", `"sequence":0`, `"sequence":null`},
		{"true for a number", "sequence", `"sequence":0`, `"sequence":false`},
		{"a number for a string", "session", `"session":""`, `"session":0`},
		{"an array for a string", "session", `"session":""`, `"session":[]`},
		{"10,000 nested arrays", "in an unknown member", `"predicate":{`, `"predicate":{"note":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `,`},
		{"1,000 nested objects", "for the subject", `"subject":`, `"subject":` + strings.Repeat(`{"a":`, 1000) + `0` + strings.Repeat("}", 1000) + `,"subjects":`},
	} {
		twice(c.name, strings.TrimPrefix(c.what+"; in a record's statement, signed", "; "), c.old, c.text)
	}

	c := snippet("a", "a()")
	whole := string(payloadOf(c))
	for _, w := range []struct{ name, payload string }{
		{"null", "null"},
		{"an array around it", "[" + whole + "]"},
		{"an empty object", "{}"},
		{"a string", `"x"`},
		{"a byte order mark before it", "\ufeff" + whole},
		{"a line feed after it", whole + "\n"},
		{"a space before it", " " + whole},
		{"a NUL after it", whole + "\x00"},
		{"itself after it", whole + whole},
		{"its last byte cut off", whole[:len(whole)-1]},
		{"no predicate", whole[:strings.Index(whole, `,"predicate":`)] + "}"},
		{"a null predicate", whole[:strings.Index(whole, `,"predicate":`)] + `,"predicate":null}`},
		{"no subject", whole[:strings.Index(whole, `[{"name"`)] + "[]" + whole[strings.Index(whole, `,"predicateType"`):]},
		{"its members in another order", "{" + whole[strings.Index(whole, `"subject"`):len(whole)-1] + `,"_type":"https://in-toto.io/Statement/v1"}`},
	} {
		add("a record's payload: "+w.name, "signed", stating(c, []byte(w.payload)), "statement", 1)
	}

	// Statements of closes and links.
	s := bundletest.NewSession("s")
	closing := string(s.Close().Payload)
	for _, c := range []struct{ name, what, old, text string }{
		{"calls twice", "", `"calls":0`, `"calls":0,"calls":0`},
		{"calls twice, once as an escape", `\u0063alls`, `"calls":0`, `"\u0063alls":1,"calls":0`},
		{"a name in another case", "Calls", `"calls"`, `"Calls"`},
		{"an unknown member", "note", `"predicate":{`, `"predicate":{"note":"",`},
		{"a member missing", "last_record_sha256", `,"last_record_sha256":""`, ``},
		{"members in another order", "", `"calls":0,"last_record_sha256":""`, `"last_record_sha256":"","calls":0`},
	} {
		add(c.name, strings.TrimPrefix(c.what+"; in a close's statement, signed", "; "), linked(entry{Payload: []byte(once(closing, c.old, c.text))}), "statement", 1)
	}
	for _, c := range []struct{ name, what, old, text string }{
		{"index twice, once as an escape", `\u0069ndex`, `"index":2`, `"\u0069ndex":1,"index":2`},
		{"previous_sha256 twice", "", `"previous_sha256":`, `"previous_sha256":"","previous_sha256":`},
		{"checkpoint twice", "", `"entry_sha256":`, `"checkpoint":true,"checkpoint":false,"entry_sha256":`},
		{"members in another order", "", `"predicate":{"index":2,`, `"predicate":{"lines":0,"index":2,`},
		{"entry_sha256 before previous_sha256", "", `"previous_sha256"`, `"entry_sha256":"","previous_sha256"`},
		{"a number for true", "checkpoint 1", `"entry_sha256":`, `"checkpoint":1,"entry_sha256":`},
	} {
		add(c.name, strings.TrimPrefix(c.what+"; in a link's statement, signed", "; "), editedLink(c.old, c.text), "statement", 2)
	}
}
