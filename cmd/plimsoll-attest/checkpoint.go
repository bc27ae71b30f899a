package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
)

func newCheckpoint(std *streams) *cobra.Command {
	var flags signFlags
	cmd := &cobra.Command{
		Use:   "checkpoint --key KEY --bundle FILE",
		Short: "Seal a bundle that a killed writer left without its checkpoint",
		Long: `Seal a bundle that ends in whole, signed lines without a checkpoint, as a writer
leaves it that was killed. Every line is verified first. A bundle that is sealed
already is left as it is; one with a torn line or an open session is refused, see
"recover".

` + exitHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := flags.options()
			if err != nil {
				return err
			}
			res, err := attest.Seal(cmd.Context(), opts)
			if err != nil {
				return bundleError(flags.bundle, err)
			}
			what := "sealed"
			if res.LinesAfter == res.LinesBefore {
				what = "sealed already, nothing to do"
			}
			fmt.Fprintf(std.out, "%s: %s\n", visible.Text(flags.bundle), what)
			printEnd(std, res)
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}
