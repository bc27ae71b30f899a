package runner

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// An Outcome is what became of one call of Serve: of the last three exactly one
// is set.
type Outcome struct {
	Line       uint64
	TraceID    string
	Answer     *Answer
	Refused    *call.Refused
	Unanswered *Unanswered
}

// Serve runs the calls of in, one a line, in one session, and writes the run log:
// a line for each as soon as it is over, the close of the session and the end. It
// ends when in does, or when ctx does: then the running call has no answer, the
// session is closed and the log has its end all the same.
//
// Blank lines are no calls. Each outcome is told to the function, after its line
// was written. The error is one of in or of the log: refused and unanswered calls
// are none. Where no session can be made every call is refused for that, and the
// error, once the log has its end, is a *call.Refused.
func (r *Runner) Serve(ctx context.Context, in io.Reader, log *runlog.Writer, told func(Outcome)) error {
	session, err := r.Open(ctx)
	var closed *call.Refused
	if err != nil && !errors.As(err, &closed) {
		return err
	}
	failed := r.serve(ctx, in, log, told, session, closed)
	if session != nil {
		// Without ctx: the statement of what there was is due in any case.
		c, err := session.Close(context.WithoutCancel(ctx))
		if err == nil && failed == nil {
			err = log.Close(statement.AppendClose(nil, c))
		}
		if failed == nil {
			failed = err
		}
	}
	if failed == nil { // a log without its end says so
		failed = log.End()
	}
	if failed == nil && closed != nil {
		return closed
	}
	return failed
}

func (r *Runner) serve(ctx context.Context, in io.Reader, log *runlog.Writer, told func(Outcome), session *Session, closed *call.Refused) error {
	done := make(chan struct{})
	defer close(done)
	lines := readLines(in, done)
	for {
		var l inputLine
		select {
		case l = <-lines:
		case <-ctx.Done():
			return nil
		}
		if l.err == io.EOF {
			return nil
		}
		if l.err != nil {
			return fmt.Errorf("input: %w", l.err)
		}
		o := Outcome{Line: l.number}
		asked, refused := parseLine(&l)
		if refused == nil && closed != nil {
			again := *closed
			refused = again.Of(asked.Request)
		}
		var err error
		if refused == nil {
			o.Answer, err = session.Run(ctx, asked)
			if err != nil && !errors.As(err, &refused) && !errors.As(err, &o.Unanswered) {
				return err
			}
		}
		switch {
		case refused != nil:
			o.Refused, o.TraceID = refused, refused.TraceID
			err = log.Refused(refusedLine(l.number, refused))
		case o.Unanswered != nil:
			o.TraceID = asked.Request.TraceID
			err = log.Unanswered(o.Unanswered.Request, o.Unanswered.Statement)
		default:
			o.TraceID = asked.Request.TraceID
			err = log.Answered(o.Answer.Request, o.Answer.Response, o.Answer.Statement)
		}
		if err != nil {
			return fmt.Errorf("run log: %w", err)
		}
		told(o)
	}
}

// WriteTo writes the lines of a single run to a run log: of the answer, or of the
// refusal, and the end. There is no line for a call that was lost.
func (o *Outcome) WriteTo(log *runlog.Writer) error {
	var err error
	switch {
	case o.Answer != nil:
		err = log.Answered(o.Answer.Request, o.Answer.Response, o.Answer.Statement)
	case o.Refused != nil:
		err = log.Refused(refusedLine(o.Line, o.Refused))
	}
	if err != nil {
		return err
	}
	return log.End()
}

func refusedLine(number uint64, r *call.Refused) runlog.Refused {
	return runlog.Refused{Line: number, TraceID: r.TraceID, Code: r.Code, Reason: r.Reason, Detail: r.Detail}
}

func parseLine(l *inputLine) (*call.Call, *call.Refused) {
	if l.tooLong {
		return nil, call.Refuse(call.CodeInvalidArgument, call.ReasonRequest, "the line has more than %d bytes", call.MaxBytes)
	}
	return call.Parse(l.text)
}

type inputLine struct {
	number  uint64
	text    []byte
	tooLong bool
	err     error
}

// readLines reads ahead by one line, so that the end of a context is not missed
// for an input that gives nothing. It stops when done is closed and its reader
// returns.
func readLines(in io.Reader, done <-chan struct{}) <-chan inputLine {
	lines := make(chan inputLine)
	go func() {
		r := bufio.NewReaderSize(in, 64<<10)
		for number := uint64(1); ; number++ {
			l := readLine(r)
			if l.number = number; l.err == nil && !l.tooLong && len(bytes.TrimSpace(l.text)) == 0 {
				continue
			}
			select {
			case lines <- l:
			case <-done:
				return
			}
			if l.err != nil {
				return
			}
		}
	}()
	return lines
}

// readLine reads one line without its LF, of which the last may have none. Of one
// that is too long it keeps nothing.
func readLine(r *bufio.Reader) inputLine {
	var l inputLine
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case l.tooLong:
		case len(l.text)+len(part) > call.MaxBytes+1:
			l.text, l.tooLong = nil, true
		default:
			l.text = append(l.text, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && (len(l.text) > 0 || l.tooLong):
		case err != nil:
			l.err = err
			return l
		}
		l.text = bytes.TrimSuffix(l.text, []byte("\n"))
		return l
	}
}
