package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
)

func newRecover(std *streams) *cobra.Command {
	var (
		pub  []string
		opts attest.RecoverOptions
		wait time.Duration
	)
	cmd := &cobra.Command{
		Use:   "recover --pub FILE --bundle FILE [--cut]",
		Short: "Show, or cut off, what a killed writer left after the last checkpoint",
		Long: `Show what a killed writer left after the last checkpoint of a bundle. With --cut,
move it into a side file beside the bundle, which then verifies if anything is
left: a torn line takes all lines after the last checkpoint with it, so sign their
run log again. What can be sealed instead, by "checkpoint", is named. A bundle that
shows more than an interruption is refused and left as it is.

` + exitHelp + `
Without --cut, anything after the last checkpoint is status 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := readPublicKeys(pub)
			if err != nil {
				return err
			}
			opts.Keys, opts.LockTimeout = keys, lockTimeout(wait)
			return bundleError(opts.Bundle, recoverBundle(cmd.Context(), std, opts))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&pub, "pub", nil, "`file` of public keys, one of which must have signed; may be given several times")
	f.StringVar(&opts.Bundle, "bundle", "", "the `file` to look at")
	f.BoolVar(&opts.Cut, "cut", false, "move what follows the last checkpoint into a side file")
	f.DurationVar(&wait, "lock-timeout", attest.DefaultLockTimeout, "how long to wait for another user of the bundle")
	f.BoolVar(&opts.AllowShared, "allow-shared", false, "take a bundle that group or others can read or write")
	require(cmd, "pub", "bundle")
	return cmd
}

func recoverBundle(ctx context.Context, std *streams, opts attest.RecoverOptions) error {
	r, err := attest.Recover(ctx, opts)
	if r == nil {
		return err
	}
	what := "not whole"
	switch {
	case r.Bytes == 0:
		what = "empty, nothing to recover"
	case r.Intact():
		what = "whole, nothing to recover"
	case r.SideFile != "" && err == nil:
		what = "cut back"
	}
	fmt.Fprintf(std.out, "%s: %s\n", visible.Text(opts.Bundle), what)
	fmt.Fprintf(std.out, "  up to the last checkpoint: %s, %s\n", cli.Plural(r.Kept.Lines, "line"), cli.Plural(r.Kept.Offset, "byte"))
	if left := r.Bytes - r.Kept.Offset; left > 0 {
		fmt.Fprintf(std.out, "  after it: %s, of which signed and linked: %s, %s\n", cli.Plural(left, "byte"),
			cli.Plural(r.Whole.Lines-r.Kept.Lines, "line"), cli.Plural(r.Whole.Offset-r.Kept.Offset, "byte"))
	}
	if r.Refusal != nil {
		fmt.Fprintf(std.out, "  what follows: %s\n", visible.Text(r.Refusal.Error()))
	}
	for _, s := range r.Open {
		fmt.Fprintf(std.out, "  open session: %s, %s\n", visible.Text(s.Session), cli.Plural(s.Calls, "call"))
	}
	if r.SideFile != "" {
		fmt.Fprintf(std.out, "  moved: %s to %s\n", cli.Plural(r.Moved, "byte"), visible.Text(r.SideFile))
		tellSideFiles(std, []string{r.SideFile})
	}
	if err != nil || r.SideFile != "" || r.Bytes == 0 || r.Intact() {
		return err
	}
	advice := "move it away with recover --cut"
	if r.Sealable() {
		advice = "seal it with checkpoint"
	}
	return fmt.Errorf("%w: %s after the last checkpoint: %s", attest.ErrBundle, cli.Plural(r.Bytes-r.Kept.Offset, "byte"), advice)
}
