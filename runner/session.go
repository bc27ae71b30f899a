package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// The ends of a session.
const (
	EndClosed         = "closed"             // by its owner
	EndExpired        = "expired"            // its lifetime is over
	EndDisk           = "disk_exceeded"      // past its disk budget
	EndMainProcess    = "main_process_ended" // its sandbox has ended
	EndBoundaryFailed = "boundary_failed"    // not proven free of a call's processes
	EndChanged        = "sandbox_changed"    // read back different from what was made
)

// ErrSessionEnded is wrapped by the refusal of a call whose session has ended.
var ErrSessionEnded = errors.New("session ended")

// A Session is a sandbox that runs many calls, one at a time. Files stay from call
// to call. A process does not: after each call every process but the sandbox's own
// is killed, and where that cannot be proven the sandbox is stopped and started.
type Session struct {
	runner   *Runner
	evidence evidence
	id       string
	expires  time.Time

	turn    chan struct{} // holds a token while nothing runs in the sandbox
	sweeps  context.Context
	abandon context.CancelFunc // of sweeps
	expiry  *time.Timer

	// Of whoever has the turn.
	box       *box
	prepared  *prepared
	suspended bool
	idle      *time.Timer
	calls     uint64
	last      string

	mu     sync.Mutex
	ended  string
	detail string
}

// Open makes a session. The error is a *call.Refused.
func (r *Runner) Open(ctx context.Context) (*Session, error) {
	e, refused := r.driver(ctx)
	if refused != nil {
		return nil, refused
	}
	b, p, refused := r.newBox(ctx, 0, r.config.Lifetime)
	if refused != nil {
		return nil, refused
	}
	switch {
	case p.ptraceScope < 1:
		// A leftover could trace the sweep and have it report success.
		refused = wrongGateway("kernel.yama.ptrace_scope: have %s, want at least 1: processes could trace each other", scopeText(p.ptraceScope))
	case len(p.processes) == 0:
		refused = wrongGateway("the sandbox shows no process of its own")
	}
	if refused != nil {
		b.discard()
		return nil, refused
	}
	s := &Session{
		runner: r, evidence: e, id: randomHex(16), expires: time.Now().Add(r.config.Lifetime),
		turn: make(chan struct{}, 1), box: b, prepared: p,
	}
	s.sweeps, s.abandon = context.WithCancel(context.Background())
	s.expiry = time.AfterFunc(r.config.Lifetime, s.expire)
	s.free()
	return s, nil
}

func scopeText(scope int) string {
	if scope < 0 {
		return "nothing readable"
	}
	return fmt.Sprint(scope)
}

// ID is the capability to use the session. It must not be logged.
func (s *Session) ID() string { return s.id }

// Fingerprint is the name under which records speak of the session.
func (s *Session) Fingerprint() string { return record.Fingerprint(s.id) }

// Ended says whether and why the session has ended.
func (s *Session) Ended() (end, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.detail
}

// take waits for the turn.
func (s *Session) take(ctx context.Context) error {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	return nil
}

// free gives the turn back and starts to count the idle time.
func (s *Session) free() {
	if end, _ := s.Ended(); end == "" && !s.suspended {
		s.idle = time.AfterFunc(s.runner.config.Idle, s.suspend)
	}
	s.turn <- struct{}{}
}

// end ends the session, by whoever has the turn.
func (s *Session) end(end, detail string) {
	s.mu.Lock()
	first := s.ended == ""
	if first {
		s.ended, s.detail = end, detail
	}
	s.mu.Unlock()
	if !first {
		return
	}
	s.expiry.Stop()
	s.abandon()
	s.box.discard()
	if end != EndClosed {
		s.runner.config.Log("session %.8s ended: %s: %s", s.Fingerprint(), end, detail)
	}
}

func (s *Session) expire() {
	if s.take(context.Background()) == nil {
		s.end(EndExpired, fmt.Sprintf("its lifetime of %v is over", s.runner.config.Lifetime))
		s.free()
	}
}

// suspend stops the sandbox of a session without calls. Its files stay; its slot
// is free for others.
func (s *Session) suspend() {
	select {
	case <-s.turn:
	default:
		return // a call has it
	}
	defer s.free()
	if end, _ := s.Ended(); end != "" || s.suspended {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	_, err := s.box.gateway.Stop(ctx, s.box.name)
	if err == nil {
		if refused := s.box.waitStopped(ctx); refused != nil {
			err = refused
		}
	}
	if err != nil {
		if !s.dead(ctx, "suspend") {
			s.end(EndBoundaryFailed, fmt.Sprintf("suspend: %v", err))
		}
		return
	}
	s.suspended, s.box.idle = true, true
	<-s.runner.slots
}

// resume starts the sandbox of a suspended session. When that fails the session
// has ended.
func (s *Session) resume(ctx context.Context) *call.Refused {
	select {
	case s.runner.slots <- struct{}{}:
	default:
		return call.Refuse(call.CodeResourceExhausted, call.ReasonCapacity, "%d sandboxes are all there may be", cap(s.runner.slots))
	}
	s.suspended, s.box.idle = false, false
	// Not the caller's context: one who gives up must not cost the session.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTime)
	defer cancel()
	p, refused := s.box.resume(ctx)
	if refused != nil {
		s.end(endOf(refused), fmt.Sprintf("resume: %s", refused.Detail))
		return s.refusal()
	}
	s.prepared = p
	return nil
}

// endOf is the end of a session whose sandbox was refused.
func endOf(err error) string {
	switch {
	case errors.Is(err, ErrDiffers):
		return EndChanged
	case errors.Is(err, errMainGone):
		return EndMainProcess
	}
	return EndBoundaryFailed
}

// dead ends the session when its sandbox is not usable any more, for the reason
// that the gateway gives, and reports whether it has.
func (s *Session) dead(ctx context.Context, when string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTime)
	defer cancel()
	sb, err := s.box.gateway.Get(ctx, s.box.name)
	switch {
	case errors.Is(err, openshell.ErrNotFound):
		s.end(EndMainProcess, when+": the sandbox is not there")
		return true
	case err != nil:
		return false
	case sb.Phase != openshell.PhaseError && sb.Phase != openshell.PhaseCompleted && sb.Phase != openshell.PhaseDeleting:
		return false
	}
	end := EndMainProcess
	if slices.Contains(sb.Reasons, "DiskBudgetExceeded") {
		end = EndDisk
	}
	s.end(end, fmt.Sprintf("%s: phase %v (%.200s): %.512s", when, sb.Phase, strings.Join(sb.Reasons, ", "), sb.Detail))
	return true
}

// refusal is that of a call to a session that has ended.
func (s *Session) refusal() *call.Refused {
	end, detail := s.Ended()
	return call.Refuse(call.CodeFailedPrecondition, call.ReasonRequest, "%w: %s: %s", ErrSessionEnded, end, detail)
}

// ready has the sandbox be one that a call may run in.
func (s *Session) ready(ctx context.Context, req *record.Request) *call.Refused {
	if end, _ := s.Ended(); end != "" {
		return s.refusal()
	}
	// Side by side: together they are what a call waits for before it runs.
	var back *call.Refused
	var read sync.WaitGroup
	if !s.suspended {
		read.Go(func() { back = s.box.readBack(ctx) })
	}
	e, refused := s.runner.driver(ctx)
	read.Wait()
	switch {
	case refused != nil:
		return refused
	case e != s.evidence:
		return wrongGateway("the gateway's driver has changed")
	}
	if refused := s.runner.admissible(req, e); refused != nil {
		return refused
	}
	switch {
	case s.suspended:
		if refused := s.resume(ctx); refused != nil {
			return refused
		}
	case back == nil:
	case errors.Is(back, ErrDiffers):
		s.end(EndChanged, back.Detail)
		return s.refusal()
	case errors.Is(back, errMainGone):
		if !s.dead(ctx, "before the call") {
			s.end(EndMainProcess, back.Detail)
		}
		return s.refusal()
	default:
		return back
	}
	return interpreter(req, s.prepared)
}

// Run carries out the next call. The error is a *call.Refused when nothing of it
// ran and it has no number, an *Unanswered when it may have run.
//
// It returns once the answer is there. The sandbox is freed of the call's
// processes after that; the next call waits for it.
func (s *Session) Run(ctx context.Context, asked *call.Call) (*Answer, error) {
	c := s.runner.clock()
	req := asked.Request
	if err := s.take(ctx); err != nil {
		return nil, gatewayGone("wait for the session", err).Of(req)
	}
	if refused := s.ready(ctx, req); refused != nil {
		s.free()
		return nil, refused.Of(req)
	}
	limit := min(callTime(req), time.Until(s.expires))
	deadline, cancel := context.WithTimeoutCause(ctx, limit, errDeadline)
	defer cancel()
	d := dispatch{box: s.box, node: s.prepared.node}
	res, err := d.run(deadline, req)
	if err != nil && !d.sent {
		s.free()
		return nil, gatewayGone("start the call", err).Of(req)
	}
	swept := false
	if errors.Is(err, errDeadline) {
		// An answer only when it is known that nothing of the call is running.
		swept = true
		if s.clean(context.Background()) {
			err = nil
		}
	}
	rec := s.runner.stated(s.evidence, s.box.seen.hash, c)
	rec.Session, rec.Sequence, rec.PreviousSHA256 = s.Fingerprint(), s.calls+1, s.last
	var a *Answer
	var u *Unanswered
	var failed error
	if err == nil {
		a, failed = answer(req, res, rec)
	} else {
		u, failed = unanswered(req, rec, err)
	}
	if failed == nil {
		s.calls, s.last = rec.Sequence, rec.RecordSHA256
	}
	if swept {
		s.free()
	} else {
		go func() {
			s.clean(s.sweeps)
			s.free()
		}()
	}
	switch {
	case failed != nil:
		return nil, failed
	case u != nil:
		return nil, u
	}
	return a, nil
}

// clean frees the sandbox of all processes but its own, and reports whether it is
// known that none is left; the session may have ended for another reason. If it is
// not known the session has ended for that, or is about to be closed by whoever
// ended the context.
func (s *Session) clean(parent context.Context) bool {
	if end, _ := s.Ended(); end != "" {
		return false
	}
	budget := ""
	if s.runner.config.MeasureDisk {
		budget = fmt.Sprint(s.runner.config.DiskBudget >> 10)
	}
	ctx, cancel := context.WithTimeout(parent, sweepTime)
	r, err := s.box.exec(ctx, s.runner.script(sweepScript, keepList(s.prepared.processes), budget), "/", nil, 0)
	cancel()
	switch {
	case parent.Err() != nil:
		return false // the session is being closed
	case err == nil && r.exitCode == 0:
		return true
	case err == nil && r.exitCode == sweepMainGone:
		s.end(EndMainProcess, "a process of the sandbox's own is gone")
		return false // its number may be another's now
	case err == nil && (r.exitCode == sweepOverDisk || r.exitCode == sweepNoMeasure):
		s.end(EndDisk, fmt.Sprintf("/tmp holds more than %d MiB, or could not be measured", s.runner.config.DiskBudget>>20))
		return true
	case err == nil && r.exitCode == noWorkFolder:
		s.end(EndBoundaryFailed, workDir+" cannot be used any more")
		return true
	case s.dead(parent, "after the call"):
		return true
	}
	why := fmt.Sprintf("status %d", r.exitCode)
	if err != nil {
		why = err.Error()
	}
	// Stopping ends all processes without asking any.
	ctx, cancel = context.WithTimeout(parent, readyTime)
	defer cancel()
	p, refused := s.box.restart(ctx)
	if refused != nil {
		switch {
		case parent.Err() != nil:
			return false
		case s.dead(parent, "after the call"):
			return true // it had ended, and did not say so yet
		default:
			s.end(endOf(refused), fmt.Sprintf("sweep: %s; %s", why, refused.Detail))
		}
		return false
	}
	s.prepared = p
	return true
}

// Close ends the session and returns what is to be stated of it: how many calls
// there were and the last record. It waits for a running call, not for a sweep.
func (s *Session) Close(ctx context.Context) (statement.Close, error) {
	s.abandon()
	if err := s.take(ctx); err != nil {
		return statement.Close{}, fmt.Errorf("close session: %w", err)
	}
	s.end(EndClosed, "closed by its owner")
	c := statement.Close{Session: s.Fingerprint(), Calls: s.calls, LastRecordSHA256: s.last}
	s.free()
	return c, nil
}
