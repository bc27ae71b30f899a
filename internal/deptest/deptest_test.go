package deptest

import (
	"fmt"
	"strings"
	"testing"
)

// A failures is a testing.TB that keeps what it is told instead of failing.
type failures struct {
	testing.TB
	texts []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

func TestMustNotReachFails(t *testing.T) {
	f := &failures{TB: t}
	MustNotReach(f, "internal/deptest", map[string]string{
		"os/exec":           "it runs go list",
		"syscall":           "reached through others only",
		"github.com/nobody": "not reached",
	})
	if len(f.texts) != 2 {
		t.Fatalf("have %q, want two failures", f.texts)
	}
	if want := "internal/deptest reaches os/exec: it runs go list (internal/deptest -> os/exec)"; f.texts[0] != want {
		t.Errorf("have %q, want %q", f.texts[0], want)
	}
	if want := "internal/deptest reaches syscall: reached through others only (internal/deptest -> "; !strings.HasPrefix(f.texts[1], want) {
		t.Errorf("have %q, want %q…", f.texts[1], want)
	}
}

func TestMustImportOnlyFails(t *testing.T) {
	f := &failures{TB: t}
	MustImportOnly(f, nil)
	if want := "internal/deptest has no row in the import table"; !strings.Contains(strings.Join(f.texts, "\n"), want) {
		t.Errorf("have %q, want %q among them", f.texts, want)
	}
}

func TestGraph(t *testing.T) {
	g := graph{
		imports: map[string][]string{
			"a": {"b", "fmt"}, "b": {"c", "strictjson"}, "c": {"example.org/keys/file"},
			"fmt": nil, "strictjson": nil, "example.org/keys/file": nil,
		},
		ours: []string{"a", "b", "c", "strictjson"},
	}
	for _, c := range []struct {
		name      string
		pkg       string
		forbidden string
		want      string // the failure, or empty
	}{
		{"direct", "a", "b", "a reaches b: why (a -> b)"},
		{"through another", "a", "c", "a reaches c: why (a -> b -> c)"},
		{"not reached", "b", "a", ""},
		{"itself", "a", "a", ""},
		{"below a name", "c", "example.org/keys", "c reaches example.org/keys/file: why (c -> example.org/keys/file)"},
		{"a name's beginning", "c", "example.org/key", ""},
		{"no package yet", "d", "a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			have := strings.Join(g.mustNotReach(c.pkg, map[string]string{c.forbidden: "why"}), "; ")
			if have != c.want {
				t.Errorf("have %q, want %q", have, c.want)
			}
		})
	}

	table := map[string][]string{"a": {"b"}, "b": nil, "strictjson": nil, "later": {"a"}}
	have := strings.Join(g.mustImportOnly(table, []string{"strictjson"}), "; ")
	want := "b imports c, which its row in the import table does not name; c has no row in the import table"
	if have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}
