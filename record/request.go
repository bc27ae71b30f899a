package record

// A Kind names the payload of a request or the result of a response. The empty
// Kind is a message without one.
type Kind string

// The kinds of payload, as digests spell them.
const (
	KindNone       Kind = ""
	KindJavaScript Kind = "javascript"
	KindProject    Kind = "project"
	KindModule     Kind = "module"
	KindCell       Kind = "cell"
)

// A Request is plimsoll.v1.RunRequest: one call as the caller sent it. At most
// one of JavaScript, Project, Module and Cell is set.
type Request struct {
	Protocol         uint32
	MinimumIsolation string // the caller's floor; see MeetsFloor
	TraceID          string // the caller's own name for the call; in no digest
	TimeoutMS        int32
	SoftwareRule     *SoftwareRule
	JavaScript       *JavaScriptRun
	Project          *ProjectRun
	Module           *ModuleRun
	Cell             *CellRun
}

// A SoftwareRule says which executable images a call may run on.
type SoftwareRule struct {
	Mode       string // "exact" or "approved"; empty for no rule
	Identities []string
}

// A JavaScriptRun is one snippet for node.
type JavaScriptRun struct {
	Code         string
	GrantProfile string
}

// A ProjectRun is a set of files, shell steps run over them in order, and the
// files to fetch afterwards.
type ProjectRun struct {
	Files        []ProjectFile
	Steps        []string
	Artifacts    []string
	GrantProfile string
}

// A ProjectFile is a file placed in the sandbox before a call.
type ProjectFile struct {
	Path    string
	Content string
}

// A ModuleRun runs a compiled model over rows of inputs.
type ModuleRun struct {
	Model   string
	Rows    []ModuleRow
	EndTime float64
	Step    float64
}

// A ModuleRow is one row of model inputs.
type ModuleRow struct {
	Values []float64
}

// A CellRun is one cell of a session's interpreter.
type CellRun struct {
	Language string
	Code     string
	Files    []ProjectFile
}

// Kind returns the kind of the payload. Should several be set against the
// rule, the first in the order of the constants counts, here as in Digest and
// AppendRequest.
func (r *Request) Kind() Kind {
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

// Digest returns the request's digest, 64 lower-case hex digits. The trace ID
// is not part of it, so that a call sent again under another name keeps its
// digest, and a session's call has the digest of the same call alone. The
// software rule is part of it from protocol 2 on (docs/bundle-format.md,
// "Digests").
func (r *Request) Digest() string {
	domain := "plimsoll.run-request.v1"
	if r.Protocol >= 2 {
		domain = "plimsoll.run-request.v2"
	}
	d := newDigester(domain)
	d.uint("protocol", uint64(r.Protocol))
	d.string("minimum_isolation", r.MinimumIsolation)
	d.int("timeout_ms", int64(r.TimeoutMS))
	if r.Protocol >= 2 {
		var rule SoftwareRule
		if r.SoftwareRule != nil {
			rule = *r.SoftwareRule
		}
		d.string("software_mode", rule.Mode)
		d.count("software_identities", len(rule.Identities))
		for _, identity := range rule.Identities {
			d.string("software_identity", identity)
		}
	}
	kind := r.Kind()
	d.string("kind", string(kind))
	switch kind {
	case KindJavaScript:
		d.string("code", r.JavaScript.Code)
		d.string("grant_profile", r.JavaScript.GrantProfile)
	case KindProject:
		d.string("grant_profile", r.Project.GrantProfile)
		d.files(r.Project.Files)
		d.count("steps", len(r.Project.Steps))
		for _, step := range r.Project.Steps {
			d.string("step_command", step)
		}
		d.count("artifacts", len(r.Project.Artifacts))
		for _, path := range r.Project.Artifacts {
			d.string("artifact_path", path)
		}
	case KindModule:
		d.string("model", r.Module.Model)
		d.doubles("end_time", r.Module.EndTime)
		d.doubles("step", r.Module.Step)
		d.count("rows", len(r.Module.Rows))
		for _, row := range r.Module.Rows {
			d.doubles("row_values", row.Values...)
		}
	case KindCell:
		d.string("language", r.Cell.Language)
		d.string("code", r.Cell.Code)
		d.files(r.Cell.Files)
	}
	return d.sum()
}

func (d *digester) files(files []ProjectFile) {
	d.count("files", len(files))
	for _, f := range files {
		d.string("file_path", f.Path)
		d.string("file_content", f.Content)
	}
}
