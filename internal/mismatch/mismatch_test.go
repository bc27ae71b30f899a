package mismatch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
)

func TestShow(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "nothing",
		"deadbeef":                    "deadbeef",
		"two words":                   `"two words"`,
		"a\nb":                        `"a\nb"`,
		"\x1b[31mred":                 `"\x1b[31mred"`,
		"\u202eevil":                  `"\u202eevil"`,
		"zero\u200bwidth":             `"zero\u200bwidth"`,
		"\xff":                        `"\xff"`,
		"é":                           `"é"`,
		strings.Repeat("a", 128):      strings.Repeat("a", 128),
		strings.Repeat("a", 129):      strings.Repeat("a", 128) + "…",
		strings.Repeat("é", 65):       `"` + strings.Repeat("é", 64) + `"…`,
		"x" + strings.Repeat("é", 65): `"x` + strings.Repeat("é", 63) + `"…`,
	} {
		if have := mismatch.Show(in); have != want {
			t.Errorf("%q: have %s, want %s", in, have, want)
		}
	}
}

func TestError(t *testing.T) {
	check := errors.New("link")
	err := fmt.Errorf("line 2: %w", mismatch.New(check, "index", "3", "2"))
	if !errors.Is(err, check) {
		t.Error("the check is lost")
	}
	if m := mismatch.Of(err); m == nil || m.Have != "3" || m.Want != "2" {
		t.Errorf("have %+v", m)
	}
	if have, want := err.Error(), "line 2: link: index: have 3, want 2"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	if mismatch.Of(check) != nil {
		t.Error("a mismatch where there is none")
	}
}
