package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// An Answer is what a call gave and what is stated of it.
type Answer struct {
	Result *record.Response
	Record *record.Record
	// The bytes that the record's digests cover, and the statement to be signed.
	Request, Response, Statement []byte
}

// An Unanswered is the error of a session's call that may have run and has no
// answer. Its record keeps its place in the session.
type Unanswered struct {
	Record             *record.Record // its Unanswered is a Connect code
	Request, Statement []byte

	err error
}

func (u *Unanswered) Error() string {
	return fmt.Sprintf("no answer (%s): %v", u.Record.Unanswered, u.err)
}

// Unwrap returns what went wrong.
func (u *Unanswered) Unwrap() error { return u.err }

// A clock gives a call's start and, from a monotonic reading, its end.
type clock struct {
	wall  int64
	began time.Time
}

func (r *Runner) clock() clock { return clock{r.config.Now().UnixMilli(), time.Now()} }

// stated returns the record of a call, without its digests.
func (r *Runner) stated(e evidence, policyHash string, c clock) *record.Record {
	return &record.Record{
		Version: 2, Provider: e.provider, Isolation: e.tier, Environment: r.config.Environment,
		Policy:        "openshell-policy:sha256:" + policyHash,
		StartedUnixMS: c.wall, EndedUnixMS: c.wall + time.Since(c.began).Milliseconds(),
	}
}

// answer makes the answer of a call from its result and its record, which has all
// but the digests.
func answer(req *record.Request, res *record.Response, rec *record.Record) (*Answer, error) {
	rec.RequestSHA256 = req.Digest()
	rec.ResultSHA256 = res.ResultDigest()
	rec.SoftwareRuleID = req.SoftwareRule.ID()
	digest, err := rec.Digest()
	if err != nil {
		return nil, err
	}
	rec.RecordSHA256 = digest
	res.Sandbox, res.Isolation, res.Environment = rec.Provider, rec.Isolation, rec.Environment
	res.DurationMS = rec.EndedUnixMS - rec.StartedUnixMS
	res.Record = rec
	return &Answer{
		Result: res, Record: rec,
		Request:   record.AppendRequest(nil, req),
		Response:  record.AppendResponse(nil, res),
		Statement: statement.AppendRecord(nil, rec),
	}, nil
}

// unanswered makes the record of a call without an answer.
func unanswered(req *record.Request, rec *record.Record, cause error) (*Unanswered, error) {
	rec.Version = 3
	rec.RequestSHA256 = req.Digest()
	rec.SoftwareRuleID = req.SoftwareRule.ID()
	rec.Unanswered = codeOf(cause)
	digest, err := rec.Digest()
	if err != nil {
		return nil, err
	}
	rec.RecordSHA256 = digest
	return &Unanswered{
		Record: rec, err: cause,
		Request: record.AppendRequest(nil, req), Statement: statement.AppendRecord(nil, rec),
	}, nil
}

// codeOf is the code of a call that may have run, by what took its answer.
func codeOf(err error) string {
	switch {
	case errors.Is(err, errDeadline), errors.Is(err, context.DeadlineExceeded):
		return call.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return call.CodeCanceled
	case errors.Is(err, openshell.ErrProtocol):
		return call.CodeInternal
	}
	return call.CodeUnavailable
}
