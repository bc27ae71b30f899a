//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/runner"
)

func newSession(std *streams) *cobra.Command {
	var s settings
	var show bool
	cmd := &cobra.Command{
		Use:   "session < CALLS",
		Short: "Run many calls in one sandbox, a call a line of standard input",
		Long: `Run many calls in one sandbox, a call a line of standard input.

A call is the JSON of a RunRequest without its protocol number, for example
  {"trace_id":"call-1","project":{"files":[{"path":"t.js","content":"…"}],"steps":["node t.js"]}}
  {"trace_id":"call-2","javascript":{"code":"console.log(1+1)"}}
Files stay from call to call, processes do not.

` + exitHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.prepare(cmd, std); err != nil {
				return err
			}
			boxes, err := s.open(cmd.Context(), std)
			if err != nil {
				return err
			}
			defer boxes.close(std)
			status := exitDone
			err = boxes.Serve(cmd.Context(), std.in, runlog.NewWriter(std.out), func(o runner.Outcome) {
				tell(std, o, show)
				switch {
				case o.Unanswered != nil:
					status = exitLost
				case o.Refused != nil && status == exitDone:
					status = exitRefused
				}
			})
			if refused := (*call.Refused)(nil); errors.As(err, &refused) {
				std.complain("session: %v", refused)
				return statusError(exitRefused)
			}
			if err != nil {
				return fmt.Errorf("session: %w", err)
			}
			if status != exitDone {
				return statusError(status)
			}
			return nil
		},
	}
	s.add(cmd)
	s.addSession(cmd)
	cmd.Flags().BoolVar(&show, "show", false, "print what the programs printed to standard error too")
	return cmd
}
