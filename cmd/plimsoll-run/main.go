//go:build linux

// Plimsoll-run runs code in sandboxes and states, unsigned, what each call was
// and what came back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/runner/local"
)

const program = "plimsoll-run"

func main() {
	// First of all: sandboxes are processes of this program started anew.
	local.HandOver()
	// Caught, so that an answer which could not be written is an error with an
	// exit status of ours, and not a silent death.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// streams are what a command reads and writes. The run log and other answers go
// to out, everything else to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// complain writes one line to stderr, whatever is in the text.
func (s *streams) complain(format string, args ...any) {
	fmt.Fprintf(s.err, "%s: %s\n", program, visible.Text(fmt.Sprintf(format, args...)))
}

// The exit statuses.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitLost    = 4
)

const exitHelp = `Exit status of exec and project:
  0  the program ran and exited with 0
  1  it failed, or its time was over
  2  wrong usage, an unreadable file, an input or output error
  3  refused: nothing ran
  4  it may have run, and there is no answer
of session:
  0  every call has an answer, whatever its program returned
  2  as above
  3  some call was refused
  4  some call may have run and has no answer`

// A statusError ends the program with a status, having been told to the user
// where there is anything to tell.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	std := &streams{in: stdin, out: stdout, err: stderr}
	root := newRoot(std)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(cli.Normalise(root, args))
	err := root.ExecuteContext(ctx)
	var status statusError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &status):
		return int(status)
	}
	std.complain("%v", err)
	return exitUsage
}

func newRoot(std *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Run code in sandboxes and state what each call did",
		Long: `Run code in sandboxes and state what each call did.

Standard output carries the run log, for plimsoll-attest to sign: a line for each
call. Everything for people goes to standard error. Long flags also work with one
dash, and each setting can be given by the variable that its help names.

` + exitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Suggestions would make an error of several lines.
		DisableSuggestions: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("no command given, see " + program + " --help")
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		newExec(std),
		newProject(std),
		newSession(std),
		newGateway(std),
		newDoctor(std),
		newCleanup(std),
		newVersion(std),
	)
	cli.OnceOnly(root)
	return root
}
