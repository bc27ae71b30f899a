package statement

import (
	"strconv"

	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
)

// A Close is the session-close statement: how many calls a session had and
// which record was its last.
type Close struct {
	Session          string `json:"session"` // the fingerprint, 64 hex digits
	Calls            uint64 `json:"calls"`   // unanswered ones included
	LastRecordSHA256 string `json:"last_record_sha256"`
}

// ParseClose reads a session-close payload. Errors wrap ErrStatement.
func ParseClose(payload []byte) (Close, error) {
	var c Close
	if !named(payload, sessionCloseSubject) {
		return Close{}, unknown(payload, SessionCloseType)
	}
	if err := decode(payload, SessionCloseType, &c); err != nil {
		return Close{}, err
	}
	if err := exact(payload, func(dst []byte) []byte { return AppendClose(dst, c) }); err != nil {
		return Close{}, err
	}
	return c, nil
}

// AppendClose appends the session-close statement of c.
func AppendClose(dst []byte, c Close) []byte {
	dst = appendStart(dst, sessionCloseSubject, c.Session, SessionCloseType)
	dst = append(dst, `"session":`...)
	dst = strictjson.AppendString(dst, c.Session)
	dst = append(dst, `,"calls":`...)
	dst = strconv.AppendUint(dst, c.Calls, 10)
	dst = append(dst, `,"last_record_sha256":`...)
	dst = strictjson.AppendString(dst, c.LastRecordSHA256)
	return appendEnd(dst)
}
