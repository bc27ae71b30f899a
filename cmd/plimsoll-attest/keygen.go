package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
)

func newKeygen(std *streams) *cobra.Command {
	var (
		key, pub       string
		passphraseFile string
		noPassphrase   bool
	)
	cmd := &cobra.Command{
		Use:   "keygen --key FILE --pub FILE [--no-passphrase | --passphrase-file FILE]",
		Short: "Make a signing key and its public key",
		Long: `Make a signing key, an Ed25519 key in a new file of mode 0600, and its public key.
No file is ever overwritten. The key is encrypted under a passphrase from
--passphrase-file, from the environment variable ` + attest.PassphraseEnv + `, or asked
for on the terminal.

` + exitHelp,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var pass attest.PassphraseFunc
			if !noPassphrase {
				pass = attest.Passphrase(passphraseFile, true)
			}
			public, err := attest.CreateKey(key, pub, pass)
			if err != nil {
				return err
			}
			how := "encrypted"
			if noPassphrase {
				how = "NOT ENCRYPTED"
			}
			fmt.Fprintf(std.out, "key ID: %s\nprivate key: %s (%s)\npublic key: %s\n",
				public.ID(), visible.Text(key), how, visible.Text(pub))
			if err := std.out.Flush(); err != nil {
				// Nobody was told of the key.
				if removeErr := errors.Join(os.Remove(key), os.Remove(pub)); removeErr != nil {
					std.complain("%v", removeErr)
				}
				return reportedError{err} // by run, whose last flush fails as well
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "new `file` for the private key")
	f.StringVar(&pub, "pub", "", "new `file` for the public key")
	f.BoolVar(&noPassphrase, "no-passphrase", false, "do not encrypt the private key")
	f.StringVar(&passphraseFile, "passphrase-file", "", "`file` with the passphrase, mode 0600")
	cmd.MarkFlagsMutuallyExclusive("no-passphrase", "passphrase-file")
	require(cmd, "key", "pub")
	return cmd
}

// require makes flags ones that must be given.
func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // there is no such flag
		}
	}
}
