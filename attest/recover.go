package attest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// RecoverOptions say which bundle to look at, and whether to cut it.
type RecoverOptions struct {
	Bundle string                // path of a regular file, no symbolic link
	Keys   []*envelope.PublicKey // one of them must have signed the bundle
	// Cut moves what stands after the last checkpoint into a side file.
	Cut         bool
	LockTimeout time.Duration    // as in Options
	Now         func() time.Time // as in Options
	AllowShared bool             // as in Options

	disk *disk // nil but in tests
}

// A Recovery says what a bundle holds after its last checkpoint.
type Recovery struct {
	Bytes int64 // the size of the file, before a cut
	// Kept is the end of the last checkpoint with no session open: the bundle
	// cut there verifies. It is zero when there is none.
	Kept chain.Mark
	// Whole is the end of the last line that holds; Kept or after it.
	Whole chain.Mark
	// Open are the sessions with calls and no close at Whole.
	Open []verify.OpenSession
	// Refusal says what is wrong with the first line that does not hold. Nil
	// when all of them do.
	Refusal *verify.Refusal
	// After is how many lines follow the one that does not hold. A writer that
	// is interrupted leaves none: with any, the file was changed by other
	// means, and Cut is refused.
	After uint64

	Moved    int64  // bytes that were moved; 0 without Cut
	SideFile string // where they are; empty when none were
}

// Intact reports whether the bundle ends in a checkpoint up to which all holds:
// there is nothing to recover.
func (r *Recovery) Intact() bool { return r.Kept.Offset == r.Bytes && r.Bytes > 0 }

// Sealable reports whether everything after the last checkpoint holds and no
// session is open: Seal makes the bundle whole and nothing has to go.
func (r *Recovery) Sealable() bool {
	return !r.Intact() && r.Refusal == nil && len(r.Open) == 0 && r.Whole.Lines > 0
}

// Recover shows what an interrupted writer left after the last checkpoint of a
// bundle. With Cut it moves that into a side file, which is on disk before
// anything is cut. A bundle that is intact, or empty, is left as it is.
//
// Errors wrap ErrLocked, or ErrBundle when an interruption does not explain what
// is there: lines follow one that does not hold, or nothing in the file was
// signed by one of the keys. Nothing is cut then, and a *Recovery comes with the
// error. A first run that was interrupted has no checkpoint; all of it is moved
// when it was signed by one of the keys, or is the beginning of a line alone.
func Recover(ctx context.Context, o RecoverOptions) (*Recovery, error) {
	switch {
	case o.Bundle == "":
		return nil, errors.New("no bundle given")
	case len(o.Keys) == 0:
		return nil, errors.New("no public key given")
	}
	bundle, err := openBundle(ctx, o.Bundle, opening{
		write: o.Cut, shared: o.AllowShared, wait: lockWait(o.LockTimeout), disk: o.disk,
	})
	if err != nil {
		return nil, err
	}
	r, err := inspect(ctx, bundle, &o)
	if err == nil && o.Cut && r.Kept.Offset < r.Bytes {
		if err = r.cut(bundle, &o); err == nil {
			if moved := bundle.checkPlace(); moved != nil {
				err = movedError(moved, nil)
			}
		}
	}
	if closeErr := bundle.close(); err == nil {
		err = closeErr
	}
	return r, err
}

// inspect finds what there is, and refuses what no interruption leaves.
func inspect(ctx context.Context, bundle *bundleFile, o *RecoverOptions) (*Recovery, error) {
	tail, err := verify.FindTail(ctx, bundle.content(), verify.Options{Keys: o.Keys})
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	r := &Recovery{Bytes: bundle.size, Kept: tail.Good, Whole: tail.Whole, Open: tail.Open, Refusal: tail.Refusal}
	if r.Refusal == nil {
		return r, nil
	}
	rest := io.NewSectionReader(bundle, r.Whole.Offset, r.Bytes-r.Whole.Offset)
	if r.After, err = linesAfterFirst(rest); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	switch {
	case r.After > 0:
		return r, fmt.Errorf("%w: %w; %d lines follow it, which no interrupted writer leaves: the file was changed by other means",
			ErrBundle, r.Refusal, r.After)
	case r.Whole.Lines > 0:
		return r, nil
	}
	// Nothing in the file is known to be ours. The one thing that an interrupted
	// writer can leave so is the beginning of its first line.
	if started, err := startsLine(rest, o.Keys); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	} else if !started || !errors.Is(r.Refusal, chain.ErrTorn) {
		return r, fmt.Errorf("%w: %w; nothing in the file is signed by a key given, so none of it is taken for a tail", ErrBundle, r.Refusal)
	}
	return r, nil
}

// cut moves everything after the last checkpoint into a side file.
func (r *Recovery) cut(bundle *bundleFile, o *RecoverOptions) error {
	options := Options{Now: o.Now}
	length := r.Bytes - r.Kept.Offset
	path, err := bundle.keep(io.NewSectionReader(bundle, r.Kept.Offset, length), options.now())
	if err != nil {
		return fmt.Errorf("a side file could not be written, the bundle is as it was: %w", err)
	}
	r.SideFile, r.Moved = path, length
	if err := errors.Join(bundle.Truncate(r.Kept.Offset), bundle.Sync()); err != nil {
		return fmt.Errorf("cut back: %w; what was to be cut is in %s too", err, path)
	}
	return nil
}

// linesAfterFirst counts the lines after the first one, a last one without an
// LF included.
func linesAfterFirst(r io.Reader) (uint64, error) {
	var lines uint64
	ended := true
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			lines += uint64(bytes.Count(buf[:n], []byte{'\n'}))
			ended = buf[n-1] == '\n'
		}
		switch {
		case err == io.EOF && ended && lines > 0:
			return lines - 1, nil
		case err == io.EOF:
			return lines, nil
		case err != nil:
			return 0, err
		}
	}
}

// starts are how a line of a bundle can begin.
var starts = []string{
	`{"request":"`,
	`{"envelope":{"payloadType":"` + envelope.PayloadType + `","payload":"`,
	`{"link":{"payloadType":"` + envelope.PayloadType + `","payload":"`,
}

// startsLine reports whether the text, a file's first line without an end,
// begins as a line does and names no other key than those given.
func startsLine(r io.ReadSeeker, keys []*envelope.PublicKey) (bool, error) {
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	text, err := io.ReadAll(io.LimitReader(r, chain.MaxLineBytes))
	if err != nil {
		return false, err
	}
	begins := false
	for _, start := range starts {
		n := min(len(start), len(text))
		begins = begins || string(text[:n]) == start[:n]
	}
	_, named, found := bytes.Cut(text, []byte(`"keyid":"`))
	if !begins || !found {
		return begins, nil
	}
	for _, k := range keys {
		n := min(len(k.ID()), len(named))
		if string(named[:n]) == k.ID()[:n] {
			return true, nil
		}
	}
	return false, nil
}
