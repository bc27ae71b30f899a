package attest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// ErrUnexpected is wrapped when a runner states what it was not asked for: another
// request than the one it was given, a call twice, another session.
var ErrUnexpected = errors.New("unexpected")

// A window is the one call that a runner has and has not told the end of. It is
// given the next one when that end is on disk.
//
// A nil window expects nothing and takes everything.
type window struct {
	mu      sync.Mutex
	open    bool
	call    Outcome // the call without its outcome
	request []byte  // the message to be stated; nil when the line is no call

	session string // of the first call or close
	seen    bool   // there was one
	closed  bool
}

// forward opens the window for a line.
func (w *window) forward(line uint64, text []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open, w.request = true, nil
	c, refused := call.Parse(text)
	if refused != nil {
		w.call = Outcome{Line: line, TraceID: refused.TraceID}
		return
	}
	w.call = Outcome{Line: line, TraceID: c.Request.TraceID, RequestSHA256: c.Request.Digest()}
	w.request = record.AppendRequest(nil, c.Request)
}

// out returns the call that is out, if there is one.
func (w *window) out() *Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open {
		return nil
	}
	call := w.call
	return &call
}

// shut says that the call is out no more, and returns it.
func (w *window) shut() *Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = false
	call := w.call
	return &call
}

// stated checks that a call is the one that is out, and belongs to the session of
// those before it; and that a close is of that session.
func (w *window) stated(l *runlog.Line, e statement.Entry) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Close != nil {
		return w.close(e.Close)
	}
	switch {
	case !w.open:
		return fmt.Errorf("%w call: none is out, %d were forwarded and each has its end", ErrUnexpected, w.call.Line)
	case w.request == nil:
		return fmt.Errorf("%w call: line %d, which was forwarded, is none", ErrUnexpected, w.call.Line)
	case !bytes.Equal(l.Request, w.request):
		return mismatch.New(fmt.Errorf("%w call", ErrUnexpected), fmt.Sprintf("request of line %d", w.call.Line), shortRequest(l.Request), shortRequest(w.request))
	case w.seen && e.Record.Session != w.session:
		return mismatch.New(fmt.Errorf("%w call", ErrUnexpected), "session", e.Record.Session, w.session)
	}
	w.session, w.seen = e.Record.Session, true
	return nil
}

// close takes one close, of the session that the calls were in. Where there was
// none it is the runner's word that there was a session.
func (w *window) close(c *statement.Close) error {
	switch {
	case w.closed:
		return fmt.Errorf("%w close: there was one already", ErrUnexpected)
	case w.seen && c.Session != w.session:
		return mismatch.New(fmt.Errorf("%w close", ErrUnexpected), "session", c.Session, w.session)
	}
	w.closed, w.seen, w.session = true, true, c.Session
	return nil
}

// refused checks that a refusal is of the call that is out.
func (w *window) refused(r *runlog.Refused) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	unexpected := fmt.Errorf("%w refusal", ErrUnexpected)
	switch {
	case !w.open:
		return fmt.Errorf("%w: no call is out", unexpected)
	case r.Line != w.call.Line:
		return mismatch.New(unexpected, "line", strconv.FormatUint(r.Line, 10), strconv.FormatUint(w.call.Line, 10))
	case r.TraceID != w.call.TraceID:
		return mismatch.New(unexpected, "trace_id", r.TraceID, w.call.TraceID)
	}
	return nil
}

// shortRequest names a request by what tells two apart: its trace ID and digest.
func shortRequest(message []byte) string {
	req, err := record.ParseRequest(message)
	if err != nil {
		return "no request"
	}
	return fmt.Sprintf("%s %s", mismatch.Show(req.TraceID), req.Digest())
}
