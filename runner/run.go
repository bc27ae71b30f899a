package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/record"
)

// ErrLost is wrapped by the error of a single run that may have run and has no
// answer. There is no record of it.
var ErrLost = errors.New("the call may have run, and there is no answer")

// Run carries out a call in a sandbox of its own. The error is a *call.Refused
// when nothing ran, and wraps ErrLost when something may have.
//
// It returns once the answer is there; the sandbox is deleted after that.
func (r *Runner) Run(ctx context.Context, asked *call.Call) (*Answer, error) {
	c := r.clock()
	req := asked.Request
	ctx, cancel := context.WithTimeoutCause(ctx, callTime(req), errDeadline)
	defer cancel()
	e, refused := r.driver(ctx)
	if refused == nil {
		refused = r.admissible(req, e)
	}
	if refused != nil {
		return nil, refused.Of(req)
	}
	b, p, refused := r.newBox(ctx, r.config.TmpSize, callTime(req))
	if refused != nil {
		return nil, refused.Of(req)
	}
	defer b.discard()
	if refused := interpreter(req, p); refused != nil {
		return nil, refused.Of(req)
	}
	d := dispatch{box: b, node: p.node}
	res, err := d.run(ctx, req)
	switch {
	case err != nil && !d.sent:
		return nil, gatewayGone("start the call", err).Of(req)
	case errors.Is(err, errDeadline):
		// An answer only when it is known that nothing of the call is running.
		proof, cancel := context.WithTimeout(context.WithoutCancel(ctx), proofTime)
		defer cancel()
		if err := b.remove(proof); err != nil {
			return nil, fmt.Errorf("%w: its deadline passed, and its sandbox is not gone: %w", ErrLost, err)
		}
	case err != nil:
		return nil, fmt.Errorf("%w (%s): %w", ErrLost, codeOf(err), err)
	}
	return answer(req, res, r.stated(e, b.seen.hash, c))
}

// interpreter refuses a call whose interpreter the sandbox has not.
func interpreter(req *record.Request, p *prepared) *call.Refused {
	if req.JavaScript != nil && p.node == "" {
		return call.Refuse(call.CodeFailedPrecondition, call.ReasonEnvironment, "the sandbox has no node in %s", guestPath)
	}
	return nil
}
