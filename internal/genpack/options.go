package main

import (
	"slices"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// options is group O: what a verifier is asked besides the bundle and one key.
func options(p *pack) {
	at := func(tier string) entry {
		c := snippet("a", "a()")
		c.Record.Isolation = tier
		return c.Seal().Entry()
	}

	// The verifier's own tier floor.
	p.add("O01", "every call at the tier asked for", "", linked(at("kernel"), at("kernel"))).floor("kernel").own()
	p.add("O02", "every call above the tier asked for", "", linked(at("vm"), at("kernel"))).floor("container").own()
	p.add("O03", "a call below the tier asked for", "the second", linked(at("kernel"), at("container"))).floor("kernel").refused("floor", 2).own()
	p.add("O04", "a tier that is none, and a tier asked for", "fortress", linked(at("fortress"))).floor("process").refused("floor", 1).own()
	p.add("O05", "no tier, and a tier asked for", "", linked(at(""))).floor("process").refused("floor", 1).own()
	p.add("O06", "none, and a tier asked for", "", linked(at("none"))).floor("process").refused("floor", 1).own()
	s := bundletest.NewSession("s")
	p.add("O07", "an unanswered call below the tier asked for", "", linked(s.Add(snippet("a", "a()").Unanswered("internal")).Entry(), s.Close())).floor("vm").refused("floor", 1).own()
	p.add("O08", "no calls, and a tier asked for", "", linked()).floor("vm").own()
	p.add("O09", "none asked for", "no floor", linked(at("none"))).floor("none").unusable().own()
	p.add("O10", "a tier in another case asked for", "Kernel", linked(at("kernel"))).floor("Kernel").unusable().own()
	p.add("O11", "a tier that is none asked for", "fortress", linked(at("fortress"))).floor("fortress").unusable().own()
	p.add("O12", "a tier asked for of an unlinked bundle", "", bundletest.Unlinked(harness, snippet("a", "a()").Version(1).Entry())).unlinked().floor("kernel").refused("floor", 1).own()

	// The remembered end. Line 0 is said of what no line shows; a line, of the
	// one that is not what it was.
	full := resumed()
	end := func(n int) string { return parsed(full, n).Digest }
	p.add("O13", "a bundle at its remembered end", "", full).state(5, end(5), harness.ID()).own()
	p.add("O14", "a bundle past its remembered end", "of the first run", full).state(3, end(3), harness.ID()).own()
	p.add("O15", "a bundle cut back to before its remembered end", "whole in itself", order(full, 1, 2, 3)).state(5, end(5), harness.ID()).refused("state", 0).own()
	p.add("O16", "another bundle of the same length", "", linked(abc()[0], bundletest.Checkpoint, abc()[1], abc()[2])).state(5, end(5), harness.ID()).refused("state", 5).own()
	p.add("O17", "a bundle that was cut back and written on", "longer than it was", rewritten(full)).state(5, end(5), harness.ID()).refused("state", 5).own()
	p.add("O18", "a bundle of another key than the remembered one", "the same calls", bundletest.Linked(stranger, abc()...)).keys(harnessPub, "stranger").
		state(3, parsed(linked(abc()[:2]...), 3).Digest, harness.ID()).refused("state", 0).own()
	p.add("O19", "a refused bundle at its remembered end", "the end is looked at late", editLine(full, 2, func(line string) string { return line + " " })).state(5, end(5), harness.ID()).refused("line", 2).own()
	p.add("O20", "an empty file, and a remembered end", "", nil).state(5, end(5), harness.ID()).refused("incomplete", 0).own()
	p.add("O21", "a remembered end and a list that do not hold", "the end is looked at first", order(full, 1, 2, 3)).state(5, end(5), harness.ID()).expect("z").refused("state", 0).own()
	for i, c := range []struct{ what, text string }{
		{"an empty object", "{}\n"},
		{"another schema", `{"schema":"plimsoll.verify-state/v2","lines":5,"digest":"` + end(5) + `","key_id":"` + harness.ID() + `"}` + "\n"},
		{"no lines", `{"schema":"plimsoll.verify-state/v1","lines":0,"digest":"` + end(5) + `","key_id":"` + harness.ID() + `"}` + "\n"},
		{"a digest in capitals", `{"schema":"plimsoll.verify-state/v1","lines":5,"digest":"` + upper(end(5)) + `","key_id":"` + harness.ID() + `"}` + "\n"},
		{"a repeated name", `{"schema":"plimsoll.verify-state/v1","lines":5,"lines":3,"digest":"` + end(5) + `","key_id":"` + harness.ID() + `"}` + "\n"},
	} {
		p.add("O"+number(22+i), "a state file that is none", c.what, full).stateText(c.text).unusable().own()
	}

	// Several keys: a bundle verifies whole under one of them.
	both := []string{"stranger", harnessPub}
	p.add("O27", "several keys, the first signed", "", bundletest.Linked(stranger, abc()[0])).keys(both...).own()
	p.add("O28", "several keys, the second signed", "", linked(abc()[0])).keys(both...).own()
	p.add("O29", "the key changes in the middle", "line 2 on is signed by the other, which is given too", keyChange(1)).keys(both...).refused("signature", 2).own()
	p.add("O30", "the key changes at the checkpoint", "", keyChange(2)).keys(both...).refused("signature", 3).own()
	p.add("O31", "a record of the other key", "it is given too", enveloped(snippet("a", "a()"), stranger.Envelope(payloadOf(snippet("a", "a()"))))).keys(both...).refused("signature", 1).own()
	p.add("O32", "several keys, none of which signed", "", bundletest.Linked(bundletest.NamedKey("third"), abc()[0])).keys(both...).refused("signature", 1).own()
	p.add("O33", "a resumed bundle whose second run has another key", "both are given", keyChange(3)).keys(both...).refused("signature", 4).own()
	p.add("O34", "an unlinked bundle of two keys", "both are given", bundletest.Join(slices.Concat(
		bundletest.Lines(bundletest.Unlinked(harness, snippet("a", "a()").Version(1).Entry())),
		bundletest.Lines(bundletest.Unlinked(stranger, snippet("b", "b()").Version(1).Entry())))...)).unlinked().keys(both...).refused("signature", 2).own()
}

func (v *vector) stateText(text string) *vector {
	v.Args.State = text
	return v
}

// rewritten is the first run of a bundle, and two other ones after it.
func rewritten(full []byte) []byte {
	return bundletest.Extend(harness, order(full, 1, 2, 3), snippet("z", "z()").Entry(), bundletest.Checkpoint, snippet("y", "y()").Entry(), bundletest.Checkpoint)
}

// keyChange is a bundle of two calls, a checkpoint, a call and a checkpoint whose
// lines after the first n are signed by another key. Every link follows the
// line before.
func keyChange(n int) []byte {
	w, v := bundletest.NewWriter(harness), bundletest.NewWriter(stranger)
	for i, e := range []entry{abc()[0], abc()[1], bundletest.Checkpoint, abc()[2], bundletest.Checkpoint} {
		by := w
		if i >= n {
			by = v
		}
		before := len(by.Bundle())
		by.Entry(e)
		line := by.Bundle()[before:]
		line = line[:len(line)-1]
		if by == w {
			v.Raw(line)
		} else {
			w.Raw(line)
		}
	}
	return w.Bundle()
}
