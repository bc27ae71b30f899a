package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
)

// What is kept of outputs. More is read and thrown away, and flagged.
const (
	maxSnippetOutput = 1 << 20 // of each stream
	maxStepOutput    = 256 << 10
	maxArtifactBytes = 8 << 20 // of all artifacts
	maxScriptOutput  = 64 << 10
)

// A capture keeps the first bytes of a stream.
type capture struct {
	kept      []byte
	limit     int
	truncated bool
}

func (c *capture) add(data []byte) {
	room := c.limit - len(c.kept)
	if len(data) > room {
		data, c.truncated = data[:room], true
	}
	c.kept = append(c.kept, data...)
}

// A result is what a command did.
type result struct {
	stdout, stderr capture
	exitCode       int32
	took           time.Duration
}

// errDeadline is the cause of a context that ended because the call's time is
// over, and of nothing else.
var errDeadline = errors.New("the call's deadline passed")

// errTooMuch ends a command whose output is of no use any more.
var errTooMuch = errors.New("more output than is kept")

// exec runs a command to its exit. A result is returned with an error too: what
// was printed until then. The error is that of the gateway, or the cause of the
// context's end.
func (b *box) exec(ctx context.Context, argv []string, dir string, stdin io.Reader, limit int) (*result, error) {
	r := &result{stdout: capture{limit: limit}, stderr: capture{limit: limit}}
	began := time.Now()
	e, err := b.gateway.Exec(ctx, openshell.ExecRequest{
		Sandbox: b.name, ID: b.id, Command: argv, Workdir: dir, Environment: locale, Stdin: stdin,
		OnOutput: func(s openshell.Stream, data []byte) {
			if s == openshell.Stdout {
				r.stdout.add(data)
			} else {
				r.stderr.add(data)
			}
		},
	})
	if err == nil {
		r.exitCode, err = e.Wait()
	}
	r.took = time.Since(began)
	return r, err
}

// A dispatch carries out the payload of one call. It notes whether anything was
// sent that may have run.
type dispatch struct {
	box  *box
	node string // path
	sent bool
}

// run returns the result of the payload. When the call's deadline passed it
// returns the result so far with errDeadline: whether that is an answer depends
// on the proof that no process of the call is left. With any other error there is
// no result.
func (d *dispatch) run(ctx context.Context, req *record.Request) (*record.Response, error) {
	if req.JavaScript != nil {
		res, err := d.snippet(ctx, req.JavaScript)
		return &record.Response{JavaScript: res}, err
	}
	res, err := d.project(ctx, req.Project)
	return &record.Response{Project: res}, err
}

// exec is the box's, for a command of a call.
func (d *dispatch) exec(ctx context.Context, argv []string, dir string, stdin io.Reader, limit int) (*result, error) {
	if err := ctx.Err(); err != nil {
		return &result{}, context.Cause(ctx)
	}
	first := !d.sent
	d.sent = true
	r, err := d.box.exec(ctx, argv, dir, stdin, limit)
	if first && notStarted(err) {
		d.sent = false
	}
	return r, err
}

// notStarted reports whether the gateway has said that it started nothing.
func notStarted(err error) bool {
	for _, kind := range []error{
		openshell.ErrNotReady, openshell.ErrNotFound, openshell.ErrInvalid, openshell.ErrDenied,
		openshell.ErrUnsupported, openshell.ErrTooLarge,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// killedCode is the exit code of what was killed at its deadline: no program
// chose it, the flag beside it says what it means.
const killedCode = 137

func (d *dispatch) snippet(ctx context.Context, run *record.JavaScriptRun) (*record.JavaScriptResult, error) {
	r, err := d.exec(ctx, d.box.runner.command(d.node, "-"), workDir, strings.NewReader(run.Code), maxSnippetOutput)
	res := &record.JavaScriptResult{
		Stdout: r.stdout.kept, StdoutTruncated: r.stdout.truncated,
		Stderr: r.stderr.kept, StderrTruncated: r.stderr.truncated,
		ExitCode: r.exitCode,
	}
	if errors.Is(err, errDeadline) {
		res.ExitCode, res.TimedOut = killedCode, true
	}
	return res, err
}

func (d *dispatch) project(ctx context.Context, run *record.ProjectRun) (*record.ProjectResult, error) {
	res := &record.ProjectResult{Outcome: record.OutcomeCompleted}
	timedOut := func(err error) (*record.ProjectResult, error) {
		if errors.Is(err, errDeadline) {
			res.Outcome, res.OutcomeDetail = record.OutcomeTimedOut, "the call's deadline"
		}
		return res, err
	}
	if len(run.Files) > 0 {
		detail, err := d.writeFiles(ctx, run.Files)
		if err != nil {
			return timedOut(err)
		}
		if detail != "" {
			res.Outcome, res.OutcomeDetail = record.OutcomeSetupFailed, detail
			return res, nil
		}
	}
	for _, step := range run.Steps {
		if ctx.Err() != nil {
			return timedOut(context.Cause(ctx)) // the result holds steps that ran
		}
		r, err := d.exec(ctx, d.box.runner.command(shell, "-c", step), workDir, nil, maxStepOutput)
		s := record.StepResult{
			Command: step,
			Stdout:  r.stdout.kept, StdoutTruncated: r.stdout.truncated,
			Stderr: r.stderr.kept, StderrTruncated: r.stderr.truncated,
			ExitCode: r.exitCode, DurationMS: r.took.Milliseconds(),
		}
		if errors.Is(err, errDeadline) {
			s.ExitCode, s.TimedOut = killedCode, true
		}
		res.Steps = append(res.Steps, s)
		if err != nil {
			return timedOut(err)
		}
		if s.ExitCode != 0 {
			break
		}
	}
	var notes []string
	left := maxArtifactBytes
	for _, path := range run.Artifacts {
		content, found, note, err := d.readFile(ctx, path, left)
		switch {
		case notStarted(err):
			// The steps are through, whatever became of the sandbox after them.
			note = "the sandbox has ended"
		case err != nil:
			return timedOut(err)
		}
		if note == tooLarge {
			res.ArtifactsTruncated = true
		}
		switch {
		case note != "":
			notes = append(notes, fmt.Sprintf("artifact %q: %s", path, note))
		case found:
			left -= len(content)
			res.Artifacts = append(res.Artifacts, record.Artifact{Path: path, Content: content})
		}
	}
	res.OutcomeDetail = strings.Join(notes, "; ")
	return res, nil
}

// writeFiles puts the files of a project in place. What was in their way is
// removed. A file that cannot be written stops the project, and the detail says
// which: the disk is full, or another file has its folder's name.
func (d *dispatch) writeFiles(ctx context.Context, files []record.ProjectFile) (detail string, err error) {
	r, err := d.exec(ctx, d.box.runner.script(receiveScript), "/", strings.NewReader(writeFiles(files)), maxScriptOutput)
	switch {
	case err != nil:
		return "", err
	case r.exitCode == 0:
		return "", nil
	case r.exitCode == fileNotWritten:
		// The number is the sandbox's word; out of range it names nothing.
		lines := bytes.Fields(r.stderr.kept)
		if len(lines) > 0 {
			if n, err := strconv.Atoi(string(lines[len(lines)-1])); err == nil && n >= 1 && n <= len(files) {
				return fmt.Sprintf("file %q could not be written", files[n-1].Path), nil
			}
		}
	}
	return fmt.Sprintf("the files could not be written: status %d", r.exitCode), nil
}

const tooLarge = "too large for what is left of 8 MiB"

// readFile fetches an artifact. Of one that is not there, is no file, cannot be read
// or has no room any more the note says so.
func (d *dispatch) readFile(ctx context.Context, path string, room int) (content []byte, found bool, note string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var out capture
	out.limit = room
	e, err := d.box.gateway.Exec(ctx, openshell.ExecRequest{
		Sandbox: d.box.name, ID: d.box.id, Command: d.box.runner.script(readScript, path), Workdir: "/",
		OnOutput: func(s openshell.Stream, data []byte) {
			if s != openshell.Stdout {
				return
			}
			if out.add(data); out.truncated {
				stop(errTooMuch)
			}
		},
	})
	var code int32
	if err == nil {
		code, err = e.Wait()
	}
	switch {
	case out.truncated:
		return nil, false, tooLarge, nil
	case err != nil:
		return nil, false, "", err
	case code == 0:
		return out.kept, true, "", nil
	case code == notThere:
		return nil, false, "not there", nil
	case code == notAFile:
		return nil, false, "not a regular file", nil
	}
	return nil, false, fmt.Sprintf("not readable: status %d", code), nil
}
