package attest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/confine"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/runlog"
)

const (
	// DefaultCallTimeout is how long a runner may take for a call. It is more than
	// any call may run.
	DefaultCallTimeout = 10 * time.Minute
	// exitTimeout is how long a runner may take to exit after the end of its log; no
	// longer than a call may.
	exitTimeout = 30 * time.Second
	// stopTimeout is how long a runner may take to end when it is asked to.
	stopTimeout = 30 * time.Second
	// maxStderr bounds what is passed on of a runner's standard error, in bytes.
	maxStderr = 256 << 20
)

var (
	// ErrIsolation is wrapped when a part of the runner's view of the machine
	// cannot be had. Nothing was run.
	ErrIsolation = confine.ErrIsolation
	// ErrRunner is wrapped when a runner cannot be started, or does not end.
	ErrRunner = errors.New("runner")
	// ErrCall is wrapped when a call is not given to the runner: the runner does not
	// know of it, and can be given another.
	ErrCall = errors.New("call")
)

// HandOver must be the first thing that main does in a program that calls Wrap:
// the program is started anew to give the runner its view of the machine, and
// HandOver does not return there.
func HandOver() { confine.HandOver() }

// A Runner says which program to wrap and what it may see.
type Runner struct {
	// Args are its arguments. The first is its path, or a name to look for in
	// PATH.
	Args []string
	// Env has further variables for it, NAME=VALUE, besides PATH, the language,
	// the time zone, and those of the runner's settings, SANDBOX_….
	Env []string
	// Expose are files and folders that it may read, although they are in folders
	// hidden from it.
	Expose []string
	// Hide are further secret files, whose folders are hidden from it as those of the
	// key and the bundle are. Each may have one name (hard link) only.
	Hide []string
	// AllowWeakIsolation runs it also where a part of its view cannot be had;
	// Wrapped.Open says which.
	AllowWeakIsolation bool
	// CallTimeout is how long a call may be out before the runner is killed:
	// DefaultCallTimeout when 0.
	CallTimeout time.Duration
	// Stdin, if not nil, is the runner's input. Then its calls are not ours: only
	// that what it states is consistent can be checked.
	Stdin io.Reader
	// Stderr, if not nil, is given what it writes to its standard error, with
	// control characters made visible.
	Stderr io.Writer
}

// An Outcome is what became of a call. One of the last two is set, unless it is
// open.
type Outcome struct {
	Line    uint64 // that was forwarded, from 1
	TraceID string // empty when the call has none
	// RequestSHA256 is the digest of the request as it was given, by which a
	// caller's list can name it. It is empty when the line was no call.
	RequestSHA256 string
	// Recorded is a call that is signed and on disk. When the run fails later it can
	// be in a side file after that, and not in the bundle: see Close.
	Recorded *Recorded
	Refused  *runlog.Refused
}

// An Ended is what became of a runner and of its evidence.
type Ended struct {
	*Result
	// Status is its exit status, or 128 and the number of the signal that ended it.
	Status int
	// Open is the call that was forwarded and has no outcome, if there is one.
	Open *Outcome
}

// A Wrapped is a runner under way. Its evidence is signed as it is stated.
type Wrapped struct {
	// Open says which parts of the runner's view there are not, a sentence each.
	// It is empty unless weak isolation was allowed.
	Open []string

	runner  Runner
	process *confine.Process
	scratch string
	window  *window // nil when Stdin is the caller's

	lines    uint64        // forwarded
	pending  atomic.Bool   // a call was sent and its outcome not taken
	outcomes chan *Outcome // of that one
	signed   chan struct{} // closed when result and err are there
	result   *Result
	err      error

	input  sync.Once     // closes stdin
	passed chan struct{} // closed when all of stderr is passed on

	mu      sync.Mutex
	asked   bool        // to end
	timeout *time.Timer // of the call that is out
	late    error       // why it was killed
}

// Wrap starts a runner that the key, the bundle and the machine's other users are
// out of reach of, and signs what it states. The bundle is verified and locked,
// and the signer there, before the runner is started.
//
// The runner starts in the current folder where it sees that, else in its scratch
// folder, which is its HOME. An argument that names a file which it does not see is
// refused.
//
// Calls are made with Call, one after the other. Each must come back as it was
// given: a run log that states another request, a call twice or one of another
// session is wrong, and the runner is killed. Close ends the runner. Signal may be
// called at any time, the other methods by one goroutine at a time.
//
// Errors are those of Sign, or wrap ErrIsolation or ErrRunner. When ctx is done
// the runner is asked to end, as by SIGTERM; its evidence is signed all the same.
func Wrap(ctx context.Context, o Options, r Runner) (*Wrapped, error) {
	if err := protect(); err != nil {
		return nil, err
	}
	w := &Wrapped{
		runner: r, outcomes: make(chan *Outcome, 1), signed: make(chan struct{}), passed: make(chan struct{}),
	}
	if r.CallTimeout == 0 {
		w.runner.CallTimeout = DefaultCallTimeout
	}
	if r.Stdin == nil {
		w.window = new(window)
	}
	view, err := w.view(&o)
	if err != nil {
		return nil, err
	}
	progress := o.Progress
	o.Progress = func(r Recorded) {
		if progress != nil {
			progress(r)
		}
		if w.window != nil && r.Call != nil {
			w.end(Outcome{Recorded: &r})
		}
	}
	s, err := openSigning(ctx, o)
	if err != nil {
		return nil, err
	}
	if w.window != nil {
		s.window = w.window
		s.fresh = true // nothing that the bundle has is an outcome of a call made now
		s.refusedCall = func(r *runlog.Refused) { w.end(Outcome{Refused: r}) }
	}
	if err := w.start(view); err != nil {
		return nil, errors.Join(err, s.bundle.close())
	}
	s.failed = w.process.Kill
	go func() {
		defer close(w.signed)
		w.result, w.err = s.sign(context.WithoutCancel(ctx), w.process.Stdout)
	}()
	go func() {
		select {
		case <-ctx.Done():
			w.ask(os.Interrupt)
		case <-w.signed:
		}
	}()
	return w, nil
}

// start starts the runner in its view.
func (w *Wrapped) start(view *confine.View) (err error) {
	if w.scratch, err = os.MkdirTemp("", "plimsoll-wrap-"); err != nil {
		return fmt.Errorf("%w: scratch folder: %w", ErrRunner, err)
	}
	if view.Scratch, err = filepath.EvalSymlinks(w.scratch); err == nil {
		w.process, err = confine.Start(view)
	}
	if err != nil {
		os.Remove(w.scratch) // it is empty
		if errors.Is(err, ErrIsolation) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrRunner, err)
	}
	w.Open = w.process.Open
	go func() {
		defer close(w.passed)
		passOn(w.runner.Stderr, w.process.Stderr)
	}()
	if w.runner.Stdin != nil {
		go func() {
			_, _ = io.Copy(w.process.Stdin, w.runner.Stdin) // the runner has ended, or its input
			w.CloseInput()
		}()
	}
	return nil
}

// end tells whoever waits what became of the call that is out.
func (w *Wrapped) end(o Outcome) {
	w.mu.Lock()
	w.timeout.Stop()
	w.mu.Unlock()
	out := w.window.shut()
	out.Recorded, out.Refused = o.Recorded, o.Refused
	w.outcomes <- out // there is room: no other is out before this one is taken
}

// Call gives the runner a call, one line of JSON (docs/runner.md), and waits until
// it is on disk or refused. A blank line is passed on and has no outcome: nil.
//
// When ctx is done the runner is asked to end, as by Signal, and its outcome is
// waited for all the same: what may have run is signed. An error that wraps ErrCall
// left the runner as it was. With any other its evidence is wrong or over; Close
// says it again.
func (w *Wrapped) Call(ctx context.Context, text []byte) (*Outcome, error) {
	if err := w.Send(text); err != nil {
		return nil, err
	}
	return w.Await(ctx)
}

// Send is the first half of Call.
func (w *Wrapped) Send(text []byte) error {
	switch {
	case w.window == nil:
		return fmt.Errorf("%w: the runner's input is not ours", ErrCall)
	case w.pending.Load():
		return fmt.Errorf("%w: another is out", ErrCall)
	}
	text, err := oneLine(text)
	if err != nil {
		return err
	}
	w.lines++
	if len(bytes.TrimSpace(text)) > 0 {
		w.pending.Store(true)
		w.mu.Lock()
		w.timeout = time.AfterFunc(w.runner.CallTimeout, func() {
			w.kill(fmt.Errorf("%w: no answer to line %d within %v: killed", ErrRunner, w.lines, w.runner.CallTimeout))
		})
		w.mu.Unlock()
		w.window.forward(w.lines, text)
	}
	if _, err := w.process.Stdin.Write(append(text, '\n')); err != nil {
		// It reads no more: its log says why, or the lack of its end.
		w.process.Stdin.Close()
	}
	return nil
}

// oneLine returns a call as one line. The line ends within it are white space
// between the tokens of JSON; where they are not, and in all else, nothing is
// changed: what is signed is what was asked.
func oneLine(text []byte) ([]byte, error) {
	if len(text) > call.MaxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrCall, call.MaxBytes)
	}
	line := bytes.Clone(bytes.TrimSuffix(text, []byte("\n")))
	if !bytes.ContainsRune(line, '\n') {
		return line, nil
	}
	if _, refused := call.Parse(line); refused != nil {
		return nil, fmt.Errorf("%w: more than one line, and %w", ErrCall, refused)
	}
	for i, c := range line {
		if c == '\n' {
			line[i] = ' '
		}
	}
	return line, nil
}

// Await is the second half of Call.
func (w *Wrapped) Await(ctx context.Context) (*Outcome, error) {
	if !w.pending.Load() {
		return nil, nil
	}
	done := ctx.Done()
	for {
		select {
		case o := <-w.outcomes:
			w.pending.Store(false)
			return o, nil
		case <-done:
			done = nil
			w.ask(os.Interrupt)
		case <-w.signed:
			select {
			case o := <-w.outcomes: // its last
				w.pending.Store(false)
				return o, nil
			default:
				return nil, w.over()
			}
		}
	}
}

// Done is closed when the runner's evidence is over, or wrong.
func (w *Wrapped) Done() <-chan struct{} { return w.signed }

// kill ends the runner for a reason.
func (w *Wrapped) kill(why error) {
	w.mu.Lock()
	if w.late == nil {
		w.late = why
	}
	w.mu.Unlock()
	w.process.Kill()
}

// why returns the reason why the runner was killed, if it was.
func (w *Wrapped) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late
}

// over is the error of a call that the runner's log has no place for any more.
func (w *Wrapped) over() error {
	if late := w.why(); late != nil {
		return joinText(late, w.err)
	}
	if w.err != nil {
		return w.err
	}
	return fmt.Errorf("%w: the runner ended", ErrRunLog)
}

// CloseInput tells the runner that there are no more calls.
func (w *Wrapped) CloseInput() { w.input.Do(func() { w.process.Stdin.Close() }) }

// Signal asks the runner to end: to end its call, to close its session. Its
// evidence is signed all the same. Asked again, or when it takes more than 30
// seconds, it is killed.
func (w *Wrapped) Signal(s os.Signal) {
	if !w.ask(s) {
		w.process.Kill()
	}
}

// ask asks the runner to end, the first time.
func (w *Wrapped) ask(s os.Signal) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked {
		return false
	}
	w.asked = true
	w.process.Signal(s)
	// Process 1 can be deaf to it: the kernel drops what it does not catch.
	stop := min(stopTimeout, w.runner.CallTimeout)
	late := time.AfterFunc(stop, func() {
		w.kill(fmt.Errorf("%w: it did not end within %v of %v: killed", ErrRunner, stop, s))
	})
	go func() {
		<-w.signed
		late.Stop()
	}()
	return true
}

// Close ends the runner's input, if that is ours, waits until its evidence is signed and it has
// exited, and removes its scratch folder. The error is nil only if its log was
// whole and each call that was forwarded has its outcome. An Ended comes with
// every error.
func (w *Wrapped) Close() (*Ended, error) {
	if w.window == nil {
		<-w.signed
	} else {
		w.CloseInput()
		w.within(w.runner.CallTimeout, "end its log", func() { <-w.signed })
	}
	status, err := 0, error(nil)
	w.within(min(exitTimeout, w.runner.CallTimeout), "exit after the end of its log", func() { status, err = w.process.Wait() })
	<-w.passed
	w.process.Stdout.Close()
	w.process.Stderr.Close()

	ended := &Ended{Result: w.result, Status: status}
	switch {
	case w.err != nil:
		err = fmt.Errorf("%w; the runner exited with %d", w.err, status)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrRunner, err)
	}
	if late := w.why(); late != nil {
		err = joinText(late, err)
	}
	if w.window != nil {
		if ended.Open = w.window.out(); ended.Open != nil && err == nil {
			err = fmt.Errorf("%w: line %d was forwarded and has no outcome", ErrRunLog, ended.Open.Line)
		}
	}
	if gone := confine.RemoveScratch(w.scratch); gone != nil && w.runner.Stderr != nil {
		fmt.Fprintf(w.runner.Stderr, "%s: not all of it could be removed: %.200s\n", w.scratch, visible.Text(gone.Error()))
	}
	return ended, err
}

// within waits for what a runner should do, and kills it when it does not in time.
func (w *Wrapped) within(d time.Duration, what string, wait func()) {
	late := time.AfterFunc(d, func() {
		w.kill(fmt.Errorf("%w: it did not %s within %v: killed", ErrRunner, what, d))
	})
	defer late.Stop()
	wait()
}

// joinText is both errors in one line.
func joinText(first, second error) error {
	if second == nil {
		return first
	}
	return fmt.Errorf("%w; %w", first, second)
}

// passOn copies a runner's standard error, line by line, fit for a terminal. What
// nobody takes is read all the same, so that the runner does not wait for it.
func passOn(to io.Writer, from io.Reader) {
	if to == nil {
		to = io.Discard
	}
	r := bufio.NewReaderSize(from, 16<<10)
	passed, full := 0, false
	for {
		line, err := r.ReadSlice('\n') // or a piece of one
		switch passed += len(line); {
		case passed <= maxStderr:
			text, whole := bytes.CutSuffix(line, []byte("\n"))
			text = visible.Append(nil, string(text), true)
			if whole || err != nil && err != bufio.ErrBufferFull && len(text) > 0 {
				text = append(text, '\n')
			}
			_, _ = to.Write(text)
		case !full:
			full = true
			fmt.Fprintf(to, "\n… more than %d bytes: what follows is not passed on\n", maxStderr)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}
