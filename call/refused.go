package call

import (
	"fmt"

	"github.com/plimsoll-attest/plimsoll/record"
)

// The Connect codes of refused and unanswered calls.
const (
	CodeCanceled           = "canceled"
	CodeInvalidArgument    = "invalid_argument"
	CodeDeadlineExceeded   = "deadline_exceeded"
	CodePermissionDenied   = "permission_denied"
	CodeResourceExhausted  = "resource_exhausted"
	CodeFailedPrecondition = "failed_precondition"
	CodeUnimplemented      = "unimplemented"
	CodeInternal           = "internal"
	CodeUnavailable        = "unavailable"
)

// The reasons of refusals: what helps.
const (
	ReasonRequest     = "request"     // another request
	ReasonPermission  = "permission"  // another identity
	ReasonProtocol    = "protocol"    // a client and runner of one number
	ReasonUnsupported = "unsupported" // another runner: this one cannot
	ReasonIsolation   = "isolation"   // a runner with a higher tier
	ReasonCapacity    = "capacity"    // later
	ReasonEnvironment = "environment" // another sandbox, image or gateway
)

// A Refused is the error of a call that was refused before anything of it ran.
type Refused struct {
	TraceID string // the caller's name for the call, where it could be read
	Code    string // a Connect error code
	Reason  string // what would help
	Detail  string // for people

	err error
}

func (r *Refused) Error() string {
	return fmt.Sprintf("refused (%s, %s): %s", r.Code, r.Reason, r.Detail)
}

// Unwrap returns the error that led to the refusal, if it was one.
func (r *Refused) Unwrap() error { return r.err }

// Refuse returns a refusal whose detail is the text of the error that fmt.Errorf
// makes of the rest.
func Refuse(code, reason, format string, args ...any) *Refused {
	err := fmt.Errorf(format, args...)
	return &Refused{Code: code, Reason: reason, Detail: err.Error(), err: err}
}

func badRequest(format string, args ...any) *Refused {
	return Refuse(CodeInvalidArgument, ReasonRequest, format, args...)
}

// Of says whose refusal it is, and returns it.
func (r *Refused) Of(req *record.Request) *Refused {
	r.TraceID = req.TraceID
	return r
}
