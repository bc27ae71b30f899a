package bundletest

import (
	"fmt"
	"strconv"

	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// A Refused is the line of a run log for a call that was refused.
type Refused struct {
	Line                          uint64
	TraceID, Code, Reason, Detail string
}

// RunLog returns a whole run log of the entries: a line for each, one for each
// refused call after them, and the end with its counts.
func RunLog(entries []Entry, refused ...Refused) []byte {
	var log []byte
	var calls, sessions uint64
	for _, e := range entries {
		log = append(log, RunLogLine(e)...)
		if parsed, err := statement.ParseEntry(e.Payload); err == nil && parsed.Close != nil {
			sessions++
		} else {
			calls++
		}
	}
	for _, r := range refused {
		log = append(log, r.line()...)
	}
	return append(log, RunLogEnd(calls, uint64(len(refused)), sessions)...)
}

// RunLogLine returns the line of a call or close, with its LF.
func RunLogLine(e Entry) []byte {
	line := []byte{'{'}
	member := func(name string, value []byte) {
		if len(value) == 0 {
			return
		}
		if len(line) > 1 {
			line = append(line, ',')
		}
		line = strictjson.AppendBase64(append(line, `"`+name+`":`...), value)
	}
	member("request", e.Request)
	member("response", e.Response)
	member("statement", e.Payload)
	return append(line, "}\n"...)
}

// RunLogEnd returns the last line of a run log, with its LF.
func RunLogEnd(calls, refused, sessions uint64) []byte {
	return fmt.Appendf(nil, `{"end":{"calls":%d,"refused":%d,"sessions":%d}}`+"\n", calls, refused, sessions)
}

func (r *Refused) line() []byte {
	line := strconv.AppendUint([]byte(`{"refused":{"line":`), r.Line, 10)
	for _, m := range []struct{ name, value string }{
		{"trace_id", r.TraceID}, {"code", r.Code}, {"reason", r.Reason}, {"detail", r.Detail},
	} {
		line = strictjson.AppendString(append(line, `,"`+m.name+`":`...), m.value)
	}
	return append(line, "}}\n"...)
}
