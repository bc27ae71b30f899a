package openshell

import (
	"fmt"
	"regexp"
	"strconv"
)

// semantic is the form of a semantic version. Numbers have no leading zero.
var semantic = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})` +
	`(?:-[0-9A-Za-z.-]{1,64})?(?:\+[0-9A-Za-z.-]{1,64})?$`)

// checkVersion says whether a gateway of this version speaks the dialect of this
// client. A pre-release counts as its release: the messages of 0.1.0 are those
// of its candidates.
func checkVersion(version string) error {
	m := semantic.FindStringSubmatch(version)
	if m == nil {
		return fmt.Errorf("%w: version %.80q is not a semantic version", ErrProtocol, version)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major == 0 && minor == 0 {
		return fmt.Errorf("%w: gateway version %s: releases before 0.1.0 are not supported", ErrUnsupported, version)
	}
	if major != 0 || minor != 1 {
		return fmt.Errorf("%w: gateway version %s: its messages are not known, only those of 0.1.x are", ErrUnsupported, version)
	}
	return nil
}
