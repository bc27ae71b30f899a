package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/filelock"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// wrapSchema names the lines of wrap (docs/wrap.md).
const wrapSchema = "plimsoll.wrap/v1"

// A wrapLine is a line of wrap's standard output. One of the three is set.
type wrapLine struct {
	Schema  string       `json:"schema"`
	Call    *wrapCall    `json:"call,omitempty"`
	Refused *wrapRefused `json:"refused,omitempty"`
	End     *wrapEnd     `json:"end,omitempty"`
}

// A wrapCall is a call that is signed and on disk.
type wrapCall struct {
	InputLine     uint64         `json:"input_line"` // 0 when the input is the runner's
	TraceID       string         `json:"trace_id"`
	Line          uint64         `json:"line"` // of the bundle
	RecordSHA256  string         `json:"record_sha256"`
	RequestSHA256 string         `json:"request_sha256"`
	ResultSHA256  string         `json:"result_sha256"` // empty when unanswered
	Session       string         `json:"session"`
	Sequence      uint64         `json:"sequence"`
	Tier          string         `json:"tier"`
	Unanswered    string         `json:"unanswered"` // a Connect code
	Outcome       string         `json:"outcome"`    // of a project
	OutcomeDetail string         `json:"outcome_detail"`
	Steps         []wrapStep     `json:"steps"` // a snippet is one
	Artifacts     []wrapArtifact `json:"artifacts"`
	Truncated     bool           `json:"artifacts_truncated"`
}

type wrapStep struct {
	Command         string `json:"command"`
	ExitCode        int32  `json:"exit_code"`
	TimedOut        bool   `json:"timed_out"`
	DurationMS      int64  `json:"duration_ms"`
	Stdout          []byte `json:"stdout"`
	Stderr          []byte `json:"stderr"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
}

type wrapArtifact struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
}

// A wrapRefused is a call of which nothing ran.
type wrapRefused struct {
	InputLine uint64 `json:"input_line"`
	TraceID   string `json:"trace_id"`
	Code      string `json:"code"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"`
}

// A wrapEnd is the last line.
type wrapEnd struct {
	Sealed     bool      `json:"sealed"`
	ExitStatus int       `json:"exit_status"` // of the runner
	Calls      uint64    `json:"calls"`       // in the bundle
	Refused    uint64    `json:"refused"`
	Moved      uint64    `json:"moved"` // signed, and in a side file
	Sessions   uint64    `json:"sessions"`
	Open       *wrapOpen `json:"open"` // the call that has no outcome
	Lines      uint64    `json:"lines"`
	LastSHA256 string    `json:"last_line_sha256"`
	KeyID      string    `json:"key_id"`
	SideFiles  []string  `json:"side_files"`
	Error      string    `json:"error"` // empty when all evidence is signed
}

type wrapOpen struct {
	InputLine     uint64 `json:"input_line"`
	TraceID       string `json:"trace_id"`
	RequestSHA256 string `json:"request_sha256"`
}

// A wrapOutput writes them. It keeps the first error: that nobody reads is no
// reason to leave a call unsigned.
type wrapOutput struct {
	std *streams
	err error
}

func (o *wrapOutput) write(l wrapLine) {
	if o.err != nil {
		return
	}
	l.Schema = wrapSchema
	err := cli.WriteJSON(o.std.out, l)
	if err == nil {
		err = o.std.out.Flush()
	}
	if err != nil {
		o.err = cli.OutputError(err)
	}
}

func (o *wrapOutput) recorded(inputLine uint64, r *attest.Recorded) {
	if r.Call != nil {
		o.write(wrapLine{Call: newWrapCall(inputLine, r.Line, r.Call)})
	}
}

func (o *wrapOutput) refused(r *runlog.Refused) {
	o.write(wrapLine{Refused: &wrapRefused{r.Line, r.TraceID, r.Code, r.Reason, r.Detail}})
}

func (o *wrapOutput) ended(e *attest.Ended, err error) {
	end := &wrapEnd{
		Sealed: e.Sealed, ExitStatus: e.Status, Calls: e.Calls, Refused: e.Refused, Moved: e.Moved, Sessions: e.Sessions,
		Lines: e.LinesAfter, LastSHA256: e.End.Digest, KeyID: e.KeyID, SideFiles: append([]string{}, e.SideFiles...),
	}
	if e.Open != nil {
		end.Open = &wrapOpen{e.Open.Line, e.Open.TraceID, e.Open.RequestSHA256}
	}
	if err != nil {
		end.Error = err.Error()
	}
	o.write(wrapLine{End: end})
}

func newWrapCall(inputLine, line uint64, x *verify.Exchange) *wrapCall {
	rec := x.Record
	c := &wrapCall{
		InputLine: inputLine, TraceID: x.Request.TraceID, Line: line,
		RecordSHA256: rec.RecordSHA256, RequestSHA256: rec.RequestSHA256, ResultSHA256: rec.ResultSHA256,
		Session: rec.Session, Sequence: rec.Sequence, Tier: rec.Isolation, Unanswered: rec.Unanswered,
		Steps: []wrapStep{}, Artifacts: []wrapArtifact{},
	}
	switch resp := x.Response; {
	case resp == nil:
	case resp.JavaScript != nil:
		r := resp.JavaScript
		c.Steps = append(c.Steps, wrapStep{"", r.ExitCode, r.TimedOut, resp.DurationMS, bytesOf(r.Stdout), bytesOf(r.Stderr), r.StdoutTruncated, r.StderrTruncated})
	case resp.Project != nil:
		r := resp.Project
		c.Outcome, c.OutcomeDetail, c.Truncated = strings.ReplaceAll(outcomeName(r.Outcome), " ", "_"), r.OutcomeDetail, r.ArtifactsTruncated
		for _, s := range r.Steps {
			c.Steps = append(c.Steps, wrapStep{s.Command, s.ExitCode, s.TimedOut, s.DurationMS, bytesOf(s.Stdout), bytesOf(s.Stderr), s.StdoutTruncated, s.StderrTruncated})
		}
		for _, a := range r.Artifacts {
			c.Artifacts = append(c.Artifacts, wrapArtifact{a.Path, bytesOf(a.Content)})
		}
	}
	return c
}

// bytesOf has an empty text be one, and not null.
func bytesOf(b []byte) []byte { return append([]byte{}, b...) }

// forward gives the runner the calls, one after the other, until they are over,
// ctx is done or the runner's evidence is wrong, which Close says again.
func (o *wrapOutput) forward(ctx context.Context, w *attest.Wrapped, calls io.Reader, list *expectedList) error {
	lines := readCalls(ctx, calls)
	var next *callLine
	for {
		var line callLine
		if next != nil {
			line, next = *next, nil
		} else {
			select {
			case line = <-lines:
			case <-ctx.Done():
			case <-w.Done():
			}
		}
		switch {
		case line.text == nil && line.err == nil, ctx.Err() != nil:
			return nil
		case line.err == io.EOF:
			return nil
		case line.err != nil:
			return line.err
		}
		// On the list before it can run: it may have, whatever ends this process.
		list.add(line.text)
		if err := w.Send(line.text); err != nil {
			list.takeBack()
			return err
		}
		// While it runs, see whether it was the last: a runner of a single call
		// waits for the end of its input.
		await := make(chan struct{})
		var outcome *attest.Outcome
		var err error
		go func() {
			defer close(await)
			outcome, err = w.Await(context.WithoutCancel(ctx))
		}()
		select {
		case <-await:
		case l := <-lines:
			if next = &l; l.err != nil {
				w.CloseInput()
			}
			<-await
		}
		switch {
		case err != nil:
			return nil // Close says it again
		case outcome == nil: // a blank line
		case outcome.Refused != nil:
			list.takeBack()
			o.refused(outcome.Refused)
		default:
			o.recorded(outcome.Line, outcome.Recorded)
		}
	}
}

type callLine struct {
	text []byte
	err  error // io.EOF at the end
}

// readCalls reads lines until ctx is done. The last sent is an error.
func readCalls(ctx context.Context, from io.Reader) <-chan callLine {
	lines := make(chan callLine)
	go func() {
		r := bufio.NewReaderSize(from, 64<<10)
		for number := 1; ; number++ {
			text, err := readCall(r)
			if err != nil && err != io.EOF {
				err = fmt.Errorf("calls: line %d: %w", number, err)
			}
			select {
			case lines <- callLine{text, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// readCall reads one line, of which the last may have no LF.
func readCall(r *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(text)+len(part) > call.MaxBytes+1 {
			return nil, fmt.Errorf("more than %d bytes", call.MaxBytes)
		}
		text = append(text, part...)
		switch {
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(text) > 0, err == nil:
			return append([]byte{}, bytes.TrimSuffix(text, []byte("\n"))...), nil
		default:
			return nil, err
		}
	}
}

// An expectedList adds to a file the calls that were forwarded, but for those that
// were refused: what verify --expect wants of the bundle. A nil one does nothing.
type expectedList struct {
	file   *os.File // locked
	before int64    // where the last call that was added begins
	err    error    // the first
}

// openExpected opens the list, which may have the calls of earlier runs.
func openExpected(ctx context.Context, name string) (*expectedList, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, cli.FileError(err))
	}
	if err := checkExpected(ctx, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &expectedList{file: f}, nil
}

func checkExpected(ctx context.Context, f *os.File) error {
	switch err := filelock.Lock(ctx, f, 0); {
	case errors.Is(err, errors.ErrUnsupported): // the file system has none
	case err != nil:
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return cli.FileError(err)
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() == 0:
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil {
		return cli.FileError(err)
	}
	if last[0] != '\n' {
		return errors.New("the last line has no end")
	}
	return nil
}

// add adds a call, unless the line is none.
func (l *expectedList) add(line []byte) {
	if l == nil || l.err != nil {
		return
	}
	var end int64
	if end, l.err = l.file.Seek(0, io.SeekEnd); l.err != nil {
		return
	}
	l.before = end
	if c, refused := call.Parse(line); refused == nil {
		_, l.err = fmt.Fprintf(l.file, "%s %s\n", c.Request.Digest(), c.Request.TraceID)
	}
}

// takeBack takes the last call from the list: it did not run.
func (l *expectedList) takeBack() {
	if l != nil && l.err == nil {
		l.err = l.file.Truncate(l.before)
	}
}

// discard closes a list of a run that was none. One that is empty is not left.
func (l *expectedList) discard() {
	if l == nil {
		return
	}
	if info, err := l.file.Stat(); err == nil && info.Size() == 0 {
		os.Remove(l.file.Name())
	}
	l.file.Close()
}

// close returns the first error that there was.
func (l *expectedList) close() error {
	if l == nil {
		return nil
	}
	err := errors.Join(l.file.Sync(), l.file.Close())
	if l.err != nil {
		err = l.err
	}
	if err != nil {
		return fmt.Errorf("expected list: %w", err) // with its name
	}
	return nil
}
