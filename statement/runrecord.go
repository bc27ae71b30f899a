package statement

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
	"github.com/plimsoll-attest/plimsoll/record"
)

// runRecord is the run-record predicate as JSON has it.
type runRecord struct {
	Version          uint32 `json:"version"`
	RequestSHA256    string `json:"request_sha256"`
	ResultSHA256     string `json:"result_sha256"`
	Provider         string `json:"provider"`
	Isolation        string `json:"isolation"`
	Environment      string `json:"environment"`
	SoftwareIdentity string `json:"software_identity"`
	SoftwareRuleID   string `json:"software_rule_id"`
	Instance         string `json:"instance"`
	Policy           string `json:"policy"`
	StartedUnixMS    int64  `json:"started_unix_ms"`
	EndedUnixMS      int64  `json:"ended_unix_ms"`
	Session          string `json:"session"`
	Sequence         uint64 `json:"sequence"`
	PreviousSHA256   string `json:"previous_sha256"`
	Unanswered       string `json:"unanswered"`
	RecordSHA256     string `json:"record_sha256"`
}

// members are the names of a run-record's predicate in their fixed order.
var members = [...]string{
	"version", "request_sha256", "result_sha256", "provider", "isolation", "environment",
	"software_identity", "software_rule_id", "instance", "policy", "started_unix_ms", "ended_unix_ms",
	"session", "sequence", "previous_sha256", "unanswered", "record_sha256",
}

// omitted reports whether the member is left out when r has it empty.
func omitted(r *record.Record, member string) bool {
	switch member {
	case "software_identity":
		return r.SoftwareIdentity == ""
	case "software_rule_id":
		return r.SoftwareRuleID == ""
	case "instance":
		return r.Instance == ""
	case "unanswered":
		return r.Unanswered == ""
	}
	return false
}

// ParseRecord reads a run-record payload. Errors wrap ErrStatement. That the
// version is one the caller accepts, and that RecordSHA256 is the record's
// digest, is for the caller to check.
//
// In a version 4 record "instance" may stand at any place, and the members that
// are left out when empty may be written empty: no such bundle has been seen in
// the field, so the spelling of others is not known (docs/bundle-format.md,
// "Statements").
func ParseRecord(payload []byte) (*record.Record, error) {
	if !named(payload, runRecordSubject) {
		return nil, unknown(payload, RunRecordType)
	}
	r, ok := scanRecord(payload)
	write := func(dst []byte) []byte { return AppendRecord(dst, &r) }
	if ok && exact(payload, write) == nil {
		return &r, nil
	}
	var p runRecord
	if err := decode(payload, RunRecordType, &p); err != nil {
		return nil, err
	}
	r = record.Record(p)
	err := exact(payload, write)
	if err == nil {
		return &r, nil
	}
	if r.Version == 4 {
		if order, ok := version4Order(payload, &r); ok && bytes.Equal(payload, appendRecord(nil, &r, order)) {
			return &r, nil
		}
	}
	return nil, err
}

// AppendRecord appends the run-record statement of r.
func AppendRecord(dst []byte, r *record.Record) []byte {
	return appendRecord(dst, r, nil)
}

// appendRecord writes the members named in order, all that are not omitted
// when order is nil.
func appendRecord(dst []byte, r *record.Record, order []string) []byte {
	dst = appendStart(dst, runRecordSubject, r.RecordSHA256, RunRecordType)
	first := true
	write := func(member string) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, '"')
		dst = append(dst, member...)
		dst = append(dst, `":`...)
		dst = appendMember(dst, r, member)
	}
	if order != nil {
		for _, m := range order {
			write(m)
		}
		return appendEnd(dst)
	}
	for _, m := range members {
		if !omitted(r, m) {
			write(m)
		}
	}
	return appendEnd(dst)
}

func appendMember(dst []byte, r *record.Record, member string) []byte {
	switch member {
	case "version":
		return strconv.AppendUint(dst, uint64(r.Version), 10)
	case "request_sha256":
		return strictjson.AppendString(dst, r.RequestSHA256)
	case "result_sha256":
		return strictjson.AppendString(dst, r.ResultSHA256)
	case "provider":
		return strictjson.AppendString(dst, r.Provider)
	case "isolation":
		return strictjson.AppendString(dst, r.Isolation)
	case "environment":
		return strictjson.AppendString(dst, r.Environment)
	case "software_identity":
		return strictjson.AppendString(dst, r.SoftwareIdentity)
	case "software_rule_id":
		return strictjson.AppendString(dst, r.SoftwareRuleID)
	case "instance":
		return strictjson.AppendString(dst, r.Instance)
	case "policy":
		return strictjson.AppendString(dst, r.Policy)
	case "started_unix_ms":
		return strconv.AppendInt(dst, r.StartedUnixMS, 10)
	case "ended_unix_ms":
		return strconv.AppendInt(dst, r.EndedUnixMS, 10)
	case "session":
		return strictjson.AppendString(dst, r.Session)
	case "sequence":
		return strconv.AppendUint(dst, r.Sequence, 10)
	case "previous_sha256":
		return strictjson.AppendString(dst, r.PreviousSHA256)
	case "unanswered":
		return strictjson.AppendString(dst, r.Unanswered)
	case "record_sha256":
		return strictjson.AppendString(dst, r.RecordSHA256)
	}
	panic(fmt.Sprintf("statement: no member %q", member))
}

// version4Order returns the order of a version 4 predicate's members as the
// payload has it, if it is one that is accepted: the fixed order, "instance"
// anywhere, every member there that may not be left out.
func version4Order(payload []byte, r *record.Record) ([]string, bool) {
	names, ok := predicateNames(payload)
	if !ok {
		return nil, false
	}
	rest := names
	for _, m := range members {
		switch {
		case m == "instance":
			if r.Instance != "" && !slices.Contains(names, m) {
				return nil, false
			}
			continue
		case len(rest) > 0 && rest[0] == "instance":
			rest = rest[1:]
		}
		switch {
		case len(rest) > 0 && rest[0] == m:
			rest = rest[1:]
		case !omitted(r, m):
			return nil, false
		}
	}
	if len(rest) > 0 && rest[0] == "instance" {
		rest = rest[1:]
	}
	return names, len(rest) == 0
}

// predicateNames lists the member names of the predicate in the payload, which
// decode has found well formed and free of unknown and repeated names.
func predicateNames(payload []byte) ([]string, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(payload))
	if _, err := d.ReadToken(); err != nil { // {
		return nil, false
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		if name.String() != "predicate" {
			if d.SkipValue() != nil {
				return nil, false
			}
			continue
		}
		if _, err := d.ReadToken(); err != nil { // {
			return nil, false
		}
		var names []string
		for d.PeekKind() == '"' {
			member, err := d.ReadToken()
			if err != nil {
				return nil, false
			}
			names = append(names, member.String())
			if d.SkipValue() != nil {
				return nil, false
			}
		}
		return names, true
	}
	return nil, false
}
