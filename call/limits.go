package call

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-attest/plimsoll/record"
)

// Bounds of a call.
const (
	maxTraceID      = 64
	maxCodeBytes    = 256 << 10
	maxFiles        = 200
	maxContentBytes = 4 << 20 // of all files together
	maxPathBytes    = 1024
	maxSteps        = 20
	maxStepBytes    = 16 << 10
	maxArtifacts    = 100
	maxIdentities   = 32
)

// check is all that can be said of a call before any sandbox is looked at. The
// first failure answers.
func (p *parser) check() *Refused {
	req := p.req
	switch {
	case p.stated && p.protocol == 0:
		return Refuse(CodeInvalidArgument, ReasonProtocol, "protocol: have 0, want %d or none", Protocol)
	case p.stated && p.protocol != Protocol:
		return Refuse(CodeUnimplemented, ReasonProtocol, "protocol: have %d, want %d or none", p.protocol, Protocol)
	}
	if err := checkTraceID(req.TraceID); err != nil {
		return badRequest("%w", err)
	}
	if err := record.CheckFloor(req.MinimumIsolation); err != nil {
		return badRequest("minimum_isolation: %w", err)
	}
	if err := req.SoftwareRule.Check(); err != nil {
		return badRequest("software_rule: %w", err)
	}
	payloads := 0
	for _, is := range []bool{req.JavaScript != nil, req.Project != nil, p.module, p.cell} {
		if is {
			payloads++
		}
	}
	switch {
	case payloads == 0:
		return badRequest("no payload: want javascript or project")
	case payloads > 1:
		return badRequest("more than one payload")
	case p.module:
		return Refuse(CodeUnimplemented, ReasonUnsupported, "module: compiled models are not supported")
	case p.cell:
		return Refuse(CodeUnimplemented, ReasonUnsupported, "cell: kept interpreters are not supported")
	}
	var err error
	grant := ""
	if req.JavaScript != nil {
		grant = req.JavaScript.GrantProfile
		err = checkCode(req.JavaScript.Code)
	} else {
		grant = req.Project.GrantProfile
		err = checkProject(req.Project)
	}
	switch {
	case err != nil:
		return badRequest("%w", err)
	case grant != "":
		return Refuse(CodePermissionDenied, ReasonPermission, "grant_profile: no grants are configured")
	}
	return nil
}

func checkCode(code string) error {
	switch {
	case code == "":
		return errors.New("code: empty")
	case len(code) > maxCodeBytes:
		return fmt.Errorf("code: have %d bytes, want at most %d", len(code), maxCodeBytes)
	}
	return checkText("code", code)
}

func checkText(what, s string) error {
	switch {
	case !utf8.ValidString(s):
		return fmt.Errorf("%s: not UTF-8", what)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%s: a NUL at byte %d", what, strings.IndexByte(s, 0))
	}
	return nil
}

func checkProject(run *record.ProjectRun) error {
	switch {
	case len(run.Files) > maxFiles:
		return fmt.Errorf("files: have %d, want at most %d", len(run.Files), maxFiles)
	case len(run.Steps) < 1 || len(run.Steps) > maxSteps:
		return fmt.Errorf("steps: have %d, want 1 to %d", len(run.Steps), maxSteps)
	case len(run.Artifacts) > maxArtifacts:
		return fmt.Errorf("artifacts: have %d, want at most %d", len(run.Artifacts), maxArtifacts)
	}
	total := 0
	seen := make(map[string]bool)
	for i, f := range run.Files {
		what := fmt.Sprintf("file %d", i+1)
		if err := checkPath(what, f.Path, seen); err != nil {
			return err
		}
		if !utf8.ValidString(f.Content) {
			return fmt.Errorf("%s: not UTF-8", what)
		}
		total += len(f.Content)
	}
	if total > maxContentBytes {
		return fmt.Errorf("files: have %d bytes, want at most %d in all", total, maxContentBytes)
	}
	for i, step := range run.Steps {
		what := fmt.Sprintf("step %d", i+1)
		if len(step) > maxStepBytes {
			return fmt.Errorf("%s: have %d bytes, want at most %d", what, len(step), maxStepBytes)
		}
		if err := checkText(what, step); err != nil {
			return err
		}
	}
	clear(seen)
	for i, path := range run.Artifacts {
		if err := checkPath(fmt.Sprintf("artifact %d", i+1), path, seen); err != nil {
			return err
		}
	}
	return nil
}

// checkPath takes a relative path that is already clean, so that it names what
// it seems to and cannot climb out.
func checkPath(what, path string, seen map[string]bool) error {
	switch {
	case path == "":
		return fmt.Errorf("%s: no path", what)
	case len(path) > maxPathBytes:
		return fmt.Errorf("%s: path of %d bytes, want at most %d", what, len(path), maxPathBytes)
	case !utf8.ValidString(path):
		return fmt.Errorf("%s: path is not UTF-8", what)
	case seen[path]:
		return fmt.Errorf("%s: path %.80q comes twice", what, path)
	}
	seen[path] = true
	for _, c := range path {
		if c == '\\' || c < 0x20 || c >= 0x7f && c <= 0x9f {
			return fmt.Errorf("%s: path %.80q has %q", what, path, c)
		}
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("%s: path %.80q is not relative and clean", what, path)
		}
	}
	return nil
}
