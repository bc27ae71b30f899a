package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

type reportFlags struct {
	verifyFlags
	output string
	full   bool
}

func newReport(std *streams) *cobra.Command {
	var flags reportFlags
	cmd := &cobra.Command{
		Use:   "report --pub FILE [flags] BUNDLE -o PAGE",
		Short: "Verify a bundle and write a page about it, for people",
		Long: `Verify a bundle and write a page about it: what was checked and what was not, the
calls with their code and output, the chain, and the command to check it again.

The page is HTML that needs no script and no other file. It says what the
verifier found, and of a bundle that is refused why, and nothing of its content.

` + exitHelp + `
Where there is no verdict no page is written, and one that is there stays.`,
		Example: `  plimsoll-attest report --pub harness.pub --expect calls.txt bundle.jsonl -o report.html`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.changed = cmd.Flags().Changed
			return flags.run(cmd.Context(), std, args[0])
		},
	}
	f := cmd.Flags()
	flags.addQuestions(cmd)
	f.StringVarP(&flags.output, "output", "o", "", "`file` to write the page to; \"-\" for standard output")
	f.BoolVar(&flags.full, "full", false, "show long texts and lists in full")
	require(cmd, "output")
	return cmd
}

func (flags *reportFlags) run(ctx context.Context, std *streams, name string) error {
	flags.format = cli.FormatText
	if err := flags.check([]string{name}); err != nil {
		return err
	}
	opts, _, err := flags.options(std)
	if err != nil {
		return err
	}
	src, err := openBundle(ctx, std, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer src.Close()
	bundle, remove, err := src.rereadable()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer remove()

	report, refused := bundleOf(ctx, bundle, opts)
	if refused != nil && exitCode(refused) != exitRefused {
		return fmt.Errorf("%s: %w", name, refused)
	}
	err = replaceFile(std, flags.output, func(w io.Writer) error {
		return flags.write(ctx, w, name, bundle, opts, &verdict{bundle: name, report: report, err: refused})
	})
	if err != nil {
		return err
	}
	return bundleError(name, refused)
}

// write writes the page. The bundle is read again for it, and verified again, so
// that nothing is shown that was not verified.
func (flags *reportFlags) write(ctx context.Context, w io.Writer, name string, bundle io.ReadSeeker, opts verify.Options, v *verdict) error {
	p := &page{w: w}
	head := pageHead{Bundle: filepath.Base(name), Verdict: v.String(), Report: v.report, Command: flags.command(name)}
	errors.As(v.err, &head.Refusal)
	if v.report != nil {
		head.Checks = v.checks()
	}
	p.part("head", head)
	if v.report != nil {
		if err := flags.content(ctx, p, bundle, opts, v.report); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	p.part("foot", head)
	return p.err
}

func (flags *reportFlags) content(ctx context.Context, p *page, bundle io.ReadSeeker, opts verify.Options, report *verify.Report) error {
	if _, err := bundle.Seek(0, io.SeekStart); err != nil {
		return cli.FileError(err)
	}
	surface := &pageSurface{page: p}
	calls := &printer{surface, flags.full}
	opts.Entry = calls.entry
	second, err := bundleOf(ctx, bundle, opts)
	surface.end()
	switch {
	case err != nil:
		return fmt.Errorf("changed while it was read: %v", err) // a refusal would be a verdict
	case second.End != report.End:
		return errors.New("changed while it was read: what is shown is not what was verified")
	case flags.unlinked:
		p.part("unlinked", nil)
		return nil
	}
	if _, err := bundle.Seek(0, io.SeekStart); err != nil {
		return cli.FileError(err)
	}
	p.part("chain", nil)
	return p.chain(bundle, report.End)
}

// chain shows the links of a bundle whose end was verified: each of its lines is
// what it was then, as the end's digest covers them all.
func (p *page) chain(bundle io.Reader, end chain.Position) error {
	var at chain.Position
	lines := chain.NewReader(bundle)
	for {
		raw, err := lines.Next()
		if err == io.EOF {
			break
		}
		line, link, err := parseLinked(raw, err)
		if err != nil {
			return fmt.Errorf("changed while it was read: %v", err)
		}
		at = at.Next(line)
		what := "a call"
		switch {
		case link.Checkpoint:
			what = "checkpoint"
		case len(line.Request) == 0:
			what = "the close of a session"
		}
		p.part("link", pageLink{link, what, line.Digest})
	}
	if at != end {
		return errors.New("changed while it was read: the chain shown is not the one that was verified")
	}
	return nil
}

func parseLinked(raw []byte, err error) (*chain.ParsedLine, statement.Link, error) {
	if err != nil {
		return nil, statement.Link{}, err
	}
	line, err := chain.ParseLine(raw)
	if err != nil {
		return nil, statement.Link{}, err
	}
	if line.Link == nil {
		return nil, statement.Link{}, chain.ErrLink
	}
	payload, err := line.Link.DecodeB64Payload()
	if err != nil {
		return nil, statement.Link{}, err
	}
	link, err := statement.ParseLink(payload)
	return line, link, err
}

// command is how to ask the same again.
func (flags *reportFlags) command(name string) string {
	words := []string{program, "verify"}
	for _, pub := range flags.pub {
		words = append(words, "--pub", quoted(filepath.Base(pub)))
	}
	if flags.changed("expect") {
		words = append(words, "--expect", quoted(filepath.Base(flags.expect)))
	}
	for _, ids := range flags.expectIDs {
		words = append(words, "--expect-ids", quoted(ids))
	}
	if flags.changed("expect-count") {
		words = append(words, "--expect-count", fmt.Sprint(flags.expectCount))
	}
	if flags.minIsolation != "" {
		words = append(words, "--min-isolation", quoted(flags.minIsolation))
	}
	if flags.unlinked {
		words = append(words, "--unlinked")
	}
	return strings.Join(append(words, quoted(filepath.Base(name))), " ")
}

// quoted is a word of the shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:,=@+", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// pageStart is how a page begins.
const pageStart = "<!doctype html>"

// checkReplaceable lets a page be replaced, and no other file: the name may be that
// of the bundle or a key.
func checkReplaceable(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cli.FileError(err)
	}
	defer f.Close()
	start := make([]byte, len(pageStart))
	if _, err := io.ReadFull(f, start); err != nil || string(start) != pageStart {
		return errors.New("exists and is no page: not replaced")
	}
	return nil
}

// replaceFile has a page be what write writes, or leaves it as it was.
func replaceFile(std *streams, name string, write func(io.Writer) error) error {
	if name == stdinName {
		return write(std.out)
	}
	if err := checkReplaceable(name); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	file, err := os.CreateTemp(filepath.Dir(name), ".plimsoll-report-*")
	if err != nil {
		return fmt.Errorf("%s: %w", name, cli.FileError(err))
	}
	defer os.Remove(file.Name()) // not there any more when all went well
	out := bufio.NewWriter(file)
	if err := write(out); err != nil {
		file.Close()
		return err
	}
	err = out.Flush()
	if err == nil {
		err = file.Chmod(0o644)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, cli.FileError(err))
	}
	return nil
}
