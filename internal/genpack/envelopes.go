package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// envelopes is group E: a snippet, alone in its bundle, on line 1.
func envelopes(p *pack) {
	c := snippet("a", "a()")
	payload := payloadOf(c)

	p.add("E01", "a record's signature changed", "its first byte; then linked", reEnveloped(flip)).refused("signature", 1)
	p.add("E02", "a record signed by another key", "under that key's ID", enveloped(c, stranger.Envelope(payload))).refused("signature", 1)
	p.add("E03", "another key's signature under this key's ID", "", reEnveloped(func(e *dsse.Envelope) {
		e.Signatures[0].Sig = stranger.Envelope(payload).Signatures[0].Sig
	})).refused("signature", 1)
	p.add("E04", "a record changed after it was signed", "the provider", reEnveloped(func(e *dsse.Envelope) {
		e.Payload = b64(once(payload, `"provider":"openshell"`, `"provider":"elsewhere"`))
	})).refused("signature", 1)
	p.add("E05", "a signature over the payload alone", "without the pre-authentication encoding", reEnveloped(func(e *dsse.Envelope) {
		setSig(e, ed25519.Sign(harness.Private, payload))
	})).refused("signature", 1)
	p.add("E06", "a signature over another encoding", "the payload's length is one less", reEnveloped(func(e *dsse.Envelope) {
		wrong := fmt.Appendf(nil, "DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload)-1, payload)
		setSig(e, ed25519.Sign(harness.Private, wrong))
	})).refused("signature", 1)
	p.add("E07", "another payload type", "application/json, signed so", enveloped(c, harness.EnvelopeOfType("application/json", payload))).refused("statement", 1)
	p.add("E08", "no signature", "an empty list", reEnveloped(func(e *dsse.Envelope) { e.Signatures = []dsse.Signature{} })).refused("signature", 1)
	p.add("E09", "no list of signatures", "null", reEnveloped(func(e *dsse.Envelope) { e.Signatures = nil })).refused("signature", 1)

	p.add("E10", "another predicate type", "run-record/v2", edited("run-record/v1", "run-record/v2")).refused("statement", 1)
	p.add("E11", "another subject name", "record", edited(`"name":"run-record"`, `"name":"record"`)).refused("statement", 1)
	p.add("E12", "the subject of another record", "", stating(c, swapFirst(payload, c.Record.RecordSHA256, recordOf(abc()[1])))).refused("statement", 1)
	moved := snippet("a", "a()")
	moved.Record.EndedUnixMS++
	p.add("E13", "a record that does not digest to its own digest", "it ends a millisecond later", sealed(moved.Copy())).refused("statement", 1)
	five := snippet("a", "a()")
	five.Record.Version = 5
	five.Record.RecordSHA256 = recordDigest5(five)
	p.add("E14", "an unknown record version", "5, digested under a domain of its own", sealed(five.Copy())).refused("statement", 1)
	zero := snippet("a", "a()")
	zero.Record.Version = 0
	p.add("E15", "record version 0", "", sealed(zero.Copy())).refused("statement", 1)
	p.add("E16", "a version 1 record in a linked bundle", "", sealed(snippet("a", "a()").Version(1))).refused("statement", 1)
	answered := snippet("a", "a()")
	answered.Record.Unanswered = "internal"
	p.add("E17", "an answered record with an unanswered code", "version 2, which does not digest it", sealed(answered.SealRecord())).refused("statement", 1)
	three := snippet("a", "a()")
	three.Record.Version = 3
	p.add("E18", "a version 3 record without a code", "of an answered call", sealed(three.SealRecord())).refused("statement", 1)
	p.add("E19", "a record without one of its members", "policy", edited(`"policy":"`+policy+`",`, "")).refused("statement", 1)
	p.add("E20", "an unknown member in a record", "note", edited(`"predicate":{`, `"predicate":{"note":"",`)).refused("statement", 1)
	p.add("E21", "a time that is no integer", "1.79e12", edited(`"started_unix_ms":1790000000000`, `"started_unix_ms":1.79e12`)).refused("statement", 1)
	p.add("E22", "a number as a string", "sequence", edited(`"sequence":0`, `"sequence":"0"`)).refused("statement", 1)
	p.add("E23", "a digest in capitals", "record_sha256 and the subject", stating(c, []byte(strings.ReplaceAll(string(payload), c.Record.RecordSHA256, upper(c.Record.RecordSHA256))))).
		refused("statement", 1)
	p.add("E24", "a close's statement on a call", "beside a request and a response", stating(c, bundletest.NewSession("s").Close().Payload)).refused("stored", 1).tightening()
	p.add("E25", "a record's members in another order", "policy before environment", edited(
		`"environment":"","policy":"`+policy+`"`, `"policy":"`+policy+`","environment":""`)).refused("statement", 1).tightening()
	p.add("E26", "an empty optional member, written", "software_identity", edited(`"policy":`, `"software_identity":"","policy":`)).refused("statement", 1).tightening()
	p.add("E27", "a second signature on a record", "another key's, beside the right one", reEnveloped(func(e *dsse.Envelope) {
		e.Signatures = append(e.Signatures, stranger.Envelope(payload).Signatures[0])
	})).refused("statement", 1).tightening()
	p.add("E28", "a record's signature that names no key", "", reEnveloped(func(e *dsse.Envelope) { e.Signatures[0].KeyID = "" })).refused("statement", 1).tightening()
	p.add("E29", "a record's payload that is not base64", "a space inside", reEnveloped(func(e *dsse.Envelope) { e.Payload = e.Payload[:8] + " " + e.Payload[8:] })).
		refused("statement", 1)
	bare := bundletest.NewWriter(harness)
	bare.Line(chain.Line{Request: c.Entry().Request, Response: c.Entry().Response})
	bare.Entry(bundletest.Checkpoint)
	p.add("E30", "a call without an envelope", "request and response, linked", bare.Bundle()).refused("statement", 1)

	// Beyond the tables of the format.
	p.add("E31", "a link's statement on a call", "", stating(c, statement.AppendLink(nil, statement.Link{Index: 1, EntrySHA256: c.Record.RecordSHA256}))).refused("statement", 1)
	p.add("E32", "a record's statement under the type of a close", "", edited("run-record/v1", "session-close/v1")).refused("statement", 1)
	p.add("E33", "the type in another case", "Run-record/v1", edited("/run-record/v1", "/Run-record/v1")).refused("statement", 1)
	p.add("E34", "the payload type with a parameter", "; charset=utf-8, signed so", enveloped(c, harness.EnvelopeOfType(envelope.PayloadType+"; charset=utf-8", payload))).refused("statement", 1)
	p.add("E35", "no payload type", "signed so", enveloped(c, harness.EnvelopeOfType("", payload))).refused("statement", 1)
	p.add("E36", "an empty payload", "signed", stating(c, []byte{})).refused("statement", 1)
	p.add("E37", "a close without a digest in its subject", "", linked(entry{
		Payload: swapFirst(bundletest.NewSession("s").Close().Payload, bundletest.NewSession("s").Fingerprint, ""),
	})).refused("statement", 1)
	late := snippet("a", "a()")
	late.Record.Instance = bundletest.Instance
	p.add("E38", "an instance in a version 2 record", "which does not digest it", sealed(late.SealRecord())).refused("statement", 1)
	late = snippet("a", "a()").Unanswered("internal")
	late.Record.Instance = bundletest.Instance
	p.add("E39", "an instance in a version 3 record", "which does not digest it", sealed(late.SealRecord())).refused("statement", 1)
}

// swapFirst replaces the first occurrence: of a digest, the subject's.
func swapFirst(payload []byte, old, text string) []byte { return first(payload, old, text) }

func upper(s string) string { return strings.ToUpper(s) }

// recordDigest5 digests the record as a version 5 would: the fields of version 4
// under the next domain. The values are those of a single run.
func recordDigest5(c *call) string {
	r := c.Record
	h := sha256.New()
	value := func(s string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	value("plimsoll.run-record.v5")
	for _, f := range [][2]string{
		{"request_sha256", r.RequestSHA256},
		{"result_sha256", r.ResultSHA256},
		{"unanswered", ""},
		{"provider", r.Provider},
		{"isolation", r.Isolation},
		{"environment", r.Environment},
		{"policy", r.Policy},
		{"software_identity", ""},
		{"software_rule_id", ""},
		{"instance", ""},
		{"started_unix_ms", fmt.Sprint(r.StartedUnixMS)},
		{"ended_unix_ms", fmt.Sprint(r.EndedUnixMS)},
		{"session", ""},
		{"sequence", "0"},
		{"previous_sha256", ""},
	} {
		value(f[0])
		value(f[1])
	}
	return hex.EncodeToString(h.Sum(nil))
}
