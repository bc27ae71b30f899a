package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ErrInstance is wrapped by the errors of CheckInstance.
var ErrInstance = errors.New("not an instance reference")

// Fingerprint returns the name under which records speak of a session: the
// SHA-256 of the ID's text in lower-case hex. The ID itself is a capability and
// stands in no record.
func Fingerprint(sessionID string) string {
	sum := sha256.Sum256([]byte(sessionID))
	return hex.EncodeToString(sum[:])
}

// CheckInstance reports whether s is empty or a typed reference to a sandbox
// instance, for example k8s-pod-uid:0a1b: a type of 1 to 32 characters of a-z,
// 0-9 and -, starting with a letter; a colon; 1 to 127 characters of A-Z, a-z,
// 0-9 and ._:-. Errors wrap ErrInstance.
func CheckInstance(s string) error {
	if s == "" {
		return nil
	}
	typ, ref, ok := strings.Cut(s, ":")
	switch {
	case !ok:
		return fmt.Errorf("%w: no type before a colon", ErrInstance)
	case len(typ) < 1 || len(typ) > 32 || typ[0] < 'a' || typ[0] > 'z' || strings.ContainsFunc(typ, notInstanceType):
		return fmt.Errorf("%w: type %.40q", ErrInstance, typ)
	case len(ref) < 1 || len(ref) > 127 || strings.ContainsFunc(ref, notInstanceRef):
		return fmt.Errorf("%w: reference %.140q", ErrInstance, ref)
	}
	return nil
}

func notInstanceType(c rune) bool {
	return c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
}

func notInstanceRef(c rune) bool {
	return !alphanumeric(c) && !strings.ContainsRune("._:-", c)
}

// IsConnectCode reports whether s is the name of a Connect error code, which an
// unanswered call's record states. There is no code for success.
func IsConnectCode(s string) bool {
	switch s {
	case "canceled", "unknown", "invalid_argument", "deadline_exceeded",
		"not_found", "already_exists", "permission_denied", "resource_exhausted",
		"failed_precondition", "aborted", "out_of_range", "unimplemented",
		"internal", "unavailable", "data_loss", "unauthenticated":
		return true
	}
	return false
}
