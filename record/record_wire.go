package record

import "fmt"

// ParseRecord reads a plimsoll.v1.RunRecord from its protobuf bytes, by the
// rules of ParseRequest. The result shares no memory with b. Versions and
// digests are not looked at; see CheckFields and Digest.
func ParseRecord(b []byte) (*Record, error) {
	r, left := new(Record), maxElements
	if err := r.parse(b, &left); err != nil {
		return nil, fmt.Errorf("%w: RunRecord: %w", ErrMessage, err)
	}
	return r, nil
}

// AppendRecord appends the canonical protobuf bytes of r to dst. Strings must be
// UTF-8, or ParseRecord will not take the bytes.
func AppendRecord(dst []byte, r *Record) []byte {
	return r.append(dst)
}

func (m *Record) parse(b []byte, left *int) error {
	r := reader{b: b, left: left}
	for r.next() {
		switch r.key {
		case 1<<3 | varint:
			m.Version = uint32(r.u)
		case 2<<3 | length:
			m.RequestSHA256 = r.string()
		case 3<<3 | length:
			m.ResultSHA256 = r.string()
		case 4<<3 | length:
			m.Provider = r.string()
		case 5<<3 | length:
			m.Isolation = r.string()
		case 6<<3 | length:
			m.Environment = r.string()
		case 7<<3 | length:
			m.Policy = r.string()
		case 8<<3 | varint:
			m.StartedUnixMS = int64(r.u)
		case 9<<3 | varint:
			m.EndedUnixMS = int64(r.u)
		case 10<<3 | length:
			m.Session = r.string()
		case 11<<3 | varint:
			m.Sequence = r.u
		case 12<<3 | length:
			m.PreviousSHA256 = r.string()
		case 13<<3 | length:
			m.RecordSHA256 = r.string()
		case 14<<3 | length:
			m.SoftwareIdentity = r.string()
		case 15<<3 | length:
			m.SoftwareRuleID = r.string()
		case 16<<3 | length:
			m.Unanswered = r.string()
		case 17<<3 | length:
			m.Instance = r.string()
		}
	}
	return r.err
}

func (m *Record) append(dst []byte) []byte {
	dst = appendUint(dst, 1, uint64(m.Version))
	dst = appendString(dst, 2, m.RequestSHA256)
	dst = appendString(dst, 3, m.ResultSHA256)
	dst = appendString(dst, 4, m.Provider)
	dst = appendString(dst, 5, m.Isolation)
	dst = appendString(dst, 6, m.Environment)
	dst = appendString(dst, 7, m.Policy)
	dst = appendInt(dst, 8, m.StartedUnixMS)
	dst = appendInt(dst, 9, m.EndedUnixMS)
	dst = appendString(dst, 10, m.Session)
	dst = appendUint(dst, 11, m.Sequence)
	dst = appendString(dst, 12, m.PreviousSHA256)
	dst = appendString(dst, 13, m.RecordSHA256)
	dst = appendString(dst, 14, m.SoftwareIdentity)
	dst = appendString(dst, 15, m.SoftwareRuleID)
	dst = appendString(dst, 16, m.Unanswered)
	return appendString(dst, 17, m.Instance)
}
