package record

import (
	"bytes"
	"strings"
	"testing"
)

// A call of ordinary size: a project of two files and two steps.
var (
	benchRequest = &Request{
		Protocol: 2, MinimumIsolation: TierContainer, TraceID: "call-1",
		Project: &ProjectRun{
			Files: []ProjectFile{
				{Path: "main.js", Content: strings.Repeat("console.log(require('./lib.js'))\n", 10)},
				{Path: "lib.js", Content: strings.Repeat("module.exports = 42\n", 10)},
			},
			Steps:     []string{"node main.js > out.txt", "cat out.txt"},
			Artifacts: []string{"out.txt"},
		},
	}
	benchResponse = &Response{
		Sandbox: "openshell", Isolation: TierContainer, DurationMS: 4210, Environment: "docker-image:sha256:" + strings.Repeat("a", 64),
		Record: &Record{
			Version: 2, RequestSHA256: strings.Repeat("1", 64), ResultSHA256: strings.Repeat("2", 64), Provider: "openshell",
			Isolation: TierContainer, Environment: "docker-image:sha256:" + strings.Repeat("a", 64),
			Policy: "openshell-policy:sha256:" + strings.Repeat("b", 64), StartedUnixMS: 1790000000000, EndedUnixMS: 1790000004210,
			Session: strings.Repeat("3", 64), Sequence: 2, PreviousSHA256: strings.Repeat("4", 64), RecordSHA256: strings.Repeat("5", 64),
		},
		Project: &ProjectResult{
			Outcome: OutcomeCompleted,
			Steps: []StepResult{
				{Command: "node main.js > out.txt", DurationMS: 40},
				{Command: "cat out.txt", Stdout: bytes.Repeat([]byte("42\n"), 100), DurationMS: 2},
			},
			Artifacts: []Artifact{{Path: "out.txt", Content: bytes.Repeat([]byte("42\n"), 100)}},
		},
	}
)

func BenchmarkRequestDigest(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchRequest.Digest()
	}
}

func BenchmarkResultDigest(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchResponse.ResultDigest()
	}
}

func BenchmarkRecordDigest(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := benchResponse.Record.Digest(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLargeDigest is the throughput on contents: a request with 4 MiB of
// files, which are strings.
func BenchmarkLargeDigest(b *testing.B) {
	r := &Request{Protocol: 2, Project: &ProjectRun{Files: []ProjectFile{{Path: "f", Content: strings.Repeat("x", 4<<20)}}}}
	b.SetBytes(4 << 20)
	b.ReportAllocs()
	for b.Loop() {
		r.Digest()
	}
}

func BenchmarkParseRequest(b *testing.B) {
	in := AppendRequest(nil, benchRequest)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseRequest(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseResponse(b *testing.B) {
	in := AppendResponse(nil, benchResponse)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseResponse(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendResponse(b *testing.B) {
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendResponse(dst[:0], benchResponse)
	}
}
