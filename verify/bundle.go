package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// Options are what a bundle is verified against. Keys must hold one at least:
// a bundle never vouches for its own key.
type Options struct {
	// Keys are the public keys that may have signed. A bundle verifies whole
	// under exactly one of them.
	Keys []*envelope.PublicKey
	// Unlinked asks for the older format without links, which proves less. A
	// linked line is refused then, as a line without a link is otherwise.
	Unlinked bool
	// MinIsolation, if not empty, is a tier that every call must meet, besides
	// its own request's floor.
	MinIsolation string
	// Expect is the caller's own list of calls, ExpectCount their number. Nil:
	// not checked.
	Expect      *Expected
	ExpectCount *uint64
	// State is the remembered end that the bundle must extend. Nil: not
	// checked. It needs links.
	State *State
	// Entry, if not nil, is called in order with each line that has an entry,
	// once it and all lines before it have passed. The bundle is not verified
	// before Bundle returns without an error. An error from Entry ends Bundle.
	Entry func(Entry) error
	// Workers is how many lines are worked on at once; GOMAXPROCS when 0. The
	// verdict does not depend on it.
	Workers int
}

// An Entry is a line of a bundle that is no checkpoint: a call, or the close of
// a session.
type Entry struct {
	Line  uint64
	Call  *Exchange        // nil for a close
	Close *statement.Close // nil for a call
	// Request and Response are the bytes as stored, nil where the line has none.
	Request, Response []byte
}

// LinkedVersions are the record versions of linked bundles, and the ones a
// recorder signs; UnlinkedVersions those of the older format.
var (
	LinkedVersions   = []uint32{2, 3, 4}
	UnlinkedVersions = []uint32{1, 2, 3}
)

// Bundle reads r to its end and verifies it. It returns a Report, or a *Refusal
// when the evidence does not hold, or another error when no verdict is
// possible: options that make no sense, a read error, a cancelled context.
//
// The steps are numbered in docs/bundle-format.md, "Verifying a bundle". The
// first failure, by line and then by step, decides, whatever the number of
// workers. Memory is bounded by the longest lines in work, one a worker at
// worst, and by the sessions of the bundle.
func Bundle(ctx context.Context, r io.Reader, opts Options) (*Report, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	v := newVerifier(opts)
	if err := v.run(ctx, r); err != nil {
		return nil, err
	}
	if err := v.finish(); err != nil {
		return nil, err
	}
	return &v.report, nil
}

func newVerifier(opts Options) *verifier {
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	v := &verifier{opts: opts, report: Report{Linked: !opts.Unlinked, Tiers: make(map[string]uint64)}}
	if opts.Expect != nil {
		v.tally = newTally(opts.Expect)
	}
	return v
}

func (o *Options) check() error {
	switch {
	case len(o.Keys) == 0:
		return errors.New("no public key given")
	case slices.ContainsFunc(o.Keys, func(k *envelope.PublicKey) bool { return k == nil || k.ID() == "" }):
		return errors.New("a public key that holds no key")
	case o.Unlinked && o.State != nil:
		return errors.New("a remembered end needs a linked bundle")
	}
	if err := record.CheckFloor(o.MinIsolation); err != nil {
		return fmt.Errorf("tier floor: %w", err)
	}
	return nil
}

// verifier is the part of the work that goes line by line, in order. All else
// is done by examine, which sees one line alone.
type verifier struct {
	opts     Options
	key      *envelope.PublicKey
	report   Report
	at       chain.Position
	offset   int64      // bytes of the lines before at
	sealed   bool       // the last line is a checkpoint
	good     chain.Mark // after the last checkpoint with no session open
	sessions Sessions
	tally    *tally
	unruled  uint64 // calls of version 1, whose request has a software rule
	// The line that the state remembers: its digest, and where it starts.
	stateHas    string
	stateOffset int64
}

// A batch is a run of lines given to one worker.
type batch struct {
	raw   []byte
	ends  []int // of each line in raw
	lines []examined
	done  chan struct{}
}

const (
	batchBytes = 64 << 10
	batchLines = 64
	// inFlight bounds the bytes read and not yet decided on. One batch is
	// always let through, however long its line is.
	inFlight = 4 << 20
)

func (v *verifier) run(ctx context.Context, r io.Reader) error {
	work := make(chan *batch)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer close(work)
	for range v.opts.Workers {
		workers.Go(func() {
			for b := range work {
				v.examineBatch(b)
				close(b.done)
			}
		})
	}

	// Batches in order of reading. The oldest is waited for when the workers
	// have all they can take, so that the reading never runs far ahead.
	var queue []*batch
	queued := 0
	settle := func() error {
		b := queue[0]
		queue = queue[1:]
		queued -= len(b.raw)
		<-b.done
		return v.settle(b)
	}

	lines := chain.NewReader(r)
	var pool []*batch
	for readErr := error(nil); readErr == nil; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var b *batch
		if b, readErr = readBatch(lines, recycle(&pool)); len(b.ends) > 0 {
			if v.key == nil {
				v.chooseKey(b.raw[:b.ends[0]])
			}
			for len(queue) > 0 && (len(queue) >= 2*v.opts.Workers || queued+len(b.raw) > inFlight) {
				oldest := queue[0]
				if err := settle(); err != nil {
					return err
				}
				pool = append(pool, oldest)
			}
			queue, queued = append(queue, b), queued+len(b.raw)
			work <- b
		}
		if readErr != nil {
			for len(queue) > 0 {
				if err := settle(); err != nil {
					return err
				}
			}
			if readErr != io.EOF {
				return refuse(v.at.Lines+1, v.offset, readErr)
			}
		}
	}
	v.report.Bytes = lines.End()
	return nil
}

// recycle takes a batch whose lines were decided on. Large ones are left to the
// collector.
func recycle(pool *[]*batch) *batch {
	if n := len(*pool); n > 0 {
		b := (*pool)[n-1]
		*pool = (*pool)[:n-1]
		if cap(b.raw) <= 2*batchBytes {
			return b
		}
	}
	return new(batch)
}

// readBatch fills b with the next lines. With an error the lines before it are
// in b.
func readBatch(lines *chain.Reader, b *batch) (*batch, error) {
	b.raw, b.ends, b.done = b.raw[:0], b.ends[:0], make(chan struct{})
	for len(b.raw) < batchBytes && len(b.ends) < batchLines {
		raw, err := lines.Next()
		if err != nil {
			return b, err
		}
		b.raw = append(b.raw, raw...)
		b.ends = append(b.ends, len(b.raw))
	}
	return b, nil
}

// chooseKey picks the key that the first line names, which all others must be
// signed by too. A key ID is a hint: it chooses, the signature decides. When no
// key is named, it is one that did sign, so that the reason for the refusal does
// not depend on the order of the keys; else the first serves to find it.
func (v *verifier) chooseKey(first []byte) {
	if v.key = v.opts.Keys[0]; len(v.opts.Keys) == 1 {
		return
	}
	line, err := chain.ParseLine(first)
	if err != nil {
		return
	}
	signed := line.Link
	if v.opts.Unlinked {
		signed = line.Envelope
	}
	if signed == nil {
		return
	}
	for _, s := range signed.Signatures {
		for _, k := range v.opts.Keys {
			if k.ID() == s.KeyID {
				v.key = k
				return
			}
		}
	}
	for _, k := range v.opts.Keys {
		if _, err := envelope.Verify(signed, k); !errors.Is(err, envelope.ErrSignature) {
			v.key = k
			return
		}
	}
}

// examined is what one line holds, and the first thing wrong with it at each
// of the stages that need no other line.
type examined struct {
	line     *chain.ParsedLine
	lineErr  error // step 1
	link     statement.Link
	linkErr  error // steps 2 to 5
	entry    statement.Entry
	exchange *Exchange
	entryErr error // steps 7 to 10
}

func (v *verifier) examineBatch(b *batch) {
	b.lines = b.lines[:0]
	start := 0
	for _, end := range b.ends {
		b.lines = append(b.lines, v.examine(b.raw[start:end]))
		start = end
	}
}

// examine does all that needs one line alone.
func (v *verifier) examine(raw []byte) (x examined) {
	// Step 1: "Each line is the canonical encoding of what it holds."
	if x.line, x.lineErr = chain.ParseLine(raw); x.lineErr != nil {
		return x
	}
	if !v.opts.Unlinked {
		if x.link, x.linkErr = v.openLink(x.line.Link); x.linkErr != nil {
			return x
		}
		if x.link.Checkpoint {
			return x
		}
	}
	x.entry, x.exchange, x.entryErr = v.openEntry(&x.line.Line)
	return x
}

// openLink takes the steps that a link answers for itself.
func (v *verifier) openLink(link *dsse.Envelope) (statement.Link, error) {
	// Step 2: "Each line has a link."
	if link == nil {
		return statement.Link{}, fmt.Errorf("%w: the line has none", chain.ErrLink)
	}
	// Step 3: "The link's payload type is application/vnd.in-toto+json and its
	// payload is base64." Step 4: "One of the link's signatures, naming the key
	// or no key, verifies under the key." Step 5: "The link has exactly one
	// signature, naming the key, and its payload is the canonical encoding of a
	// link with the subject that its kind demands."
	payload, err := envelope.Verify(link, v.key)
	if err != nil {
		return statement.Link{}, of("link", err)
	}
	return statement.ParseLink(payload)
}

// openEntry takes the steps that an entry answers for itself.
func (v *verifier) openEntry(line *chain.Line) (statement.Entry, *Exchange, error) {
	// Step 7: "An entry's envelope is there and holds, under the rules of steps 3
	// to 5, a run record or a session close."
	if line.Envelope == nil {
		return statement.Entry{}, nil, fmt.Errorf("%w: the line has no envelope", envelope.ErrForm)
	}
	payload, err := envelope.Verify(line.Envelope, v.key)
	if err != nil {
		return statement.Entry{}, nil, of("envelope", err)
	}
	entry, err := statement.ParseEntry(payload)
	if err != nil {
		return statement.Entry{}, nil, err
	}
	// Step 9, of a close: "The stored request and response are those that the
	// record states, and a close stores neither."
	if entry.Close != nil {
		if len(line.Request) > 0 || len(line.Response) > 0 {
			return entry, nil, fmt.Errorf("%w: a request or response beside a session's close", ErrStored)
		}
		return entry, nil, nil
	}
	// Step 8: "A record has an accepted version, sets no field that its version
	// does not digest, and digests to its record_sha256."
	versions := LinkedVersions
	if v.opts.Unlinked {
		versions = UnlinkedVersions
	}
	if err := CheckRecord(entry.Record, versions); err != nil {
		return entry, nil, err
	}
	// Steps 9 and 10: "The record's tier meets the request's floor."
	exchange, err := CheckExchange(line.Request, line.Response, entry.Record)
	if err != nil {
		return entry, nil, err
	}
	if !record.MeetsFloor(entry.Record.Isolation, v.opts.MinIsolation) {
		return entry, nil, mismatch.New(ErrFloor, "tier below the one asked for", entry.Record.Isolation, v.opts.MinIsolation)
	}
	return entry, exchange, nil
}

// of says which of a line's two envelopes an error is about.
func of(which string, err error) error {
	m := mismatch.Of(err)
	if m == nil {
		return err
	}
	return mismatch.New(m.Err, which+"'s "+m.What, m.Have, m.Want)
}

// settle takes a batch's lines in order.
func (v *verifier) settle(b *batch) error {
	start := 0
	for i, end := range b.ends {
		if err := v.line(&b.lines[i]); err != nil {
			return refuse(v.at.Lines+1, v.offset, err)
		}
		v.at = v.at.Next(b.lines[i].line)
		if v.opts.State != nil && v.at.Lines == v.opts.State.Lines {
			v.stateHas, v.stateOffset = v.at.Digest, v.offset
		}
		v.offset += int64(end-start) + 1 // the LF, which raw leaves out
		if v.sealed && v.sessions.Open() == 0 {
			v.good = chain.Mark{Position: v.at, Offset: v.offset}
		}
		b.lines[i] = examined{}
		start = end
	}
	return nil
}

// line takes the next line: what examine found, then what needs the lines
// before it.
func (v *verifier) line(x *examined) error {
	if x.lineErr != nil {
		return x.lineErr
	}
	if v.opts.Unlinked && x.line.Link != nil {
		return fmt.Errorf("%w: a link in a bundle to be verified as unlinked", chain.ErrLine)
	}
	if x.linkErr != nil {
		return v.blame(x.linkErr)
	}
	if !v.opts.Unlinked {
		// Step 6: "The link states this line's number, the digest of the line
		// before and the digest of this entry, or is a checkpoint alone on its
		// line that counts the lines before it."
		if err := v.at.Check(x.link, x.line); err != nil {
			return err
		}
		v.report.Signatures++
	}
	if v.sealed = x.link.Checkpoint; v.sealed {
		v.report.Checkpoints++
	} else if err := v.entry(x); err != nil {
		return err
	}
	return nil
}

// entry takes the entry of the next line.
func (v *verifier) entry(x *examined) error {
	if x.entryErr != nil {
		return v.blame(x.entryErr)
	}
	v.report.Signatures++
	// Step 11: "The record or close takes its place in its session."
	if c := x.entry.Close; c != nil {
		if err := v.sessions.Close(c); err != nil {
			return err
		}
		v.report.Sessions++
	} else {
		if err := v.sessions.Call(x.entry.Record); err != nil {
			return err
		}
		v.count(x)
	}
	if v.opts.Entry == nil {
		return nil
	}
	return v.opts.Entry(Entry{
		Line: v.at.Lines + 1, Call: x.exchange, Close: x.entry.Close,
		Request: x.line.Request, Response: x.line.Response,
	})
}

func (v *verifier) count(x *examined) {
	rec, r := x.entry.Record, &v.report
	if r.Calls == 0 || rec.StartedUnixMS < r.FirstStartedUnixMS {
		r.FirstStartedUnixMS = rec.StartedUnixMS
	}
	if r.Calls == 0 || rec.EndedUnixMS > r.LastEndedUnixMS {
		r.LastEndedUnixMS = rec.EndedUnixMS
	}
	r.Calls++
	r.countTier(rec.Isolation)
	if rec.Version == 1 && x.exchange.Request.SoftwareRule.ID() != "" {
		v.unruled++
	}
	if rec.Unanswered != "" {
		r.Unanswered++
	}
	if v.tally != nil {
		v.tally.call(v.at.Lines+1, x.exchange.Request.TraceID, rec.RequestSHA256)
	}
}

// blame rewords a signature's refusal when several keys were given: the line is
// signed by none of them, or not by the one that signed the lines before.
func (v *verifier) blame(err error) error {
	m := mismatch.Of(err)
	if m == nil || len(v.opts.Keys) < 2 || !errors.Is(err, envelope.ErrSignature) {
		return err
	}
	want := "a good one by key " + v.key.ID() + ", which signed line 1"
	if v.at.Lines == 0 {
		want = fmt.Sprintf("a good one by one of the %d keys given", len(v.opts.Keys))
	}
	return mismatch.New(envelope.ErrSignature, m.What, m.Have, want)
}

// finish takes the steps that need the whole bundle.
func (v *verifier) finish() error {
	whole := func(err error) error { return refuse(0, v.report.Bytes, err) }
	// Step 12: "The last line is a checkpoint." Step 13: "Every session with a
	// call is closed."
	switch {
	case v.at.Lines == 0:
		return whole(fmt.Errorf("%w: the bundle is empty", ErrIncomplete))
	case !v.opts.Unlinked && !v.sealed:
		return whole(fmt.Errorf("%w: the last line, %d, is no checkpoint", ErrIncomplete, v.at.Lines))
	case v.sessions.Open() > 0:
		first := v.sessions.OpenSessions()[0]
		return whole(fmt.Errorf("%w: %s without a close, first %s with %s", ErrChain,
			count(uint64(v.sessions.Open()), "session"), mismatch.Show(first.Session), count(first.Calls, "call")))
	case v.report.Signatures == 0:
		return whole(fmt.Errorf("%w: no signature was verified", ErrIncomplete))
	}
	v.report.KeyID = v.key.ID()
	v.report.Lines, v.report.End = v.at.Lines, v.at
	if s := v.opts.State; s != nil {
		if err := s.check(v.at.Lines, v.key.ID(), v.stateHas); err != nil {
			if v.stateHas != "" && v.key.ID() == s.KeyID {
				return refuse(s.Lines, v.stateOffset, err)
			}
			return whole(err)
		}
	}
	// Step 14: "The calls are those of the caller's list, and as many as the
	// caller counted."
	if n := v.opts.ExpectCount; n != nil && *n != v.report.Calls {
		return whole(mismatch.New(ErrExpect, "number of calls", number(v.report.Calls), number(*n)))
	}
	if v.tally != nil {
		if err := v.tally.result(); err != nil {
			return whole(err)
		}
	}
	v.report.Checks = v.report.checks(&v.opts, v.unruled)
	return nil
}
