package record

import (
	"errors"
	"fmt"
)

// Errors of the checks on a record's version. Both are wrapped with the facts.
var (
	ErrVersion = errors.New("unknown record version") // not 1 to 4
	ErrFields  = errors.New("record fields do not fit the version")
)

// A Record is plimsoll.v1.RunRecord: what the runner states about one call.
// Two records are the same statement exactly when they are ==, which compares
// every field, also those that RecordSHA256 leaves out for the version.
//
// All digests are 64 lower-case hex digits, or empty where the format says so.
type Record struct {
	Version          uint32
	RequestSHA256    string
	ResultSHA256     string // empty when the call is unanswered
	Provider         string
	Isolation        string // a tier; see MeetsFloor
	Environment      string
	SoftwareIdentity string
	SoftwareRuleID   string
	Instance         string // version 4 only
	Policy           string
	StartedUnixMS    int64
	EndedUnixMS      int64
	Session          string // the session's fingerprint; empty for a single run
	Sequence         uint64 // the call's number in its session, from 1
	PreviousSHA256   string // RecordSHA256 of the session's call before
	Unanswered       string // a Connect code; set when there is no answer
	RecordSHA256     string // Digest of all of the above that the version digests
}

// recordDomains holds the digest domain of each known version. The version is
// in the domain, which is why it is no field of the digest.
var recordDomains = [...]string{
	1: "plimsoll.run-record.v1",
	2: "plimsoll.run-record.v2",
	3: "plimsoll.run-record.v3",
	4: "plimsoll.run-record.v4",
}

func (r *Record) domain() (string, error) {
	if r.Version == 0 || r.Version >= uint32(len(recordDomains)) {
		return "", fmt.Errorf("%w: %d", ErrVersion, r.Version)
	}
	return recordDomains[r.Version], nil
}

// Digest computes what RecordSHA256 should be: 64 lower-case hex digits over
// the fields that the version digests, in an order that is neither that of the
// struct nor that of the message (docs/bundle-format.md, "Digests"). A field
// that the version does not digest changes nothing here; CheckFields refuses
// it. The only error is ErrVersion.
func (r *Record) Digest() (string, error) {
	domain, err := r.domain()
	if err != nil {
		return "", err
	}
	d := newDigester(domain)
	d.string("request_sha256", r.RequestSHA256)
	d.string("result_sha256", r.ResultSHA256)
	if r.Version >= 3 {
		d.string("unanswered", r.Unanswered)
	}
	d.string("provider", r.Provider)
	d.string("isolation", r.Isolation)
	d.string("environment", r.Environment)
	d.string("policy", r.Policy)
	if r.Version >= 2 {
		d.string("software_identity", r.SoftwareIdentity)
		d.string("software_rule_id", r.SoftwareRuleID)
	}
	if r.Version >= 4 {
		d.string("instance", r.Instance)
	}
	d.int("started_unix_ms", r.StartedUnixMS)
	d.int("ended_unix_ms", r.EndedUnixMS)
	d.string("session", r.Session)
	d.uint("sequence", r.Sequence)
	d.string("previous_sha256", r.PreviousSHA256)
	return d.sum(), nil
}

// CheckFields reports whether the fields that are set are those of the version.
// A field that the digest leaves out must be empty, or whoever holds the record
// could write into it. Version 3 is the form of an unanswered call and states
// its code always; version 4 serves both, so its code may be empty. The code
// itself is not checked; see IsConnectCode.
//
// Errors wrap ErrVersion or ErrFields.
func (r *Record) CheckFields() error {
	if _, err := r.domain(); err != nil {
		return err
	}
	for _, f := range []struct {
		name, value string
		since       uint32
	}{
		{"software_identity", r.SoftwareIdentity, 2},
		{"software_rule_id", r.SoftwareRuleID, 2},
		{"unanswered", r.Unanswered, 3},
		{"instance", r.Instance, 4},
	} {
		if f.value != "" && r.Version < f.since {
			return fmt.Errorf("%w: version %d has no %s", ErrFields, r.Version, f.name)
		}
	}
	if r.Version == 3 && r.Unanswered == "" {
		return fmt.Errorf("%w: version 3 without unanswered", ErrFields)
	}
	return nil
}
