package runner

import (
	"fmt"

	"github.com/plimsoll-attest/plimsoll/record"
)

// The Connect codes of refused and unanswered calls.
const (
	codeCanceled           = "canceled"
	codeInvalidArgument    = "invalid_argument"
	codeDeadlineExceeded   = "deadline_exceeded"
	codePermissionDenied   = "permission_denied"
	codeResourceExhausted  = "resource_exhausted"
	codeFailedPrecondition = "failed_precondition"
	codeUnimplemented      = "unimplemented"
	codeInternal           = "internal"
	codeUnavailable        = "unavailable"
)

// What helps against a refusal.
const (
	reasonRequest     = "request"     // another request
	reasonPermission  = "permission"  // another identity
	reasonProtocol    = "protocol"    // a client and runner of one number
	reasonUnsupported = "unsupported" // another runner: this one cannot
	reasonIsolation   = "isolation"   // a runner with a higher tier
	reasonCapacity    = "capacity"    // later
	reasonEnvironment = "environment" // another sandbox, image or gateway
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

func refuse(code, reason, format string, args ...any) *Refused {
	err := fmt.Errorf(format, args...)
	return &Refused{Code: code, Reason: reason, Detail: err.Error(), err: err}
}

func badRequest(format string, args ...any) *Refused {
	return refuse(codeInvalidArgument, reasonRequest, format, args...)
}

// of says whose refusal it is.
func (r *Refused) of(req *record.Request) *Refused {
	r.TraceID = req.TraceID
	return r
}
