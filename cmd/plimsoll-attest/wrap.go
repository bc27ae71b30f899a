package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
)

type wrapFlags struct {
	signFlags
	calls       string
	expectOut   string
	expose      []string
	weak        bool
	callTimeout time.Duration
}

func newWrap(std *streams) *cobra.Command {
	var flags wrapFlags
	cmd := &cobra.Command{
		Use:   wrapName + " --key KEY --bundle FILE [--calls FILE] -- RUNNER [ARG...]",
		Short: "Start a runner that cannot reach the key, and sign what it states",
		Long: `Start a runner that cannot reach the key, and sign what it states.

The runner has a view of the machine of its own: other processes, folders of users
and services, the folders of key and bundle, agents, terminals and, with the
embedded gateway, the network are not in it; all else is read-only. Its folder is
$HOME, and gone afterwards.

With --calls each call is read here, a line of JSON, and given to the runner when
the one before it is on disk: a statement of another request, of a call twice or of
another session is refused. Without it standard input is the runner's, and only
that what it states is consistent can be checked. Outputs, tier and policy are the
runner's word in any case.

Standard output has a line of JSON for each call once it is on disk, and one at the
end (docs/wrap.md). SIGINT, SIGTERM and SIGHUP are passed on to the runner, which
ends its session; one more than a second later kills it.

Exit status: the runner's own when all of its evidence is signed; else 125, and
standard error says why.`,
		Example: `  plimsoll-attest wrap --key harness.key --bundle bundle.jsonl --calls calls.jsonl \
    --expect-out expected.txt -- plimsoll-run session`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd.Context(), std, args)
		},
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringVar(&flags.calls, "calls", "", "`file` of calls, one a line; \"-\" for standard input")
	f.StringVar(&flags.expectOut, "expect-out", "", "`file` to add the request digests of the calls to, for verify --expect")
	f.StringArrayVar(&flags.expose, "expose", nil, "`path` that the runner may read although it is in a hidden folder; may be given several times")
	f.BoolVar(&flags.weak, "allow-weak-isolation", false, "run also where a part of the runner's view cannot be had, and say what is open")
	f.DurationVar(&flags.callTimeout, "call-timeout", attest.DefaultCallTimeout, "how long the runner may take for one call")
	return cmd
}

func (flags *wrapFlags) check(args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("no runner given: -- RUNNER [ARG...]")
	case flags.expectOut != "" && flags.calls == "":
		return errors.New("--expect-out needs --calls")
	case flags.callTimeout <= 0:
		return fmt.Errorf("--call-timeout: have %v, want more than 0", flags.callTimeout)
	}
	return nil
}

func (flags *wrapFlags) run(ctx context.Context, std *streams, args []string) error {
	if err := flags.check(args); err != nil {
		return err
	}
	calls, err := flags.openCalls(std)
	if err != nil {
		return err
	}
	if calls != nil {
		defer calls.Close()
	}
	opts, err := flags.options()
	if err != nil {
		return err
	}
	expected, err := openExpected(ctx, flags.expectOut)
	if err != nil {
		return err
	}
	out := &wrapOutput{std: std}
	runner := attest.Runner{
		Args: args, Expose: flags.expose, AllowWeakIsolation: flags.weak, CallTimeout: flags.callTimeout,
		Hide: []string{flags.passphraseFile}, Stderr: std.err,
	}
	if calls == nil {
		runner.Stdin = std.in
		opts.Progress = func(r attest.Recorded) { out.recorded(0, &r) }
	}
	// From here on a signal is the runner's.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	w, err := attest.Wrap(ctx, opts, runner)
	if err != nil {
		expected.discard()
	}
	if errors.Is(err, attest.ErrIsolation) || errors.Is(err, attest.ErrRunner) {
		return err // not the bundle's
	}
	if err != nil {
		return bundleError(flags.bundle, err)
	}
	for _, what := range w.Open {
		std.complain("OPEN: %s", what)
	}
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		// One ^C can come twice, from the terminal and from a harness that passes it on.
		const same = time.Second
		var first time.Time
		for s := range signals {
			switch {
			case first.IsZero():
				first = time.Now()
				std.complain("%v: the runner is asked to end; signing what is left", s)
				stop()
			case time.Since(first) < same:
				continue
			default:
				std.complain("%v again: the runner is killed", s)
			}
			w.Signal(s)
		}
	}()
	var forwarded error
	if calls != nil {
		forwarded = out.forward(stopped, w, calls, expected)
	}
	ended, err := w.Close()
	for _, more := range []error{forwarded, expected.close()} {
		switch {
		case err == nil:
			err = more
		case more != nil:
			err = fmt.Errorf("%w; %w", err, more)
		}
	}
	out.ended(ended, err)
	tellSideFiles(std, ended.SideFiles)
	switch {
	case err == nil && out.err == nil:
	case err != nil:
		return bundleError(flags.bundle, err)
	default:
		return out.err
	}
	if ended.Status != 0 {
		return statusError(ended.Status)
	}
	return nil
}

// openCalls opens the file of calls, if one is named.
func (flags *wrapFlags) openCalls(std *streams) (io.ReadCloser, error) {
	switch flags.calls {
	case "":
		return nil, nil
	case stdinName:
		return io.NopCloser(std.in), nil
	}
	f, err := os.Open(flags.calls)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flags.calls, cli.FileError(err))
	}
	return f, nil
}
