package cli_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
)

func TestNormalise(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"run", "run"},
		{"run -step a -show f", "run --step a --show f"},
		{"run --step a --show f", "run --step a --show f"},
		{"run -step=-show f", "run --step=-show f"},
		{"run -step -show -show", "run --step -show --show"}, // a value is left alone
		{"run -e -step -show", "run -e -step --show"},
		{"run -e=x -show", "run -e=x --show"},
		{"run -- -show", "run -- -show"},
		{"run -help", "run --help"},
		{"run -unknown -show", "run -unknown --show"},
		{"run - -show", "run - --show"},
		{"other -show", "other -show"},
		{"-help", "--help"},
	} {
		root := &cobra.Command{Use: "p"}
		run := &cobra.Command{Use: "run"}
		run.Flags().StringArray("step", nil, "")
		run.Flags().Bool("show", false, "")
		run.Flags().StringP("code", "e", "", "")
		root.AddCommand(run)
		in := strings.Fields(c.in)
		before := slices.Clone(in)
		if got := strings.Join(cli.Normalise(root, in), " "); got != c.want {
			t.Errorf("%q: have %q, want %q", c.in, got, c.want)
		}
		if !slices.Equal(in, before) {
			t.Errorf("%q: the arguments were changed", c.in)
		}
	}
}

func TestOnceOnly(t *testing.T) {
	for args, ok := range map[string]bool{
		"run --key a": true, "run --step a --step b": true, "run --key a --key a": false,
	} {
		root := &cobra.Command{Use: "p", SilenceErrors: true, SilenceUsage: true}
		run := &cobra.Command{Use: "run", Run: func(*cobra.Command, []string) {}}
		run.Flags().StringArray("step", nil, "")
		run.Flags().String("key", "", "")
		root.AddCommand(run)
		cli.OnceOnly(root)
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); (err == nil) != ok {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestNumber(t *testing.T) {
	for text, ok := range map[string]bool{
		"0": true, "7": true, "9223372036854775807": true, "9223372036854775808": false,
		"": false, "-1": false, "+1": false, "010": false, "0x10": false, "1.5": false, "1_000": false, " 1": false, "much": false,
	} {
		f := pflag.NewFlagSet("p", pflag.ContinueOnError)
		var n int
		cli.Number(f, &n, "n", 3, "")
		if err := f.Set("n", text); (err == nil) != ok || ok && strconv.Itoa(n) != text || !ok && n != 3 {
			t.Errorf("%q: have %d, %v", text, n, err)
		}
	}
}
