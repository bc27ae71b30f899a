package verify

import (
	"fmt"

	"github.com/plimsoll-attest/plimsoll/chain"
)

// A Report says what was found in a bundle that verified, what was checked and
// what was not. Tiers and times are the runner's word, as signed.
type Report struct {
	KeyID       string // the one key under which the whole bundle verifies
	Linked      bool   // every line is tied to the one before, the end is a checkpoint
	Bytes       int64
	Lines       uint64
	Calls       uint64 // single runs and session calls, unanswered ones included
	Unanswered  uint64
	Sessions    uint64 // closed, those without a call included
	Checkpoints uint64
	Signatures  uint64 // verified: one an envelope, one a link
	// Tiers counts the calls of each tier; the empty one is none stated. A tier
	// is free text of the runner's: those longer than 64 bytes, and all but the
	// first 32 different ones, are counted in OtherTiers.
	Tiers      map[string]uint64
	OtherTiers uint64
	// FirstStartedUnixMS and LastEndedUnixMS are the smallest start and largest
	// end of all calls, by the runner's clock; 0 without calls.
	FirstStartedUnixMS int64
	LastEndedUnixMS    int64
	// End is the last line's number and digest: what a State remembers.
	End    chain.Position
	Checks []CheckResult
}

// A CheckResult is one question a verifier can be asked about a bundle and its
// answer. A check that failed is a Refusal and never stands here.
type CheckResult struct {
	Name    string // "lines", "links", "signatures", "statements", "stored", "floor", "chain", "complete", "min-isolation", "expect", "count", "state"
	Checked bool
	Detail  string // what held, or why it was not checked
}

// State returns what to remember of a verified, linked bundle.
func (r *Report) State() *State {
	return &State{Lines: r.End.Lines, Digest: r.End.Digest, KeyID: r.KeyID}
}

const (
	maxTierBytes = 64
	maxTiers     = 32
)

func (r *Report) countTier(tier string) {
	if _, seen := r.Tiers[tier]; !seen && (len(tier) > maxTierBytes || len(r.Tiers) == maxTiers) {
		r.OtherTiers++
		return
	}
	r.Tiers[tier]++
}

// checks lists what opts asked for and r found. unruled calls have a rule that
// their record says nothing of.
func (r *Report) checks(opts *Options, unruled uint64) []CheckResult {
	held := func(name, format string, args ...any) CheckResult {
		return CheckResult{Name: name, Checked: true, Detail: fmt.Sprintf(format, args...)}
	}
	skipped := func(name, why string) CheckResult { return CheckResult{Name: name, Detail: why} }

	list := []CheckResult{held("lines", "in canonical form: %s", count(r.Lines, "line"))}
	if r.Linked {
		list = append(list, held("links", "each line is tied to the one before it: %s", count(r.Lines, "link")))
	} else {
		list = append(list, skipped("links", "an unlinked bundle: single runs or whole sessions can have been cut or moved unseen"))
	}
	rule := ""
	if unruled > 0 {
		rule = fmt.Sprintf("; the software rule of %s of version 1 was not checked, its record states no software", count(unruled, "call"))
	}
	list = append(list,
		held("signatures", "good: %s by key %s", count(r.Signatures, "signature"), r.KeyID),
		held("statements", "whole: %s, %s", count(r.Calls, "run record"), count(r.Sessions, "session close")),
		held("stored", "as their records state: %s", count(r.Calls, "stored call")),
		held("floor", "floor and software rule of its own request met, by the runner's word: %s%s", count(r.Calls, "call"), rule),
		held("chain", "complete and closed: %s", count(r.Sessions, "session")),
	)
	if r.Linked {
		list = append(list, held("complete", "the last line is a checkpoint over %s", count(r.Lines-1, "line")))
	} else {
		list = append(list, skipped("complete", "an unlinked bundle has no checkpoint"))
	}
	if opts.MinIsolation != "" {
		list = append(list, held("min-isolation", "at tier %s or above, by the runner's word: %s", opts.MinIsolation, count(r.Calls, "call")))
	} else {
		list = append(list, skipped("min-isolation", "no tier floor given"))
	}
	if opts.Expect != nil {
		list = append(list, held("expect", "exactly the caller's list of %s: %s", opts.Expect.Kind(), count(r.Calls, "call")))
	} else {
		list = append(list, skipped("expect", "completeness: not checked, no expected list"))
	}
	if opts.ExpectCount != nil {
		list = append(list, held("count", "as many as expected: %s", count(r.Calls, "call")))
	} else {
		list = append(list, skipped("count", "no expected number of calls"))
	}
	if opts.State != nil {
		list = append(list, held("state", "extends the end remembered at line %d", opts.State.Lines))
	} else {
		list = append(list, skipped("state", "no remembered end: a bundle cut back to an earlier checkpoint would verify"))
	}
	return list
}

// count writes n and what is counted, in the plural unless n is 1.
func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
