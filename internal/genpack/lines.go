package main

import (
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// lines is group L: the text of two calls and, on lines 3 and 4, checkpoints,
// edited by someone without the key.
func lines(p *pack) {
	good := linked(abc()[0], abc()[1], bundletest.Checkpoint)
	edit := func(n int, old, text string) []byte {
		return editLine(good, n, func(line string) string { return first(line, old, text) })
	}
	request := member(string(bundletest.Lines(good)[1]), "request")
	response := member(string(bundletest.Lines(good)[1]), "response")

	p.add("L01", "a second call after a line's object", "a whole signed line appended to line 1", editLine(good, 1, func(line string) string {
		return line + string(bundletest.Lines(good)[1])
	})).refused("line", 1)
	p.add("L02", "text after a line's object", "", editLine(good, 2, func(line string) string { return line + "more" })).refused("line", 2)
	p.add("L03", "a blank line", "after line 1", editLine(good, 1, func(line string) string { return line + "\n" })).refused("line", 2)
	p.add("L04", "a blank line at the end", "", append(slices.Clone(good), '\n')).refused("line", 5)
	p.add("L05", "a repeated name", "request twice, a false one first", edit(2, `{"request":`, `{`+member(string(bundletest.Lines(good)[0]), "request")+`,"request":`)).refused("line", 2)
	p.add("L06", "a name in another case", "Request", edit(2, `"request"`, `"Request"`)).refused("line", 2)
	p.add("L07", "a space before the object", "", edit(2, `{`, ` {`)).refused("line", 2)
	p.add("L08", "a space after the object", "", editLine(good, 2, func(line string) string { return line + " " })).refused("line", 2)
	p.add("L09", "a space inside the object", "after a colon", edit(2, `"request":`, `"request": `)).refused("line", 2)
	p.add("L10", "an escape in a name", `\u0072equest`, edit(2, `"request"`, `"\u0072equest"`)).refused("line", 2)
	p.add("L11", "an escape in a value", `application\/vnd`, edit(2, `application/vnd`, `application\/vnd`)).refused("line", 2)
	p.add("L12", "CR LF at the ends of lines", "", []byte(strings.ReplaceAll(string(good), "\n", "\r\n"))).refused("line", 1)
	p.add("L13", "no LF after the last line", "", good[:len(good)-1]).refused("line", 4)
	p.add("L14", "a byte order mark", "EF BB BF before line 1", append([]byte("\xef\xbb\xbf"), good...)).refused("line", 1)
	p.add("L15", "members in another order", "the envelope before the request", editLine(good, 2, func(line string) string {
		_, rest, _ := strings.Cut(line, `,"envelope":`)
		envelope, link, _ := strings.Cut(rest, `,"link":`)
		return `{"envelope":` + envelope + `,` + request + `,` + response + `,"link":` + link
	})).refused("line", 2)
	p.add("L16", "an unknown member", "note", edit(2, `{`, `{"note":"",`)).refused("line", 2)
	p.add("L17", "a member that is null", "a response on the checkpoint", edit(4, `{`, `{"response":null,`)).refused("line", 4)
	p.add("L18", "a line break in base64", `\n in a stored request`, editLine(good, 2, func(line string) string {
		return strings.Replace(line, request, request[:20]+`\n`+request[20:], 1)
	})).refused("line", 2)
	p.add("L19", "base64 without its padding", "of a stored message", editLine(good, 2, unpad)).refused("line", 2)
	p.add("L20", "base64 in the URL-safe alphabet", "of a stored message", urlSafe()).refused("line", 2)
	p.add("L21", "base64 with stray bits", "of a stored message", strayLine()).refused("line", 2)
	p.add("L22", "an empty object on a line of its own", "after line 1", editLine(good, 1, func(line string) string { return line + "\n{}" })).refused("link", 2)
	p.add("L23", "a line cut short", "its second half", editLine(good, 2, func(line string) string { return line[:len(line)/2] })).refused("line", 2)
	p.add("L24", "a line that is no object", "[] after line 1", editLine(good, 1, func(line string) string { return line + "\n[]" })).refused("line", 2)
	p.add("L25", "bytes that are not UTF-8", "FF in a string", edit(2, `vnd.in-toto`, "vnd.\xffn-toto")).refused("line", 2)
	p.add("L26", "an empty member", "a response on the checkpoint", edit(4, `{`, `{"response":"",`)).refused("line", 4)
	p.add("L27", "a repeated name inside an envelope", "keyid", edit(4, `"keyid":`, `"keyid":"","keyid":`)).refused("line", 4)
	p.add("L28", "a line break in the last link's payload", `\n in its base64`, editParsed(good, 4, func(l *chain.Line) { l.Link.Payload = l.Link.Payload[:8] + "\n" + l.Link.Payload[8:] })).
		refused("statement", 4)
	p.add("L29", "a line break in the last link's signature", `\n in its base64`, editParsed(good, 4, func(l *chain.Line) {
		sig := l.Link.Signatures[0].Sig
		l.Link.Signatures[0].Sig = sig[:8] + "\n" + sig[8:]
	})).refused("signature", 4)
	p.add("L30", "a signature added to the last link", "a worthless one, in front", editParsed(good, 4, func(l *chain.Line) {
		l.Link.Signatures = append([]dsse.Signature{{KeyID: stranger.ID(), Sig: "AAAA"}}, l.Link.Signatures...)
	})).refused("statement", 4)
	p.add("L31", "an envelope on the checkpoint", "that nobody signed", editParsed(good, 4, func(l *chain.Line) { l.Envelope = stranger.Envelope([]byte("{}")) })).
		refused("link", 4)
	p.add("L32", "a NUL after the last LF", "", append(slices.Clone(good), 0)).refused("line", 5)

	// Beyond the tables of the format, in a bundle of one call.
	good = linked(abc()[0])
	p.add("L33", "upper-case digits in an escape", `\u003C in a key ID`, edit(1, `"keyid":"`, `"keyid":"\u003C`)).refused("line", 1)
	p.add("L34", "a character that must be escaped and is not", "< in a key ID", edit(1, `"keyid":"`, `"keyid":"<`)).refused("line", 1)
	p.add("L35", "U+2028 that is not escaped", "in a key ID", edit(1, `"keyid":"`, "\"keyid\":\"\u2028")).refused("line", 1)
	p.add("L36", "a control character in a string", "01 in a key ID", edit(1, `"keyid":"`, "\"keyid\":\"\x01")).refused("line", 1)
	p.add("L37", "an escape where a short one is due", `\u000a for \n`, edit(1, `"keyid":"`, `"keyid":"\u000a`)).refused("line", 1)
	p.add("L38", "an envelope that is null", "", edit(2, `{`, `{"envelope":null,`)).refused("line", 2)
	p.add("L39", "an envelope that is an empty object", "on the checkpoint", edit(2, `{`, `{"envelope":{},`)).refused("line", 2)
	p.add("L40", "an envelope with nothing in it, written out", "", edit(2, `{`, `{"envelope":{"payloadType":"","payload":"","signatures":null},`)).refused("line", 2)
	p.add("L41", "an envelope without its payload", "", edit(1, `"payload":`, `"payloads":`)).refused("line", 1)
	p.add("L42", "an unknown member in an envelope", "", edit(1, `"envelope":{`, `"envelope":{"note":"",`)).refused("line", 1)
	p.add("L43", "an unknown member in a signature", "cert", edit(1, `{"keyid":`, `{"cert":"","keyid":`)).refused("line", 1)
	p.add("L44", "sig before keyid", "", editLine(good, 2, func(line string) string {
		sig := parse([]byte(line)).Link.Signatures[0]
		return once(line, `"keyid":"`+sig.KeyID+`","sig":"`+sig.Sig+`"`, `"sig":"`+sig.Sig+`","keyid":"`+sig.KeyID+`"`)
	})).refused("line", 2)
	p.add("L45", "a comma after the last member", "", editLine(good, 1, func(line string) string { return line[:len(line)-1] + ",}" })).refused("line", 1)
	p.add("L46", "a comment", "after the object", editLine(good, 1, func(line string) string { return line + "//" })).refused("line", 1)
	p.add("L47", "single quotes", "", edit(1, `"request"`, `'request'`)).refused("line", 1)
}

// unpad takes the padding of the first stored message that has some away, or
// adds one where none has.
func unpad(line string) string {
	for _, name := range []string{"request", "response"} {
		if m := member(line, name); strings.HasSuffix(m, `="`) {
			return once(line, m, strings.TrimRight(m[:len(m)-1], "=")+`"`)
		}
	}
	m := member(line, "request")
	return once(line, m, m[:len(m)-1]+`="`)
}

// urlSafe is a bundle whose second request, written in the URL-safe alphabet,
// differs from the standard one.
func urlSafe() []byte {
	return editLine(linked(abc()[0], snippet("a", "???>>>~~~").Entry()), 2, func(line string) string {
		m := member(line, "request")
		value := m[len(`"request":`):]
		safe := strings.NewReplacer("+", "-", "/", "_").Replace(value)
		if safe == value {
			panic("the alphabets agree")
		}
		return once(line, m, `"request":`+safe)
	})
}

// strayLine is a bundle whose second request has unused bits set in its base64.
func strayLine() []byte {
	return editLine(linked(abc()[0], snippet("aa", "a()").Entry()), 2, func(line string) string {
		m := member(line, "request")
		return once(line, m, m[:len(`"request":"`)]+stray(m[len(`"request":"`):len(m)-1])+`"`)
	})
}
