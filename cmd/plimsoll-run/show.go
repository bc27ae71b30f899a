//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runner"
)

// tell says on stderr what became of a call.
func tell(std *streams, o runner.Outcome, show bool) {
	name := fmt.Sprintf("line %d", o.Line)
	if o.TraceID != "" {
		name = o.TraceID
	}
	switch {
	case o.Refused != nil:
		std.complain("%s: %v", name, o.Refused)
	case o.Unanswered != nil:
		std.complain("%s: %v", name, o.Unanswered)
	case o.Answer != nil && show:
		showResult(std.err, o.Answer.Result)
	}
}

func showResult(w io.Writer, res *record.Response) {
	if js := res.JavaScript; js != nil {
		showOutput(w, js.Stdout, js.StdoutTruncated)
		showOutput(w, js.Stderr, js.StderrTruncated)
		showEnd(w, js.ExitCode, js.TimedOut)
		return
	}
	for _, s := range res.Project.Steps {
		fmt.Fprintf(w, "$ %s\n", visible.Text(s.Command))
		showOutput(w, s.Stdout, s.StdoutTruncated)
		showOutput(w, s.Stderr, s.StderrTruncated)
		showEnd(w, s.ExitCode, s.TimedOut)
	}
	if d := res.Project.OutcomeDetail; d != "" {
		fmt.Fprintf(w, "(%s)\n", visible.Text(d))
	}
	for _, a := range res.Project.Artifacts {
		fmt.Fprintf(w, "(artifact %s: %d bytes)\n", visible.Text(a.Path), len(a.Content))
	}
	if res.Project.ArtifactsTruncated {
		fmt.Fprintln(w, "(some artifacts are too large and were left out)")
	}
}

// maxShown bounds what is shown of a stream. The run log has all that is kept.
const maxShown = 64 << 10

func showOutput(w io.Writer, data []byte, truncated bool) {
	if len(data) == 0 {
		return
	}
	if len(data) > maxShown {
		data, truncated = data[:maxShown], true
	}
	var text []byte
	for line := range strings.Lines(string(data)) {
		text = append(visible.Append(text, strings.TrimSuffix(line, "\n"), true), '\n')
	}
	_, _ = w.Write(text)
	if truncated {
		fmt.Fprintln(w, "(there was more)")
	}
}

func showEnd(w io.Writer, code int32, timedOut bool) {
	switch {
	case timedOut:
		fmt.Fprintln(w, "(its time was over)")
	case code != 0:
		fmt.Fprintf(w, "(exit status %d)\n", code)
	}
}
