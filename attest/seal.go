package attest

import (
	"context"
	"errors"
	"fmt"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// Seal writes a checkpoint to a bundle that was left without one, if every line
// of it verifies under the signer's key and no session is open. A bundle that is
// sealed is left as it is. Progress and Now are not used.
//
// Errors wrap ErrBundle when the bundle cannot be sealed, and ErrLocked; what is
// left then is for Recover to see. A missing bundle is not made.
func Seal(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	bundle, err := openBundle(ctx, o.Bundle, o.opening(false))
	if err != nil {
		return nil, err
	}
	res, err := seal(ctx, bundle, &o)
	if moved := bundle.checkPlace(); moved != nil {
		err = movedError(moved, err)
	}
	if closeErr := bundle.close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

func seal(ctx context.Context, bundle *bundleFile, o *Options) (*Result, error) {
	tail, err := verify.FindTail(ctx, bundle.content(), verify.Options{Keys: []*envelope.PublicKey{o.Signer.PublicKey()}})
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	switch {
	case tail.Refusal != nil:
		return nil, fmt.Errorf("%w: %w; see plimsoll-attest recover", ErrBundle, tail.Refusal)
	case len(tail.Open) > 0:
		return nil, fmt.Errorf("%w: %w: session %s is open after %d calls; see plimsoll-attest recover",
			ErrBundle, verify.ErrIncomplete, mismatch.Show(tail.Open[0].Session), tail.Open[0].Calls)
	case tail.Whole.Lines == 0:
		return nil, fmt.Errorf("%w: %w: it is empty, there is nothing to seal", ErrBundle, verify.ErrIncomplete)
	}
	appender := chain.NewAppender(bundle, envelopes{o.Signer}, tail.Whole)
	if tail.Whole != tail.Good {
		if err := appender.Checkpoint(); err != nil {
			return nil, sealError(err)
		}
	}
	return &Result{
		KeyID:       o.Signer.PublicKey().ID(),
		LinesBefore: tail.Whole.Lines,
		LinesAfter:  appender.End().Lines,
		End:         appender.End().Position,
		Sealed:      true,
	}, nil
}

func sealError(err error) error {
	var failed *chain.WriteError
	if errors.As(err, &failed) && failed.CutErr != nil {
		return fmt.Errorf("%w; the bundle may end in a torn line: when the disk works again, see plimsoll-attest recover", err)
	}
	return err
}
