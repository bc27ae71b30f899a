package main

import (
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
)

// demo is the run log of the demo: what a runner would print of one session in
// which a project's test fails, a snippet repairs the file, and the test passes.
func demo() []byte {
	const (
		lib = "// The first n squares, summed.\nexports.squares = (n) => {\n  let sum = 0;\n" +
			"  for (let i = 0; i < n; i++) sum += i * i;\n  return sum;\n};\n"
		test = "const assert = require('node:assert');\nconst { squares } = require('./lib.js');\n\n" +
			"assert.equal(squares(3), 14);\nconsole.log('ok');\n"
		patch = "const fs = require('node:fs');\nconst old = fs.readFileSync('lib.js', 'utf8');\n" +
			"const now = old.replace('let i = 0; i < n;', 'let i = 1; i <= n;');\nfs.writeFileSync('lib.js', now);\n" +
			"console.log(now === old ? 'nothing to patch' : 'patched lib.js');\n"
		failure = "node:assert:126\n  throw new AssertionError(obj);\n  ^\n\n" +
			"AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:\n\n5 !== 14\n\n" +
			"    at Object.<anonymous> (/tmp/work/test.js:4:8) {\n  generatedMessage: true,\n  code: 'ERR_ASSERTION',\n" +
			"  actual: 5,\n  expected: 14,\n  operator: 'strictEqual'\n}\n\nNode.js v22.11.0\n"
	)
	s := bundletest.NewSession("demo")
	start := int64(1_790_000_000_000)
	next := func(c *call, milliseconds int64) entry {
		c.Request.Protocol, c.Request.MinimumIsolation = 2, record.TierContainer
		rec := c.Record
		rec.Version, rec.Provider, rec.Isolation, rec.Policy = 2, "openshell-local", record.TierKernel, "openshell-policy:sha256:"+sha256Hex("demo")
		// Session.Add counts its minutes from the first call.
		rec.StartedUnixMS, rec.EndedUnixMS = start, start+milliseconds
		c.Response.DurationMS = milliseconds
		return s.Add(c).Entry()
	}
	project := func(traceID string, files []record.ProjectFile, step record.StepResult) *call {
		return &call{
			Request: &record.Request{TraceID: traceID, TimeoutMS: 30000, Project: &record.ProjectRun{Files: files, Steps: []string{"node test.js"}}},
			Response: &record.Response{Project: &record.ProjectResult{
				Steps: []record.StepResult{step}, Outcome: record.OutcomeCompleted,
			}},
			Record: new(record.Record),
		}
	}
	return bundletest.RunLog([]entry{
		next(project("call-1", []record.ProjectFile{{Path: "lib.js", Content: lib}, {Path: "test.js", Content: test}},
			record.StepResult{Command: "node test.js", Stderr: []byte(failure), ExitCode: 1, DurationMS: 61}), 112),
		next(&call{
			Request:  &record.Request{TraceID: "call-2", TimeoutMS: 10000, JavaScript: &record.JavaScriptRun{Code: patch}},
			Response: &record.Response{JavaScript: &record.JavaScriptResult{Stdout: []byte("patched lib.js\n")}},
			Record:   new(record.Record),
		}, 74),
		next(project("call-3", nil, record.StepResult{Command: "node test.js", Stdout: []byte("ok\n"), DurationMS: 58}), 103),
		s.Close(),
	})
}
