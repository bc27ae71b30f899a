package record

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// schema is the part of plimsoll.v1 that this package knows, a message a line:
// number, name and type of each field, "*" for a repeated one; a bar opens the
// oneof. It is written down here a second time, so that the protobuf library
// can check the parser and the writer, which have the numbers in their code.
const schema = `
RunRequest 1 protocol uint32, 2 minimum_isolation string, 3 trace_id string, 4 timeout_ms int32, 5 software_rule SoftwareRule | 10 javascript JavaScriptRun, 11 project ProjectRun, 12 module ModuleRun, 13 cell CellRun
SoftwareRule 1 mode string, 2 identities *string
JavaScriptRun 1 code string, 2 grant_profile string
ProjectRun 1 files *ProjectFile, 2 steps *string, 4 artifacts *string, 5 grant_profile string
ProjectFile 1 path string, 2 content string
ModuleRun 1 model string, 2 rows *ModuleRow, 3 end_time double, 4 step double
ModuleRow 1 values *double
CellRun 1 language string, 2 code string, 3 files *ProjectFile
RunResponse 1 sandbox string, 2 isolation string, 3 duration_ms int64, 4 record RunRecord, 5 software_identity string, 6 environment string, 7 instance string | 10 javascript JavaScriptResult, 11 project ProjectResult, 12 module ModuleResult, 13 cell CellResult
RunRecord 1 version uint32, 2 request_sha256 string, 3 result_sha256 string, 4 provider string, 5 isolation string, 6 environment string, 7 policy string, 8 started_unix_ms int64, 9 ended_unix_ms int64, 10 session string, 11 sequence uint64, 12 previous_sha256 string, 13 record_sha256 string, 14 software_identity string, 15 software_rule_id string, 16 unanswered string, 17 instance string
JavaScriptResult 1 stdout bytes, 2 stderr bytes, 3 exit_code int32, 4 timed_out bool, 8 stdout_truncated bool, 9 stderr_truncated bool, 10 advice *AdviceFinding
ProjectResult 1 steps *StepResult, 3 outcome ProjectOutcome, 4 artifacts *Artifact, 6 outcome_detail string, 7 artifacts_truncated bool, 8 advice *AdviceFinding
StepResult 1 command string, 2 stdout bytes, 3 stderr bytes, 4 exit_code int32, 5 timed_out bool, 6 duration_ms int64, 7 stdout_truncated bool, 8 stderr_truncated bool
Artifact 1 path string, 2 content bytes
ModuleResult 1 runs *ModuleRowResult, 2 width int32, 5 outcome ProjectOutcome, 6 outcome_detail string, 7 stdout bytes, 8 stderr bytes
ModuleRowResult 1 status int32, 2 outputs *double
CellResult 1 stdout bytes, 2 stderr bytes, 3 exit_code int32, 4 timed_out bool, 5 stdout_truncated bool, 6 stderr_truncated bool, 7 interpreter_started bool, 8 interpreter_ended bool
AdviceFinding 1 pattern string, 2 severity string, 3 remedy string, 4 method string, 5 route string, 6 detail string, 7 suggested_method string, 8 suggested_route string, 9 extra_calls int32, 10 added_latency_ms int64, 11 bytes_moved int64
`

// messageType returns the descriptor of a message of the schema.
func messageType(t testing.TB, name protoreflect.Name) protoreflect.MessageDescriptor {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{
		Name:    proto.String("plimsoll.proto"),
		Package: proto.String("plimsoll.v1"),
		Syntax:  proto.String("proto3"),
		EnumType: []*descriptorpb.EnumDescriptorProto{{
			Name: proto.String("ProjectOutcome"),
		}},
	}
	for i, name := range []string{"UNSPECIFIED", "COMPLETED", "SETUP_FAILED", "TIMED_OUT", "PROTOCOL_ERROR", "RUNNER_FAILED"} {
		file.EnumType[0].Value = append(file.EnumType[0].Value, &descriptorpb.EnumValueDescriptorProto{
			Name: proto.String("PROJECT_OUTCOME_" + name), Number: proto.Int32(int32(i)),
		})
	}
	for line := range strings.Lines(strings.TrimSpace(schema)) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), " ")
		m := &descriptorpb.DescriptorProto{Name: &name}
		fields, oneof, _ := strings.Cut(fields, "|")
		for field := range strings.SplitSeq(fields, ",") {
			m.Field = append(m.Field, fieldType(t, field))
		}
		if oneof != "" {
			m.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("of")}}
			for field := range strings.SplitSeq(oneof, ",") {
				f := fieldType(t, field)
				f.OneofIndex = proto.Int32(0)
				m.Field = append(m.Field, f)
			}
		}
		file.MessageType = append(file.MessageType, m)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d.Messages().ByName(name)
}

func fieldType(t testing.TB, field string) *descriptorpb.FieldDescriptorProto {
	t.Helper()
	part := strings.Fields(field)
	num, err := strconv.Atoi(part[0])
	if err != nil || len(part) != 3 {
		t.Fatalf("schema: %q", field)
	}
	f := &descriptorpb.FieldDescriptorProto{
		Name:   &part[1],
		Number: proto.Int32(int32(num)),
		Label:  descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
	}
	typ, repeated := strings.CutPrefix(part[2], "*")
	if repeated {
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	switch scalar, ok := descriptorpb.FieldDescriptorProto_Type_value["TYPE_"+strings.ToUpper(typ)]; {
	case ok:
		f.Type = descriptorpb.FieldDescriptorProto_Type(scalar).Enum()
	case typ == "ProjectOutcome":
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum()
		f.TypeName = proto.String(".plimsoll.v1." + typ)
	default:
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
		f.TypeName = proto.String(".plimsoll.v1." + typ)
	}
	return f
}

// A codec is one of the messages that have functions of their own: canonical
// parses and writes again by this package, library by the protobuf library
// without what it does not know. The library's deterministic form is our
// canonical one.
type codec struct {
	name      protoreflect.Name
	canonical func([]byte) ([]byte, error)
	md        protoreflect.MessageDescriptor
}

func (c *codec) library(b []byte) ([]byte, error) {
	m := dynamicpb.NewMessage(c.md)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, m); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

func codecs(t testing.TB) []*codec {
	t.Helper()
	c := []*codec{
		{name: "RunRequest", canonical: func(b []byte) ([]byte, error) {
			r, err := ParseRequest(b)
			if err != nil {
				return nil, err
			}
			return AppendRequest(nil, r), nil
		}},
		{name: "RunResponse", canonical: func(b []byte) ([]byte, error) {
			r, err := ParseResponse(b)
			if err != nil {
				return nil, err
			}
			return AppendResponse(nil, r), nil
		}},
		{name: "RunRecord", canonical: func(b []byte) ([]byte, error) {
			r, err := ParseRecord(b)
			if err != nil {
				return nil, err
			}
			return AppendRecord(nil, r), nil
		}},
	}
	for _, c := range c {
		c.md = messageType(t, c.name)
	}
	return c
}

// TestSchema holds the schema of these tests against the golden vectors, whose
// JSON form names the fields.
func TestSchema(t *testing.T) {
	v, c := readVectors(t), codecs(t)
	for i, list := range [][]vector{v.Requests, v.Results, v.Records} {
		for _, v := range list {
			if v.JSON == nil || bytes.Contains(v.JSON, []byte(`"NaN"`)) {
				continue // JSON has one NaN, and Go's is not the quiet one of the format
			}
			m := dynamicpb.NewMessage(c[i].md)
			if err := protojson.Unmarshal(v.JSON, m); err != nil {
				t.Errorf("%s: %v", v.Name, err)
				continue
			}
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if want := v.bytes(t); !bytes.Equal(b, want) {
				t.Errorf("%s: have %x, want %x", v.Name, b, want)
			}
		}
	}
}
