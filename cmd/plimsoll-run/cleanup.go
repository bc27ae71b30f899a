//go:build linux

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/runner/local"
)

func newCleanup(std *streams) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what runs that were killed left behind",
		Long: `Remove what runs that were killed left behind: processes, files and mounts of
sandboxes whose program is gone. Every run does so when it starts. Sandboxes of
programs that are alive are not touched.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.prepare(cmd, std); err != nil {
				return err
			}
			n, err := local.Cleanup(s.stateFolder())
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(std.out, "sandboxes removed: %d\n", n); err != nil {
				return cli.OutputError(err)
			}
			return nil
		},
	}
	s.addState(cmd)
	return cmd
}
