package chain

import (
	"errors"
	"strconv"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// ErrLink is wrapped when a line's link is missing or not right for its line.
var ErrLink = errors.New("link")

// A Position is a place between two lines of a bundle: how many lines stand
// before it, and the digest of the last of them. The zero value is the start.
type Position struct {
	Lines  uint64
	Digest string // 64 lower-case hex digits; empty at the start
}

// Check reports whether link is right for line, which stands at p. The payload
// is expected to have been verified. Errors wrap ErrLink.
func (p Position) Check(link statement.Link, line *ParsedLine) error {
	if have, want := link.Index, p.Lines+1; have != want {
		return mismatch.New(ErrLink, "index is not the line's number", number(have), number(want))
	}
	if link.PreviousSHA256 != p.Digest {
		return mismatch.New(ErrLink, "previous_sha256 is not the line before", link.PreviousSHA256, p.Digest)
	}
	if !link.Checkpoint {
		if link.EntrySHA256 != line.EntryDigest {
			return mismatch.New(ErrLink, "entry_sha256 is not this entry", link.EntrySHA256, line.EntryDigest)
		}
		if link.Lines != 0 {
			return mismatch.New(ErrLink, "lines on an entry", number(link.Lines), "")
		}
		return nil
	}
	switch {
	case line.HasEntry():
		return mismatch.New(ErrLink, "entry on a checkpoint's line", line.EntryDigest, "")
	case link.EntrySHA256 != "":
		return mismatch.New(ErrLink, "entry_sha256 on a checkpoint", link.EntrySHA256, "")
	case link.Lines != p.Lines:
		return mismatch.New(ErrLink, "lines before the checkpoint", number(link.Lines), number(p.Lines))
	}
	return nil
}

// Next returns the position after line.
func (p Position) Next(line *ParsedLine) Position {
	return Position{Lines: p.Lines + 1, Digest: line.Digest}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
