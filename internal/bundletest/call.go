package bundletest

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"

	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// What the calls made here state, unless a test changes it.
const (
	Provider  = "openshell"
	Tier      = record.TierContainer
	Instance  = "k8s-pod-uid:0a1b" // of version 4 records
	StartedMS = 1790000000000      // of single runs and of a session's first call
	EndedMS   = StartedMS + 4210
	spacingMS = 60_000 // between the starts of a session's calls
)

// Environment, Policy, ImageOne and ImageTwo are evidence of the usual form:
// the outer image, the policy, and two software identities.
var (
	Environment = "docker-image:sha256:" + strings.Repeat("ab", 32)
	Policy      = "openshell-policy:sha256:" + strings.Repeat("cd", 32)
	ImageOne    = "oci-manifest:linux/amd64@sha256:" + strings.Repeat("1", 64)
	ImageTwo    = "oci-manifest:linux/amd64@sha256:" + strings.Repeat("2", 64)
)

// A Call is an exchange and its record. Change what is to be different, then
// Seal it.
type Call struct {
	Request  *record.Request
	Response *record.Response // nil for an unanswered call
	Record   *record.Record
}

// JavaScript returns a sealed single run of a snippet that printed stdout.
func JavaScript(traceID, code, stdout string) *Call {
	return newCall(
		&record.Request{TraceID: traceID, TimeoutMS: 5000, JavaScript: &record.JavaScriptRun{Code: code}},
		&record.Response{DurationMS: 42, JavaScript: &record.JavaScriptResult{Stdout: []byte(stdout)}},
	)
}

// Project returns a sealed single run of two files, two steps and an artifact.
func Project(traceID string) *Call {
	return newCall(
		&record.Request{TraceID: traceID, TimeoutMS: 30000, Project: &record.ProjectRun{
			Files: []record.ProjectFile{
				{Path: "main.js", Content: "console.log(require('./lib.js'))"},
				{Path: "lib.js", Content: "module.exports = 42"},
			},
			Steps:     []string{"node main.js > out.txt", "cat out.txt"},
			Artifacts: []string{"out.txt"},
		}},
		&record.Response{DurationMS: 89, Project: &record.ProjectResult{
			Steps: []record.StepResult{
				{Command: "node main.js > out.txt", DurationMS: 60},
				{Command: "cat out.txt", Stdout: []byte("42\n"), DurationMS: 4},
			},
			Outcome:   record.OutcomeCompleted,
			Artifacts: []record.Artifact{{Path: "out.txt", Content: []byte("42\n")}},
		}},
	)
}

// Module returns a sealed single run of a model over two rows, with a negative
// zero and a NaN that has a payload.
func Module(traceID string) *Call {
	return newCall(
		&record.Request{TraceID: traceID, TimeoutMS: 30000, Module: &record.ModuleRun{
			Model:   "VanDerPol",
			Rows:    []record.ModuleRow{{Values: []float64{1, 2}}, {Values: []float64{0.5, math.Copysign(0, -1)}}},
			EndTime: 1, Step: 0.1,
		}},
		&record.Response{DurationMS: 7, Module: &record.ModuleResult{
			Runs: []record.ModuleRowResult{
				{Status: 2, Outputs: []float64{math.Copysign(0, -1), math.Float64frombits(0x7ff8000000000001)}},
				{Status: -3},
			},
			Width: 1, Outcome: record.OutcomeCompleted, Stdout: []byte("rows=2\n"),
		}},
	)
}

// Cell returns a sealed call of a Python cell; put it into a session.
func Cell(traceID string) *Call {
	return newCall(
		&record.Request{TraceID: traceID, TimeoutMS: 30000, Cell: &record.CellRun{
			Language: "python",
			Code:     "import json\njson.loads(open('in.json').read())['n'] + 1",
			Files:    []record.ProjectFile{{Path: "in.json", Content: `{"n": 41}`}},
		}},
		&record.Response{DurationMS: 512, Cell: &record.CellResult{Stdout: []byte("42\n"), InterpreterStarted: true}},
	)
}

// newCall completes a call to a version 2 record with a floor.
func newCall(request *record.Request, response *record.Response) *Call {
	request.Protocol, request.MinimumIsolation = 2, Tier
	return (&Call{
		Request:  request,
		Response: response,
		Record: &record.Record{
			Version: 2, Provider: Provider, Isolation: Tier, Environment: Environment, Policy: Policy,
			StartedUnixMS: StartedMS, EndedUnixMS: EndedMS,
		},
	}).Seal()
}

// Version makes the record one of this version, the request one of a protocol
// that goes with it, and seals both. A version 4 record gets an instance.
func (c *Call) Version(version uint32) *Call {
	c.Record.Version, c.Request.Protocol, c.Record.Instance = version, 2, ""
	switch version {
	case 1:
		c.Request.Protocol = 1
	case 4:
		c.Request.Protocol, c.Record.Instance = 4, Instance
	}
	return c.Seal()
}

// Unanswered takes the response away and states code instead, in a version 3
// record where it was version 2, and seals. Only a session may hold it.
func (c *Call) Unanswered(code string) *Call {
	if c.Record.Version == 2 {
		c.Record.Version = 3
	}
	c.Response, c.Record.Unanswered = nil, code
	return c.Seal()
}

// Under puts the request under a software rule and states which image ran.
func (c *Call) Under(rule *record.SoftwareRule, image string) *Call {
	c.Request.SoftwareRule, c.Record.SoftwareIdentity = rule, image
	return c.Seal()
}

// Seal makes the record state the request and response as they are, and the
// response the record's evidence.
func (c *Call) Seal() *Call {
	rec := c.Record
	rec.RequestSHA256, rec.ResultSHA256, rec.SoftwareRuleID = c.Request.Digest(), "", ""
	if rec.Version >= 2 {
		rec.SoftwareRuleID = c.Request.SoftwareRule.ID()
	}
	if resp := c.Response; resp != nil {
		rec.ResultSHA256 = resp.ResultDigest()
		resp.Sandbox, resp.Isolation, resp.Environment = rec.Provider, rec.Isolation, rec.Environment
		resp.SoftwareIdentity, resp.Instance = rec.SoftwareIdentity, rec.Instance
	}
	return c.SealRecord()
}

// SealRecord makes the record's own digest right and puts a copy of the record
// into the response, leaving all else as it is. A record of an unknown version
// keeps the digest it has.
func (c *Call) SealRecord() *Call {
	if digest, err := c.Record.Digest(); err == nil {
		c.Record.RecordSHA256 = digest
	}
	return c.Copy()
}

// Copy puts a copy of the record into the response.
func (c *Call) Copy() *Call {
	if c.Response != nil {
		inner := *c.Record
		c.Response.Record = &inner
	}
	return c
}

// Entry returns the call as it is, encoded.
func (c *Call) Entry() Entry {
	e := Entry{Request: record.AppendRequest(nil, c.Request), Payload: statement.AppendRecord(nil, c.Record)}
	if c.Response != nil {
		e.Response = record.AppendResponse(nil, c.Response)
	}
	return e
}

// A Session chains calls.
type Session struct {
	Fingerprint string
	Calls       uint64
	Last        string // record_sha256 of the last call
}

// NewSession returns a session without calls. Its ID is made from the name.
func NewSession(name string) *Session {
	sum := sha256.Sum256([]byte(name))
	return &Session{Fingerprint: record.Fingerprint(hex.EncodeToString(sum[:16]))}
}

// Add makes c the session's next call, a minute after the one before, and seals
// it.
func (s *Session) Add(c *Call) *Call {
	rec := c.Record
	later := int64(s.Calls) * spacingMS
	rec.StartedUnixMS, rec.EndedUnixMS = rec.StartedUnixMS+later, rec.EndedUnixMS+later
	rec.Session, rec.Sequence, rec.PreviousSHA256 = s.Fingerprint, s.Calls+1, s.Last
	c.Seal()
	s.Calls, s.Last = rec.Sequence, rec.RecordSHA256
	return c
}

// Close returns the session's close as of now.
func (s *Session) Close() Entry {
	return Entry{Payload: statement.AppendClose(nil, statement.Close{
		Session: s.Fingerprint, Calls: s.Calls, LastRecordSHA256: s.Last,
	})}
}
