package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// A versionReport is what version prints.
type versionReport struct {
	cli.Build
	Statements       []string `json:"statements"`
	LinkedVersions   []uint32 `json:"linked_record_versions"`
	UnlinkedVersions []uint32 `json:"unlinked_record_versions"`
	VerifyReport     string   `json:"verify_report"`
}

func newVersion(std *streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the formats it knows",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := cli.CheckFormat(format); err != nil {
				return err
			}
			v := &versionReport{
				Build:          cli.NewBuild(program),
				Statements:     []string{statement.RunRecordType, statement.SessionCloseType, statement.BundleLinkType},
				LinkedVersions: verify.LinkedVersions, UnlinkedVersions: verify.UnlinkedVersions,
				VerifyReport: reportSchema,
			}
			if format == cli.FormatJSON {
				return cli.WriteJSON(std.out, v)
			}
			v.print(std)
			return nil
		},
	}
	cli.FormatFlag(cmd, &format)
	return cmd
}

func (v *versionReport) print(std *streams) {
	fmt.Fprint(std.out, v.String())
	for _, s := range v.Statements {
		fmt.Fprintf(std.out, "statement: %s\n", s)
	}
	fmt.Fprintf(std.out, "record versions: %d, without links %d\n", v.LinkedVersions, v.UnlinkedVersions)
	fmt.Fprintf(std.out, "verify report: %s\n", v.VerifyReport)
}
