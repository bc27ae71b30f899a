package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// The verdicts.
const (
	verdictVerified = "verified"
	verdictRefused  = "refused"
	verdictError    = "error"
)

func (v *verdict) String() string {
	switch exitCode(v.err) {
	case exitDone:
		return verdictVerified
	case exitRefused:
		return verdictRefused
	}
	return verdictError
}

// checks are the report's, with what only this program knows of the state file.
func (v *verdict) checks() []verify.CheckResult {
	list := slices.Clone(v.report.Checks)
	for i := range list {
		if list[i].Name == "state" && v.firstSight {
			list[i].Detail = fmt.Sprintf("first sight of this bundle, remembered from now on in %s", v.state.path)
		}
	}
	return list
}

// printText prints what was found to stdout: the verdict first and, when the
// bundle verified, the facts. Why it did not is for stderr.
func printText(std *streams, v *verdict) {
	fmt.Fprintf(std.out, "%s: %s\n", visible.Text(v.bundle), v)
	if v.report != nil {
		printFacts(std.out, v)
	}
}

func printFacts(w io.Writer, v *verdict) {
	r := v.report
	for _, checked := range []bool{true, false} {
		fmt.Fprintln(w, map[bool]string{true: "  checked:", false: "  not checked:"}[checked])
		for _, c := range v.checks() {
			if c.Checked == checked {
				fmt.Fprintf(w, "    %s: %s\n", c.Name, visible.Text(c.Detail))
			}
		}
	}
	fmt.Fprintf(w, "  calls: %d\n  unanswered: %d\n  sessions: %d\n", r.Calls, r.Unanswered, r.Sessions)
	fmt.Fprintf(w, "  checkpoints: %d\n  signatures: %d\n  lines: %d (%s)\n", r.Checkpoints, r.Signatures, r.Lines, cli.Plural(r.Bytes, "byte"))
	fmt.Fprintf(w, "  key: %s\n", r.KeyID)
	if r.Calls > 0 {
		fmt.Fprintf(w, "  first call started: %s\n", when(r.FirstStartedUnixMS))
		fmt.Fprintf(w, "  last call ended: %s\n", when(r.LastEndedUnixMS))
	}
	for _, tier := range tiers(r.Tiers) {
		fmt.Fprintf(w, "  tier %s: %s\n", showTier(tier), cli.Plural(r.Tiers[tier], "call"))
	}
	if r.OtherTiers > 0 {
		fmt.Fprintf(w, "  other tiers: %s\n", cli.Plural(r.OtherTiers, "call"))
	}
}

// tiers returns the tiers that calls ran at, the weakest first, and then those
// that are none.
func tiers(counts map[string]uint64) []string {
	var list []string
	for _, known := range []string{record.TierNone, record.TierProcess, record.TierContainer, record.TierKernel, record.TierVM} {
		if counts[known] > 0 {
			list = append(list, known)
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(list, tier) {
			list = append(list, tier)
		}
	}
	return list
}

func showTier(tier string) string {
	if tier == "" {
		return "not stated"
	}
	return visible.Text(tier)
}

// reportSchema names the form of a JSON report, docs/verify-report.schema.json.
const reportSchema = "plimsoll.verify-report/v1"

// maxValueBytes bounds a value of a bundle in a report.
const maxValueBytes = 1024

// A jsonReport is one line of verify --format json. Of its parts exactly those
// of the verdict are there.
type jsonReport struct {
	Schema  string `json:"schema"`
	Bundle  string `json:"bundle"`  // as named on the command line
	Verdict string `json:"verdict"` // "verified", "refused" or "error"
	*JSONRefusal
	Reason string `json:"reason,omitempty"` // refused or error
	*JSONFacts
}

// JSONRefusal says why a bundle is refused.
type JSONRefusal struct {
	Check  verify.Check `json:"check"`
	Line   uint64       `json:"line"` // 0 for the bundle as a whole
	Offset int64        `json:"offset"`
	Have   string       `json:"have"`
	Want   string       `json:"want"`
}

// JSONFacts is what was found in a verified bundle.
type JSONFacts struct {
	KeyID              string            `json:"key_id"`
	Linked             bool              `json:"linked"`
	Bytes              int64             `json:"bytes"`
	Lines              uint64            `json:"lines"`
	Calls              uint64            `json:"calls"`
	Unanswered         uint64            `json:"unanswered"`
	Sessions           uint64            `json:"sessions"`
	Checkpoints        uint64            `json:"checkpoints"`
	Signatures         uint64            `json:"signatures"`
	Tiers              map[string]uint64 `json:"tiers"`
	OtherTiers         uint64            `json:"other_tiers"`           // calls of tiers that tiers has no room for
	FirstStartedUnixMS *int64            `json:"first_started_unix_ms"` // null without calls
	LastEndedUnixMS    *int64            `json:"last_ended_unix_ms"`
	EndSHA256          string            `json:"end_sha256"` // digest of the last line
	FirstSight         bool              `json:"first_sight"`
	Checks             []jsonCheck       `json:"checks"`
}

type jsonCheck struct {
	Name    string `json:"name"`
	Checked bool   `json:"checked"`
	Detail  string `json:"detail"`
}

func printJSON(std *streams, v *verdict) {
	out := jsonReport{Schema: reportSchema, Bundle: v.bundle, Verdict: v.String()}
	var refusal *verify.Refusal
	switch {
	case v.report != nil:
		out.JSONFacts = v.facts()
	case errors.As(v.err, &refusal):
		out.Reason = visible.Text(refusal.Err.Error())
		out.JSONRefusal = &JSONRefusal{
			Check: refusal.Check, Line: refusal.Line, Offset: refusal.Offset,
			Have: shorten(refusal.Have, maxValueBytes), Want: shorten(refusal.Want, maxValueBytes),
		}
	default:
		out.Reason = visible.Text(v.err.Error())
	}
	cli.WriteJSON(std.out, out)
}

func (v *verdict) facts() *JSONFacts {
	r := v.report
	f := &JSONFacts{
		KeyID: r.KeyID, Linked: r.Linked, Bytes: r.Bytes, Lines: r.Lines, Calls: r.Calls,
		Unanswered: r.Unanswered, Sessions: r.Sessions, Checkpoints: r.Checkpoints, Signatures: r.Signatures,
		Tiers: r.Tiers, OtherTiers: r.OtherTiers, EndSHA256: r.End.Digest, FirstSight: v.firstSight,
	}
	if r.Calls > 0 {
		f.FirstStartedUnixMS, f.LastEndedUnixMS = &r.FirstStartedUnixMS, &r.LastEndedUnixMS
	}
	for _, c := range v.checks() {
		f.Checks = append(f.Checks, jsonCheck{c.Name, c.Checked, c.Detail})
	}
	return f
}
