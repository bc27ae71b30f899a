package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// normalise gives long flags that were written with one dash their second one:
// existing documentation says "verify -pub harness.pub". Only flags of the
// command at hand are touched, never their values, and nothing after "--".
func normalise(root *cobra.Command, args []string) []string {
	if len(args) == 0 {
		return args
	}
	cmd, rest := root, args
	if !strings.HasPrefix(args[0], "-") {
		if cmd = subcommand(root, args[0]); cmd == nil {
			return args
		}
		rest = args[1:]
	}
	cmd.InitDefaultHelpFlag()
	flags := cmd.Flags()

	out := append([]string(nil), args[:len(args)-len(rest)]...)
	for len(rest) > 0 {
		arg := rest[0]
		rest = rest[1:]
		if arg == "--" {
			return append(append(out, arg), rest...)
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		dashes := len(arg) - len(strings.TrimLeft(arg, "-"))
		flag := flags.Lookup(name)
		if flag == nil || dashes == 0 || dashes > 2 {
			out = append(out, arg)
			continue
		}
		out = append(out, "--"+arg[dashes:])
		if !hasValue && flag.NoOptDefVal == "" && len(rest) > 0 {
			out, rest = append(out, rest[0]), rest[1:]
		}
	}
	return out
}

func subcommand(root *cobra.Command, name string) *cobra.Command {
	for _, cmd := range root.Commands() {
		if cmd.Name() == name {
			return cmd
		}
	}
	return nil
}
