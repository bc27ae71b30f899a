// Harness is a harness in Go. It holds the key itself and gives a runner calls, one
// at a time; the runner has a view of the machine in which there is neither the key
// nor the bundle. What became of a call is known when it is signed and on disk.
//
//	go run ./examples/harness --key harness.key --bundle bundle.jsonl --runner bin/plimsoll-run testdata/seed-session/calls.jsonl
//
// It exits with 0 when each call has an answer and all of the evidence is signed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/plimsoll-attest/plimsoll/attest"
)

// maxCall is more than any call may have.
const maxCall = 64 << 20

var (
	errUnsigned   = errors.New("not all of the evidence is signed")
	errUnanswered = errors.New("not every call has an answer")
)

func main() {
	attest.HandOver() // first of all: Wrap starts this program anew
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends this process, and with it the runner
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("harness", flag.ContinueOnError)
	f.SetOutput(stderr)
	key := f.String("key", "harness.key", "private key `file`, or agent:FINGERPRINT")
	bundle := f.String("bundle", "bundle.jsonl", "`file` to add the signed calls to")
	runner := f.String("runner", "plimsoll-run", "`path` of the runner, or its name in PATH")
	if err := f.Parse(args); err != nil {
		return err
	}
	calls := bufio.NewScanner(stdin) // a call is a line of JSON
	if f.NArg() > 0 {
		file, err := os.Open(f.Arg(0))
		if err != nil {
			return err
		}
		defer file.Close()
		calls = bufio.NewScanner(file)
	}
	calls.Buffer(nil, maxCall)

	signer, err := attest.OpenSigner(*key, attest.Passphrase("", false))
	if err != nil {
		return err
	}
	h := &harness{ctx: ctx, out: stdout, calls: calls}
	return h.session(
		attest.Options{Bundle: *bundle, Signer: signer},
		attest.Runner{Args: []string{*runner, "session"}, Stderr: stderr},
	)
}

type harness struct {
	ctx   context.Context
	out   io.Writer
	calls *bufio.Scanner

	unanswered int
}

// session makes the calls, one after the other. A signal ends it: the runner ends
// the call that is out, whose outcome is waited for, and there is no other.
func (h *harness) session(o attest.Options, r attest.Runner) error {
	w, err := attest.Wrap(h.ctx, o, r)
	if err != nil {
		return err // nothing ran
	}
	for err == nil && h.ctx.Err() == nil && h.calls.Scan() {
		err = h.tell(w.Call(h.ctx, h.calls.Bytes()))
	}
	ended, closeErr := w.Close() // seals the bundle, whatever happened before
	return h.end(ended, err, closeErr)
}

// tell prints what became of a call. Line and trace ID are the caller's; all else
// is the runner's word.
func (h *harness) tell(o *attest.Outcome, err error) error {
	switch {
	case err != nil: // there is no place for further calls; Close says why
	case o == nil: // a blank line
	case o.Refused != nil:
		// Nothing ran and nothing is signed: once corrected, it can be given again.
		h.unanswered++
		fmt.Fprintf(h.out, "%d %s: refused: %s: %q\n", o.Line, o.TraceID, o.Refused.Code, o.Refused.Detail)
	case o.Recorded.Call.Response == nil:
		// Signed. It may have run: given again, it may run twice.
		h.unanswered++
		fmt.Fprintf(h.out, "%d %s: unanswered: %s; line %d of the bundle\n", o.Line, o.TraceID, o.Recorded.Call.Record.Unanswered, o.Recorded.Line)
	default:
		fmt.Fprintf(h.out, "%d %s: exit %d; line %d of the bundle\n", o.Line, o.TraceID, exitCode(o.Recorded), o.Recorded.Line)
	}
	return err
}

// end says what is left to say when the runner is gone.
func (h *harness) end(ended *attest.Ended, callErr, closeErr error) error {
	if o := ended.Open; o != nil {
		// It may have run, and nothing is signed about it: not to be given again
		// without a thought, and the bundle does not show it.
		fmt.Fprintf(h.out, "%d %s: open\n", o.Line, o.TraceID)
	}
	for _, name := range ended.SideFiles {
		// Of these a line was printed above, and they are not in the bundle.
		fmt.Fprintf(h.out, "%d signed calls are in %s instead\n", ended.Moved, name)
	}
	switch {
	case closeErr != nil:
		return fmt.Errorf("%w: %w", errUnsigned, closeErr)
	case callErr != nil:
		return callErr // it could not be given to the runner
	case h.ctx.Err() != nil:
		return context.Cause(h.ctx)
	case h.calls.Err() != nil:
		return fmt.Errorf("calls: %w", h.calls.Err())
	case h.unanswered > 0:
		return fmt.Errorf("%w: %d have none", errUnanswered, h.unanswered)
	case ended.Status != 0:
		return fmt.Errorf("the runner exited with %d", ended.Status)
	}
	return nil
}

// exitCode returns that of the snippet, or of the last step that ran.
func exitCode(r *attest.Recorded) int32 {
	answer := r.Call.Response
	if answer.JavaScript != nil {
		return answer.JavaScript.ExitCode
	}
	if steps := answer.Project.Steps; len(steps) > 0 {
		return steps[len(steps)-1].ExitCode
	}
	return -1 // its files could not be written
}
