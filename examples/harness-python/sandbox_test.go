//go:build linux

package harnesspython

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSandbox is the harness with the real runner: the session of the seed, outputs
// of several MiB each way, and a call that an exception of the block's own ends.
func TestSandbox(t *testing.T) {
	s := newScene(t, build(t))
	runner := filepath.Join(t.TempDir(), "plimsoll-run")
	cmd := exec.Command("go", "build", "-trimpath", "-o", runner, "../../cmd/plimsoll-run")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	status, out := s.python(t, "harness.py", "--key", s.path("key"), "--pub", s.path("pub"), "--bundle", s.path("bundle"), "--expect", s.path("expected"),
		"--attest", s.attest, "--calls", "../../testdata/seed-session/calls.jsonl", "--runner", runner, "session")
	for _, want := range []string{"call-1 exit [1]\n", "call-3 exit [0]\n", "call-5 exit [0]\n", "bundle: verified\n", "request digests: 5 calls\n"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("exit status %d, want 0 and %q\n%s", status, want, out)
		}
	}

	for _, program := range []string{`
import hashlib
with new(self, "session", "--show") as h:
    r = h.call({"trace_id": "big", "project": {
        "files": [{"path": f"f{i}", "content": "x" * 20000} for i in range(200)],
        "steps": ["cat f* | wc -c; printf '\\377\\000'", "yes | head -c 400000", "head -c 6000000 /dev/urandom > a; sha256sum a"],
        "artifacts": ["a"]}})
    first, second, third = r["steps"]
    assert first["stdout"] == b"4000000\n\xff\x00" and first["stderr"] == b"", first
    assert len(second["stdout"]) == 256 << 10 and second["stdout_truncated"], len(second["stdout"])
    content = r["artifacts"][0]["content"]
    assert len(content) == 6000000 and hashlib.sha256(content).hexdigest().encode() == third["stdout"].split()[0]
    r = h.call(dict(js("late", "setTimeout(() => {}, 60000)"), timeout_ms=500))
    assert r["steps"][0]["timed_out"] and r["steps"][0]["exit_code"] == 137, r`, `
import threading
try:
    with new(self, "session") as h:
        ended = []
        def sleep():
            try:
                h.call(dict(js("sleep", "setTimeout(() => {}, 60000)"), timeout_ms=60000))
            except Unanswered as e:
                ended.append(e.told["unanswered"])
        thread = threading.Thread(target=sleep)
        thread.start()
        thread.join(2)
        raise KeyError("mine")
except KeyError:
    thread.join()
assert ended == ["canceled"], ended`} {
		if status, out := s.python(t, "-c", prelude+program, s.attest, runner, s.dir); status != 0 {
			t.Fatalf("exit status %d\n%s", status, out)
		}
	}
	verified, err := exec.Command(s.attest, "verify", "--pub", s.path("pub"), "--expect", s.path("expected"), "--min-isolation", "container", s.path("bundle")).CombinedOutput()
	if err != nil || !strings.Contains(string(verified), "request digests: 8 calls\n") {
		t.Errorf("%v\n%s", err, verified)
	}
}

// TestSilentRunner: a runner that says nothing is killed when its time is over, and
// one that says too much is read.
func TestSilentRunner(t *testing.T) {
	s := newScene(t, build(t))
	for script, want := range map[string]string{
		"read -r call; sleep 60":                              "no answer to line 1 within 1s",
		"yes $(seq 9999) | head -c 9000000 >&2; read -r call": "the runner exited with 0",
	} {
		status, out := s.python(t, "-c", prelude+`
try:
    with Harness(dir + "/key", dir + "/bundle", dir + "/expected", attest, ("/bin/sh", "-c", self), ["--call-timeout=1s"]) as h:
        h.call(js("a"))
    assert False
except Unsigned as e:
    assert (e.told["open"]["input_line"], e.told["open"]["trace_id"]) == (1, "a"), e.told
    print("\n" + str(e))`, s.attest, script, s.dir)
		if last := out[strings.LastIndexByte(strings.TrimSuffix(out, "\n"), '\n')+1:]; status != 0 || !strings.Contains(last, want) {
			t.Errorf("exit status %d, want %q in %.1000s", status, want, last)
		}
	}
}
