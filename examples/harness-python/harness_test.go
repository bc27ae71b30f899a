//go:build linux

// Package harnesspython tests the harness in Python.
package harnesspython

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// fakeRunner is the argument that makes this program a runner.
const fakeRunner = "fake-runner"

const big = 3 << 20

// patience is more than anything here takes: a harness that waits for ever fails.
const patience = time.Minute

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == fakeRunner {
		run()
		return
	}
	os.Exit(m.Run())
}

// run does what the code of each call names.
func run() {
	session := bundletest.NewSession(time.Now().String()) // a bundle takes no session twice
	in := bufio.NewScanner(os.Stdin)
	var line, calls, refusals uint64
	status := 0
	for in.Scan() {
		line++
		asked, refused := call.Parse(in.Bytes())
		if refused != nil {
			refusals++
			status = 3
			log := bundletest.RunLog(nil, bundletest.Refused{Line: line, TraceID: refused.TraceID, Code: "invalid_argument", Reason: "request", Detail: "no call"})
			os.Stdout.Write(log[:bytes.IndexByte(log, '\n')+1])
			continue
		}
		stdout := "2\n\xff\x00"
		switch asked.Request.JavaScript.Code {
		case "die":
			os.Exit(7)
		case "big":
			stdout = strings.Repeat("x", big)
		}
		c := bundletest.JavaScript("", "", stdout)
		c.Request = asked.Request
		if asked.Request.JavaScript.Code == "no answer" {
			c.Unanswered("canceled")
			status = 4
		}
		calls++
		os.Stdout.Write(bundletest.RunLogLine(session.Add(c).Entry()))
		if asked.Request.JavaScript.Code == "last" {
			os.Exit(0) // its session is open
		}
	}
	os.Stdout.Write(bundletest.RunLogLine(session.Close()))
	os.Stdout.Write(bundletest.RunLogEnd(calls, refusals, 1))
	if in.Err() == nil {
		os.Exit(status)
	}
}

// A scene is a key, and the bundle that it signs.
type scene struct{ attest, self, dir string }

// build builds plimsoll-attest, or skips the test where there is no Python.
func build(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: the harness in Python is NOT tested")
	}
	attest := filepath.Join(t.TempDir(), "plimsoll-attest")
	cmd := exec.Command("go", "build", "-trimpath", "-o", attest, "../../cmd/plimsoll-attest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return attest
}

func newScene(t *testing.T, attest string) *scene {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{attest, self, t.TempDir()}
	if out, err := exec.Command(attest, "keygen", "--no-passphrase", "--key", s.path("key"), "--pub", s.path("pub")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

// python returns the exit status and what was printed.
func (s *scene) python(t *testing.T, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil || cmd.ProcessState == nil {
		t.Fatalf("%v, %v\n%s", ctx.Err(), err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// prelude is what the programs of the test begin with.
const prelude = `
import os, sys
from harness import Harness, HarnessError, Refused, Unanswered, Unsigned
attest, self, dir = sys.argv[1:]
def new(*runner, key=dir + "/key"):
    return Harness(key=key, bundle=dir + "/bundle", expect_out=dir + "/expected", attest=attest, runner=runner or [self, "fake-runner"])
def js(id, code="1"):
    return {"trace_id": id, "javascript": {"code": code}}
`

func TestHarness(t *testing.T) {
	attest := build(t)
	for _, c := range []struct {
		name, program string
		calls         string // what verify finds, or empty: no bundle
	}{
		{name: "two calls", calls: "2 calls", program: `
with new() as h:
    for id in "ab":
        r = h.call(js(id))
        assert r["trace_id"] == id and r["steps"][0]["stdout"] == b"2\n\xff\0", r
try:
    h.call(js("c"))
except HarnessError as e:
    assert "over" in str(e), e
else:
    assert False`},
		{name: "refused", calls: "1 call", program: `
with new() as h:
    try:
        h.call(js("a", ""))
        assert False
    except Refused as e:
        assert e.told["trace_id"] == "a" and e.told["input_line"] == 1, e.told
    assert h.call(js("b"))["steps"][0]["exit_code"] == 0`},
		{name: "unanswered", calls: "2 calls", program: `
with new() as h:
    try:
        h.call(js("a", "no answer"))
        assert False
    except Unanswered as e:
        assert e.told["unanswered"] == "canceled", e.told
    h.call(js("b"))`},
		{name: "large output", calls: "1 call", program: `
with new() as h:
    assert h.call(js("a", "big"))["steps"][0]["stdout"] == b"x" * (3 << 20)`},
		{name: "the block's own exception", calls: "1 call", program: `
try:
    with new() as h:
        h.call(js("a"))
        raise KeyError("mine")
except KeyError as e:
    assert e.__context__ is None`},
		{name: "dies of a call", program: `
try:
    with new() as h:
        h.call(js("a"))
        h.call(js("b", "die"))
    assert False
except Unsigned as e:
    assert (e.told["open"]["input_line"], e.told["open"]["trace_id"]) == (2, "b") and e.told["moved"] == 1, e.told
    [side] = e.told["side_files"]
    assert os.path.getsize(side) and side in str(e), e`},
		{name: "dies after a call", program: `
try:
    with new() as h:
        h.call(js("a", "last"))
    assert False
except Unsigned as e:
    [side] = e.told["side_files"]
    assert os.path.getsize(side) and side in str(e), e`},
		{name: "swallowed", program: `
try:
    with new() as h:
        for id in "ab":
            try:
                h.call(js(id, "die"))
                assert False
            except Unsigned:
                pass
    assert False
except Unsigned as e:
    assert e.told["exit_status"] == 7, e.told`},
		{name: "garbage", program: `
try:
    with new("/bin/sh", "-c", "read -r call; echo garbage; sleep 60") as h:
        h.call(js("a"))
    assert False
except Unsigned as e:
    assert e.told["open"], e.told`},
		{name: "no key", program: `
try:
    with new(key=dir + "/none") as h:
        h.call(js("a", "x" * 200000))
    assert False
except Unsigned as e:
    assert e.told is None and "125" in str(e), e`},
		{name: "wrap is killed", program: `
try:
    with new() as h:
        h.call(js("a"))
        h._wrap.kill()
        h.call(js("b"))
    assert False
except Unsigned as e:
    assert e.told is None and "-9" in str(e), e`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, attest)
			if status, out := s.python(t, "-c", prelude+c.program, s.attest, s.self, s.dir); status != 0 {
				t.Fatalf("exit status %d\n%s", status, out)
			}
			out, err := exec.Command(s.attest, "verify", "--pub", s.path("pub"), "--expect", s.path("expected"), s.path("bundle")).CombinedOutput()
			if verified := err == nil && bytes.Contains(out, []byte("request digests: "+c.calls+"\n")); verified != (c.calls != "") {
				t.Errorf("verify: %v, want %q\n%s", err, c.calls, out)
			}
		})
	}
}

// TestProgram runs harness.py as one.
func TestProgram(t *testing.T) {
	s := newScene(t, build(t))
	for _, c := range []struct {
		name, calls string
		status      int
		want        string
	}{
		{"no JSON, and nothing runs", "{}\n{", 1, "harness: "},
		{"answered", `{"trace_id":"a","javascript":{"code":"1"}}` + "\n\n", 0, "a exit [0]\n"},
		{"a refused one", `{"trace_id":"b","javascript":{}}` + "\n" + `{"trace_id":"c","javascript":{"code":"1"}}`, 3, "2 calls"},
		{"a runner that dies", `{"trace_id":"d","javascript":{"code":"die"}}`, 1, "harness: wrap: exit status 125: "},
	} {
		if err := os.WriteFile(s.path("calls"), []byte(c.calls), 0o600); err != nil {
			t.Fatal(err)
		}
		status, out := s.python(t, "harness.py", "--key", s.path("key"), "--pub", s.path("pub"), "--bundle", s.path("bundle"),
			"--expect", s.path("expected"), "--attest", s.attest, "--calls", s.path("calls"), "--runner", s.self, fakeRunner)
		if status != c.status || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit status %d, want %d and %q\n%s", c.name, status, c.status, c.want, out)
		}
	}
}
