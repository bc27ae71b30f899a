package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// The values of --format.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// FormatFlag adds --format to cmd.
func FormatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", FormatText, "`form` of the answer: text or json")
	Complete(cmd, "format", FormatText, FormatJSON)
}

// CheckFormat takes the values of --format.
func CheckFormat(format string) error {
	if format != FormatText && format != FormatJSON {
		return fmt.Errorf("--format: have %q, want %s or %s", format, FormatText, FormatJSON)
	}
	return nil
}

// Complete sets what the shell offers as a flag's value.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is not there, or has values already
	}
}

// WriteJSON writes v, of a type of ours, as one line of ASCII: what others wrote
// must not reach a terminal through JSON either. The error is the writer's.
func WriteJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var line []byte
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch high, low := utf16.EncodeRune(r); {
		case r < 0x7f:
			line = append(line, byte(r))
		case high != utf8.RuneError:
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
		i += size
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
