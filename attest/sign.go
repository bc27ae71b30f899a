package attest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// DefaultLockTimeout is how long a writer waits for another one to finish.
const DefaultLockTimeout = 10 * time.Second

var (
	// ErrRunLog is wrapped when a run log is wrong or stops before its end.
	ErrRunLog = errors.New("run log")
	// ErrBundle is wrapped when the bundle that is there does not verify, or is
	// not sealed. The *verify.Refusal that says why is wrapped too.
	ErrBundle = errors.New("the bundle does not verify")
	// ErrLocked is wrapped when another process holds the bundle for longer than
	// the lock timeout.
	ErrLocked = errors.New("in use by another process")
)

// Options say which bundle to extend and with which key.
type Options struct {
	// Bundle is the path of the bundle: a regular file, no symbolic link. Side
	// files are made beside it.
	Bundle string
	// Signer signs, and its public key is the one an existing bundle must
	// verify under.
	Signer *Signer
	// LockTimeout is how long to wait for another writer: DefaultLockTimeout
	// when 0, not at all when negative.
	LockTimeout time.Duration
	// Now is the clock that side files are named by; time.Now when nil.
	Now func() time.Time
	// AllowShared takes a bundle that group or others can read or write. It is
	// refused otherwise, except on Windows, where modes do not say.
	AllowShared bool
	// Progress, if not nil, is called for each line once it is on disk. When
	// the run fails later, lines after the last point at which no session was
	// open end in a side file: on disk still, but not in the bundle.
	Progress func(Recorded)

	disk *disk // nil but in tests
}

// A Recorded is a line of the run log that has been signed and is on disk.
// Exactly one of Call and Close is set. What they hold is the runner's word.
type Recorded struct {
	Line    uint64 // of the bundle, from 1
	LogLine uint64 // of the run log, from 1
	Call    *verify.Exchange
	Close   *statement.Close
}

// A Result says what became of a bundle.
type Result struct {
	KeyID   string
	Created bool // the bundle was missing or empty
	// LinesBefore and LinesAfter are how many lines the bundle had and has.
	LinesBefore, LinesAfter uint64
	// End is the last line's number and digest. It is a checkpoint when Sealed.
	End    chain.Position
	Sealed bool // the bundle ends in a checkpoint with no session open

	// What the run log held, line by line. Only Sign sets these.
	Calls    uint64 // signed and in the bundle now, unanswered ones included
	Sessions uint64 // closes, the same
	Skipped  uint64 // calls that were in the bundle before
	Refused  uint64 // calls that never ran: not signed
	Moved    uint64 // calls that were signed and are in a side file, not in the bundle

	// SideFiles are the paths of the side files written, in the order of their
	// lines' making. Empty when all went well; rarely more than one.
	SideFiles []string
	// NotChecked lists what no check of this package can show.
	NotChecked []string
}

// Sign reads a run log to its end and extends the bundle by its calls and
// closes and one checkpoint. It makes the bundle if need be.
//
// An existing bundle must verify whole under the signer's key before the log is
// looked at. Of the log, each line is checked before it is signed: its statement
// is a run record or session close in its one spelling, of a version that a
// linked bundle may hold; request, response and record agree in every digest;
// it takes its place in its session. Sessions and single runs at the start of
// the log that the bundle holds already are skipped, so that a log can be given
// again; a call that the log has twice, or that the bundle holds though what is
// before it is new, is wrong.
//
// Errors that wrap ErrBundle or ErrLocked left everything as it was. Errors that
// wrap ErrRunLog mean that the log was cut, wrong, or read to no end because ctx
// was done: what was whole up to the last point at which no session was open is
// in the bundle and sealed, signed lines after it are in a side file. An error
// of the disk or the signer wraps neither; then as much as possible is undone,
// the lines are in side files, and the text says what could not be. A *Result
// comes with each error that Sign returns after it began to read the log.
//
// ctx is looked at between lines: a read of the log is not interrupted. Memory
// is bounded by the longest line, some 90 bytes a call of bundle and log, and a
// few hundred a session.
func Sign(ctx context.Context, log io.Reader, o Options) (*Result, error) {
	s, err := openSigning(ctx, o)
	if err != nil {
		return nil, err
	}
	return s.sign(ctx, log)
}

// sign takes a log to its end and closes the bundle.
func (s *signing) sign(ctx context.Context, log io.Reader) (*Result, error) {
	s.log = runlog.NewReader(log)
	err := s.run(ctx)
	if err != nil && s.failed != nil {
		s.failed()
	}
	err = s.finish(err)
	if moved := s.bundle.checkPlace(); moved != nil {
		// What was sealed is in a file that the path no longer leads to.
		s.res.Sealed = false
		err = movedError(moved, err)
	}
	if closeErr := s.bundle.close(); err == nil {
		err = closeErr
	}
	return s.result(), err
}

// movedError is the error of a bundle that is no longer where it was, after err
// or nil. It wraps moved alone: what was written is in no bundle of that name.
func movedError(moved, err error) error {
	if err == nil {
		return fmt.Errorf("%w while it was written", moved)
	}
	return fmt.Errorf("%w while it was written; before that: %v", moved, err)
}

// signing is one run of Sign.
type signing struct {
	o        Options
	bundle   *bundleFile
	appender *chain.Appender
	log      *runlog.Reader
	sessions verify.Sessions // of the log, skipped ones included
	known    *known
	fresh    bool // a line that the bundle did not have was seen
	// Where the runner was given its calls by us: the one that it has now, and
	// what is to be done as soon as a line is wrong.
	window      *window
	refusedCall func(*runlog.Refused)
	failed      func()

	base chain.Mark // the end of the bundle before
	good chain.Mark // after the last line with no session open
	// What has been signed, all and up to good.
	signed, whole counts
	res           Result
}

type counts struct{ calls, sessions uint64 }

func openSigning(ctx context.Context, o Options) (*signing, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	bundle, err := openBundle(ctx, o.Bundle, o.opening(true))
	if err != nil {
		return nil, err
	}
	s := &signing{o: o, bundle: bundle, known: newKnown()}
	if err := s.readBundle(ctx); err != nil {
		bundle.close() // the reason is err
		return nil, err
	}
	// What a failure takes out of the bundle goes beside it. Find out now whether
	// it can, not when a session is half signed.
	if err := bundle.probeSide(o.now()); err != nil {
		bundle.close() // the reason is err
		return nil, fmt.Errorf("no side file could be made beside the bundle if one were needed: %w", err)
	}
	s.good = s.base
	s.appender = chain.NewAppender(bundle, envelopes{o.Signer}, s.base)
	return s, nil
}

func (o *Options) check() error {
	switch {
	case o.Bundle == "":
		return errors.New("no bundle given")
	case o.Signer == nil:
		return errors.New("no signer given")
	}
	return nil
}

// readBundle verifies what is in the bundle and notes it down.
func (s *signing) readBundle(ctx context.Context) error {
	if s.bundle.size == 0 {
		s.res.Created = true
		return s.bundle.syncDir()
	}
	report, err := verify.Bundle(ctx, s.bundle.content(), verify.Options{
		Keys:  []*envelope.PublicKey{s.o.Signer.PublicKey()},
		Entry: s.known.add,
	})
	if err != nil {
		return refusedBundle(err)
	}
	s.base = chain.Mark{Position: report.End, Offset: report.Bytes}
	return nil
}

// refusedBundle wraps a refusal in ErrBundle and says what helps, if anything.
func refusedBundle(err error) error {
	var refusal *verify.Refusal
	if !errors.As(err, &refusal) {
		return fmt.Errorf("read the bundle: %w", err)
	}
	switch {
	case errors.Is(err, chain.ErrTorn), refusal.Line == 0 && refusal.Check == verify.CheckChain:
		return fmt.Errorf("%w: %w; a writer was interrupted: see plimsoll-attest recover", ErrBundle, err)
	case refusal.Check == verify.CheckIncomplete:
		return fmt.Errorf("%w: %w; seal it with plimsoll-attest checkpoint, or see plimsoll-attest recover", ErrBundle, err)
	}
	return fmt.Errorf("%w: %w", ErrBundle, err)
}

// run takes the log's lines until one is wrong or the log is over.
func (s *signing) run(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: stopped after line %d: %w", ErrRunLog, s.log.Lines(), context.Cause(ctx))
		}
		line, err := s.log.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, runlog.ErrLine), errors.Is(err, runlog.ErrIncomplete), errors.Is(err, runlog.ErrEnd):
			return fmt.Errorf("%w: %w", ErrRunLog, err)
		case err != nil:
			return fmt.Errorf("read the run log: %w", err)
		}
		if err := s.line(line); err != nil {
			return err
		}
	}
}

// line checks a line of the log and puts what it states into the bundle.
func (s *signing) line(l *runlog.Line) error {
	wrong := func(err error) error {
		return fmt.Errorf("%w: %w", ErrRunLog, &runlog.LineError{Line: s.log.Lines(), Err: err})
	}
	switch {
	case l.Refused != nil:
		if err := s.window.refused(l.Refused); err != nil {
			return wrong(err)
		}
		s.res.Refused++
		if s.refusedCall != nil {
			s.refusedCall(l.Refused)
		}
		return nil
	case l.End != nil:
		if n := s.sessions.Open(); n > 0 {
			return wrong(fmt.Errorf("%w: the log ends with %d sessions open", verify.ErrChain, n))
		}
		return nil
	}
	entry, exchange, err := checkLine(l)
	if err != nil {
		return wrong(err)
	}
	if err := s.window.stated(l, entry); err != nil {
		return wrong(err)
	}
	known, err := s.place(entry, l)
	if err != nil {
		return wrong(err)
	}
	if known {
		if entry.Record != nil {
			s.res.Skipped++
		}
		return nil
	}
	number, err := s.appender.Append(l.Request, l.Response, l.Statement)
	if errors.Is(err, chain.ErrLine) {
		return wrong(err) // it is too long for a bundle
	}
	if err != nil {
		return err
	}
	if entry.Record != nil {
		s.signed.calls++
	} else {
		s.signed.sessions++
	}
	if s.sessions.Open() == 0 {
		s.good, s.whole = s.appender.End(), s.signed
	}
	if s.o.Progress != nil {
		s.o.Progress(Recorded{Line: number, LogLine: s.log.Lines(), Call: exchange, Close: entry.Close})
	}
	return nil
}

// checkLine checks all that a line of a call or close can be asked by itself.
// The errors wrap the sentinels of verify's checks.
func checkLine(l *runlog.Line) (statement.Entry, *verify.Exchange, error) {
	entry, err := statement.ParseEntry(l.Statement)
	if err != nil {
		return entry, nil, err
	}
	if entry.Close != nil {
		if l.IsCall() {
			return entry, nil, fmt.Errorf("%w: a request beside a session's close", verify.ErrStored)
		}
		return entry, nil, nil
	}
	// A version 4 record is read in more than one spelling. It is written in one.
	if entry.Record.Version == 4 && !bytes.Equal(l.Statement, statement.AppendRecord(nil, entry.Record)) {
		return entry, nil, fmt.Errorf("%w: a version 4 record that is not in its canonical spelling", statement.ErrStatement)
	}
	if err := verify.CheckRecord(entry.Record, verify.LinkedVersions); err != nil {
		return entry, nil, err
	}
	exchange, err := verify.CheckExchange(l.Request, l.Response, entry.Record)
	return entry, exchange, err
}

// place finds a call's or close's place in its session, and whether the bundle
// has it already.
func (s *signing) place(e statement.Entry, l *runlog.Line) (known bool, err error) {
	between := s.sessions.Open() > 0
	if e.Close != nil {
		if err := s.sessions.Close(e.Close); err != nil {
			return false, err
		}
		known, err = s.known.close(e.Close)
	} else {
		if s.known.repeated(e.Record) {
			return false, fmt.Errorf("%w: a call that the log has already", verify.ErrChain)
		}
		if err := s.sessions.Call(e.Record); err != nil {
			return false, err
		}
		known, err = s.known.call(e.Record, l.Request, l.Response)
	}
	switch {
	case err != nil:
		return false, err
	case known && s.fresh:
		return false, fmt.Errorf("%w: the bundle has it already, but not what comes before it in the log", verify.ErrChain)
	case !known && !s.fresh && between:
		return false, fmt.Errorf("%w: not in the bundle, which has the calls before it and the close of their session", verify.ErrChain)
	}
	s.fresh = s.fresh || !known
	return known, nil
}

// finish seals what is whole and brings the bundle into order after cause, the
// error that stopped the run, or nil.
func (s *signing) finish(cause error) error {
	var failed *chain.WriteError
	if errors.As(cause, &failed) {
		return s.rollBack(cause, failed.Line)
	}
	note := ""
	if open := s.sessions.OpenSessions(); s.appender.End() != s.good {
		path, err := s.moveOut(s.good, nil)
		if err != nil {
			return s.stuck(cause, err)
		}
		s.res.Moved = s.signed.calls - s.whole.calls
		if len(open) > 0 {
			note = fmt.Sprintf("; session %s is open", mismatch.Show(open[0].Session))
		}
		if len(open) > 1 {
			note += fmt.Sprintf(" and %d more are", len(open)-1)
		}
		note += fmt.Sprintf("; %d signed calls are in %s and not in the bundle", s.res.Moved, path)
	}
	if s.good != s.base || cause == nil && s.base.Lines == 0 {
		if err := s.appender.Checkpoint(); err != nil {
			return s.rollBack(unsealed(err, cause), lineOf(err))
		}
	}
	s.res.Calls, s.res.Sessions, s.res.Sealed = s.whole.calls, s.whole.sessions, s.appender.End().Lines > 0
	if cause != nil {
		if n := s.whole.calls; n > 0 {
			note += fmt.Sprintf("; %d calls of the log are in the bundle, sealed", n)
		}
		return fmt.Errorf("%w%s", cause, note)
	}
	return nil
}

// unsealed is the error of a checkpoint that could not be written. It wraps err
// alone: what stopped the run before that is told, but whoever asks what kind of
// failure this is must see the disk or the signer, not a run log.
func unsealed(err, cause error) error {
	if cause == nil {
		return fmt.Errorf("the bundle could not be sealed: %w", err)
	}
	return fmt.Errorf("the bundle could not be sealed: %w; that was after %v", err, cause)
}

// lineOf returns the line that could not be written, if that is what err says.
func lineOf(err error) []byte {
	var failed *chain.WriteError
	if errors.As(err, &failed) {
		return failed.Line
	}
	return nil
}

// rollBack takes all lines of this run out of the bundle, after cause. failed is
// the line that could not be written, if it was one.
func (s *signing) rollBack(cause error, failed []byte) error {
	path, err := s.moveOut(s.base, failed)
	if err != nil {
		return s.stuck(cause, err)
	}
	s.res.Moved, s.res.Sealed = s.signed.calls, s.base.Lines > 0
	if path == "" {
		return cause
	}
	return fmt.Errorf("%w; the bundle is as it was before, what was signed is in %s", cause, path)
}

// moveOut takes the lines after mark out of the bundle. They, and the line that
// could not be written, are on disk in a side file before that. It returns the
// file's path, which is empty when there was nothing to keep.
func (s *signing) moveOut(mark chain.Mark, failed []byte) (path string, err error) {
	end := s.appender.End()
	if mark != end || failed != nil {
		tail := io.NewSectionReader(s.bundle, mark.Offset, end.Offset-mark.Offset)
		path, err = s.bundle.keep(io.MultiReader(tail, bytes.NewReader(failed)), s.o.now())
		if err != nil {
			return "", fmt.Errorf("a side file could not be written: %w", err)
		}
		s.res.SideFiles = append(s.res.SideFiles, path)
	}
	// The copy that CutTo offers to make is the one that was made and flushed.
	if err := s.appender.CutTo(mark, io.Discard); err != nil {
		if path != "" {
			err = fmt.Errorf("%w; its lines are in %s too", err, path)
		}
		return "", err
	}
	return path, nil
}

// stuck describes what is left when the bundle could not be brought into order
// after cause. The error wraps no ErrRunLog: the disk is what needs attention.
func (s *signing) stuck(cause, err error) error {
	end, there := s.appender.End(), s.signed
	if end == s.good {
		there = s.whole
	}
	s.res.Calls, s.res.Sessions = there.calls, there.sessions
	if errors.Is(cause, ErrRunLog) {
		err = fmt.Errorf("%w; that was after %v", err, cause)
	} else {
		err = fmt.Errorf("%w; %w", cause, err)
	}
	var torn *chain.WriteError
	switch {
	case errors.As(cause, &torn) && torn.CutErr != nil:
		return fmt.Errorf("%w; the bundle may end in a torn line: when the disk works again, see plimsoll-attest recover", err)
	case end == s.base:
		s.res.Sealed = s.base.Lines > 0
		return err
	case end == s.good:
		return fmt.Errorf("%w; lines %d to %d stay in the bundle, unsealed: when that is mended, seal them with plimsoll-attest checkpoint",
			err, s.base.Lines+1, end.Lines)
	}
	return fmt.Errorf("%w; lines %d to %d stay in the bundle, unsealed and with a session open: when that is mended, run plimsoll-attest recover --cut and sign the log again",
		err, s.base.Lines+1, end.Lines)
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

func (o *Options) opening(create bool) opening {
	return opening{write: true, create: create, shared: o.AllowShared, wait: lockWait(o.LockTimeout), disk: o.disk}
}

func lockWait(timeout time.Duration) time.Duration {
	if timeout == 0 {
		return DefaultLockTimeout
	}
	return timeout
}

// result completes the Result with what can be said at the end of any run.
func (s *signing) result() *Result {
	s.res.KeyID = s.o.Signer.PublicKey().ID()
	s.res.LinesBefore = s.base.Lines
	s.res.End = s.appender.End().Position
	s.res.LinesAfter = s.res.End.Lines
	if s.window == nil {
		s.res.NotChecked = append(s.res.NotChecked,
			"that the run log holds all calls of the caller, as the caller made them: requests are not compared with a caller's own")
	}
	s.res.NotChecked = append(s.res.NotChecked, "that what the run log states is true: outputs, tier and policy are the runner's word")
	return &s.res
}

// envelopes makes a chain.Signer of a Signer.
type envelopes struct{ signer *Signer }

func (e envelopes) Sign(payload []byte) (*dsse.Envelope, error) {
	sig, err := e.signer.Sign(envelope.PAE(payload))
	if err != nil {
		return nil, err
	}
	return envelope.New(payload, e.signer.PublicKey().ID(), sig), nil
}

// known is what a bundle holds, by what identifies it: a call by its record's
// digest, a close by its session. Digests are kept as bytes: a bundle may have
// millions of calls.
type known struct {
	calls    map[[sha256.Size]byte]seen
	sessions map[[sha256.Size]byte]ending
}

// seen is a call that was seen: where, and the digest of its stored bytes. A
// record's digest leaves out the trace ID and durations, so that two calls can
// have one record.
type seen struct {
	place  place
	stored [sha256.Size / 2]byte
}

// storedDigest is the digest of a request and response as stored, half of it:
// what is needed is that nobody finds two others with one.
func storedDigest(request, response []byte) (d [sha256.Size / 2]byte) {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(request))))
	h.Write(request)
	h.Write(response)
	copy(d[:], h.Sum(nil))
	return d
}

// place says where a call was seen.
type place uint8

const (
	inBundle place = iota + 1
	inLog
)

// ending is what a close states.
type ending struct {
	calls uint64
	last  [sha256.Size]byte
}

func newKnown() *known {
	return &known{calls: make(map[[sha256.Size]byte]seen), sessions: make(map[[sha256.Size]byte]ending)}
}

// add notes down a line of the bundle.
func (k *known) add(e verify.Entry) error {
	if e.Close != nil {
		k.sessions[sessionKey(e.Close.Session)] = endingOf(e.Close)
	} else {
		k.calls[digestBytes(e.Call.Record.RecordSHA256)] = seen{inBundle, storedDigest(e.Request, e.Response)}
	}
	return nil
}

// repeated reports whether the log has had this call before.
func (k *known) repeated(rec *record.Record) bool {
	return k.calls[digestBytes(rec.RecordSHA256)].place == inLog
}

// call reports whether the bundle has this call, and notes down that the log
// has it. A call of a session that is closed in the bundle must be one of those
// that the bundle has.
func (k *known) call(rec *record.Record, request, response []byte) (bool, error) {
	digest := digestBytes(rec.RecordSHA256)
	stored := storedDigest(request, response)
	before := k.calls[digest]
	had := before.place == inBundle
	if had && before.stored != stored {
		return false, fmt.Errorf("%w: the bundle has this call's record %s with another request or response beside it (a trace ID or a duration is in no digest)",
			verify.ErrChain, rec.RecordSHA256)
	}
	k.calls[digest] = seen{inLog, stored}
	if had || rec.Session == "" {
		return had, nil
	}
	if end, closed := k.sessions[sessionKey(rec.Session)]; closed {
		return false, fmt.Errorf("%w: session %s is closed in the bundle, with %d calls and not this one",
			verify.ErrChain, mismatch.Show(rec.Session), end.calls)
	}
	return false, nil
}

// close reports whether the bundle has this close. It must state the same.
func (k *known) close(c *statement.Close) (bool, error) {
	end, had := k.sessions[sessionKey(c.Session)]
	if had && end != endingOf(c) {
		return false, mismatch.New(verify.ErrChain, "close of a session that the bundle has closed otherwise: calls",
			fmt.Sprint(c.Calls), fmt.Sprint(end.calls))
	}
	return had, nil
}

func endingOf(c *statement.Close) ending {
	return ending{calls: c.Calls, last: digestBytes(c.LastRecordSHA256)}
}

// sessionKey digests a fingerprint: nothing has checked that it is one.
func sessionKey(fingerprint string) [sha256.Size]byte { return sha256.Sum256([]byte(fingerprint)) }

// digestBytes returns the bytes of a digest that was checked, as a record's own
// is, or zeros for none.
func digestBytes(s string) (d [sha256.Size]byte) {
	if len(s) == hex.EncodedLen(len(d)) {
		_, _ = hex.Decode(d[:], []byte(s)) // zeros stay where it is no digest
	}
	return d
}
