// Plimsoll-attest signs what a runner states about its calls, and verifies what
// was signed.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/verify"
)

const program = "plimsoll-attest"

func main() {
	attest.HandOver() // first of all: wrap's launcher is this program started anew
	// Caught, so that an answer which could not be written is an error with an
	// exit status of ours, and not a silent death.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// streams are what a command reads and writes. Answers go to out, everything
// else to err.
type streams struct {
	in  io.Reader
	out *bufio.Writer
	err io.Writer
}

// complain writes one line to stderr, whatever is in the text.
func (s *streams) complain(format string, args ...any) {
	s.out.Flush() // what was said before stands before; run sees a failure
	fmt.Fprintf(s.err, "%s: %s\n", program, visible.Text(fmt.Sprintf(format, args...)))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	std := &streams{in: stdin, out: bufio.NewWriter(stdout), err: stderr}
	root := newRoot(std)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetArgs(cli.Normalise(root, args))
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(err)
	status := statusError(0)
	switch {
	case errors.As(err, &status):
		code = int(status)
	case err != nil && cmd.Name() == wrapName:
		code = exitUnsigned
	}
	if err != nil && !errors.As(err, new(reportedError)) && !errors.As(err, new(statusError)) {
		std.complain("%v", err)
	}
	if err := std.out.Flush(); err != nil {
		std.complain("%v", cli.OutputError(err))
		if code = exitNoVerdict; cmd.Name() == wrapName {
			code = exitUnsigned
		}
	}
	return code
}

// The exit statuses.
const (
	exitDone      = 0
	exitRefused   = 1
	exitNoVerdict = 2
	exitUnsigned  = 125 // of wrap, whose other statuses are the runner's
)

const wrapName = "wrap"

const exitHelp = `Exit status:
  0  done; verify: everything asked for was checked and holds
  1  the evidence is refused: a check does not hold, or the run log is wrong or incomplete
  2  no verdict: wrong usage, no key, an unreadable file, a lock, an input or output error
wrap exits with the runner's status, or 125 where evidence is not signed.`

// exitCode maps the errors of all commands to exit statuses.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if errors.As(err, new(*verify.Refusal)) || errors.Is(err, attest.ErrRunLog) || errors.Is(err, attest.ErrBundle) {
		return exitRefused
	}
	return exitNoVerdict
}

// A statusError is the exit status of a wrapped runner.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// A reportedError has been told to the user already.
type reportedError struct{ error }

func (e reportedError) Unwrap() error { return e.error }

func newRoot(std *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Sign and verify the calls of a code sandbox",
		Long: `Sign and verify the calls of a code sandbox.

A bundle is a file of signed, linked lines, one for each call: what was asked,
what came back, and the runner's record of it. Long flags also work with one dash.

` + exitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Suggestions would make an error of several lines.
		DisableSuggestions: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("no command given, see " + program + " --help")
		},
	}
	root.AddCommand(
		newKeygen(std),
		newSign(std),
		newWrap(std),
		newCheckpoint(std),
		newRecover(std),
		newVerify(std),
		newInspect(std),
		newReport(std),
		newVersion(std),
	)
	cli.OnceOnly(root)
	return root
}
