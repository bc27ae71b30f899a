package record

import "fmt"

// ParseResponse reads a plimsoll.v1.RunResponse from its protobuf bytes, by the
// rules and bounds of ParseRequest. The []byte fields of the result are parts of
// b, which must not change as long as they are used; strings are copies.
func ParseResponse(b []byte) (*Response, error) {
	r, left := new(Response), maxElements
	if err := r.parse(b, &left); err != nil {
		return nil, fmt.Errorf("%w: RunResponse: %w", ErrMessage, err)
	}
	return r, nil
}

// AppendResponse appends the canonical protobuf bytes of r to dst. Of several
// results only the one that r.Kind names is written. Strings must be UTF-8, or
// ParseResponse will not take the bytes.
func AppendResponse(dst []byte, r *Response) []byte {
	dst = appendString(dst, 1, r.Sandbox)
	dst = appendString(dst, 2, r.Isolation)
	dst = appendInt(dst, 3, r.DurationMS)
	if r.Record != nil {
		dst = appendMessage(dst, 4, r.Record)
	}
	dst = appendString(dst, 5, r.SoftwareIdentity)
	dst = appendString(dst, 6, r.Environment)
	dst = appendString(dst, 7, r.Instance)
	switch r.Kind() {
	case KindJavaScript:
		dst = appendMessage(dst, 10, r.JavaScript)
	case KindProject:
		dst = appendMessage(dst, 11, r.Project)
	case KindModule:
		dst = appendMessage(dst, 12, r.Module)
	case KindCell:
		dst = appendMessage(dst, 13, r.Cell)
	}
	return dst
}

func (m *Response) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Sandbox = r.string()
		case 2<<3 | length:
			m.Isolation = r.string()
		case 3<<3 | varint:
			m.DurationMS = int64(r.u)
		case 4<<3 | length:
			merge(&r, &m.Record)
		case 5<<3 | length:
			m.SoftwareIdentity = r.string()
		case 6<<3 | length:
			m.Environment = r.string()
		case 7<<3 | length:
			m.Instance = r.string()
		case 10<<3 | length:
			m.Project, m.Module, m.Cell = nil, nil, nil
			merge(&r, &m.JavaScript)
		case 11<<3 | length:
			m.JavaScript, m.Module, m.Cell = nil, nil, nil
			merge(&r, &m.Project)
		case 12<<3 | length:
			m.JavaScript, m.Project, m.Cell = nil, nil, nil
			merge(&r, &m.Module)
		case 13<<3 | length:
			m.JavaScript, m.Project, m.Module = nil, nil, nil
			merge(&r, &m.Cell)
		}
	}
	return r.err
}

func (m *JavaScriptResult) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Stdout = r.bytes()
		case 2<<3 | length:
			m.Stderr = r.bytes()
		case 3<<3 | varint:
			m.ExitCode = r.int32()
		case 4<<3 | varint:
			m.TimedOut = r.bool()
		case 8<<3 | varint:
			m.StdoutTruncated = r.bool()
		case 9<<3 | varint:
			m.StderrTruncated = r.bool()
		case 10<<3 | length:
			m.Advice = element(&r, m.Advice)
		}
	}
	return r.err
}

func (m *JavaScriptResult) append(dst []byte) []byte {
	dst = appendBytes(dst, 1, m.Stdout)
	dst = appendBytes(dst, 2, m.Stderr)
	dst = appendInt(dst, 3, int64(m.ExitCode))
	dst = appendBool(dst, 4, m.TimedOut)
	dst = appendBool(dst, 8, m.StdoutTruncated)
	dst = appendBool(dst, 9, m.StderrTruncated)
	for i := range m.Advice {
		dst = appendMessage(dst, 10, &m.Advice[i])
	}
	return dst
}

func (m *ProjectResult) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Steps = element(&r, m.Steps)
		case 3<<3 | varint:
			m.Outcome = Outcome(r.int32())
		case 4<<3 | length:
			m.Artifacts = element(&r, m.Artifacts)
		case 6<<3 | length:
			m.OutcomeDetail = r.string()
		case 7<<3 | varint:
			m.ArtifactsTruncated = r.bool()
		case 8<<3 | length:
			m.Advice = element(&r, m.Advice)
		}
	}
	return r.err
}

func (m *ProjectResult) append(dst []byte) []byte {
	for i := range m.Steps {
		dst = appendMessage(dst, 1, &m.Steps[i])
	}
	dst = appendInt(dst, 3, int64(m.Outcome))
	for i := range m.Artifacts {
		dst = appendMessage(dst, 4, &m.Artifacts[i])
	}
	dst = appendString(dst, 6, m.OutcomeDetail)
	dst = appendBool(dst, 7, m.ArtifactsTruncated)
	for i := range m.Advice {
		dst = appendMessage(dst, 8, &m.Advice[i])
	}
	return dst
}

func (m *StepResult) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Command = r.string()
		case 2<<3 | length:
			m.Stdout = r.bytes()
		case 3<<3 | length:
			m.Stderr = r.bytes()
		case 4<<3 | varint:
			m.ExitCode = r.int32()
		case 5<<3 | varint:
			m.TimedOut = r.bool()
		case 6<<3 | varint:
			m.DurationMS = int64(r.u)
		case 7<<3 | varint:
			m.StdoutTruncated = r.bool()
		case 8<<3 | varint:
			m.StderrTruncated = r.bool()
		}
	}
	return r.err
}

func (m *StepResult) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Command)
	dst = appendBytes(dst, 2, m.Stdout)
	dst = appendBytes(dst, 3, m.Stderr)
	dst = appendInt(dst, 4, int64(m.ExitCode))
	dst = appendBool(dst, 5, m.TimedOut)
	dst = appendInt(dst, 6, m.DurationMS)
	dst = appendBool(dst, 7, m.StdoutTruncated)
	return appendBool(dst, 8, m.StderrTruncated)
}

func (m *Artifact) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Path = r.string()
		case 2<<3 | length:
			m.Content = r.bytes()
		}
	}
	return r.err
}

func (m *Artifact) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Path)
	return appendBytes(dst, 2, m.Content)
}

func (m *ModuleResult) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Runs = element(&r, m.Runs)
		case 2<<3 | varint:
			m.Width = r.int32()
		case 5<<3 | varint:
			m.Outcome = Outcome(r.int32())
		case 6<<3 | length:
			m.OutcomeDetail = r.string()
		case 7<<3 | length:
			m.Stdout = r.bytes()
		case 8<<3 | length:
			m.Stderr = r.bytes()
		}
	}
	return r.err
}

func (m *ModuleResult) append(dst []byte) []byte {
	for i := range m.Runs {
		dst = appendMessage(dst, 1, &m.Runs[i])
	}
	dst = appendInt(dst, 2, int64(m.Width))
	dst = appendInt(dst, 5, int64(m.Outcome))
	dst = appendString(dst, 6, m.OutcomeDetail)
	dst = appendBytes(dst, 7, m.Stdout)
	return appendBytes(dst, 8, m.Stderr)
}

func (m *ModuleRowResult) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | varint:
			m.Status = r.int32()
		case 2<<3 | fixed64:
			m.Outputs = append(m.Outputs, r.double())
		case 2<<3 | length:
			m.Outputs = r.packed(m.Outputs)
		}
	}
	return r.err
}

func (m *ModuleRowResult) append(dst []byte) []byte {
	dst = appendInt(dst, 1, int64(m.Status))
	return appendDoubles(dst, 2, m.Outputs)
}

func (m *CellResult) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Stdout = r.bytes()
		case 2<<3 | length:
			m.Stderr = r.bytes()
		case 3<<3 | varint:
			m.ExitCode = r.int32()
		case 4<<3 | varint:
			m.TimedOut = r.bool()
		case 5<<3 | varint:
			m.StdoutTruncated = r.bool()
		case 6<<3 | varint:
			m.StderrTruncated = r.bool()
		case 7<<3 | varint:
			m.InterpreterStarted = r.bool()
		case 8<<3 | varint:
			m.InterpreterEnded = r.bool()
		}
	}
	return r.err
}

func (m *CellResult) append(dst []byte) []byte {
	dst = appendBytes(dst, 1, m.Stdout)
	dst = appendBytes(dst, 2, m.Stderr)
	dst = appendInt(dst, 3, int64(m.ExitCode))
	dst = appendBool(dst, 4, m.TimedOut)
	dst = appendBool(dst, 5, m.StdoutTruncated)
	dst = appendBool(dst, 6, m.StderrTruncated)
	dst = appendBool(dst, 7, m.InterpreterStarted)
	return appendBool(dst, 8, m.InterpreterEnded)
}

func (m *AdviceFinding) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Pattern = r.string()
		case 2<<3 | length:
			m.Severity = r.string()
		case 3<<3 | length:
			m.Remedy = r.string()
		case 4<<3 | length:
			m.Method = r.string()
		case 5<<3 | length:
			m.Route = r.string()
		case 6<<3 | length:
			m.Detail = r.string()
		case 7<<3 | length:
			m.SuggestedMethod = r.string()
		case 8<<3 | length:
			m.SuggestedRoute = r.string()
		case 9<<3 | varint:
			m.ExtraCalls = r.int32()
		case 10<<3 | varint:
			m.AddedLatencyMS = int64(r.u)
		case 11<<3 | varint:
			m.BytesMoved = int64(r.u)
		}
	}
	return r.err
}

func (m *AdviceFinding) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Pattern)
	dst = appendString(dst, 2, m.Severity)
	dst = appendString(dst, 3, m.Remedy)
	dst = appendString(dst, 4, m.Method)
	dst = appendString(dst, 5, m.Route)
	dst = appendString(dst, 6, m.Detail)
	dst = appendString(dst, 7, m.SuggestedMethod)
	dst = appendString(dst, 8, m.SuggestedRoute)
	dst = appendInt(dst, 9, int64(m.ExtraCalls))
	dst = appendInt(dst, 10, m.AddedLatencyMS)
	return appendInt(dst, 11, m.BytesMoved)
}
