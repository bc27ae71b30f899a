package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/verify"
)

// A schemaFile is a JSON Schema, as far as our own uses it.
type schemaFile struct {
	root map[string]any
	text string
}

func reportSchemaFile(t *testing.T) *schemaFile {
	t.Helper()
	data, err := os.ReadFile("../../docs/verify-report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := &schemaFile{text: string(data)}
	if err := json.Unmarshal(data, &s.root); err != nil {
		t.Fatal(err)
	}
	return s
}

// check returns what is wrong with the JSON text.
func (s *schemaFile) check(text string) []string {
	var value any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return []string{err.Error()}
	}
	return s.validate(s.root, value, "")
}

// validate knows the keywords of our schema and panics on any other.
func (s *schemaFile) validate(schema map[string]any, value any, at string) (problems []string) {
	problem := func(format string, args ...any) {
		problems = append(problems, at+": "+fmt.Sprintf(format, args...))
	}
	properties, _ := schema["properties"].(map[string]any)
	object, isObject := value.(map[string]any)
	for keyword, arg := range schema {
		switch keyword {
		case "$schema", "$id", "$defs", "title", "description":
		case "$ref":
			name := strings.TrimPrefix(arg.(string), "#/$defs/")
			problems = append(problems, s.validate(s.root["$defs"].(map[string]any)[name].(map[string]any), value, at)...)
		case "oneOf":
			var all []string
			matches := 0
			for _, alternative := range arg.([]any) {
				p := s.validate(alternative.(map[string]any), value, at)
				if len(p) == 0 {
					matches++
				}
				all = append(all, p...)
			}
			if matches != 1 {
				problem("%d alternatives match: %s", matches, strings.Join(all, "; "))
			}
		case "type":
			types, ok := arg.([]any)
			if !ok {
				types = []any{arg}
			}
			if !slices.Contains(types, typeOf(value)) {
				problem("have %v, want type %v", typeOf(value), types)
			}
		case "const":
			if value != arg {
				problem("have %v, want %v", value, arg)
			}
		case "enum":
			if !slices.Contains(arg.([]any), value) {
				problem("have %v, want one of %v", value, arg)
			}
		case "minimum":
			if n, ok := value.(json.Number); ok {
				if f, err := n.Float64(); err != nil || f < arg.(float64) {
					problem("have %v, want %v or more", n, arg)
				}
			}
		case "pattern":
			if text, ok := value.(string); ok && !regexp.MustCompile(goPattern(arg.(string))).MatchString(text) {
				problem("have %q, want %s", text, arg)
			}
		case "minItems":
			if list, ok := value.([]any); ok && len(list) < int(arg.(float64)) {
				problem("%d items", len(list))
			}
		case "items":
			list, _ := value.([]any)
			for i, item := range list {
				problems = append(problems, s.validate(arg.(map[string]any), item, fmt.Sprintf("%s/%d", at, i))...)
			}
		case "required":
			for _, name := range arg.([]any) {
				if _, ok := object[name.(string)]; isObject && !ok {
					problem("no member %s", name)
				}
			}
		case "properties":
			for name, member := range properties {
				if v, ok := object[name]; ok {
					problems = append(problems, s.validate(member.(map[string]any), v, at+"/"+name)...)
				}
			}
		case "additionalProperties":
			for name, v := range object {
				if _, known := properties[name]; known {
					continue
				}
				if sub, ok := arg.(map[string]any); ok {
					problems = append(problems, s.validate(sub, v, at+"/"+name)...)
				} else {
					problem("unknown member %s", name)
				}
			}
		default:
			panic("keyword " + keyword)
		}
	}
	return problems
}

func goPattern(p string) string {
	return regexp.MustCompile(`\\u([0-9a-f]{4})`).ReplaceAllString(p, `\x{$1}`)
}

func typeOf(value any) any {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "number"
		}
		return "integer"
	case []any:
		return "array"
	}
	return "object"
}

// TestSchemaRefuses changes good reports in one thing each.
func TestSchemaRefuses(t *testing.T) {
	schema := reportSchemaFile(t)
	_, verified, _ := runCommand("", "verify", "--format", "json", "--pub", "../../testdata/seed-session/harness.pub",
		"../../testdata/seed-session/bundle.jsonl")
	_, refused, _ := runCommand("", "verify", "--format", "json", "--pub", "../../testdata/seed-session/harness.pub", os.DevNull)
	for _, good := range []string{verified, refused} {
		if problems := schema.check(good); len(problems) > 0 {
			t.Fatal(problems)
		}
	}
	for _, c := range []struct{ name, text, old, new string }{
		{"schema", verified, "verify-report/v1", "verify-report/v2"},
		{"verdict", verified, `"verdict":"verified"`, `"verdict":"VERIFIED"`},
		{"verdict of another form", verified, `"verdict":"verified"`, `"verdict":"refused"`},
		{"no calls", verified, `"calls":5,`, ``},
		{"calls negative", verified, `"calls":5`, `"calls":-5`},
		{"calls as text", verified, `"calls":5`, `"calls":"5"`},
		{"a fraction", verified, `"calls":5`, `"calls":5.0`},
		{"no signature", verified, `"signatures":13`, `"signatures":0`},
		{"unknown member", verified, `"calls":5`, `"calls":5,"trusted":true`},
		{"unknown check", verified, `"name":"lines"`, `"name":"line"`},
		{"short key ID", verified, `"key_id":"84`, `"key_id":"`},
		{"facts on refusal", refused, `"line":0`, `"line":0,"calls":5`},
		{"check on refusal", refused, `"check":"incomplete"`, `"check":"lines"`},
		{"no reason", refused, `"reason":"`, `"note":"`},
	} {
		bad := strings.Replace(c.text, c.old, c.new, 1)
		if bad == c.text {
			t.Errorf("%s: nothing changed in %s", c.name, c.text)
		}
		if len(schema.check(bad)) == 0 {
			t.Errorf("%s: accepted %s", c.name, bad)
		}
	}
}

// TestSchemaNamesAllMembers holds the structs against the published schema.
func TestSchemaNamesAllMembers(t *testing.T) {
	schema := reportSchemaFile(t)
	members := func(types ...reflect.Type) (names []string) {
		for _, typ := range types {
			for i := range typ.NumField() {
				if f := typ.Field(i); !f.Anonymous {
					name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
					names = append(names, name)
				}
			}
		}
		sort.Strings(names)
		return names
	}
	report, refusal, facts := reflect.TypeFor[jsonReport](), reflect.TypeFor[JSONRefusal](), reflect.TypeFor[JSONFacts]()
	for def, want := range map[string][]string{
		"verified": slices.DeleteFunc(members(report, facts), func(s string) bool { return s == "reason" }),
		"refused":  members(report, refusal),
		"error":    members(report),
	} {
		d := schema.root["$defs"].(map[string]any)[def].(map[string]any)
		var have, required []string
		for name := range d["properties"].(map[string]any) {
			have = append(have, name)
		}
		for _, name := range d["required"].([]any) {
			required = append(required, name.(string))
		}
		sort.Strings(have)
		sort.Strings(required)
		if !slices.Equal(have, want) || !slices.Equal(required, want) {
			t.Errorf("%s: the schema has %v, requires %v, want %v", def, have, required, want)
		}
	}
}

// TestDocumentedReport holds the example of docs/verify-report.md against the schema.
func TestDocumentedReport(t *testing.T) {
	page, err := os.ReadFile("../../docs/verify-report.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(page), "```\n")
	example, _, _ = strings.Cut(example, "```")
	if !ok {
		t.Fatal("no example")
	}
	if r := decodeReport(t, example); r.Check != verify.CheckLink || r.Line != 2 {
		t.Errorf("have %+v", r.JSONRefusal)
	}
}
