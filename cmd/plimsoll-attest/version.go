package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

const versionSchema = "plimsoll.version/v1"

// A versionReport is what version prints.
type versionReport struct {
	Schema           string   `json:"schema"`
	Program          string   `json:"program"`
	Version          string   `json:"version"` // of the module; "(devel)" outside a release
	Commit           string   `json:"commit"`  // empty when the build does not know
	Modified         bool     `json:"modified"`
	Go               string   `json:"go"`
	Platform         string   `json:"platform"`
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
			if err := checkFormat(format); err != nil {
				return err
			}
			if v := versions(); format == formatJSON {
				writeJSON(std.out, v)
			} else {
				v.print(std)
			}
			return nil
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

func versions() *versionReport {
	v := &versionReport{
		Schema: versionSchema, Program: program, Version: "(unknown)",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Statements:     []string{statement.RunRecordType, statement.SessionCloseType, statement.BundleLinkType},
		LinkedVersions: verify.LinkedVersions, UnlinkedVersions: verify.UnlinkedVersions,
		VerifyReport: reportSchema,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v *versionReport) print(std *streams) {
	commit := v.Commit
	switch {
	case commit == "":
		commit = "unknown"
	case v.Modified:
		commit += ", modified"
	}
	fmt.Fprintf(std.out, "%s %s\ncommit: %s\ngo: %s %s\n", v.Program, v.Version, commit, v.Go, v.Platform)
	for _, s := range v.Statements {
		fmt.Fprintf(std.out, "statement: %s\n", s)
	}
	fmt.Fprintf(std.out, "record versions: %d, without links %d\n", v.LinkedVersions, v.UnlinkedVersions)
	fmt.Fprintf(std.out, "verify report: %s\n", v.VerifyReport)
}
