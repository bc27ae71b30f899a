package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrRule is wrapped by the errors of SoftwareRule.Check.
var ErrRule = errors.New("malformed software rule")

// Bounds of a software rule.
const (
	maxRuleIdentities = 32
	maxIdentityLength = 256
)

// none reports whether there is no rule: no message, or an empty one. A list
// without a mode is a malformed rule and not none, lest it allow everything.
func (rule *SoftwareRule) none() bool {
	return rule == nil || rule.Mode == "" && len(rule.Identities) == 0
}

// Check reports whether the rule is well formed: no rule at all, "exact" with
// one identity, or "approved" with 1 to 32; an identity has 1 to 256 characters
// of A-Z, a-z, 0-9 and ._:/@+- and comes once. Errors wrap ErrRule.
func (rule *SoftwareRule) Check() error {
	if rule.none() {
		return nil
	}
	n := len(rule.Identities)
	switch rule.Mode {
	case "":
		return fmt.Errorf("%w: identities without a mode", ErrRule)
	case "exact":
		if n != 1 {
			return fmt.Errorf("%w: mode exact: have %d identities, want 1", ErrRule, n)
		}
	case "approved":
		if n < 1 || n > maxRuleIdentities {
			return fmt.Errorf("%w: mode approved: have %d identities, want 1 to %d", ErrRule, n, maxRuleIdentities)
		}
	default:
		return fmt.Errorf("%w: unknown mode %.40q", ErrRule, rule.Mode)
	}
	for i, s := range rule.Identities {
		if len(s) < 1 || len(s) > maxIdentityLength {
			return fmt.Errorf("%w: identity %d: have %d characters, want 1 to %d", ErrRule, i+1, len(s), maxIdentityLength)
		}
		if j := strings.IndexFunc(s, notIdentity); j >= 0 {
			return fmt.Errorf("%w: identity %d: %q at byte %d", ErrRule, i+1, s[j], j)
		}
		if slices.Contains(rule.Identities[:i], s) {
			return fmt.Errorf("%w: identity %d comes twice", ErrRule, i+1)
		}
	}
	return nil
}

func notIdentity(c rune) bool {
	return !alphanumeric(c) && !strings.ContainsRune("._:/@+-", c)
}

func alphanumeric(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// ID returns the rule in short, as a record states it: empty without a rule,
// "exact:" and the identity when there is one in either mode, else
// "approved:sha256:" and a digest that does not depend on the order of the
// identities. It is meaningful for a rule that Check takes.
func (rule *SoftwareRule) ID() string {
	if rule == nil {
		return ""
	}
	switch len(rule.Identities) {
	case 0:
		return ""
	case 1:
		return "exact:" + rule.Identities[0]
	}
	// No identity holds a zero byte, so the joined form has one reading.
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(rule.Identities)), "\x00")))
	return "approved:sha256:" + hex.EncodeToString(sum[:])
}

// Allows reports whether the rule is satisfied by the image that was selected.
// An image that could not be established, stated as an empty identity,
// satisfies no rule.
func (rule *SoftwareRule) Allows(identity string) bool {
	return rule.none() || identity != "" && slices.Contains(rule.Identities, identity)
}
