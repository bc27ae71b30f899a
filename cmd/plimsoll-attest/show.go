package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// What is shown of a text or list unless asked for in full.
const (
	shownBytes = 4 << 10
	shownLines = 60
	shownItems = 50
)

// A printer shows entries of a bundle.
type printer struct {
	surface
	full bool
}

// A surface is what a printer writes on. All that it is given may hold text of
// others.
type surface interface {
	heading(text string)
	sentence(text string)
	fact(name, value string)
	// block shows a text of several lines. The note says what is special about it,
	// and left counts the bytes that are not shown.
	block(name, note, text string, left int)
}

func (p *printer) line(format string, args ...any) { p.sentence(fmt.Sprintf(format, args...)) }

func (p *printer) head(format string, args ...any) { p.heading(fmt.Sprintf(format, args...)) }

// named prints a name and its value, nothing for the empty value.
func (p *printer) named(name, value string) {
	if value != "" {
		if !p.full {
			value = shorten(value, maxValueBytes)
		}
		p.fact(name, value)
	}
}

// text prints a text of several lines.
func (p *printer) text(name, text string, cut bool) {
	note := ""
	if cut {
		note = ", CUT SHORT by the runner"
	}
	left := p.bounded(text)
	p.block(shorten(name, maxValueBytes), cli.Plural(len(text), "byte")+note, text[:len(text)-left], left)
}

// A textSurface is plain text, in which everything of others is made visible and
// each line of it has a bar in front, so that none can be taken for one of ours.
type textSurface struct{ w io.Writer } // which keeps its error

func (s textSurface) print(text string) { io.WriteString(s.w, visible.Text(text)+"\n") }

func (s textSurface) heading(text string) {
	s.print("")
	s.print(text)
}

func (s textSurface) sentence(text string) { s.print(text) }

func (s textSurface) fact(name, value string) { s.print(fmt.Sprintf("  %-12s %s", name, value)) }

func (s textSurface) block(name, note, text string, left int) {
	s.print(fmt.Sprintf("  %s, %s", name, note))
	var out []byte
	for rest := text; rest != ""; {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		out = visible.Append(append(out[:0], "    | "...), line, true)
		s.w.Write(append(out, '\n'))
	}
	if left > 0 {
		s.print(fmt.Sprintf("    … %s more, --full shows all", cli.Plural(left, "byte")))
	}
}

// entry shows one entry.
func (p *printer) entry(e verify.Entry) error {
	if e.Close != nil {
		p.close(e.Line, e.Close)
	} else {
		p.call(e.Line, e.Call)
	}
	return nil
}

func (p *printer) close(line uint64, c *statement.Close) {
	p.head("line %d: close of a session after %s", line, cli.Plural(c.Calls, "call"))
	p.named("session", c.Session)
	p.named("last record", c.LastRecordSHA256)
}

func (p *printer) call(line uint64, x *verify.Exchange) {
	rec, req := x.Record, x.Request
	name := req.TraceID
	if name == "" {
		name = "a call without a trace ID"
	}
	kind := string(req.Kind())
	if kind == "" {
		kind = "no payload"
	}
	p.head("line %d: %s (%s)", line, shorten(name, maxValueBytes), kind)
	if rec.Unanswered != "" {
		p.named("UNANSWERED", rec.Unanswered+", it may have run")
	}
	p.named("started", when(rec.StartedUnixMS))
	p.named("ended", when(rec.EndedUnixMS))
	p.named("tier", tierAndFloor(rec.Isolation, req.MinimumIsolation))
	p.named("provider", rec.Provider)
	p.named("environment", rec.Environment)
	p.named("software", rec.SoftwareIdentity)
	p.named("rule", rec.SoftwareRuleID)
	p.named("instance", rec.Instance)
	p.named("policy", rec.Policy)
	if rec.Session != "" {
		p.named("session", fmt.Sprintf("%s, call %d", rec.Session, rec.Sequence))
		p.named("after record", rec.PreviousSHA256)
	}
	p.named("request", rec.RequestSHA256)
	p.named("result", rec.ResultSHA256)
	p.named("record", fmt.Sprintf("%s, version %d", rec.RecordSHA256, rec.Version))
	p.named("protocol", strconv.FormatUint(uint64(req.Protocol), 10))
	if req.TimeoutMS != 0 {
		p.named("timeout", fmt.Sprintf("%d ms", req.TimeoutMS))
	}
	switch req.Kind() {
	case record.KindJavaScript:
		p.named("grant", req.JavaScript.GrantProfile)
		p.text("code", req.JavaScript.Code, false)
	case record.KindProject:
		p.project(req.Project, x.Response)
	case record.KindModule:
		p.module(req.Module)
	case record.KindCell:
		p.named("language", req.Cell.Language)
		p.files(req.Cell.Files)
		p.text("code", req.Cell.Code, false)
	}
	if x.Response != nil {
		p.response(x.Response)
	}
}

func tierAndFloor(tier, floor string) string {
	if tier == "" {
		tier = "not stated"
	}
	if floor == "" {
		return tier + ", no floor asked for"
	}
	return tier + ", floor " + floor
}

// project shows each step with what came of it.
func (p *printer) project(req *record.ProjectRun, resp *record.Response) {
	p.named("grant", req.GrantProfile)
	p.files(req.Files)
	var results []record.StepResult
	if resp != nil && resp.Project != nil {
		results = resp.Project.Steps
	}
	p.each(max(len(req.Steps), len(results)), "step", func(i int) {
		name := fmt.Sprintf("step %d", i+1)
		if i < len(req.Steps) {
			p.text(name, req.Steps[i], false)
		}
		switch {
		case i >= len(results):
			p.line("  %s has no result", name)
			return
		case i >= len(req.Steps) || results[i].Command != req.Steps[i]:
			p.text(name+" as the result states it", results[i].Command, false)
		}
		r := &results[i]
		p.exit(name, r.ExitCode, r.TimedOut, fmt.Sprintf(", %d ms", r.DurationMS))
		p.text(name+" stdout", string(r.Stdout), r.StdoutTruncated)
		p.text(name+" stderr", string(r.Stderr), r.StderrTruncated)
	})
	p.each(len(req.Artifacts), "artifact", func(i int) { p.named("fetch", req.Artifacts[i]) })
}

func (p *printer) module(req *record.ModuleRun) {
	p.named("model", req.Model)
	p.named("end time", float(req.EndTime)+", step "+float(req.Step))
	p.each(len(req.Rows), "row", func(i int) {
		p.named(fmt.Sprintf("row %d", i+1), p.floats(req.Rows[i].Values))
	})
}

func (p *printer) files(files []record.ProjectFile) {
	p.each(len(files), "file", func(i int) { p.text("file "+files[i].Path, files[i].Content, false) })
}

// response shows a result, but for the steps of a project.
func (p *printer) response(resp *record.Response) {
	p.named("took", fmt.Sprintf("%d ms", resp.DurationMS))
	switch resp.Kind() {
	case record.KindJavaScript:
		r := resp.JavaScript
		p.exit("code", r.ExitCode, r.TimedOut, "")
		p.text("stdout", string(r.Stdout), r.StdoutTruncated)
		p.text("stderr", string(r.Stderr), r.StderrTruncated)
	case record.KindProject:
		r := resp.Project
		p.outcome(r.Outcome, r.OutcomeDetail)
		p.each(len(r.Artifacts), "artifact", func(i int) {
			p.text("artifact "+r.Artifacts[i].Path, string(r.Artifacts[i].Content), false)
		})
		if r.ArtifactsTruncated {
			p.line("  artifacts were left out by the runner")
		}
	case record.KindModule:
		r := resp.Module
		p.outcome(r.Outcome, r.OutcomeDetail)
		p.named("width", strconv.Itoa(int(r.Width)))
		p.each(len(r.Runs), "result", func(i int) {
			p.named(fmt.Sprintf("result %d", i+1), fmt.Sprintf("status %d: %s", r.Runs[i].Status, p.floats(r.Runs[i].Outputs)))
		})
		p.text("stdout", string(r.Stdout), false)
		p.text("stderr", string(r.Stderr), false)
	case record.KindCell:
		r := resp.Cell
		p.exit("cell", r.ExitCode, r.TimedOut, "")
		p.named("interpreter", fmt.Sprintf("started %t, ended %t", r.InterpreterStarted, r.InterpreterEnded))
		p.text("stdout", string(r.Stdout), r.StdoutTruncated)
		p.text("stderr", string(r.Stderr), r.StderrTruncated)
	default:
		p.line("  no result")
	}
}

func (p *printer) exit(what string, code int32, timedOut bool, more string) {
	if timedOut {
		more += ", TIMED OUT"
	}
	p.line("  %s exited with %d%s", what, code, more)
}

func (p *printer) outcome(o record.Outcome, detail string) {
	p.named("outcome", outcomeName(o))
	p.named("detail", detail)
}

func outcomeName(o record.Outcome) string {
	name := map[record.Outcome]string{
		record.OutcomeUnspecified: "unspecified", record.OutcomeCompleted: "completed",
		record.OutcomeSetupFailed: "setup failed", record.OutcomeTimedOut: "timed out",
		record.OutcomeProtocolError: "protocol error", record.OutcomeRunnerFailed: "runner failed",
	}[o]
	if name == "" {
		name = "number " + strconv.Itoa(int(o))
	}
	return name
}

// each calls show for the elements of a list, in order, and says how many it
// left out.
func (p *printer) each(n int, what string, show func(i int)) {
	limit := n
	if !p.full {
		limit = min(n, shownItems)
	}
	for i := range limit {
		show(i)
	}
	if limit < n {
		p.line("  … %s more, --full shows all", cli.Plural(n-limit, what))
	}
}

// bounded returns how many bytes at the end of text are not to be shown.
func (p *printer) bounded(text string) int {
	if p.full {
		return 0
	}
	end := min(len(text), shownBytes)
	for at, lines := 0, 0; at < end; lines++ {
		if lines == shownLines {
			return len(text) - at
		}
		next := strings.IndexByte(text[at:end], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	if end < len(text) {
		for back := 0; back < utf8.UTFMax && !utf8.RuneStart(text[end]); back++ {
			end--
		}
	}
	return len(text) - end
}

func (p *printer) floats(list []float64) string {
	n := len(list)
	if !p.full {
		n = min(n, shownItems)
	}
	words := make([]string, 0, n+1)
	for _, f := range list[:n] {
		words = append(words, float(f))
	}
	if n < len(list) {
		words = append(words, "…")
	}
	return strings.Join(words, " ")
}

func float(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// decodeUnverified reads what a line stores beside a record. That the three
// have anything to do with each other is not asked.
func decodeUnverified(line *chain.ParsedLine, rec *record.Record) (*verify.Exchange, error) {
	req, err := record.ParseRequest(line.Request)
	if err != nil {
		return nil, fmt.Errorf("%w: request: %w", verify.ErrStored, err)
	}
	x := &verify.Exchange{Request: req, Record: rec}
	if len(line.Response) > 0 {
		if x.Response, err = record.ParseResponse(line.Response); err != nil {
			return nil, fmt.Errorf("%w: response: %w", verify.ErrStored, err)
		}
	}
	return x, nil
}
