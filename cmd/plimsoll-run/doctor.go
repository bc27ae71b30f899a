//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runner/local"
)

const doctorSchema = "plimsoll.doctor/v1"

// A doctorReport is what doctor prints.
type doctorReport struct {
	Schema string  `json:"schema"`
	OK     bool    `json:"ok"`
	Checks []check `json:"checks"`
}

// A check is one thing that was looked at.
type check struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Proof string `json:"proof"` // what was seen
	Fix   string `json:"fix"`   // how to get it; empty when it is there
}

func newDoctor(std *streams) *cobra.Command {
	var s settings
	var format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is there to run sandboxes, what is missing and how to get it",
		Long: `Say what is there to run sandboxes, what is missing and how to get it. It makes a
sandbox, looks at it from inside and runs a call; what it shows was seen, not
guessed. The exit status is 0 when everything is there, else 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckFormat(format); err != nil {
				return err
			}
			if err := s.prepare(cmd, std); err != nil {
				return err
			}
			report := s.examine(cmd.Context())
			if format == cli.FormatJSON {
				if err := cli.WriteJSON(std.out, report); err != nil {
					return cli.OutputError(err)
				}
			} else if err := report.print(std); err != nil {
				return err
			}
			if !report.OK {
				return statusError(exitFailed)
			}
			return nil
		},
	}
	s.add(cmd)
	s.addSingle(cmd)
	s.addSessionDisk(cmd)
	cli.FormatFlag(cmd, &format)
	return cmd
}

func (r *doctorReport) print(std *streams) error {
	var b strings.Builder
	for _, c := range r.Checks {
		mark := "ok     "
		if !c.OK {
			mark = "MISSING"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", mark, c.Name, visible.Text(c.Proof))
		if c.Fix != "" {
			fmt.Fprintf(&b, "        %s\n", visible.Text(c.Fix))
		}
	}
	if _, err := fmt.Fprint(std.out, b.String()); err != nil {
		return cli.OutputError(err)
	}
	return nil
}

func (s *settings) examine(ctx context.Context) *doctorReport {
	r := &doctorReport{Schema: doctorSchema, OK: true}
	add := func(c check) {
		r.OK = r.OK && c.OK
		r.Checks = append(r.Checks, c)
	}
	for _, f := range local.Probe(ctx, s.gatewayConfig()) {
		add(check{f.Name, f.OK, f.Detail, f.Fix})
	}
	if proof, err := s.tryCall(ctx); err != nil {
		add(check{"a call", false, err.Error(), "see what is missing above"})
	} else {
		add(check{"a call", true, proof, ""})
	}
	return r
}

// tryCall carries out a call as exec does.
func (s *settings) tryCall(ctx context.Context) (string, error) {
	var said strings.Builder
	boxes, err := s.open(ctx, &streams{out: &said, err: &said})
	if err != nil {
		return "", err
	}
	defer boxes.close(&streams{out: &said, err: &said})
	asked, refused := call.New(record.Request{Project: &record.ProjectRun{Steps: []string{"cat /proc/version"}}})
	if refused != nil {
		return "", refused
	}
	began := time.Now()
	answer, err := boxes.Run(ctx, asked)
	if err != nil {
		return "", err
	}
	took := time.Since(began).Round(time.Millisecond)
	if !succeeded(answer.Result) {
		return "", errors.New("its program failed")
	}
	return fmt.Sprintf("in %v, read back before it ran; tier %s, policy %s; kernel: %s", took, answer.Record.Isolation,
		answer.Record.Policy, strings.TrimSpace(string(answer.Result.Project.Steps[0].Stdout))), nil
}
