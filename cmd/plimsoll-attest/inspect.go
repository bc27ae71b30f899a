package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

type inspectFlags struct {
	pub        []string
	unlinked   bool
	unverified bool
	full       bool
}

func newInspect(std *streams) *cobra.Command {
	var flags inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect [--pub FILE] [flags] BUNDLE",
		Short: "Show the calls of a bundle: code, files, outputs, times, tiers",
		Long: `Show the calls of a bundle: code, files, outputs, times, tiers.

BUNDLE is a file, or "-" for standard input. With --pub it is verified first, and
what is shown is what was verified; a bundle that is refused is not shown. Without
--pub nothing is verified, and the output says so.

Characters that a terminal would act on or not show at all stand as ⟨U+001B⟩,
bytes that are no text as ⟨byte ff⟩.

` + exitHelp,
		Example: `  plimsoll-attest inspect --pub harness.pub bundle.jsonl | less`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd.Context(), std, args[0])
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&flags.pub, "pub", nil, "`file` of public keys to verify with first; may be given several times")
	f.BoolVar(&flags.unlinked, "unlinked", false, "the bundle is of the older format without links, which proves less")
	f.BoolVar(&flags.unverified, "unverified", false, "show the content also of a bundle that is refused")
	f.BoolVar(&flags.full, "full", false, "show long texts and lists in full")
	return cmd
}

func (flags *inspectFlags) run(ctx context.Context, std *streams, name string) error {
	var opts verify.Options
	if len(flags.pub) > 0 {
		var err error
		if opts.Keys, err = readPublicKeys(flags.pub); err != nil {
			return err
		}
	}
	opts.Unlinked = flags.unlinked
	src, err := openBundle(ctx, std, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer src.Close()
	p := &printer{textSurface{std.out}, flags.full}
	if len(opts.Keys) == 0 {
		err = p.showUnverified(src, "no public key given (--pub)")
	} else {
		err = flags.verified(ctx, std, p, name, src, opts)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// verified shows a bundle once it has verified whole. That takes two readings.
// The second verifies again, so that no line is shown that was not, even if the
// file changes in between, and the two ends must be one.
func (flags *inspectFlags) verified(ctx context.Context, std *streams,
	p *printer, name string, src *source, opts verify.Options,
) error {
	var first io.Reader = src
	again := src.file
	if !src.regular {
		// What can be read only once is kept as it is verified, and no more of it.
		spool, err := newSpool()
		if err != nil {
			return err
		}
		defer spool.remove()
		again = spool.file
		first = io.TeeReader(src, spool.file)
	}
	report, err := bundleOf(ctx, first, opts)
	v := &verdict{bundle: name, report: report, err: err}
	printText(std, v)
	if err != nil && (exitCode(err) != exitRefused || !flags.unverified) {
		return err
	}
	if _, copyErr := io.Copy(io.Discard, first); copyErr != nil { // what follows a refused line
		return cli.FileError(copyErr)
	}
	if _, seekErr := again.Seek(0, io.SeekStart); seekErr != nil {
		return cli.FileError(seekErr)
	}
	if err != nil {
		if showErr := p.showUnverified(again, "the bundle is refused"); exitCode(showErr) == exitNoVerdict {
			return showErr
		}
		return err
	}
	if flags.unlinked {
		p.head("In a bundle without links no signature covers trace IDs, durations, advice, unknown fields and software rules of version 1 calls.")
	}
	opts.Entry = p.entry
	second, err := bundleOf(ctx, again, opts)
	if err != nil {
		// Not wrapped: a refusal would be a verdict, and it verified a moment ago.
		return fmt.Errorf("changed while it was read: %v", err)
	}
	if second.End != report.End {
		return errors.New("changed while it was read: what is shown is not what was verified")
	}
	return nil
}

// A spool keeps what can be read only once.
type spool struct{ file *os.File }

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "plimsoll-inspect-*.jsonl") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("temporary file: %w", err)
	}
	return &spool{file: f}, nil
}

func (s *spool) remove() {
	s.file.Close()
	os.Remove(s.file.Name())
}

// showUnverified shows what the lines of r say, by whoever wrote them. A line
// that cannot be read is named and passed over.
func (p *printer) showUnverified(r io.Reader, why string) error {
	banner := "*** NOTHING WAS VERIFIED: " + why + ". Anybody can have written this. ***"
	p.line("%s", banner)
	p.line("")
	bad := 0
	var first *verify.Refusal
	lines := chain.NewReader(r)
	for n := uint64(1); ; n++ {
		raw, err := lines.Next()
		if err == io.EOF {
			break
		}
		readable := err == nil
		if err != nil {
			if _, isLine := verify.CheckOf(err); !isLine {
				return cli.FileError(err)
			}
		} else {
			err = p.unverifiedLine(n, raw)
		}
		if err != nil {
			p.head("line %d: UNREADABLE: %v", n, err)
			if bad++; first == nil {
				first = &verify.Refusal{Line: n, Err: err}
			}
		}
		if !readable {
			break // nothing can be read after a line without an end
		}
	}
	p.line("")
	p.line("%s", banner)
	if bad > 0 {
		return fmt.Errorf("%s unreadable, first %w", cli.Plural(bad, "line"), first)
	}
	return nil
}

// unverifiedLine shows one line without asking whether it is true.
func (p *printer) unverifiedLine(n uint64, raw []byte) error {
	line, err := chain.ParseLine(raw)
	if err != nil {
		return err
	}
	if line.Envelope == nil {
		p.head("line %d: no entry, as a checkpoint", n)
		return nil
	}
	payload, err := line.Envelope.DecodeB64Payload()
	if err != nil {
		return fmt.Errorf("%w: payload: %w", statement.ErrStatement, err)
	}
	entry, err := statement.ParseEntry(payload)
	if err != nil {
		return err
	}
	if entry.Close != nil {
		return p.entry(verify.Entry{Line: n, Close: entry.Close})
	}
	x, err := decodeUnverified(line, entry.Record)
	if err != nil {
		return err
	}
	return p.entry(verify.Entry{Line: n, Call: x})
}
