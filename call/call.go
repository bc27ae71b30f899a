package call

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/plimsoll-attest/plimsoll/record"
)

// Protocol is the number that stored requests state. A call need not; stating
// another is refused.
const Protocol = 2

// MaxBytes bounds a call's JSON: four MiB of files may be written as six bytes a
// character.
const MaxBytes = 32 << 20

// A Call is a request that a runner can carry out, as far as the request alone
// tells.
type Call struct {
	Request *record.Request // as the caller sent it, with Protocol
}

// Parse reads a call: the JSON of a plimsoll.v1.RunRequest, with the names of
// either style. Nothing is filled in but the protocol number, so that the
// request's digest can be computed beforehand.
//
// It takes exactly one object of known names that come once, valid UTF-8, and
// values within the bounds of the format. A refusal names the trace ID when the
// call had a valid one up to where it was read.
func Parse(line []byte) (*Call, *Refused) {
	if len(line) > MaxBytes {
		return nil, badRequest("the call has more than %d bytes", MaxBytes)
	}
	p := parser{
		dec: jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)),
		req: &record.Request{Protocol: Protocol},
	}
	err := p.request()
	if err == nil {
		err = p.end()
	}
	var refused *Refused
	switch {
	case errors.As(err, &refused):
	case err != nil:
		refused = badRequest("%w", jsonError(err))
	default:
		refused = p.check()
	}
	if refused != nil {
		if checkTraceID(p.req.TraceID) == nil {
			refused.TraceID = p.req.TraceID
		}
		return nil, refused
	}
	return &Call{Request: p.req}, nil
}

// New returns the call of a request whose protocol is 0 or Protocol.
func New(req record.Request) (*Call, *Refused) {
	p := parser{req: &req}
	if req.Protocol == 0 {
		req.Protocol = Protocol
	}
	p.protocol = int64(req.Protocol)
	p.stated = true
	p.module, p.cell = req.Module != nil, req.Cell != nil
	if refused := p.check(); refused != nil {
		if checkTraceID(req.TraceID) == nil {
			refused.TraceID = req.TraceID
		}
		return nil, refused
	}
	return &Call{Request: &req}, nil
}

// jsonError drops the library's name from its errors and says where.
func jsonError(err error) error {
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		if errors.Is(syntactic.Err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("byte %d: repeated name %.64q", syntactic.ByteOffset, syntactic.JSONPointer.LastToken())
		}
		return fmt.Errorf("not JSON: byte %d: %w", syntactic.ByteOffset, syntactic.Err)
	}
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		return errors.New("not JSON: it stops in the middle")
	}
	return err
}

// A parser reads one call, token by token: what a name does not allow is refused
// where it stands, so that hostile depth and size are never walked into.
type parser struct {
	dec      *jsontext.Decoder
	req      *record.Request
	stated   bool // protocol
	protocol int64
	module   bool
	cell     bool
}

// object reads an object, or null, which counts as absent. Its members are read
// by the function that member returns for a name; one that it does not know is
// nil. The two spellings of a name are one name.
func (p *parser) object(member func(name string) func() error) (present bool, err error) {
	switch kind := p.dec.PeekKind(); kind {
	case 'n':
		_, err := p.dec.ReadToken()
		return false, err
	case '{':
	default:
		return false, p.wrong(kind, "an object")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return false, err
	}
	seen := make(map[string]bool)
	for p.dec.PeekKind() != '}' {
		token, err := p.dec.ReadToken()
		if err != nil {
			return false, err
		}
		name := token.String()
		canonical := name
		if original, ok := originals[name]; ok {
			canonical = original
		}
		read := member(canonical)
		if read == nil {
			return false, fmt.Errorf("unknown name %.64q", name)
		}
		if seen[canonical] {
			return false, fmt.Errorf("repeated name %.64q", name)
		}
		seen[canonical] = true
		if err := read(); err != nil {
			var refused *Refused
			if errors.As(err, &refused) || errors.As(err, new(*jsontext.SyntacticError)) {
				return false, err
			}
			return false, fmt.Errorf("%s: %w", canonical, err)
		}
	}
	_, err = p.dec.ReadToken()
	return true, err
}

// originals are the names that have two spellings.
var originals = map[string]string{
	"minimumIsolation": "minimum_isolation",
	"traceId":          "trace_id",
	"timeoutMs":        "timeout_ms",
	"softwareRule":     "software_rule",
	"grantProfile":     "grant_profile",
}

// wrong says what is there instead of what is wanted. A value that is no JSON at
// all is that first.
func (p *parser) wrong(kind jsontext.Kind, want string) error {
	if kind == 0 {
		if _, err := p.dec.ReadToken(); err != nil {
			return err
		}
	}
	have := map[jsontext.Kind]string{
		'n': "null", 't': "a bool", 'f': "a bool", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
	}[kind]
	return fmt.Errorf("have %s, want %s", have, want)
}

// end takes nothing but white space after the value.
func (p *parser) end() error {
	if _, err := p.dec.ReadToken(); err != io.EOF {
		if err != nil {
			return err
		}
		return errors.New("not JSON: something follows the value")
	}
	return nil
}

func (p *parser) request() error {
	req := p.req
	present, err := p.object(func(name string) func() error {
		switch name {
		case "protocol":
			return func() error {
				p.stated = p.dec.PeekKind() != 'n'
				return p.integer(&p.protocol, 0, math.MaxUint32)
			}
		case "minimum_isolation":
			return p.text(&req.MinimumIsolation)
		case "trace_id":
			return p.text(&req.TraceID)
		case "timeout_ms":
			return func() error {
				var n int64
				err := p.integer(&n, math.MinInt32, math.MaxInt32)
				req.TimeoutMS = int32(n)
				return err
			}
		case "software_rule":
			return p.softwareRule
		case "javascript":
			return p.javascript
		case "project":
			return p.project
		case "module":
			return func() error { p.module = p.dec.PeekKind() != 'n'; return p.dec.SkipValue() }
		case "cell":
			return func() error { p.cell = p.dec.PeekKind() != 'n'; return p.dec.SkipValue() }
		}
		return nil
	})
	if err == nil && !present {
		err = errors.New("have null, want an object")
	}
	return err
}

// text reads a string; null leaves it empty.
func (p *parser) text(into *string) func() error {
	return func() error {
		switch kind := p.dec.PeekKind(); kind {
		case 'n':
			_, err := p.dec.ReadToken()
			return err
		case '"':
		default:
			return p.wrong(kind, "a string")
		}
		token, err := p.dec.ReadToken()
		if err != nil {
			return err
		}
		*into = token.String()
		return nil
	}
}

// integer reads an integer as JSON has it: a number without a fraction, or the
// decimal digits of one in a string.
func (p *parser) integer(into *int64, low, high int64) error {
	kind := p.dec.PeekKind()
	if kind == 'n' {
		_, err := p.dec.ReadToken()
		return err
	}
	if kind != '0' && kind != '"' {
		return p.wrong(kind, "an integer")
	}
	token, err := p.dec.ReadToken()
	if err != nil {
		return err
	}
	text := token.String()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		if kind == '"' {
			return fmt.Errorf("have %.40q, want an integer", text)
		}
		f, floatErr := strconv.ParseFloat(text, 64)
		if floatErr != nil || f != math.Trunc(f) || math.Abs(f) > math.MaxUint32 {
			return fmt.Errorf("have %.40s, want an integer from %d to %d", text, low, high)
		}
		n = int64(f)
	} else if text[0] == '+' {
		return fmt.Errorf("have %.40q, want an integer", text)
	}
	if n < low || n > high {
		return fmt.Errorf("have %d, want %d to %d", n, low, high)
	}
	*into = n
	return nil
}

// list reads an array, or null, of at most limit elements.
func (p *parser) list(limit int, element func() error) error {
	switch kind := p.dec.PeekKind(); kind {
	case 'n':
		_, err := p.dec.ReadToken()
		return err
	case '[':
	default:
		return p.wrong(kind, "an array")
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return err
	}
	for n := 0; p.dec.PeekKind() != ']'; n++ {
		if n == limit {
			return fmt.Errorf("more than %d elements", limit)
		}
		if err := element(); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return err
}

func (p *parser) texts(into *[]string, limit int) func() error {
	return func() error {
		return p.list(limit, func() error {
			if kind := p.dec.PeekKind(); kind != '"' {
				return p.wrong(kind, "a string")
			}
			var s string
			if err := p.text(&s)(); err != nil {
				return err
			}
			*into = append(*into, s)
			return nil
		})
	}
}

func (p *parser) softwareRule() error {
	var rule record.SoftwareRule
	present, err := p.object(func(name string) func() error {
		switch name {
		case "mode":
			return p.text(&rule.Mode)
		case "identities":
			return p.texts(&rule.Identities, maxIdentities)
		}
		return nil
	})
	if present {
		p.req.SoftwareRule = &rule
	}
	return err
}

func (p *parser) javascript() error {
	var run record.JavaScriptRun
	present, err := p.object(func(name string) func() error {
		switch name {
		case "code":
			return p.text(&run.Code)
		case "grant_profile":
			return p.text(&run.GrantProfile)
		}
		return nil
	})
	if present {
		p.req.JavaScript = &run
	}
	return err
}

func (p *parser) project() error {
	var run record.ProjectRun
	present, err := p.object(func(name string) func() error {
		switch name {
		case "files":
			return func() error { return p.list(maxFiles, func() error { return p.file(&run) }) }
		case "steps":
			return p.texts(&run.Steps, maxSteps)
		case "artifacts":
			return p.texts(&run.Artifacts, maxArtifacts)
		case "grant_profile":
			return p.text(&run.GrantProfile)
		}
		return nil
	})
	if present {
		p.req.Project = &run
	}
	return err
}

func (p *parser) file(run *record.ProjectRun) error {
	if kind := p.dec.PeekKind(); kind != '{' {
		return p.wrong(kind, "an object")
	}
	var file record.ProjectFile
	_, err := p.object(func(name string) func() error {
		switch name {
		case "path":
			return p.text(&file.Path)
		case "content":
			return p.text(&file.Content)
		}
		return nil
	})
	run.Files = append(run.Files, file)
	return err
}

// checkTraceID takes the names that a caller may give a call. One of 64 hex
// digits would read as a digest in a list of expected calls.
func checkTraceID(id string) error {
	if len(id) > maxTraceID {
		return fmt.Errorf("trace_id: more than %d characters", maxTraceID)
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return fmt.Errorf("trace_id: %q at byte %d, want A-Z, a-z, 0-9 and ._:-", id[i:i+1], i)
		}
	}
	if _, err := hex.DecodeString(id); err == nil && len(id) == 64 {
		return errors.New("trace_id: 64 hex digits, which a list of calls would take for a digest")
	}
	return nil
}
