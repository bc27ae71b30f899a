package record

import "fmt"

// ParseRequest reads a plimsoll.v1.RunRequest from its protobuf bytes. It takes
// every encoding that protobuf allows: unknown fields, and known ones with
// another wire type, are skipped; of a scalar given twice the last counts; a
// message given twice is merged; of the payloads the last counts. The result
// shares no memory with b.
//
// Errors wrap ErrMessage. Beside what is no protobuf, groups nested deeper than
// 100 and more than 1,048,576 elements in all lists together are refused.
func ParseRequest(b []byte) (*Request, error) {
	r, left := new(Request), maxElements
	if err := r.parse(b, &left); err != nil {
		return nil, fmt.Errorf("%w: RunRequest: %w", ErrMessage, err)
	}
	return r, nil
}

// AppendRequest appends the canonical protobuf bytes of r to dst. Of several
// payloads only the one that r.Kind names is written. Strings must be UTF-8, or
// ParseRequest will not take the bytes.
func AppendRequest(dst []byte, r *Request) []byte {
	dst = appendUint(dst, 1, uint64(r.Protocol))
	dst = appendString(dst, 2, r.MinimumIsolation)
	dst = appendString(dst, 3, r.TraceID)
	dst = appendInt(dst, 4, int64(r.TimeoutMS))
	if r.SoftwareRule != nil {
		dst = appendMessage(dst, 5, r.SoftwareRule)
	}
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

func (m *Request) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | varint:
			m.Protocol = uint32(r.u)
		case 2<<3 | length:
			m.MinimumIsolation = r.string()
		case 3<<3 | length:
			m.TraceID = r.string()
		case 4<<3 | varint:
			m.TimeoutMS = r.int32()
		case 5<<3 | length:
			merge(&r, &m.SoftwareRule)
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

func (m *SoftwareRule) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Mode = r.string()
		case 2<<3 | length:
			m.Identities = stringElement(&r, m.Identities)
		}
	}
	return r.err
}

func (m *SoftwareRule) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Mode)
	for _, s := range m.Identities {
		dst = appendStringElement(dst, 2, s)
	}
	return dst
}

func (m *JavaScriptRun) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Code = r.string()
		case 2<<3 | length:
			m.GrantProfile = r.string()
		}
	}
	return r.err
}

func (m *JavaScriptRun) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Code)
	return appendString(dst, 2, m.GrantProfile)
}

func (m *ProjectRun) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Files = element(&r, m.Files)
		case 2<<3 | length:
			m.Steps = stringElement(&r, m.Steps)
		case 4<<3 | length:
			m.Artifacts = stringElement(&r, m.Artifacts)
		case 5<<3 | length:
			m.GrantProfile = r.string()
		}
	}
	return r.err
}

func (m *ProjectRun) append(dst []byte) []byte {
	for i := range m.Files {
		dst = appendMessage(dst, 1, &m.Files[i])
	}
	for _, s := range m.Steps {
		dst = appendStringElement(dst, 2, s)
	}
	for _, s := range m.Artifacts {
		dst = appendStringElement(dst, 4, s)
	}
	return appendString(dst, 5, m.GrantProfile)
}

func (m *ProjectFile) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Path = r.string()
		case 2<<3 | length:
			m.Content = r.string()
		}
	}
	return r.err
}

func (m *ProjectFile) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Path)
	return appendString(dst, 2, m.Content)
}

func (m *ModuleRun) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Model = r.string()
		case 2<<3 | length:
			m.Rows = element(&r, m.Rows)
		case 3<<3 | fixed64:
			m.EndTime = r.double()
		case 4<<3 | fixed64:
			m.Step = r.double()
		}
	}
	return r.err
}

func (m *ModuleRun) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Model)
	for i := range m.Rows {
		dst = appendMessage(dst, 2, &m.Rows[i])
	}
	dst = appendDouble(dst, 3, m.EndTime)
	return appendDouble(dst, 4, m.Step)
}

func (m *ModuleRow) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | fixed64:
			m.Values = append(m.Values, r.double())
		case 1<<3 | length:
			m.Values = r.packed(m.Values)
		}
	}
	return r.err
}

func (m *ModuleRow) append(dst []byte) []byte {
	return appendDoubles(dst, 1, m.Values)
}

func (m *CellRun) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | length:
			m.Language = r.string()
		case 2<<3 | length:
			m.Code = r.string()
		case 3<<3 | length:
			m.Files = element(&r, m.Files)
		}
	}
	return r.err
}

func (m *CellRun) append(dst []byte) []byte {
	dst = appendString(dst, 1, m.Language)
	dst = appendString(dst, 2, m.Code)
	for i := range m.Files {
		dst = appendMessage(dst, 3, &m.Files[i])
	}
	return dst
}
