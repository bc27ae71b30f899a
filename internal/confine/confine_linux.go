package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The names under which this program is started anew, as its argument 0.
const (
	launcherName = "plimsoll-launcher"
	viewName     = "plimsoll-view"
	probeName    = "plimsoll-probe"
)

// The descriptors of launcher and view besides their streams.
const (
	ordersFile = 3 // a View, then orders; its end is an order to kill
	eventsFile = 4
)

// startTimeout bounds the making of a view.
const startTimeout = 30 * time.Second

// handedOver says that HandOver was called, so that a program started anew does
// not run its main function again and again.
var handedOver bool

// HandOver must be the first thing that the main function of a program which
// calls Start does. In a process that Start has started it never returns.
func HandOver() {
	handedOver = true
	switch os.Args[0] {
	case launcherName:
		launch()
	case viewName:
		becomeProgram()
	case probeName:
		os.Exit(0)
	}
}

// An event is what a launcher tells. One member is set.
type event struct {
	Open    string `json:",omitempty"` // a part that there is not
	Failed  string `json:",omitempty"` // the program was not started
	Lacking string `json:",omitempty"` // nor was it, for these parts
	Started int    `json:",omitempty"` // the program's process
	Ended   *int   `json:",omitempty"` // exit status, or 128 and the signal
}

type launcher struct {
	cmd     *exec.Cmd
	orders  *os.File
	told    *os.File // where events come from
	events  *json.Decoder
	program int // pidfd, or -1 when it has ended already

	ordering sync.Mutex
	over     chan struct{} // closed when the program has ended, and the launcher
	status   int
	err      error
}

// Start starts a program. The error wraps ErrIsolation when a part of the view
// cannot be had, and names each that is missing.
func Start(v *View) (*Process, error) {
	if !handedOver {
		return nil, errors.New("confine.HandOver was not called at the start of the program")
	}
	p := new(Process)
	p.over = make(chan struct{})
	var theirs, ours []*os.File
	closeAll := func(list []*os.File) {
		for _, f := range list {
			f.Close()
		}
	}
	for _, down := range []bool{true, false, false, true, false} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(theirs)
			closeAll(ours)
			return nil, err
		}
		if down {
			theirs, ours = append(theirs, r), append(ours, w)
		} else {
			theirs, ours = append(theirs, w), append(ours, r)
		}
	}
	p.Stdin, p.Stdout, p.Stderr, p.orders = ours[0], ours[1], ours[2], ours[3]
	p.told, p.events = ours[4], json.NewDecoder(ours[4])
	p.cmd = &exec.Cmd{
		Path:       "/proc/self/exe",
		Args:       []string{launcherName},
		Env:        []string{},
		Dir:        "/",
		Stdin:      theirs[0],
		Stdout:     theirs[1],
		Stderr:     theirs[2],
		ExtraFiles: theirs[3:],
		// The terminal is not the launcher's, nor are its signals.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err := p.cmd.Start()
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, fmt.Errorf("start the launcher: %w", err)
	}
	late := time.AfterFunc(startTimeout, p.Kill)
	defer late.Stop()
	if err := p.begin(v); err != nil {
		p.Kill()
		closeAll(ours) // its orders among them
		_ = p.cmd.Wait()
		return nil, err
	}
	return p, nil
}

// begin gives the launcher its view and waits for what it says.
func (p *Process) begin(v *View) error {
	if err := json.NewEncoder(p.orders).Encode(v); err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	for {
		var e event
		err := p.events.Decode(&e)
		switch {
		case err != nil:
			return fmt.Errorf("launcher: ended before it started the program: %w", err)
		case e.Open != "":
			p.Open = append(p.Open, e.Open)
		case e.Failed != "":
			return errors.New(e.Failed)
		case e.Lacking != "":
			return fmt.Errorf("%w: %s", ErrIsolation, e.Lacking)
		case e.Started != 0:
			// For the case that the launcher is killed.
			p.program, err = unix.PidfdOpen(e.Started, 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("the program's process: %w", err)
			}
			go p.watch()
			return nil
		}
	}
}

// Signal passes a signal on to the program.
func (l *launcher) Signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		l.order(byte(number))
	}
}

// Kill ends the program and all that it started.
func (l *launcher) Kill() { l.order(byte(unix.SIGKILL)) }

func (l *launcher) order(b byte) {
	l.ordering.Lock()
	defer l.ordering.Unlock()
	_, _ = l.orders.Write([]byte{b}) // it is gone, and with it the program
}

// watch waits for the end of the program. When the launcher is not there to tell
// it, having been killed itself, the program is killed from here, and what it
// writes is read no more.
func (p *Process) watch() {
	defer close(p.over)
	ended := false
	for !ended {
		var e event
		if err := p.events.Decode(&e); err != nil {
			break
		}
		if e.Ended != nil {
			p.status, ended = *e.Ended, true
		}
	}
	p.ordering.Lock()
	p.orders.Close()
	p.ordering.Unlock()
	if !ended {
		_ = unix.PidfdSendSignal(p.program, unix.SIGKILL, nil, 0)
	}
	err := p.cmd.Wait()
	p.told.Close()
	if !ended {
		p.err = fmt.Errorf("the launcher ended before the program: %w", errOr(err, io.ErrUnexpectedEOF))
		p.Stdout.Close()
		p.Stderr.Close()
	}
	if p.program >= 0 {
		unix.Close(p.program)
	}
}

// Wait waits for the program's end and returns its exit status, or 128 and the
// number of the signal that ended it. Nothing of it is left then.
func (l *launcher) Wait() (status int, err error) {
	<-l.over
	return l.status, l.err
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
