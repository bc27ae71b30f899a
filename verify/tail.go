package verify

import (
	"context"
	"errors"
	"io"

	"github.com/plimsoll-attest/plimsoll/chain"
)

// A Tail is what stands in a linked bundle after the last checkpoint up to
// which it verifies: what a writer that was killed leaves behind.
type Tail struct {
	// Good is the end of the last checkpoint with no session open. The bundle
	// cut there verifies. It is zero when there is none.
	Good chain.Mark
	// Whole is the end of the last line that holds; it is Good when none does
	// after it.
	Whole chain.Mark
	// Open are the sessions with calls and no close at Whole.
	Open []OpenSession
	// Refusal says why the first line after Whole does not hold. Nil when
	// Whole is the end of the file.
	Refusal *Refusal
}

// FindTail reads a linked bundle as Bundle does and returns where it stops to
// hold. It asks only what lines can answer: Expect, ExpectCount and State must
// not be set.
func FindTail(ctx context.Context, r io.Reader, opts Options) (*Tail, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	if opts.Unlinked || opts.Expect != nil || opts.ExpectCount != nil || opts.State != nil {
		return nil, errors.New("a tail is of a linked bundle and needs no list, count or state")
	}
	v := newVerifier(opts)
	err := v.run(ctx, r)
	tail := &Tail{
		Good:  v.good,
		Whole: chain.Mark{Position: v.at, Offset: v.offset},
		Open:  v.sessions.OpenSessions(),
	}
	if err != nil && !errors.As(err, &tail.Refusal) {
		return nil, err
	}
	return tail, nil
}
