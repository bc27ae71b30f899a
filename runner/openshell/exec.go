package openshell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// lastWords is how long a gateway may take to end a stream whose exit event has
// come. Nobody waits for it.
const lastWords = 2 * time.Second

type execution struct {
	ctx      context.Context
	cancel   context.CancelFunc
	stream   *connect.BidiStreamForClient[pb.ExecSandboxInput, pb.ExecSandboxEvent]
	onOutput func(Stream, []byte)
	stdin    chan error // what went wrong with the caller's reader
}

// Exec uses the interactive form for every command: only there input may be
// larger than a message.
func (c *client) Exec(ctx context.Context, req ExecRequest) (Exec, error) {
	ctx, cancel := ownDeadline(ctx)
	e := &execution{
		ctx: ctx, cancel: cancel, stream: c.exec.CallBidiStream(ctx),
		onOutput: req.OnOutput, stdin: make(chan error, 1),
	}
	err := e.stream.Send(&pb.ExecSandboxInput{Payload: &pb.ExecSandboxInput_Start{Start: &pb.ExecSandboxRequest{
		Sandbox: req.Sandbox, Command: req.Command, Workdir: req.Workdir, Environment: req.Environment,
		// A login shell would read profiles that code may have written.
		NoLoginShell: true, WorkspaceScope: scope(),
	}}})
	// io.EOF says that the gateway has ended the stream already; Wait reads why.
	if err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return nil, wireError(ctx, "ExecSandboxInteractive", err)
	}
	if req.Stdin == nil {
		_ = e.stream.CloseRequest()
		return e, nil
	}
	go e.send(req.Stdin)
	return e, nil
}

// send passes the input on and ends it. The stream's own errors are Wait's.
func (e *execution) send(stdin io.Reader) {
	buf := make([]byte, stdinFrame)
	for {
		n, err := io.ReadFull(stdin, buf)
		if n > 0 {
			frame := &pb.ExecSandboxInput{Payload: &pb.ExecSandboxInput_Stdin{Stdin: buf[:n]}}
			if e.stream.Send(frame) != nil {
				return
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			_ = e.stream.CloseRequest()
			return
		case err != nil:
			// Ended input would look whole to the command.
			e.stdin <- err
			e.cancel()
			return
		}
	}
}

func (e *execution) Wait() (int32, error) {
	const method = "ExecSandboxInteractive"
	for {
		event, err := e.stream.Receive()
		if err != nil {
			defer e.cancel()
			select {
			case cause := <-e.stdin:
				return 0, fmt.Errorf("%s: read the input: %w", method, cause)
			default:
			}
			if errors.Is(err, io.EOF) && e.ctx.Err() == nil {
				return 0, fmt.Errorf("%s: %w", method, ErrNoExit)
			}
			return 0, wireError(e.ctx, method, err)
		}
		switch p := event.Payload.(type) {
		case *pb.ExecSandboxEvent_Stdout:
			e.output(Stdout, p.Stdout.GetData())
		case *pb.ExecSandboxEvent_Stderr:
			e.output(Stderr, p.Stderr.GetData())
		case *pb.ExecSandboxEvent_Exit:
			go e.end()
			return p.Exit.GetExitCode(), nil
		}
	}
}

func (e *execution) output(s Stream, data []byte) {
	if e.onOutput != nil && len(data) > 0 {
		e.onOutput(s, data)
	}
}

// end lets the gateway end the stream by itself: cancelling it at once would
// have it kill what the command left running in its process group, which later
// steps of the same call may use.
func (e *execution) end() {
	timer := time.AfterFunc(lastWords, e.cancel)
	defer timer.Stop()
	defer e.cancel()
	_ = e.stream.CloseRequest()
	for {
		if _, err := e.stream.Receive(); err != nil {
			return
		}
	}
}
