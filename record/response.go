package record

// A Response is plimsoll.v1.RunResponse: what a call returned, and the record
// that the runner made of it. At most one of JavaScript, Project, Module and
// Cell is set.
type Response struct {
	Sandbox          string // the provider
	Isolation        string // the tier
	DurationMS       int64  // in no digest
	Record           *Record
	SoftwareIdentity string
	Environment      string
	Instance         string
	JavaScript       *JavaScriptResult
	Project          *ProjectResult
	Module           *ModuleResult
	Cell             *CellResult
}

// A JavaScriptResult is what a snippet printed and how it ended.
type JavaScriptResult struct {
	Stdout, Stderr                   []byte
	ExitCode                         int32
	TimedOut                         bool
	StdoutTruncated, StderrTruncated bool
	Advice                           []AdviceFinding
}

// A ProjectResult is what the steps of a project did, as far as they ran.
type ProjectResult struct {
	Steps              []StepResult
	Outcome            Outcome
	OutcomeDetail      string
	Artifacts          []Artifact
	ArtifactsTruncated bool
	Advice             []AdviceFinding
}

// An Outcome is plimsoll.v1.ProjectOutcome. Numbers without a name are kept.
type Outcome int32

// The outcomes with a name.
const (
	OutcomeUnspecified   Outcome = 0
	OutcomeCompleted     Outcome = 1
	OutcomeSetupFailed   Outcome = 2
	OutcomeTimedOut      Outcome = 3
	OutcomeProtocolError Outcome = 4
	OutcomeRunnerFailed  Outcome = 5
)

// A StepResult is one step of a project.
type StepResult struct {
	Command                          string
	Stdout, Stderr                   []byte
	ExitCode                         int32
	TimedOut                         bool
	DurationMS                       int64 // in no digest
	StdoutTruncated, StderrTruncated bool
}

// An Artifact is a file fetched after a project's steps.
type Artifact struct {
	Path    string
	Content []byte
}

// A ModuleResult is one result a row of a module run.
type ModuleResult struct {
	Runs           []ModuleRowResult
	Width          int32
	Outcome        Outcome
	OutcomeDetail  string
	Stdout, Stderr []byte
}

// A ModuleRowResult is a row's status and outputs.
type ModuleRowResult struct {
	Status  int32
	Outputs []float64
}

// A CellResult is what a cell printed and how its interpreter fared.
type CellResult struct {
	Stdout, Stderr                       []byte
	ExitCode                             int32
	TimedOut                             bool
	StdoutTruncated, StderrTruncated     bool
	InterpreterStarted, InterpreterEnded bool
}

// An AdviceFinding is a hint on host calls. It is in no digest.
type AdviceFinding struct {
	Pattern, Severity, Remedy, Method, Route, Detail string
	SuggestedMethod, SuggestedRoute                  string
	ExtraCalls                                       int32
	AddedLatencyMS                                   int64
	BytesMoved                                       int64
}

// Kind returns the kind of the result. Should several be set against the rule,
// the first in the order of the constants counts, here as in ResultDigest and
// AppendResponse.
func (r *Response) Kind() Kind {
	switch {
	case r.JavaScript != nil:
		return KindJavaScript
	case r.Project != nil:
		return KindProject
	case r.Module != nil:
		return KindModule
	case r.Cell != nil:
		return KindCell
	}
	return KindNone
}

// ResultDigest returns the digest of the result, 64 lower-case hex digits. It
// covers what the code did: neither durations nor advice, and not the sandbox,
// tier and software, which the record states (docs/bundle-format.md,
// "Digests").
func (r *Response) ResultDigest() string {
	d := newDigester("plimsoll.run-result.v1")
	kind := r.Kind()
	d.string("kind", string(kind))
	switch kind {
	case KindJavaScript:
		m := r.JavaScript
		d.int("exit_code", int64(m.ExitCode))
		d.bool("timed_out", m.TimedOut)
		d.bytes("stdout", m.Stdout)
		d.bytes("stderr", m.Stderr)
		d.bool("stdout_truncated", m.StdoutTruncated)
		d.bool("stderr_truncated", m.StderrTruncated)
	case KindProject:
		m := r.Project
		d.int("outcome", int64(m.Outcome))
		d.string("outcome_detail", m.OutcomeDetail)
		d.bool("artifacts_truncated", m.ArtifactsTruncated)
		d.count("steps", len(m.Steps))
		for i := range m.Steps {
			s := &m.Steps[i]
			d.string("step_command", s.Command)
			d.int("step_exit_code", int64(s.ExitCode))
			d.bool("step_timed_out", s.TimedOut)
			d.bytes("step_stdout", s.Stdout)
			d.bytes("step_stderr", s.Stderr)
			d.bool("step_stdout_truncated", s.StdoutTruncated)
			d.bool("step_stderr_truncated", s.StderrTruncated)
		}
		d.count("artifacts", len(m.Artifacts))
		for _, a := range m.Artifacts {
			d.string("artifact_path", a.Path)
			d.bytes("artifact_content", a.Content)
		}
	case KindModule:
		m := r.Module
		d.int("outcome", int64(m.Outcome))
		d.string("outcome_detail", m.OutcomeDetail)
		d.int("width", int64(m.Width))
		d.bytes("stdout", m.Stdout)
		d.bytes("stderr", m.Stderr)
		d.count("runs", len(m.Runs))
		for _, run := range m.Runs {
			d.int("run_status", int64(run.Status))
			d.doubles("run_outputs", run.Outputs...)
		}
	case KindCell:
		m := r.Cell
		d.int("exit_code", int64(m.ExitCode))
		d.bool("timed_out", m.TimedOut)
		d.bytes("stdout", m.Stdout)
		d.bytes("stderr", m.Stderr)
		d.bool("stdout_truncated", m.StdoutTruncated)
		d.bool("stderr_truncated", m.StderrTruncated)
		d.bool("interpreter_started", m.InterpreterStarted)
		d.bool("interpreter_ended", m.InterpreterEnded)
	}
	return d.sum()
}
