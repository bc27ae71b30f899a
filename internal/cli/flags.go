// Package cli is what the programs have in common: how they take flags, how they
// show text of others, how they write JSON and what they say of their build.
package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Normalise gives long flags that were written with one dash their second one:
// existing documentation says "verify -pub harness.pub". Only flags of the
// command at hand are touched, never their values, and nothing after "--".
func Normalise(root *cobra.Command, args []string) []string {
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
		short := flag == nil && dashes == 1 && len(name) == 1
		if short {
			flag = flags.ShorthandLookup(name)
		}
		if flag == nil || dashes == 0 || dashes > 2 {
			out = append(out, arg)
			continue
		}
		if !short {
			arg = "--" + arg[dashes:]
		}
		out = append(out, arg)
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

// OnceOnly makes every flag that has one value refuse a second one. The last of
// two would win without a word, and what the first asked for be checked by
// nobody.
func OnceOnly(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if _, list := flag.Value.(pflag.SliceValue); !list {
				flag.Value = &once{Value: flag.Value}
			}
		})
	}
}

// once is a flag's value that can be set once.
type once struct {
	pflag.Value
	set bool
}

func (o *once) Set(text string) error {
	if o.set {
		return errors.New("given twice")
	}
	o.set = true
	return o.Value.Set(text)
}

// Number adds a flag for a number from 0 in decimal digits alone: 010 is ten to
// one reader and eight to another.
func Number[N int | uint64](f *pflag.FlagSet, into *N, name string, otherwise N, usage string) {
	*into = otherwise
	f.Var(number[N]{into}, name, usage)
}

type number[N int | uint64] struct{ value *N }

func (n number[N]) String() string {
	if n.value == nil { // as pflag asks for the zero value's
		return "0"
	}
	return fmt.Sprint(*n.value)
}

func (n number[N]) Type() string { return "number" }

func (n number[N]) Set(text string) error {
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(value, 10) != text || N(value) < 0 || uint64(N(value)) != value {
		return fmt.Errorf("have %.60q, want a decimal number", text)
	}
	*n.value = N(value)
	return nil
}
