package attest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// FuzzSign gives any bytes as a run log. A bundle that comes of it verifies, and
// states nothing that is not in the log; without an error it states all of it.
func FuzzSign(f *testing.F) {
	e := testCalls()
	f.Add(bundletest.RunLog(nil))
	f.Add(bundletest.RunLog(e[2:4], bundletest.Refused{Line: 1}))
	f.Add(bundletest.RunLog(e[3:4]))
	f.Add(bundletest.RunLog(e[4:]))
	f.Add(bundletest.RunLog([]bundletest.Entry{e[3], e[3], e[4]}))
	f.Add(bundletest.RunLog([]bundletest.Entry{bundletest.Module("v4").Version(4).Entry(), bundletest.NewSession("c").Close()}))
	f.Fuzz(func(t *testing.T, log []byte) {
		dir, err := os.MkdirTemp("", "plimsoll")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "bundle.jsonl")
		res, err := Sign(t.Context(), bytes.NewReader(log), options(t, path))
		if res == nil {
			t.Fatal(err)
		}
		if res.LinesAfter == 0 {
			if names := folder(t, path); err == nil || len(names) != len(res.SideFiles) {
				t.Fatalf("%v, left %v", err, names)
			}
			return
		}
		report := mustVerify(t, path)
		if report.Calls != res.Calls || report.Sessions != res.Sessions || report.End != res.End || !res.Sealed {
			t.Fatalf("%+v, report %+v", res, report)
		}
		stated := 0
		for _, payload := range payloadsOf(t, path) {
			if payload == "" {
				continue
			}
			line := bundletest.RunLogLine(bundletest.Entry{Payload: []byte(payload)})
			if stated++; !bytes.Contains(log, line[1:]) { // the statement is the last member
				t.Fatalf("signed %s, which the log does not state", payload)
			}
		}
		if lines := bytes.Count(log, []byte{'\n'}); err == nil && lines != stated+int(res.Refused)+1 {
			t.Fatalf("%d statements of %d lines", stated, lines)
		}
	})
}
