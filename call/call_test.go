package call_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/record"
)

func TestParse(t *testing.T) {
	js := func(code string) *record.JavaScriptRun { return &record.JavaScriptRun{Code: code} }
	for _, c := range []struct {
		name, in string
		want     record.Request
	}{
		{"snippet", `{"javascript":{"code":"1"}}`, record.Request{JavaScript: js("1")}},
		{"white space", " {\t\"javascript\" : {\"code\":\"1\"}\r} ", record.Request{JavaScript: js("1")}},
		{"escapes", `{"javascript":{"code":"\u00e9\ud83d\ude00\n"}}`, record.Request{JavaScript: js("é😀\n")}},
		{
			"all, original names",
			`{"protocol":2,"minimum_isolation":"kernel","trace_id":"a.B_:-9","timeout_ms":1500,"software_rule":{"mode":"exact","identities":["x"]},` +
				`"project":{"files":[{"path":"a/b","content":"c"},{"path":"d"}],"steps":["s","t"],"artifacts":["e"],"grant_profile":""}}`,
			record.Request{
				MinimumIsolation: "kernel", TraceID: "a.B_:-9", TimeoutMS: 1500, SoftwareRule: &record.SoftwareRule{Mode: "exact", Identities: []string{"x"}},
				Project: &record.ProjectRun{Files: []record.ProjectFile{{Path: "a/b", Content: "c"}, {Path: "d"}}, Steps: []string{"s", "t"}, Artifacts: []string{"e"}},
			},
		},
		{
			"all, camel case",
			`{"minimumIsolation":"kernel","traceId":"t","timeoutMs":"-1","softwareRule":{},"javascript":{"grantProfile":"","code":"1"}}`,
			record.Request{MinimumIsolation: "kernel", TraceID: "t", TimeoutMS: -1, SoftwareRule: &record.SoftwareRule{}, JavaScript: js("1")},
		},
		{
			"null is absent",
			`{"protocol":null,"trace_id":null,"timeout_ms":null,"software_rule":null,"project":null,"module":null,"cell":null,"javascript":{"code":"1","grant_profile":null}}`,
			record.Request{JavaScript: js("1")},
		},
		{"integral float", `{"timeout_ms":1.5e3,"javascript":{"code":"1"}}`, record.Request{TimeoutMS: 1500, JavaScript: js("1")}},
		{"code of the largest size", `{"javascript":{"code":"` + strings.Repeat("x", 256<<10) + `"}}`, record.Request{JavaScript: js(strings.Repeat("x", 256<<10))}},
	} {
		c.want.Protocol = call.Protocol
		have, refused := call.Parse([]byte(c.in))
		if refused != nil {
			t.Errorf("%s: %v", c.name, refused)
			continue
		}
		if !reflect.DeepEqual(*have.Request, c.want) {
			t.Errorf("%s: have %+v, want %+v", c.name, *have.Request, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const snippet = `"javascript":{"code":"1"}`
	files := func(n int, content string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"path":"f%d","content":"%s"}`, i, content))
		}
		return `{"project":{"steps":["s"],"files":[` + strings.Join(all, ",") + `]}}`
	}
	strs := func(n int) string { return strings.TrimSuffix(strings.Repeat(`"s",`, n), ",") }
	path := func(p string) string {
		q, _ := json.Marshal(p)
		return `{"project":{"steps":["s"],"files":[{"path":` + string(q) + `}]}}`
	}
	for _, c := range []struct{ name, in, code, reason, detail, trace string }{
		{"empty", ``, "invalid_argument", "request", "not JSON", ""},
		{"null", `null`, "invalid_argument", "request", "want an object", ""},
		{"array", `[]`, "invalid_argument", "request", "want an object", ""},
		{"cut", `{"trace_id":"t","javascript":{"code":"1"`, "invalid_argument", "request", "not JSON", "t"},
		{"two values", `{` + snippet + `}{}`, "invalid_argument", "request", "something follows", ""},
		{"not UTF-8", "{\"javascript\":{\"code\":\"\xff\"}}", "invalid_argument", "request", "not JSON", ""},
		{"lone surrogate", `{"javascript":{"code":"\ud800"}}`, "invalid_argument", "request", "not JSON", ""},
		{"bare NaN", `{"timeout_ms":NaN,` + snippet + `}`, "invalid_argument", "request", "not JSON", ""},
		{"unknown name", `{"trace_id":"t","cod":1,` + snippet + `}`, "invalid_argument", "request", `unknown name "cod"`, "t"},
		{"unknown name inside", `{"javascript":{"code":"1","lang":"x"}}`, "invalid_argument", "request", `javascript: unknown name "lang"`, ""},
		{"name in another case", `{"Javascript":{"code":"1"}}`, "invalid_argument", "request", "unknown name", ""},
		{"deep value of an unknown name", `{"x":` + strings.Repeat("[", 20000), "invalid_argument", "request", "unknown name", ""},
		{"deep value of a known name", `{"trace_id":` + strings.Repeat("[", 20000), "invalid_argument", "request", "want a string", ""},
		{"repeated name", `{"trace_id":"a","trace_id":"b",` + snippet + `}`, "invalid_argument", "request", "repeated name", "a"},
		{"repeated in two styles", `{"trace_id":"a","traceId":"b",` + snippet + `}`, "invalid_argument", "request", "repeated name", "a"},
		{"repeated by an escape", `{"trace_id":"a","trace\u005fid":"b",` + snippet + `}`, "invalid_argument", "request", "repeated name", "a"},
		{"protocol 0", `{"protocol":0,` + snippet + `}`, "invalid_argument", "protocol", "have 0", ""},
		{"protocol 3", `{"protocol":3,` + snippet + `}`, "unimplemented", "protocol", "have 3", ""},
		{"protocol 3 without payload", `{"protocol":3}`, "unimplemented", "protocol", "have 3", ""},
		{"protocol out of range", `{"protocol":4294967296}`, "invalid_argument", "request", "protocol: have 4294967296", ""},
		{"protocol as a bool", `{"protocol":true}`, "invalid_argument", "request", "protocol: have a bool, want an integer", ""},
		{"trace ID with a blank", `{"trace_id":"a b",` + snippet + `}`, "invalid_argument", "request", "trace_id", ""},
		{"trace ID too long", `{"trace_id":"` + strings.Repeat("x", 65) + `",` + snippet + `}`, "invalid_argument", "request", "trace_id", ""},
		{"trace ID like a digest", `{"trace_id":"` + strings.Repeat("aB", 32) + `",` + snippet + `}`, "invalid_argument", "request", "digest", ""},
		{"floor", `{"minimum_isolation":"none",` + snippet + `}`, "invalid_argument", "request", "minimum_isolation", ""},
		{"rule without a mode", `{"software_rule":{"identities":["x"]},` + snippet + `}`, "invalid_argument", "request", "software_rule", ""},
		{"rule of 33", `{"software_rule":{"mode":"approved","identities":[` + strs(33) + `]},` + snippet + `}`, "invalid_argument", "request", "software_rule", ""},
		{"timeout with a fraction", `{"timeout_ms":1.5,` + snippet + `}`, "invalid_argument", "request", "timeout_ms", ""},
		{"timeout out of range", `{"timeout_ms":2147483648,` + snippet + `}`, "invalid_argument", "request", "timeout_ms", ""},
		{"timeout as text", `{"timeout_ms":"+1",` + snippet + `}`, "invalid_argument", "request", "timeout_ms", ""},
		{"no payload", `{"trace_id":"t"}`, "invalid_argument", "request", "no payload", "t"},
		{"null payload", `{"javascript":null}`, "invalid_argument", "request", "no payload", ""},
		{"two payloads", `{"project":{"steps":["s"]},` + snippet + `}`, "invalid_argument", "request", "more than one payload", ""},
		{"module and another", `{"module":{},` + snippet + `}`, "invalid_argument", "request", "more than one payload", ""},
		{"module", `{"trace_id":"t","module":{"model":"m"}}`, "unimplemented", "unsupported", "module", "t"},
		{"cell", `{"cell":{"language":"python"}}`, "unimplemented", "unsupported", "cell", ""},
		{"grant", `{"trace_id":"t","javascript":{"code":"1","grant_profile":"g"}}`, "permission_denied", "permission", "grant_profile", "t"},
		{"project grant", `{"project":{"steps":["s"],"grantProfile":"g"}}`, "permission_denied", "permission", "grant_profile", ""},
		{"no code", `{"javascript":{}}`, "invalid_argument", "request", "code: empty", ""},
		{"code with a NUL", `{"javascript":{"code":"a\u0000"}}`, "invalid_argument", "request", "NUL at byte 1", ""},
		{"code too large", `{"javascript":{"code":"` + strings.Repeat("x", 256<<10+1) + `"}}`, "invalid_argument", "request", "262145", ""},
		{"code is a number", `{"javascript":{"code":1}}`, "invalid_argument", "request", "code: have a number, want a string", ""},
		{"no steps", `{"project":{}}`, "invalid_argument", "request", "steps: have 0", ""},
		{"21 steps", `{"project":{"steps":[` + strs(21) + `]}}`, "invalid_argument", "request", "more than 20", ""},
		{"step too long", `{"project":{"steps":["` + strings.Repeat("x", 16<<10+1) + `"]}}`, "invalid_argument", "request", "step 1", ""},
		{"step with a NUL", `{"project":{"steps":["\u0000"]}}`, "invalid_argument", "request", "NUL", ""},
		{"null step", `{"project":{"steps":[null]}}`, "invalid_argument", "request", "have null", ""},
		{"null file", `{"project":{"steps":["s"],"files":[null]}}`, "invalid_argument", "request", "have null", ""},
		{"201 files", files(201, ""), "invalid_argument", "request", "more than 200", ""},
		{"files of more than 4 MiB", files(5, strings.Repeat("x", 1<<20)), "invalid_argument", "request", "files: have 5242880 bytes", ""},
		{"101 artifacts", `{"project":{"steps":["s"],"artifacts":[` + strs(101) + `]}}`, "invalid_argument", "request", "more than 100", ""},
		{"artifact twice", `{"project":{"steps":["s"],"artifacts":["a","a"]}}`, "invalid_argument", "request", "twice", ""},
		{"file twice", `{"project":{"steps":["s"],"files":[{"path":"a"},{"path":"a"}]}}`, "invalid_argument", "request", "twice", ""},
		{"path empty", path(""), "invalid_argument", "request", "no path", ""},
		{"path absolute", path("/etc/passwd"), "invalid_argument", "request", "relative and clean", ""},
		{"path up", path("a/../../b"), "invalid_argument", "request", "relative and clean", ""},
		{"path dot", path("./a"), "invalid_argument", "request", "relative and clean", ""},
		{"path of a folder", path("a/"), "invalid_argument", "request", "relative and clean", ""},
		{"path with a backslash", path(`a\b`), "invalid_argument", "request", "has", ""},
		{"path with a newline", path("a\nb"), "invalid_argument", "request", "has", ""},
		{"path with a C1 control", path("a\u0085b"), "invalid_argument", "request", "has", ""},
		{"path too long", path(strings.Repeat("x", 1025)), "invalid_argument", "request", "1025", ""},
	} {
		have, refused := call.Parse([]byte(c.in))
		switch {
		case refused == nil:
			t.Errorf("%s: was taken: %+v", c.name, have.Request)
		case refused.Code != c.code || refused.Reason != c.reason || !strings.Contains(refused.Detail, c.detail) || refused.TraceID != c.trace:
			t.Errorf("%s: have %q %q %q %q, want %q %q %q %q", c.name, refused.Code, refused.Reason, refused.Detail, refused.TraceID, c.code, c.reason, c.detail, c.trace)
		}
	}
	if _, refused := call.Parse(make([]byte, call.MaxBytes+1)); refused == nil {
		t.Error("a call over the bound was taken")
	}
}

// FuzzParse: what is taken is a request that its own bytes give back, and no JSON
// says another.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"trace_id":"t","timeoutMs":"5","javascript":{"code":"1"}}`))
	f.Add([]byte(`{"minimumIsolation":"kernel","project":{"files":[{"path":"a/b","content":"\u0000"}],"steps":["s"],"artifacts":["a"]}}`))
	f.Add([]byte(`{"software_rule":{"mode":"exact","identities":["x"]},"javascript":{"code":"1"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		have, refused := call.Parse(line)
		if (have == nil) == (refused == nil) {
			t.Fatal("neither taken nor refused")
		}
		if have == nil {
			if refused.Code == "" || refused.Reason == "" || refused.Detail == "" {
				t.Fatalf("a refusal without a reason: %+v", refused)
			}
			return
		}
		if !json.Valid(line) {
			t.Fatal("taken, and not JSON")
		}
		again, err := record.ParseRequest(record.AppendRequest(nil, have.Request))
		if err != nil {
			t.Fatal(err)
		}
		if again.Digest() != have.Request.Digest() || again.TraceID != have.Request.TraceID {
			t.Fatal("its bytes say something else")
		}
		if _, refused := call.New(*have.Request); refused != nil {
			t.Fatalf("taken as JSON and not as a request: %v", refused)
		}
	})
}
