package attest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	// maxStderr bounds what is passed on of a runner's standard error, in bytes.
	maxStderr = 256 << 20
)

var (
	// ErrIsolation is wrapped when a part of the runner's view of the machine
	// cannot be had. Nothing was run.
	ErrIsolation = confine.ErrIsolation
	// ErrRunner is wrapped when a runner cannot be started, or does not end.
	ErrRunner = errors.New("runner")
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
	// Hide are further files whose folders are hidden from it, as those of the key
	// and the bundle are.
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

// An Outcome is what became of a call. One of the last two is set.
type Outcome struct {
	Line     uint64 // that was forwarded, from 1
	TraceID  string // empty when the call has none
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

	lines    uint64 // forwarded
	outcomes chan *Outcome
	signed   chan struct{} // closed when result and err are there
	result   *Result
	err      error

	input   sync.Once     // closes stdin
	passed  chan struct{} // closed when all of stderr is passed on
	signals sync.Mutex
	asked   bool  // to end
	late    error // why it was killed
}

// Wrap starts a runner that the key, the bundle and the machine's other users are
// out of reach of, and signs what it states. The bundle is verified and locked,
// and the signer there, before the runner is started. The process is protected
// (see Protect).
//
// Calls are made with Call, one after the other. Each must come back as it was
// given: a run log that states another request, a call twice or one of another
// session is wrong, and the runner is killed. Close ends the runner.
//
// Errors are those of Sign, or wrap ErrIsolation or ErrRunner. When ctx is done
// the runner is asked to end, as by SIGTERM; its evidence is signed all the same.
func Wrap(ctx context.Context, o Options, r Runner) (*Wrapped, error) {
	if err := Protect(); err != nil {
		return nil, fmt.Errorf("protect the key in memory: %w", err)
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
			w.end(&Outcome{TraceID: r.Call.Request.TraceID, Recorded: &r})
		}
	}
	s, err := openSigning(ctx, o)
	if err != nil {
		return nil, err
	}
	if w.window != nil {
		s.window = w.window
		s.fresh = true // nothing that the bundle has is an outcome of a call made now
		s.refusedCall = func(r *runlog.Refused) { w.end(&Outcome{TraceID: r.TraceID, Refused: r}) }
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
			w.Signal(os.Interrupt)
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
func (w *Wrapped) end(o *Outcome) {
	o.Line, _, _ = w.window.isOpen()
	w.window.shut()
	w.outcomes <- o
}

// Call gives the runner a call, one line of JSON (docs/runner.md), and waits until
// it is on disk or refused. A blank line is passed on and has no outcome: nil.
//
// The error is that of Close when the runner's evidence is wrong or over. It is
// ctx's when that is done: the call is out then, and Close says what became of it.
func (w *Wrapped) Call(ctx context.Context, text []byte) (*Outcome, error) {
	if err := w.Send(text); err != nil {
		return nil, err
	}
	return w.Await(ctx)
}

// Send is the first half of Call.
func (w *Wrapped) Send(text []byte) error {
	if w.window == nil {
		return errors.New("the runner's input is not ours")
	}
	if _, _, open := w.window.isOpen(); open {
		return errors.New("a call is out")
	}
	if len(text) > call.MaxBytes {
		return fmt.Errorf("the call has more than %d bytes", call.MaxBytes)
	}
	// White space between the tokens of JSON may be a line's end, which ends the
	// call here.
	text = bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, bytes.TrimSpace(text))
	w.lines++
	if len(text) > 0 {
		w.window.forward(w.lines, text)
	}
	if _, err := w.process.Stdin.Write(append(text, '\n')); err != nil {
		// It reads no more: its log says why, or the lack of its end.
		w.process.Stdin.Close()
	}
	return nil
}

// Await is the second half of Call.
func (w *Wrapped) Await(ctx context.Context) (*Outcome, error) {
	if _, _, open := w.window.isOpen(); !open && len(w.outcomes) == 0 {
		return nil, nil
	}
	timeout := time.NewTimer(w.runner.CallTimeout)
	defer timeout.Stop()
	select {
	case o := <-w.outcomes:
		return o, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timeout.C:
		w.late = fmt.Errorf("%w: no answer to line %d within %v: killed", ErrRunner, w.lines, w.runner.CallTimeout)
		w.process.Kill()
		<-w.signed
		return nil, joinText(w.late, w.over())
	case <-w.signed:
		select {
		case o := <-w.outcomes: // its last
			return o, nil
		default:
			return nil, w.over()
		}
	}
}

// over is the error of a call that the runner's log has no place for any more.
func (w *Wrapped) over() error {
	if w.err != nil {
		return w.err
	}
	return fmt.Errorf("%w: the runner ended", ErrRunLog)
}

// CloseInput tells the runner that there are no more calls.
func (w *Wrapped) CloseInput() { w.input.Do(func() { w.process.Stdin.Close() }) }

// Signal asks the runner to end: to end its call, to close its session. Its
// evidence is signed all the same. Asked again, it is killed.
func (w *Wrapped) Signal(s os.Signal) {
	w.signals.Lock()
	defer w.signals.Unlock()
	if w.asked {
		w.process.Kill()
		return
	}
	w.asked = true
	w.process.Signal(s)
}

// Close ends the runner's input, waits until its evidence is signed and it has
// exited, and removes its scratch folder. The error is nil only if its log was
// whole and each call that was forwarded has its outcome. An Ended comes with
// every error.
func (w *Wrapped) Close() (*Ended, error) {
	w.CloseInput()
	w.within(w.runner.CallTimeout, "end its log", func() { <-w.signed })
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
	if w.late != nil {
		err = joinText(w.late, err)
	}
	if w.window != nil {
		if line, traceID, open := w.window.isOpen(); open {
			ended.Open = &Outcome{Line: line, TraceID: traceID}
			if err == nil {
				err = fmt.Errorf("%w: line %d was forwarded and has no outcome", ErrRunLog, line)
			}
		}
	}
	if gone := confine.RemoveScratch(w.scratch); gone != nil && w.runner.Stderr != nil {
		fmt.Fprintf(w.runner.Stderr, "scratch folder: %v\n", gone)
	}
	return ended, err
}

// within waits for what a runner should do, and kills it when it does not in time.
func (w *Wrapped) within(d time.Duration, what string, wait func()) {
	late := time.AfterFunc(d, w.process.Kill)
	wait()
	if !late.Stop() && w.late == nil {
		w.late = fmt.Errorf("%w: it did not %s within %v: killed", ErrRunner, what, d)
	}
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

// view says what the runner sees of the machine.
func (w *Wrapped) view(o *Options) (*confine.View, error) {
	r := &w.runner
	if len(r.Args) == 0 {
		return nil, fmt.Errorf("%w: no program given", ErrRunner)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(r.Args[0])
	if err == nil {
		path, err = realPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRunner, err)
	}
	v := &confine.View{Path: path, Args: r.Args, Weak: r.AllowWeakIsolation}
	if err := w.environment(v); err != nil {
		return nil, err
	}
	var guarded []string
	for _, file := range append([]string{o.Bundle, o.Signer.secret, os.Getenv(agentSockEnv)}, r.Hide...) {
		if file == "" {
			continue
		}
		// The file may not be there yet. Its folder must be; where it is a link, so
		// must what it leads to.
		dir, err := realPath(filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		guarded = append(guarded, filepath.Join(dir, filepath.Base(file)))
		if path, err := realPath(file); err == nil && path != guarded[len(guarded)-1] {
			guarded = append(guarded, path)
		}
	}
	if err := onlyName(o.Signer.secret); err != nil {
		return nil, err
	}
	for _, file := range guarded {
		dir := filepath.Dir(file)
		if slices.Contains(shownFolders, dir) {
			return nil, fmt.Errorf("%w: %s: the runner needs %s to be seen: keep it in a folder of its own", ErrIsolation, file, dir)
		}
		v.Hide = append(v.Hide, dir)
	}
	for _, dir := range append(hiddenFolders, os.Getenv("HOME"), os.TempDir()) {
		if dir, err := realPath(dir); err == nil && !slices.Contains(shownFolders, dir) {
			v.Hide = append(v.Hide, dir)
		}
	}
	for _, name := range append(exposedBySettings(), r.Expose...) {
		path, err := realPath(name)
		if err != nil {
			return nil, fmt.Errorf("expose: %w", err)
		}
		for _, file := range guarded {
			if inside(file, path) {
				return nil, fmt.Errorf("%w: expose %s: it holds %s", ErrIsolation, path, file)
			}
		}
		v.Expose = append(v.Expose, path)
	}
	return v, nil
}

var (
	// hiddenFolders hold files and sockets of users and services.
	hiddenFolders = []string{"/home", "/root", "/tmp", "/run", "/var"}
	// shownFolders are what no program runs without.
	shownFolders = []string{"/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin"}
)

// realPath returns the absolute path of an existing file without symbolic links.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// inside reports whether a path is a folder or in it.
func inside(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+string(filepath.Separator))
}

// passedOn are the variables that a runner is given, by name or beginning.
var passedOn = []string{"PATH=", "LANG=", "LANGUAGE=", "LC_", "TZ=", "NO_COLOR=", "PLIMSOLL_HARDENED=", settingPrefix}

const (
	settingPrefix = "SANDBOX_"
	// remotePrefix begins the settings of a gateway that is reached by the network.
	remotePrefix = settingPrefix + "OPENSHELL_"
	// stateSetting is the runner's folder: it is in its scratch folder here.
	stateSetting = settingPrefix + "STATE="
	imageSetting = settingPrefix + "IMAGE"
)

func (w *Wrapped) environment(v *confine.View) error {
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, stateSetting) ||
			!slices.ContainsFunc(passedOn, func(name string) bool { return strings.HasPrefix(entry, name) }) {
			continue
		}
		v.Env = append(v.Env, entry)
		v.Network = v.Network || strings.HasPrefix(entry, remotePrefix)
	}
	for _, entry := range w.runner.Env {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			return fmt.Errorf("%w: variable %.60q, want NAME=VALUE", ErrRunner, entry)
		}
		if name == PassphraseEnv || name == agentSockEnv {
			return fmt.Errorf("%w: the variable %s is the signer's", ErrIsolation, name)
		}
		v.Env = append(v.Env, entry)
	}
	return nil
}

// exposedBySettings are the files that the environment's settings name.
func exposedBySettings() []string {
	if image := os.Getenv(imageSetting); image != "" {
		return []string{image}
	}
	return nil
}
