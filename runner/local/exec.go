//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

const (
	// frameBytes is the largest piece of output in one event.
	frameBytes = 32 << 10
	// drainTime is how long output is still passed on after the command has ended,
	// for a leftover that holds its streams.
	drainTime = 100 * time.Millisecond
	// drainBytes bounds what is passed on after that: a pipe's worth, for what the
	// command itself has written is in the pipe when it ends.
	drainBytes = 1 << 20
	// killTime bounds the wait for the end of a killed command, startTimeout that
	// for a new one's beginning.
	killTime     = 5 * time.Second
	startTimeout = 20 * time.Second
	// maxGroupKills bounds how often a group that still has processes is killed.
	maxGroupKills = 20
)

// A command is one exec.
type command struct {
	run     *run
	request *pb.ExecSandboxRequest
	stdin   io.Reader // nil: none
	send    func(*pb.ExecSandboxEvent) error

	sending sync.Mutex
}

// do runs a command and sends its events, the exit last.
func (c *command) do(ctx context.Context) error {
	var ours, theirs [3]*os.File
	defer func() {
		for i := range ours {
			closeFile(ours[i])
			closeFile(theirs[i])
		}
	}()
	for i := range ours {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("pipe: %w", err))
		}
		if i == 0 {
			fds[0], fds[1] = fds[1], fds[0]
		}
		_ = unix.SetNonblock(fds[0], true) // cannot fail on a pipe
		ours[i], theirs[i] = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	}
	dir := c.request.Workdir
	if dir == "" {
		dir = "/tmp"
	}
	env := guestEnv(c.run.sandbox.gateway.trees)
	for name, value := range c.request.Environment {
		env = append(env, name+"="+value)
	}
	pid, err := c.start(env, dir, theirs)
	for i := range theirs {
		closeFile(theirs[i])
	}
	if err != nil {
		return c.notStarted(err)
	}

	var status uint32
	var waitErr error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		status, waitErr = c.run.kernel.waitPID(pid)
	}()
	if c.stdin == nil {
		closeFile(ours[0])
	} else {
		go func() {
			_, _ = io.Copy(ours[0], c.stdin) // a command need not read its input
			closeFile(ours[0])
		}()
	}
	var output sync.WaitGroup
	failed := make(chan error, 2)
	for i, event := range []func([]byte) *pb.ExecSandboxEvent{stdoutEvent, stderrEvent} {
		output.Go(func() {
			if err := c.pump(ours[i+1], event); err != nil {
				failed <- err
			}
		})
	}
	// Whatever happens, the pumps must be through before the stream is given up.
	defer output.Wait()
	stop := func() {
		_ = ours[1].SetReadDeadline(time.Now().Add(drainTime))
		_ = ours[2].SetReadDeadline(time.Now().Add(drainTime))
	}
	defer stop()

	var timeout <-chan time.Time
	if t := c.request.ExecutionTimeout; t.AsDuration() > 0 {
		timer := time.NewTimer(t.AsDuration())
		defer timer.Stop()
		timeout = timer.C
	}
	var code int32
	select {
	case <-ended:
		code = exitCode(status)
		if waitErr == nil && code == 128+int32(unix.SIGKILL) && c.run.ending() {
			waitErr = errors.New("the command was killed")
		}
		if waitErr != nil {
			if code, err = c.orphaned(waitErr); err != nil {
				return err
			}
		}
	case <-timeout:
		code = 124
		c.kill(pid, ended)
	case <-ctx.Done():
		c.kill(pid, ended)
		return connect.NewError(connect.CodeCanceled, context.Cause(ctx))
	case err := <-failed:
		c.kill(pid, ended)
		return err
	}
	stop()
	output.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	return c.emit(exitEvent(code))
}

func closeFile(file *os.File) {
	if file != nil {
		file.Close()
	}
}

func stdoutEvent(data []byte) *pb.ExecSandboxEvent {
	return &pb.ExecSandboxEvent{Payload: &pb.ExecSandboxEvent_Stdout{Stdout: &pb.ExecSandboxStdout{Data: data}}}
}

func stderrEvent(data []byte) *pb.ExecSandboxEvent {
	return &pb.ExecSandboxEvent{Payload: &pb.ExecSandboxEvent_Stderr{Stderr: &pb.ExecSandboxStderr{Data: data}}}
}

func exitEvent(code int32) *pb.ExecSandboxEvent {
	return &pb.ExecSandboxEvent{Payload: &pb.ExecSandboxEvent_Exit{Exit: &pb.ExecSandboxExit{ExitCode: code}}}
}

// emit sends one event; a stream takes them from one goroutine at a time.
func (c *command) emit(event *pb.ExecSandboxEvent) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.send(event)
}

// pump passes output on until its end, or until the read deadline and then what
// the pipe holds. A client that does not read stops it, and with the pipe full the
// command.
func (c *command) pump(pipe *os.File, event func([]byte) *pb.ExecSandboxEvent) error {
	buf := make([]byte, frameBytes)
	for {
		n, err := pipe.Read(buf)
		if n > 0 {
			if err := c.emit(event(buf[:n])); err != nil {
				return err
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil
		}
	}
	raw, err := pipe.SyscallConn()
	if err != nil {
		return nil
	}
	_ = pipe.SetReadDeadline(time.Time{})
	for left := drainBytes; left > 0; {
		n := 0
		if err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buf)
			return true // do not wait for more
		}); err != nil || n <= 0 {
			return nil
		}
		left -= n
		if err := c.emit(event(buf[:n])); err != nil {
			return err
		}
	}
	return nil
}

// start runs the command. A user-space kernel that does not answer is ended, and
// everything that waits for it then fails.
func (c *command) start(env []string, dir string, files [3]*os.File) (int32, error) {
	late := time.AfterFunc(startTimeout, func() { c.run.end(reasonStuck, "the user-space kernel does not answer") })
	defer late.Stop()
	return c.run.kernel.start(c.request.Command, env, dir, files)
}

// notStarted answers for a command that gVisor did not start, as far as is known. A
// program that is missing or cannot be executed is an exit of its own, as a shell
// has it, and so is a missing working directory.
func (c *command) notStarted(err error) error {
	text := err.Error()
	var remote urpc.RemoteError
	if !errors.As(err, &remote) || strings.Contains(text, "has stopped") || strings.Contains(text, "not started") {
		select { // so that the phase says so as well by then
		case <-c.run.gone:
		case <-time.After(killTime):
		}
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the sandbox has ended: %w", err))
	}
	var code int32
	switch {
	case strings.Contains(text, "working directory"):
		code = 1
	case strings.Contains(text, "no such file or directory"), strings.Contains(text, "not a directory"):
		code = 127
	case strings.Contains(text, "permission denied"), strings.Contains(text, "exec format error"), strings.Contains(text, "out of memory"),
		strings.Contains(text, "is a directory"), strings.Contains(text, "argument list too long"):
		code = 126
	case strings.Contains(text, "resource temporarily unavailable"):
		return connect.NewError(connect.CodeResourceExhausted, errors.New("the sandbox has all the processes it may have"))
	default:
		return connect.NewError(connect.CodeInternal, err)
	}
	what := c.request.Command[0]
	if code == 1 {
		what = c.request.Workdir
	}
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	if err := c.emit(stderrEvent(fmt.Appendf(nil, "%.512s: %s\n", what, text))); err != nil {
		return err
	}
	return c.emit(exitEvent(code))
}

// orphaned answers for a command whose sandbox ended under it, or killed it in
// ending. When it was ended for a limit, or with its main process, the command was
// killed by signal 9, and that is its exit; else nothing is known.
func (c *command) orphaned(err error) (int32, error) {
	select {
	case <-c.run.gone:
	case <-time.After(killTime):
		return 0, connect.NewError(connect.CodeUnavailable, fmt.Errorf("the sandbox is ending: %w", err))
	}
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	switch c.run.cause {
	case reasonMemory, reasonDisk, reasonMain:
		return 128 + int32(unix.SIGKILL), nil
	}
	return 0, connect.NewError(connect.CodeUnavailable, fmt.Errorf("the sandbox has ended: %s", c.run.cause))
}

// kill ends a command with all its processes. When that cannot be shown to have
// worked, the sandbox ends: a thousand processes that do nothing but fork leave
// its kernel no time to obey.
func (c *command) kill(pid int32, ended <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.killAll(pid)
		<-ended
	}()
	select {
	case <-done:
	case <-c.run.gone:
	case <-time.After(killTime):
		c.run.end(reasonStuck, fmt.Sprintf("command %d did not end when it was killed", pid))
	}
}

// killAll signals the processes of a command's group, by one signal that none of
// them can fork away from, and its descendants that have left the group.
func (c *command) killAll(pid int32) {
	k := c.run.kernel
	parents := map[int32]int32{}
	if list, err := k.processes(); err == nil {
		for _, p := range list {
			parents[int32(p.PID)] = int32(p.PPID)
		}
	}
	c.killGroup(pid)
	for other := range parents {
		for at, steps := other, 0; at > 1 && steps <= maxGuestProcesses; at, steps = parents[at], steps+1 {
			if parents[at] == pid {
				_ = k.signal(other, int32(unix.SIGKILL)) // most have ended with the group
				break
			}
		}
	}
	_ = k.signal(pid, int32(unix.SIGKILL)) // for a guest without a shell
}

// killGroup has the guest's shell send the signal: gVisor can only signal
// processes one by one from outside. It is sent until the group has no process:
// one that is born while gVisor walks through the group is not in that walk.
func (c *command) killGroup(pid int32) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for range maxGroupKills {
		killer, err := c.run.kernel.startKiller([]string{"/bin/sh", "-c", "kill -9 -" + strconv.Itoa(int(pid))}, null)
		if err != nil {
			return
		}
		if status, err := c.run.kernel.waitPID(killer); err != nil || status != 0 {
			return // "no such process", or no shell
		}
	}
}
