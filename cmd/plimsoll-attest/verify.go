package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	pub          []string
	expect       string
	expectIDs    []string
	expectCount  uint64
	state        string
	minIsolation string
	unlinked     bool
	format       string
	changed      func(name string) bool
}

func newVerify(std *streams) *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use:   "verify --pub FILE [flags] BUNDLE...",
		Short: "Check bundles against public keys, and against what you know of their calls",
		Long: `Check bundles against public keys, and against what you know of their calls.

A BUNDLE is a file, "-" for standard input, or a folder, which stands for its
*.jsonl files, not those of folders in it. Each is checked whole, under exactly one
of the public keys. Files are locked against writers meanwhile; one that is being
written gives no verdict. Side files in a folder, *.unsealed-*.jsonl, hold evidence
that no checkpoint covers: they are named on stderr and not verified.

` + exitHelp + `
Of several bundles, 2 counts before 1, and 1 before 0.`,
		Example: `  plimsoll-attest verify --pub harness.pub --expect calls.txt bundle.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.changed = cmd.Flags().Changed
			return flags.run(cmd.Context(), std, args)
		},
	}
	flags.addQuestions(cmd)
	cmd.Flags().StringVar(&flags.state, "state", "", "`file` that remembers the end of the bundle, which it must then extend")
	cli.FormatFlag(cmd, &flags.format)
	return cmd
}

// addQuestions adds what a bundle is asked.
func (flags *verifyFlags) addQuestions(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&flags.pub, "pub", nil, "`file` of public keys, PEM or OpenSSH; may be given several times")
	f.StringVar(&flags.expect, "expect", "", "`file` that lists your calls by trace ID or request digest, one a line; \"-\" for standard input")
	f.StringArrayVar(&flags.expectIDs, "expect-ids", nil, "your calls, as `a,b,c`, instead of a file")
	cli.Number(f, &flags.expectCount, "expect-count", 0, "the `number` of your calls")
	f.StringVar(&flags.minIsolation, "min-isolation", "", "the weakest `tier` any call may have run at: process, container, kernel or vm")
	f.BoolVar(&flags.unlinked, "unlinked", false, "the bundle is of the older format without links, which proves less")
	cli.Complete(cmd, "min-isolation", "process", "container", "kernel", "vm")
}

func (flags *verifyFlags) run(ctx context.Context, std *streams, args []string) error {
	if err := flags.check(args); err != nil {
		return err
	}
	show := printText
	if flags.format == cli.FormatJSON {
		show = printJSON
	}
	opts, state, err := flags.options(std)
	if err != nil {
		for _, name := range args {
			show(std, &verdict{bundle: name, err: err})
		}
		return err
	}
	var worst error
	for _, o := range operands(std, args) {
		err := verifyOne(ctx, std, o, opts, state, show)
		if err != nil {
			std.complain("%s: %v", o.name, err)
		}
		if exitCode(err) > exitCode(worst) {
			worst = err
		}
		// A verdict is there when it is known, also while the next is awaited.
		if err := std.out.Flush(); err != nil {
			return reportedError{err} // by run, whose last flush fails as well
		}
	}
	if worst != nil {
		return reportedError{worst}
	}
	return nil
}

// check refuses what makes no sense whatever is in the files.
func (flags *verifyFlags) check(args []string) error {
	stdin := 0
	for _, name := range append(args[:len(args):len(args)], flags.expect) {
		if name == stdinName {
			stdin++
		}
	}
	single := slices.IndexFunc([]string{"expect", "expect-ids", "expect-count", "state"}, flags.changed)
	switch {
	case len(args) == 0:
		return errors.New("no bundle given")
	case stdin > 1:
		return errors.New("standard input can be read once only")
	case flags.changed("expect") && flags.changed("expect-ids"):
		return errors.New("--expect and --expect-ids exclude each other")
	case single >= 0 && (len(args) > 1 || isFolder(args[0])):
		return errors.New("--expect, --expect-ids, --expect-count and --state go with exactly one bundle, which is no folder")
	case flags.changed("state") && flags.unlinked:
		return errors.New("--state needs a linked bundle, --unlinked is of others")
	case flags.changed("min-isolation") && flags.minIsolation == "":
		return errors.New("--min-isolation: no tier given")
	}
	if err := record.CheckFloor(flags.minIsolation); err != nil {
		return fmt.Errorf("--min-isolation: %w", err)
	}
	return cli.CheckFormat(flags.format)
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return name != stdinName && err == nil && info.IsDir()
}

// options reads the files that the flags name.
func (flags *verifyFlags) options(std *streams) (opts verify.Options, state *stateFile, err error) {
	opts = verify.Options{Unlinked: flags.unlinked, MinIsolation: flags.minIsolation}
	if opts.Keys, err = readPublicKeys(flags.pub); err != nil {
		return opts, nil, err
	}
	switch {
	case flags.changed("expect"):
		if opts.Expect, err = readExpected(std, flags.expect); err != nil {
			return opts, nil, fmt.Errorf("--expect %s: %w", flags.expect, err)
		}
	case flags.changed("expect-ids"):
		items := strings.Split(strings.Join(flags.expectIDs, ","), ",")
		if slices.Contains(items, "") {
			return opts, nil, errors.New("--expect-ids: an empty item; for no calls at all say --expect-count 0")
		}
		opts.Expect = verify.NewExpected(items)
	}
	if flags.changed("expect-count") {
		opts.ExpectCount = &flags.expectCount
	}
	if flags.changed("state") {
		if state, opts.State, err = openState(flags.state); err != nil {
			return opts, nil, fmt.Errorf("--state %s: %w", flags.state, err)
		}
	}
	return opts, state, nil
}

func readExpected(std *streams, name string) (*verify.Expected, error) {
	r := std.in
	if name != stdinName {
		f, err := os.Open(name)
		if err != nil {
			return nil, cli.FileError(err)
		}
		defer f.Close()
		r = f
	}
	list, err := verify.ParseExpected(r)
	if err != nil {
		return nil, cli.FileError(err)
	}
	return list, nil
}

// A verdict is what is reported of one bundle.
type verdict struct {
	bundle     string
	report     *verify.Report // nil unless verified
	err        error          // nil when verified
	state      *stateFile     // nil when not asked for
	firstSight bool           // the state file was not there yet
}

// verifyOne verifies one bundle and prints the verdict on it.
func verifyOne(ctx context.Context, std *streams, o operand, opts verify.Options, state *stateFile,
	show func(*streams, *verdict),
) error {
	v := &verdict{bundle: o.name, err: o.err, state: state, firstSight: state != nil && opts.State == nil}
	if v.err == nil {
		v.report, v.err = verifyFile(ctx, std, o.name, opts)
	}
	var update *stateUpdate
	if v.err == nil && state != nil {
		if update, v.err = state.prepare(ctx, v.report.State()); v.err != nil {
			v.report, v.err = nil, fmt.Errorf("state: %w", v.err)
		}
	}
	show(std, v)
	if update == nil {
		return v.err
	}
	// What was not told must not be remembered either.
	if std.out.Flush() != nil {
		update.abort()
		return nil // the caller's own flush fails as well
	}
	if err := update.commit(); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

func verifyFile(ctx context.Context, std *streams, name string, opts verify.Options) (*verify.Report, error) {
	src, err := openBundle(ctx, std, name)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return bundleOf(ctx, src, opts)
}

// bundleOf is verify.Bundle without the path in a read error.
func bundleOf(ctx context.Context, r io.Reader, opts verify.Options) (*verify.Report, error) {
	report, err := verify.Bundle(ctx, r, opts)
	if err != nil {
		return nil, cli.FileError(err)
	}
	return report, nil
}
