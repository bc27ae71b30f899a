package verify

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/record"
)

var (
	// ErrStored is wrapped when a stored request or response is not the one
	// that its record states.
	ErrStored = errors.New("stored")
	// ErrFloor is wrapped when a call's tier is below a floor: the request's
	// own, or the verifier's.
	ErrFloor = errors.New("floor")
	// ErrRecord is wrapped when a record is not whole in itself: an unknown
	// version, a field its version does not digest, a wrong own digest.
	ErrRecord = errors.New("statement")
)

// An Exchange is one call: the stored messages, decoded, and the record.
// Response is nil for an unanswered call.
type Exchange struct {
	Request  *record.Request
	Response *record.Response
	Record   *record.Record
}

// CheckRecord checks a record in itself: its version is one of accepted, no
// field is set that the version does not digest, and RecordSHA256 is its
// digest. Errors wrap ErrRecord.
func CheckRecord(rec *record.Record, accepted []uint32) error {
	known := false
	for _, v := range accepted {
		known = known || v == rec.Version
	}
	if !known {
		return mismatch.New(ErrRecord, "record version", strconv.FormatUint(uint64(rec.Version), 10), fmt.Sprintf("one of %d", accepted))
	}
	if err := rec.CheckFields(); err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	digest, err := rec.Digest()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if rec.RecordSHA256 != digest {
		return mismatch.New(ErrRecord, "record_sha256 is not the record's digest", rec.RecordSHA256, digest)
	}
	return nil
}

// CheckExchange checks stored messages against a record that CheckRecord has
// passed, in the order of docs/bundle-format.md, "Verifying a bundle", steps 9
// and 10. request and response are protobuf bytes; response is empty for an
// unanswered call. Errors wrap ErrStored or ErrFloor.
//
// The returned messages may share memory with request and response.
func CheckExchange(request, response []byte, rec *record.Record) (*Exchange, error) {
	if len(request) == 0 {
		return nil, fmt.Errorf("%w: no request", ErrStored)
	}
	req, err := record.ParseRequest(request)
	if err != nil {
		return nil, fmt.Errorf("%w: request: %w", ErrStored, err)
	}
	x := &Exchange{Request: req, Record: rec}
	if err := checkRequest(req, rec); err != nil {
		return nil, err
	}
	if rec.Unanswered != "" {
		err = checkUnanswered(response, rec)
	} else {
		x.Response, err = checkAnswer(response, req, rec)
	}
	if err != nil {
		return nil, err
	}
	if !record.MeetsFloor(rec.Isolation, req.MinimumIsolation) {
		return nil, mismatch.New(ErrFloor, "tier below the request's floor", rec.Isolation, req.MinimumIsolation)
	}
	return x, nil
}

func checkRequest(req *record.Request, rec *record.Record) error {
	rule := req.SoftwareRule
	if err := rule.Check(); err != nil {
		return fmt.Errorf("%w: request's software rule: %w", ErrStored, err)
	}
	if err := record.CheckFloor(req.MinimumIsolation); err != nil {
		return fmt.Errorf("%w: request's floor: %w", ErrStored, err)
	}
	if digest := req.Digest(); digest != rec.RequestSHA256 {
		return mismatch.New(ErrStored, "request is not the one recorded", digest, rec.RequestSHA256)
	}
	if rec.Version == 1 && req.Protocol > 1 {
		return mismatch.New(ErrStored, "request protocol of a version 1 record", strconv.FormatUint(uint64(req.Protocol), 10), "0 or 1")
	}
	if rec.Version >= 2 {
		if id := rule.ID(); rec.SoftwareRuleID != id {
			return mismatch.New(ErrStored, "software_rule_id is not the request's rule", rec.SoftwareRuleID, id)
		}
		if !rule.Allows(rec.SoftwareIdentity) {
			return mismatch.New(ErrStored, "software outside the request's rule", rec.SoftwareIdentity, rule.ID())
		}
	}
	if err := record.CheckInstance(rec.Instance); err != nil {
		return fmt.Errorf("%w: %w", ErrStored, err)
	}
	return nil
}

func checkUnanswered(response []byte, rec *record.Record) error {
	switch {
	case !record.IsConnectCode(rec.Unanswered):
		return mismatch.New(ErrStored, "unanswered", rec.Unanswered, "a Connect code")
	case rec.ResultSHA256 != "":
		return mismatch.New(ErrStored, "result_sha256 of an unanswered call", rec.ResultSHA256, "")
	case len(response) > 0:
		return fmt.Errorf("%w: a response is stored for an unanswered call", ErrStored)
	}
	return nil
}

func checkAnswer(response []byte, req *record.Request, rec *record.Record) (*record.Response, error) {
	if len(response) == 0 {
		return nil, fmt.Errorf("%w: no response for an answered call", ErrStored)
	}
	resp, err := record.ParseResponse(response)
	if err != nil {
		return nil, fmt.Errorf("%w: response: %w", ErrStored, err)
	}
	if resp.Record == nil {
		return nil, fmt.Errorf("%w: response carries no record", ErrStored)
	}
	if digest := resp.ResultDigest(); digest != rec.ResultSHA256 {
		return nil, mismatch.New(ErrStored, "result is not the one recorded", digest, rec.ResultSHA256)
	}
	if resp.Kind() != req.Kind() {
		return nil, mismatch.New(ErrStored, "result kind", string(resp.Kind()), string(req.Kind()))
	}
	for _, f := range []struct {
		what       string
		have, want string
		since      uint32
	}{
		{"response's sandbox is not the record's provider", resp.Sandbox, rec.Provider, 1},
		{"response's isolation is not the record's", resp.Isolation, rec.Isolation, 1},
		{"response's environment is not the record's", resp.Environment, rec.Environment, 2},
		{"response's software_identity is not the record's", resp.SoftwareIdentity, rec.SoftwareIdentity, 2},
		{"response's instance is not the record's", resp.Instance, rec.Instance, 4},
	} {
		if rec.Version >= f.since && f.have != f.want {
			return nil, mismatch.New(ErrStored, f.what, f.have, f.want)
		}
	}
	if *resp.Record != *rec {
		what, have, want := differingField(resp.Record, rec)
		return nil, mismatch.New(ErrStored, "response's own record differs in "+what, have, want)
	}
	return resp, nil
}

// differingField names the first field in which two records differ.
func differingField(a, b *record.Record) (what, have, want string) {
	for _, f := range []struct{ what, a, b string }{
		{"version", fmt.Sprint(a.Version), fmt.Sprint(b.Version)},
		{"request_sha256", a.RequestSHA256, b.RequestSHA256},
		{"result_sha256", a.ResultSHA256, b.ResultSHA256},
		{"provider", a.Provider, b.Provider},
		{"isolation", a.Isolation, b.Isolation},
		{"environment", a.Environment, b.Environment},
		{"software_identity", a.SoftwareIdentity, b.SoftwareIdentity},
		{"software_rule_id", a.SoftwareRuleID, b.SoftwareRuleID},
		{"instance", a.Instance, b.Instance},
		{"policy", a.Policy, b.Policy},
		{"started_unix_ms", fmt.Sprint(a.StartedUnixMS), fmt.Sprint(b.StartedUnixMS)},
		{"ended_unix_ms", fmt.Sprint(a.EndedUnixMS), fmt.Sprint(b.EndedUnixMS)},
		{"session", a.Session, b.Session},
		{"sequence", fmt.Sprint(a.Sequence), fmt.Sprint(b.Sequence)},
		{"previous_sha256", a.PreviousSHA256, b.PreviousSHA256},
		{"unanswered", a.Unanswered, b.Unanswered},
	} {
		if f.a != f.b {
			return f.what, f.a, f.b
		}
	}
	return "record_sha256", a.RecordSHA256, b.RecordSHA256
}
