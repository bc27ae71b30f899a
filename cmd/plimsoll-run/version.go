//go:build linux

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/runner/local"
)

// A versionReport is what version prints.
type versionReport struct {
	cli.Build
	Protocol uint32 `json:"protocol"` // of stored requests
	Records  []int  `json:"record_versions"`
	GVisor   string `json:"gvisor"`
}

func newVersion(std *streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of what it writes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := cli.CheckFormat(format); err != nil {
				return err
			}
			v := &versionReport{
				Build: cli.NewBuild(program), Protocol: call.Protocol, Records: []int{2, 3}, GVisor: local.GVisorVersion,
			}
			var err error
			if format == cli.FormatJSON {
				err = cli.WriteJSON(std.out, v)
			} else {
				_, err = fmt.Fprintf(std.out, "%vprotocol: %d\nrecord versions: %d\ngvisor: %s\n",
					v.String(), v.Protocol, v.Records, v.GVisor)
			}
			if err != nil {
				return cli.OutputError(err)
			}
			return nil
		},
	}
	cli.FormatFlag(cmd, &format)
	return cmd
}
