package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSoftwareRule(t *testing.T) {
	many := make([]string, 33)
	for i := range many {
		many[i] = fmt.Sprintf("image-%d", i)
	}
	for _, c := range []struct {
		name string
		rule *SoftwareRule
		want error
	}{
		{"none", nil, nil},
		{"empty", &SoftwareRule{}, nil},
		{"an empty list", &SoftwareRule{Identities: []string{}}, nil},
		{"a list without a mode", &SoftwareRule{Identities: []string{"a"}}, ErrRule},
		{"an empty identity without a mode", &SoftwareRule{Identities: []string{""}}, ErrRule},
		{"an unknown mode", &SoftwareRule{Mode: "any", Identities: []string{"a"}}, ErrRule},
		{"a mode in capitals", &SoftwareRule{Mode: "Exact", Identities: []string{"a"}}, ErrRule},
		{"exact", &SoftwareRule{Mode: "exact", Identities: []string{"a"}}, nil},
		{"exact without one", &SoftwareRule{Mode: "exact"}, ErrRule},
		{"exact with two", &SoftwareRule{Mode: "exact", Identities: []string{"a", "b"}}, ErrRule},
		{"approved", &SoftwareRule{Mode: "approved", Identities: []string{"b", "a"}}, nil},
		{"approved without one", &SoftwareRule{Mode: "approved"}, ErrRule},
		{"approved with 32", &SoftwareRule{Mode: "approved", Identities: many[:32]}, nil},
		{"approved with 33", &SoftwareRule{Mode: "approved", Identities: many}, ErrRule},
		{"one twice", &SoftwareRule{Mode: "approved", Identities: []string{"a", "b", "a"}}, ErrRule},
		{"an empty identity", &SoftwareRule{Mode: "exact", Identities: []string{""}}, ErrRule},
		{"256 characters", &SoftwareRule{Mode: "exact", Identities: []string{strings.Repeat("a", 256)}}, nil},
		{"257 characters", &SoftwareRule{Mode: "exact", Identities: []string{strings.Repeat("a", 257)}}, ErrRule},
		{"every character", &SoftwareRule{Mode: "exact", Identities: []string{"azAZ09._:/@+-"}}, nil},
		{"a space", &SoftwareRule{Mode: "exact", Identities: []string{"a b"}}, ErrRule},
		{"a zero byte", &SoftwareRule{Mode: "exact", Identities: []string{"a\x00b"}}, ErrRule},
		{"a line feed at the end", &SoftwareRule{Mode: "exact", Identities: []string{"a\n"}}, ErrRule},
		{"a letter beyond ASCII", &SoftwareRule{Mode: "exact", Identities: []string{"é"}}, ErrRule},
		{"no UTF-8", &SoftwareRule{Mode: "exact", Identities: []string{"a\xff"}}, ErrRule},
	} {
		if err := c.rule.Check(); !errors.Is(err, c.want) {
			t.Errorf("%s: have %v, want %v", c.name, err, c.want)
		}
	}
}

func TestAllows(t *testing.T) {
	exact := &SoftwareRule{Mode: "exact", Identities: []string{"a"}}
	approved := &SoftwareRule{Mode: "approved", Identities: []string{"a", "b"}}
	for _, c := range []struct {
		name     string
		rule     *SoftwareRule
		identity string
		want     bool
	}{
		{"no rule", nil, "a", true},
		{"no rule, no image", nil, "", true},
		{"an empty rule", &SoftwareRule{}, "", true},
		{"exact", exact, "a", true},
		{"exact, another", exact, "b", false},
		{"exact, none", exact, "", false},
		{"exact, a prefix", exact, "aa", false},
		{"approved", approved, "b", true},
		{"approved, another", approved, "c", false},
		{"malformed: a list without a mode", &SoftwareRule{Identities: []string{"a"}}, "b", false},
		{"malformed: a mode without a list", &SoftwareRule{Mode: "exact"}, "a", false},
		{"malformed: an empty identity", &SoftwareRule{Mode: "exact", Identities: []string{""}}, "", false},
	} {
		if have := c.rule.Allows(c.identity); have != c.want {
			t.Errorf("%s: have %t, want %t", c.name, have, c.want)
		}
	}
}

func TestRuleIDLeavesTheOrder(t *testing.T) {
	rule := &SoftwareRule{Mode: "approved", Identities: []string{"b", "a"}}
	rule.ID()
	if !slices.Equal(rule.Identities, []string{"b", "a"}) {
		t.Errorf("identities are %v after ID", rule.Identities)
	}
	if have := (*SoftwareRule)(nil).ID(); have != "" {
		t.Errorf("no rule: have %q", have)
	}
}

func TestFloors(t *testing.T) {
	// met[floor] are the tiers that satisfy it, of all that could be stated.
	stated := []string{"", "none", "process", "container", "kernel", "vm", "unknown", "fortress", "Container", "vm "}
	met := map[string][]string{
		"":          stated,
		"process":   {"process", "container", "kernel", "vm"},
		"container": {"container", "kernel", "vm"},
		"kernel":    {"kernel", "vm"},
		"vm":        {"vm"},
	}
	for _, floor := range append(stated, "\xff") {
		tiers, real := met[floor]
		if err := CheckFloor(floor); (err == nil) != real || (err != nil) != errors.Is(err, ErrFloor) {
			t.Errorf("floor %q: have %v", floor, err)
		}
		for _, tier := range stated {
			if have, want := MeetsFloor(tier, floor), slices.Contains(tiers, tier); have != want {
				t.Errorf("tier %q, floor %q: have %t, want %t", tier, floor, have, want)
			}
		}
	}
}

func TestInstances(t *testing.T) {
	for s, ok := range map[string]bool{
		"":                                   true,
		"k8s-pod-uid:0a1b":                   true,
		"a:b":                                true,
		"a-9:B._:-z":                         true,
		"a::":                                true,
		strings.Repeat("a", 32) + ":b":       true,
		"a:" + strings.Repeat("b", 127):      true,
		strings.Repeat("a", 33) + ":b":       false,
		"a:" + strings.Repeat("b", 128):      false,
		"pod 7":                              false,
		"pod":                                false,
		":b":                                 false,
		"a:":                                 false,
		"A:b":                                false,
		"9a:b":                               false,
		"-a:b":                               false,
		"a_b:c":                              false,
		"a:b c":                              false,
		"a:b/c":                              false,
		"a:b\n":                              false,
		"a:é":                                false,
		"a:\xff":                             false,
		"é:a":                                false,
		"a\xff:b":                            false,
		"docker-container:" + "\u0660\u0661": false, // digits, but not ours
	} {
		if err := CheckInstance(s); (err == nil) != ok || (err != nil) != errors.Is(err, ErrInstance) {
			t.Errorf("%q: have %v", s, err)
		}
	}
}

func TestConnectCodes(t *testing.T) {
	codes := strings.Fields(`canceled unknown invalid_argument deadline_exceeded not_found already_exists
		permission_denied resource_exhausted failed_precondition aborted out_of_range unimplemented
		internal unavailable data_loss unauthenticated`)
	if len(codes) != 16 {
		t.Fatalf("%d codes", len(codes))
	}
	for _, s := range codes {
		if !IsConnectCode(s) {
			t.Errorf("%q is one", s)
		}
	}
	for _, s := range []string{"", "ok", "Canceled", "cancelled", "canceled ", "the relay said so"} {
		if IsConnectCode(s) {
			t.Errorf("%q is none", s)
		}
	}
}
