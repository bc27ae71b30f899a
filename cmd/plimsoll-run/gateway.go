//go:build linux

package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/runner/local"
)

func newGateway(std *streams) *cobra.Command {
	var s settings
	var listen string
	cmd := &cobra.Command{
		Use:   "gateway --listen 127.0.0.1:PORT",
		Short: "Serve the embedded gateway to other programs of this machine",
		Long: `Serve the embedded gateway to other programs of this machine, for tests.

It has NO AUTHENTICATION: whoever can connect can run code in sandboxes and see
those of others. It listens on a loopback address only, and prints it on standard
output. Port 0 takes a free one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.prepare(cmd, std); err != nil {
				return err
			}
			host, _, err := net.SplitHostPort(listen)
			if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
				return fmt.Errorf("--listen: %q is not a loopback address and port", listen)
			}
			gateway, err := local.New(s.gatewayConfig())
			if err != nil {
				return err
			}
			defer gateway.Close()
			listener, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			failed := make(chan error, 1)
			go func() { failed <- gateway.Serve(listener) }()
			std.complain("no authentication: any program of this machine can use it")
			if _, err := fmt.Fprintf(std.out, "http://%s\n", listener.Addr()); err != nil {
				return cli.OutputError(err)
			}
			select {
			case err := <-failed:
				return err
			case <-cmd.Context().Done():
				return nil
			}
		},
	}
	s.add(cmd)
	s.addSessionDisk(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:17670", "loopback `address` and port")
	return cmd
}
