package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
)

// signFlags are the flags of the commands that write to a bundle with a key.
type signFlags struct {
	key            string
	bundle         string
	lockTimeout    time.Duration
	passphraseFile string
	allowShared    bool
}

func (flags *signFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&flags.key, "key", "", "private key: a `file`, or agent:FINGERPRINT for a key in an ssh-agent")
	f.StringVar(&flags.bundle, "bundle", "", "the `file` to write to")
	f.DurationVar(&flags.lockTimeout, "lock-timeout", attest.DefaultLockTimeout, "how long to wait for another writer of the bundle")
	f.StringVar(&flags.passphraseFile, "passphrase-file", "", "`file` with the key's passphrase, mode 0600")
	f.BoolVar(&flags.allowShared, "allow-shared", false, "take a bundle that group or others can read or write")
	require(cmd, "key", "bundle")
}

// options opens the signer.
func (flags *signFlags) options() (attest.Options, error) {
	signer, err := attest.OpenSigner(flags.key, attest.Passphrase(flags.passphraseFile, false))
	if err != nil {
		return attest.Options{}, err
	}
	return attest.Options{
		Bundle: flags.bundle, Signer: signer, AllowShared: flags.allowShared,
		LockTimeout: lockTimeout(flags.lockTimeout),
	}, nil
}

// lockTimeout makes 0 mean what it says: package attest takes its default then.
func lockTimeout(d time.Duration) time.Duration {
	if d <= 0 {
		return -1
	}
	return d
}

func newSign(std *streams) *cobra.Command {
	var flags signFlags
	cmd := &cobra.Command{
		Use:   "sign --key KEY --bundle FILE < RUNLOG",
		Short: "Sign a run log and append it to a bundle",
		Long: `Sign the run log on standard input and append it to a bundle.

Each line is checked against itself before it is signed, and is on disk before
the next is read. What the bundle holds already is skipped, so that a log can be
given again. Only consistency can be checked here: that calls were made and what
they printed is the runner's word.

The log is read to its end also when the program is interrupted, told to end or
hung up, so that no call goes unsigned.
The passphrase of an encrypted key comes from --passphrase-file, from the environment
variable ` + attest.PassphraseEnv + `, or is asked for on the terminal.

` + exitHelp,
		Example: `  plimsoll-attest sign --key harness.key --bundle bundle.jsonl < run.jsonl`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := flags.options()
			if err != nil {
				return err
			}
			if !isDevice(std.in) {
				defer outlastSignals(std)()
			}
			res, err := attest.Sign(context.WithoutCancel(cmd.Context()), std.in, opts)
			if res != nil {
				printSigned(std, flags.bundle, res)
			}
			return bundleError(flags.bundle, err)
		},
	}
	flags.add(cmd)
	return cmd
}

// bundleError puts the bundle's name before an error.
func bundleError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// isDevice reports whether r is a terminal or another device: nothing that ends
// when a runner does.
func isDevice(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeDevice != 0
}

// outlastSignals makes the program outlast the signals that end it and, sent to
// a whole pipeline, its runner: the runner's last lines are still to come. It
// returns what undoes that.
func outlastSignals(std *streams) (undo func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case s := <-signals:
			std.complain("%v: signing what is left of the run log first", s)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-gone
	}
}

// printSigned tells what became of a run log.
func printSigned(std *streams, bundle string, res *attest.Result) {
	state := "NOT SEALED"
	if res.Sealed {
		state = "sealed"
	}
	fmt.Fprintf(std.out, "%s: %s\n", visible.Text(bundle), state)
	fmt.Fprintf(std.out, "  calls signed: %d\n  calls skipped, in the bundle before: %d\n  calls refused by the runner, not signed: %d\n",
		res.Calls, res.Skipped, res.Refused)
	if res.Moved > 0 {
		fmt.Fprintf(std.out, "  calls signed and NOT in the bundle, see side file: %d\n", res.Moved)
	}
	fmt.Fprintf(std.out, "  sessions: %d\n", res.Sessions)
	printEnd(std, res)
	for _, what := range res.NotChecked {
		fmt.Fprintf(std.out, "  not checked: %s\n", visible.Text(what))
	}
}

func printEnd(std *streams, res *attest.Result) {
	fmt.Fprintf(std.out, "  lines: %d, before %d\n  key: %s\n", res.LinesAfter, res.LinesBefore, res.KeyID)
	tellSideFiles(std, res.SideFiles)
}

// tellSideFiles warns of evidence that is outside the bundle.
func tellSideFiles(std *streams, paths []string) {
	for _, path := range paths {
		std.complain("WARNING: UNSEALED EVIDENCE is in %s", path)
	}
}
