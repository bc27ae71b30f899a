package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// textbook is the digest as the format's page has it, with nothing for speed.
func textbook(domain string, values ...string) string {
	h := sha256.New()
	for _, v := range append([]string{domain}, values...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(v))))
		h.Write([]byte(v))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestDigestBuffer moves every kind of value over the end of the digester's
// buffer.
func TestDigestBuffer(t *testing.T) {
	for n := 3900; n < 4200; n++ {
		pad := strings.Repeat("p", n)
		d := newDigester("domain")
		d.string("pad", pad)
		d.int("least", math.MinInt64)
		d.uint("most", math.MaxUint64)
		d.bool("yes", true)
		d.bytes("small", []byte("s"))
		d.bytes("pad", []byte(pad))
		d.doubles("doubles", 1, math.Copysign(0, -1))
		want := textbook("domain", "pad", pad, "least", "-9223372036854775808", "most", "18446744073709551615",
			"yes", "true", "small", "s", "pad", pad,
			"doubles", "\x3f\xf0\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00")
		if have := d.sum(); have != want {
			t.Fatalf("padding of %d: have %s, want %s", n, have, want)
		}
	}
	for _, n := range []int{0, 1, 8191, 8192, 8193, 100_000} {
		long := strings.Repeat("é", n)
		d := newDigester("domain")
		d.string("text", long)
		d.bytes("bytes", []byte(long))
		if have, want := d.sum(), textbook("domain", "text", long, "bytes", long); have != want {
			t.Fatalf("length %d: have %s, want %s", n, have, want)
		}
	}
}

// TestDigestsAtOnce: digests taken at the same time do not mix.
func TestDigestsAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		r := &Request{JavaScript: &JavaScriptRun{Code: strings.Repeat(strconv.Itoa(i), 5000)}}
		want := textbook("plimsoll.run-request.v1", "protocol", "0", "minimum_isolation", "", "timeout_ms", "0",
			"kind", "javascript", "code", r.JavaScript.Code, "grant_profile", "")
		wg.Go(func() {
			for range 200 {
				if have := r.Digest(); have != want {
					t.Errorf("have %s, want %s", have, want)
				}
			}
		})
	}
	wg.Wait()
}

// TestDigestTextbook spells out one digest of each kind that no golden vector
// covers in this form: bytes in strings that are no UTF-8, extremes of numbers.
func TestDigestTextbook(t *testing.T) {
	request := &Request{
		Protocol: math.MaxUint32, MinimumIsolation: "\xff", TimeoutMS: math.MinInt32,
		Cell: &CellRun{Code: "\x00", Files: []ProjectFile{{"\xc3", ""}}},
	}
	if have, want := request.Digest(), textbook("plimsoll.run-request.v2",
		"protocol", "4294967295", "minimum_isolation", "\xff", "timeout_ms", "-2147483648",
		"software_mode", "", "software_identities", "0",
		"kind", "cell", "language", "", "code", "\x00", "files", "1", "file_path", "\xc3", "file_content", ""); have != want {
		t.Errorf("request: have %s, want %s", have, want)
	}

	response := &Response{Module: &ModuleResult{
		Outcome: math.MinInt32, OutcomeDetail: "\xff", Width: -1, Stderr: []byte{0xff, 0},
		Runs: []ModuleRowResult{{}, {Status: math.MinInt32, Outputs: []float64{math.Float64frombits(0x7ff0000000000001)}}},
	}}
	if have, want := response.ResultDigest(), textbook("plimsoll.run-result.v1",
		"kind", "module", "outcome", "-2147483648", "outcome_detail", "\xff", "width", "-1", "stdout", "", "stderr", "\xff\x00",
		"runs", "2", "run_status", "0", "run_outputs", "",
		"run_status", "-2147483648", "run_outputs", "\x7f\xf0\x00\x00\x00\x00\x00\x01"); have != want {
		t.Errorf("result: have %s, want %s", have, want)
	}

	record := &Record{Version: 4, Sequence: math.MaxUint64, StartedUnixMS: math.MinInt64, EndedUnixMS: math.MaxInt64, Provider: "\xff"}
	have, err := record.Digest()
	if want := textbook("plimsoll.run-record.v4",
		"request_sha256", "", "result_sha256", "", "unanswered", "", "provider", "\xff", "isolation", "", "environment", "",
		"policy", "", "software_identity", "", "software_rule_id", "", "instance", "",
		"started_unix_ms", "-9223372036854775808", "ended_unix_ms", "9223372036854775807",
		"session", "", "sequence", "18446744073709551615", "previous_sha256", ""); have != want || err != nil {
		t.Errorf("record: have %s, %v, want %s", have, err, want)
	}
}

// TestDigestCovers changes one field after the other of a full message: the
// digest changes with each, but for those that the format leaves out.
func TestDigestCovers(t *testing.T) {
	identities := []string{"a", "b"}
	files := func() []ProjectFile { return []ProjectFile{{"p", "c"}, {"q", "d"}} }
	advice := func() []AdviceFinding { return []AdviceFinding{{}} }
	request := func(r Request) func() any {
		return func() any {
			rule := SoftwareRule{"approved", append([]string(nil), identities...)}
			return &Request{
				Protocol: 2, MinimumIsolation: "vm", TraceID: "t", TimeoutMS: 1, SoftwareRule: &rule,
				JavaScript: clone(r.JavaScript), Project: clone(r.Project), Module: clone(r.Module), Cell: clone(r.Cell),
			}
		}
	}
	response := func(r Response) func() any {
		return func() any {
			return &Response{
				Sandbox: "s", Isolation: "vm", DurationMS: 1, Record: &Record{}, SoftwareIdentity: "i", Environment: "e", Instance: "a:b",
				JavaScript: clone(r.JavaScript), Project: clone(r.Project), Module: clone(r.Module), Cell: clone(r.Cell),
			}
		}
	}
	record := func(version uint32) func() any { return func() any { return &Record{Version: version} } }
	own := []string{"Sandbox", "Isolation", "DurationMS", "Record", "SoftwareIdentity", "Environment", "Instance"}

	for _, c := range []struct {
		name   string
		make   func() any
		digest func(any) string
		out    []string // fields that are in no digest
	}{
		{"javascript", request(Request{JavaScript: &JavaScriptRun{}}), requestDigest, []string{"TraceID"}},
		{"project", request(Request{Project: &ProjectRun{Files: files(), Steps: []string{"s"}, Artifacts: []string{"a"}}}), requestDigest, []string{"TraceID"}},
		{"module", request(Request{Module: &ModuleRun{Rows: []ModuleRow{{[]float64{1, 2}}, {}}}}), requestDigest, []string{"TraceID"}},
		{"cell", request(Request{Cell: &CellRun{Files: files()}}), requestDigest, []string{"TraceID"}},
		{"javascript result", response(Response{JavaScript: &JavaScriptResult{Advice: advice()}}), resultDigest, append([]string{"Advice"}, own...)},
		{"project result", response(Response{Project: &ProjectResult{Steps: make([]StepResult, 2), Artifacts: make([]Artifact, 2), Advice: advice()}}), resultDigest, append([]string{"Advice"}, own...)},
		{"module result", response(Response{Module: &ModuleResult{Runs: []ModuleRowResult{{Outputs: []float64{1, 2}}}}}), resultDigest, own},
		{"cell result", response(Response{Cell: &CellResult{}}), resultDigest, own},
		{"record version 1", record(1), recordDigest, []string{"RecordSHA256", "Unanswered", "Instance", "SoftwareIdentity", "SoftwareRuleID"}},
		{"record version 2", record(2), recordDigest, []string{"RecordSHA256", "Unanswered", "Instance"}},
		{"record version 3", record(3), recordDigest, []string{"RecordSHA256", "Instance"}},
		{"record version 4", record(4), recordDigest, []string{"RecordSHA256"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := make(map[string]bool)
			for _, name := range c.out {
				out[name] = true
			}
			before := c.digest(c.make())
			seen := map[string]string{before: "the message unchanged"}
			changed := 0
			for path := range leaves(reflect.ValueOf(c.make()), "") {
				m := c.make()
				change(leafAt(reflect.ValueOf(m), path))
				after := c.digest(m)
				top := strings.Split(path, ".")
				switch left := out[top[1]] || out[top[len(top)-1]] || len(top) > 3 && out[top[2]]; {
				case left && after != before:
					t.Errorf("%s is in the digest", path)
				case !left && after == before:
					t.Errorf("%s is not in the digest", path)
				case !left && seen[after] != "":
					t.Errorf("%s: the digest of %s", path, seen[after])
				case !left:
					seen[after] = path
					changed++
				}
			}
			if changed < 5 {
				t.Errorf("only %d fields changed", changed)
			}
		})
	}
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	// The slices within are shared, so change must replace and not write.
	c := *p
	return &c
}

func requestDigest(m any) string { return m.(*Request).Digest() }
func resultDigest(m any) string  { return m.(*Response).ResultDigest() }

func recordDigest(m any) string {
	s, err := m.(*Record).Digest()
	if err != nil {
		return err.Error()
	}
	return s
}

// leaves yields the paths of the scalar fields in v, and of its lists.
func leaves(v reflect.Value, path string) func(yield func(string) bool) {
	return func(yield func(string) bool) { walk(v, path, yield) }
}

func walk(v reflect.Value, path string, yield func(string) bool) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || walk(v.Elem(), path, yield)
	case reflect.Struct:
		for i := range v.NumField() {
			if !walk(v.Field(i), path+"."+v.Type().Field(i).Name, yield) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				if !walk(v.Index(i), fmt.Sprintf("%s.%d", path, i), yield) {
					return false
				}
			}
		}
	}
	return yield(path)
}

// leafAt returns what lies at the path, with lists on the way copied.
func leafAt(v reflect.Value, path string) reflect.Value {
	for _, name := range strings.Split(path, ".")[1:] {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() == reflect.Slice {
			fresh := reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v)
			v.Set(fresh)
			var i int
			fmt.Sscan(name, &i)
			v = v.Index(i)
			continue
		}
		v = v.FieldByName(name)
	}
	return v
}

func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		fresh := reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1)
		reflect.Copy(fresh, v)
		v.Set(fresh)
	default:
		panic(v.Kind())
	}
}

// TestBoundaries: content moved from one field into its neighbour is another
// digest.
func TestBoundaries(t *testing.T) {
	project := func(p ProjectRun) string { return (&Request{Protocol: 2, Project: &p}).Digest() }
	module := func(rows ...ModuleRow) string {
		return (&Request{Protocol: 2, Module: &ModuleRun{Rows: rows}}).Digest()
	}
	rule := func(r SoftwareRule) string { return (&Request{Protocol: 2, SoftwareRule: &r}).Digest() }
	for _, c := range []struct{ name, a, b string }{
		{"path and content", project(ProjectRun{Files: []ProjectFile{{"a.js", "bc"}}}), project(ProjectRun{Files: []ProjectFile{{"a.jsb", "c"}}})},
		{"two steps as one", project(ProjectRun{Steps: []string{"x", "y"}}), project(ProjectRun{Steps: []string{"xy"}})},
		{"a step as an artifact", project(ProjectRun{Steps: []string{"x"}}), project(ProjectRun{Artifacts: []string{"x"}})},
		{"steps reordered", project(ProjectRun{Steps: []string{"x", "y"}}), project(ProjectRun{Steps: []string{"y", "x"}})},
		{"rows regrouped", module(ModuleRow{[]float64{1, 2}}), module(ModuleRow{[]float64{1}}, ModuleRow{[]float64{2}})},
		{"a zero's sign", module(ModuleRow{[]float64{0}}), module(ModuleRow{[]float64{math.Copysign(0, -1)}})},
		{"identities reordered", rule(SoftwareRule{"approved", []string{"a", "b"}}), rule(SoftwareRule{"approved", []string{"b", "a"}})},
		{"kinds", (&Request{JavaScript: &JavaScriptRun{}}).Digest(), (&Request{}).Digest()},
	} {
		if c.a == c.b {
			t.Errorf("%s: one digest", c.name)
		}
	}
}

// TestEmptyRule: a rule that is there and empty is no rule, but its bytes are
// kept.
func TestEmptyRule(t *testing.T) {
	without, empty := &Request{Protocol: 2}, &Request{Protocol: 2, SoftwareRule: &SoftwareRule{}}
	if without.Digest() != empty.Digest() {
		t.Error("an empty rule has another digest than none")
	}
	if have := fmt.Sprintf("%x", AppendRequest(nil, empty)); have != "08022a00" {
		t.Errorf("bytes: have %s, want 08022a00", have)
	}
}

// TestRuleBeforeProtocol2: a request of protocol 0 or 1 has no place for a rule
// in its digest.
func TestRuleBeforeProtocol2(t *testing.T) {
	for protocol, same := range map[uint32]bool{0: true, 1: true, 2: false, 3: false} {
		with := &Request{Protocol: protocol, SoftwareRule: &SoftwareRule{Mode: "exact", Identities: []string{"a"}}}
		without := &Request{Protocol: protocol}
		if (with.Digest() == without.Digest()) != same {
			t.Errorf("protocol %d: the digest with a rule equals that without: want %t", protocol, same)
		}
	}
}

func TestRecordVersions(t *testing.T) {
	for _, c := range []struct {
		name         string
		record       Record
		digest, want error
	}{
		{"1", Record{Version: 1}, nil, nil},
		{"1 with software", Record{Version: 1, SoftwareIdentity: "i"}, nil, ErrFields},
		{"1 with a rule", Record{Version: 1, SoftwareRuleID: "r"}, nil, ErrFields},
		{"1 unanswered", Record{Version: 1, Unanswered: "internal"}, nil, ErrFields},
		{"1 with an instance", Record{Version: 1, Instance: "a:b"}, nil, ErrFields},
		{"2", Record{Version: 2, SoftwareIdentity: "i", SoftwareRuleID: "r"}, nil, nil},
		{"2 unanswered", Record{Version: 2, Unanswered: "internal"}, nil, ErrFields},
		{"2 with an instance", Record{Version: 2, Instance: "a:b"}, nil, ErrFields},
		{"3", Record{Version: 3, Unanswered: "internal", SoftwareIdentity: "i", SoftwareRuleID: "r"}, nil, nil},
		{"3 without a code", Record{Version: 3}, nil, ErrFields},
		{"3 with an instance", Record{Version: 3, Unanswered: "internal", Instance: "a:b"}, nil, ErrFields},
		{"4", Record{Version: 4, Instance: "a:b", SoftwareIdentity: "i", SoftwareRuleID: "r"}, nil, nil},
		{"4 unanswered", Record{Version: 4, Instance: "a:b", Unanswered: "internal"}, nil, nil},
		{"0", Record{}, ErrVersion, ErrVersion},
		{"5", Record{Version: 5}, ErrVersion, ErrVersion},
		{"2^32-1", Record{Version: math.MaxUint32}, ErrVersion, ErrVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.record.CheckFields(); !errors.Is(err, c.want) {
				t.Errorf("fields: have %v, want %v", err, c.want)
			}
			digest, err := c.record.Digest()
			if !errors.Is(err, c.digest) {
				t.Errorf("digest: have %v, want %v", err, c.digest)
			}
			if (err == nil) != (len(digest) == 64) {
				t.Errorf("digest: have %q beside %v", digest, err)
			}
		})
	}
}
