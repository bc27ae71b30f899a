package statement

import (
	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
	"github.com/plimsoll-attest/plimsoll/record"
)

// start takes a statement up to its predicate's first member.
func start(s *strictjson.Scan, subjectName, predicateType string) {
	s.Literal(header)
	s.Literal(subjectName)
	s.Literal(`","digest":{"sha256":"`)
	s.Text()
	s.Literal(`}}],"predicateType":"`)
	s.Literal(predicateType)
	s.Literal(`","predicate":{`)
}

func scanRecord(payload []byte) (r record.Record, ok bool) {
	s := strictjson.NewScan(payload)
	start(&s, runRecordSubject, RunRecordType)
	s.Literal(`"version":`)
	r.Version = uint32(s.Unsigned(32))
	s.Literal(`,"request_sha256":"`)
	r.RequestSHA256 = s.Text()
	s.Literal(`,"result_sha256":"`)
	r.ResultSHA256 = s.Text()
	s.Literal(`,"provider":"`)
	r.Provider = s.Text()
	s.Literal(`,"isolation":"`)
	r.Isolation = s.Text()
	s.Literal(`,"environment":"`)
	r.Environment = s.Text()
	if s.Optional(`,"software_identity":"`) {
		r.SoftwareIdentity = s.Text()
	}
	if s.Optional(`,"software_rule_id":"`) {
		r.SoftwareRuleID = s.Text()
	}
	if s.Optional(`,"instance":"`) {
		r.Instance = s.Text()
	}
	s.Literal(`,"policy":"`)
	r.Policy = s.Text()
	s.Literal(`,"started_unix_ms":`)
	r.StartedUnixMS = s.Signed()
	s.Literal(`,"ended_unix_ms":`)
	r.EndedUnixMS = s.Signed()
	s.Literal(`,"session":"`)
	r.Session = s.Text()
	s.Literal(`,"sequence":`)
	r.Sequence = s.Unsigned(64)
	s.Literal(`,"previous_sha256":"`)
	r.PreviousSHA256 = s.Text()
	if s.Optional(`,"unanswered":"`) {
		r.Unanswered = s.Text()
	}
	s.Literal(`,"record_sha256":"`)
	r.RecordSHA256 = s.Text()
	return r, s.End("}}")
}

func scanLink(payload []byte) (l Link, ok bool) {
	s := strictjson.NewScan(payload)
	start(&s, bundleLinkSubject, BundleLinkType)
	s.Literal(`"index":`)
	l.Index = s.Unsigned(64)
	s.Literal(`,"previous_sha256":"`)
	l.PreviousSHA256 = s.Text()
	if s.Optional(`,"entry_sha256":"`) {
		l.EntrySHA256 = s.Text()
	}
	l.Checkpoint = s.Optional(`,"checkpoint":true`)
	if s.Optional(`,"lines":`) {
		l.Lines = s.Unsigned(64)
	}
	return l, s.End("}}")
}
