//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/runner"
)

// callFlags are the flags of a call that is not given as JSON.
type callFlags struct {
	traceID string
	floor   string
	timeout time.Duration
	show    bool
}

func (c *callFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.traceID, "trace-id", "", "your `name` for the call; none is invented")
	f.StringVar(&c.floor, "minimum-isolation", "", "refuse to run below this `tier`: process, container, kernel or vm")
	f.DurationVar(&c.timeout, "timeout", 0, "`time` for the call, at most 5m; 0s is 30s for code and 2m for a project")
	f.BoolVar(&c.show, "show", false, "print what the program printed to standard error too")
}

func (c *callFlags) request() (record.Request, error) {
	ms := c.timeout.Milliseconds()
	if c.timeout < 0 || c.timeout > 0 && ms == 0 || c.timeout > runner.MaxCallTime {
		return record.Request{}, fmt.Errorf("--timeout: have %v, want 1ms to %v", c.timeout, runner.MaxCallTime)
	}
	if err := record.CheckFloor(c.floor); err != nil {
		return record.Request{}, fmt.Errorf("--minimum-isolation: %w", err)
	}
	return record.Request{TraceID: c.traceID, MinimumIsolation: c.floor, TimeoutMS: int32(ms)}, nil
}

func newExec(std *streams) *cobra.Command {
	var s settings
	var c callFlags
	var code, callFile string
	cmd := &cobra.Command{
		Use:   "exec [FILE | - | -e CODE | --call FILE]",
		Short: "Run one snippet for node, or one call, in a sandbox of its own",
		Long: `Run one snippet for node, or one call, in a sandbox of its own.

The snippet is read from FILE, from standard input (-) or from the command line
(-e). With --call it is one call in JSON, as session takes them a line each.

` + exitHelp,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.prepare(cmd, std); err != nil {
				return err
			}
			sources := len(args)
			for _, name := range []string{"code", "call"} {
				if cmd.Flags().Changed(name) {
					sources++
				}
			}
			if sources != 1 {
				return errors.New("exactly one of FILE, -, -e and --call is needed")
			}
			if cmd.Flags().Changed("call") {
				for _, name := range []string{"trace-id", "minimum-isolation", "timeout"} {
					if cmd.Flags().Changed(name) {
						return fmt.Errorf("--%s: the call says this itself", name)
					}
				}
				line, err := readInput(std, callFile, call.MaxBytes)
				if err != nil {
					return err
				}
				asked, refused := call.Parse(bytes.TrimSpace(line))
				return s.single(cmd.Context(), std, asked, refused, c.show)
			}
			req, err := c.request()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				// One byte over the bound is refused as a call, by its limit.
				text, err := readInput(std, args[0], 1<<20)
				if err != nil {
					return err
				}
				code = string(text)
			}
			req.JavaScript = &record.JavaScriptRun{Code: code}
			asked, refused := call.New(req)
			return s.single(cmd.Context(), std, asked, refused, c.show)
		},
	}
	s.add(cmd)
	s.addSingle(cmd)
	c.add(cmd)
	cmd.Flags().StringVarP(&code, "code", "e", "", "the `code` itself")
	cmd.Flags().StringVar(&callFile, "call", "", "`file` with one call in JSON; - for standard input")
	return cmd
}

// readInput reads a file or, for "-", standard input.
func readInput(std *streams, name string, limit int64) ([]byte, error) {
	in := std.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, cli.FileError(err))
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, cli.FileError(err))
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%s: more than %d bytes", name, limit)
	case !utf8.Valid(data):
		return nil, fmt.Errorf("%s: not UTF-8", name)
	}
	return data, nil
}

// single runs one call in a sandbox of its own and writes the run log.
func (s *settings) single(ctx context.Context, std *streams, asked *call.Call, refused *call.Refused, show bool) error {
	o := runner.Outcome{Line: 1, Refused: refused}
	var lost error
	if refused == nil {
		boxes, err := s.open(ctx, std)
		if err != nil {
			return err
		}
		defer boxes.close(std)
		o.TraceID = asked.Request.TraceID
		o.Answer, err = boxes.Run(ctx, asked)
		if err != nil && !errors.As(err, &o.Refused) {
			lost = err
		}
	}
	if err := o.WriteTo(runlog.NewWriter(std.out)); err != nil {
		return fmt.Errorf("run log: %w", cli.FileError(err))
	}
	tell(std, o, show)
	switch {
	case lost != nil:
		std.complain("%v", lost)
		return statusError(exitLost)
	case o.Refused != nil:
		return statusError(exitRefused)
	case !succeeded(o.Answer.Result):
		return statusError(exitFailed)
	}
	return nil
}

// succeeded reports whether all of a call ran and exited with 0.
func succeeded(res *record.Response) bool {
	if js := res.JavaScript; js != nil {
		return js.ExitCode == 0 && !js.TimedOut
	}
	if res.Project.Outcome != record.OutcomeCompleted {
		return false
	}
	for _, s := range res.Project.Steps {
		if s.ExitCode != 0 || s.TimedOut {
			return false
		}
	}
	return true
}
