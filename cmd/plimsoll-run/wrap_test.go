//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// newWrapped makes a key, and returns how to wrap something with it.
func newWrapped(t testing.TB) (dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	key, pub := filepath.Join(dir, "k"), filepath.Join(dir, "p")
	if out, err := exec.Command(attestFile, "keygen", "--key", key, "--pub", pub, "--no-passphrase").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir, []string{"wrap", "--key", key, "--bundle", filepath.Join(dir, "b.jsonl")}
}

// wrap is the command of a session, not started. Its scratch folders are in a
// folder of their own, which is empty when the test ends.
func wrap(t *testing.T, flags ...string) (dir string, cmd *exec.Cmd) {
	t.Helper()
	tmp := t.TempDir()
	dir, args := newWrapped(t)
	cmd = exec.Command(attestFile, append(append(args, flags...), "--", programFile, "session")...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	t.Cleanup(func() {
		var left []os.DirEntry
		for range 100 {
			if left, _ = os.ReadDir(tmp); len(left) == 0 {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("scratch folders are left: %v", left)
	})
	return dir, cmd
}

func mustVerify(t *testing.T, dir string, args ...string) {
	t.Helper()
	args = append(append([]string{"verify", "--pub", filepath.Join(dir, "p")}, args...), filepath.Join(dir, "b.jsonl"))
	if out, err := exec.Command(attestFile, args...).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWrapped runs the five calls with the key out of this program's reach, on the
// embedded gateway inside that view.
func TestWrapped(t *testing.T) {
	t.Parallel()
	input, ids, _ := seedSession(t)
	dir, cmd := wrap(t, "--calls", "-")
	f := finish(t, cmd, input)
	if f.status != exitDone || strings.Count(f.stdout, `"call":`) != 5 {
		t.Fatalf("status %d: %s %s", f.status, f.stdout, f.stderr)
	}
	list := filepath.Join(dir, "list")
	if err := os.WriteFile(list, []byte(strings.Join(ids, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, dir, "--expect", list, "--min-isolation", "kernel")
}

// A recordedLine is what these tests want of wrap's lines.
type recordedLine struct {
	Call *struct {
		TraceID    string `json:"trace_id"`
		Unanswered string
		Steps      []struct{ Stdout []byte }
	}
	End *struct {
		Calls, Sessions int
		Error           string
	}
}

// TestWrappedInterrupted: a signal to the signer ends the call and the session,
// and what there was is signed.
func TestWrappedInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		dir, cmd := wrap(t, "--calls", "-")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := json.NewDecoder(bufio.NewReader(out))
		next := func() (l recordedLine) {
			if err := lines.Decode(&l); err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			return l
		}
		fmt.Fprint(in, calls(with(steps("echo first"), "trace_id", "a")))
		if l := next(); l.Call == nil || l.Call.TraceID != "a" || string(l.Call.Steps[0].Stdout) != "first\n" {
			t.Fatalf("have %+v", l)
		}
		fmt.Fprint(in, calls(with(steps("sleep 1000"), "trace_id", "b"), with(steps("echo never"), "trace_id", "c")))
		time.Sleep(500 * time.Millisecond)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if l := next(); l.Call == nil || l.Call.TraceID != "b" || l.Call.Unanswered != "canceled" {
			t.Errorf("%v: have %+v", sig, l)
		}
		if l := next(); l.End == nil || l.End.Calls != 2 || l.End.Sessions != 1 || l.End.Error != "" {
			t.Errorf("%v: have %+v", sig, l.End)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitLost {
			t.Errorf("%v: status %d: %s", sig, code, stderr.String())
		}
		mustVerify(t, dir, "--expect-ids", "a,b")
	}
}

// TestSignerKilled: with the signer its runner, its sandboxes and its scratch
// folder go. What it had signed is for recover.
func TestSignerKilled(t *testing.T) {
	t.Parallel()
	_, cmd := wrap(t, "--calls", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(in, calls(steps("sleep 31415926 > /dev/null & echo")))
	if _, err := bufio.NewReader(out).ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	space := namespaceOf(t, cmd.Process.Pid)
	if len(inNamespace(space)) == 0 {
		t.Fatal("no runner is seen: nothing is shown")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for begin := time.Now(); len(inNamespace(space)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("still there: %v", inNamespace(space))
		}
	}
}

// namespaceOf returns the process namespace of the runner of a signer: that of the
// only grandchild.
func namespaceOf(t *testing.T, signer int) string {
	t.Helper()
	child := func(pid string) string {
		files, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
		for _, f := range files {
			if data, _ := os.ReadFile(f); len(bytes.Fields(data)) > 0 {
				return string(bytes.Fields(data)[0])
			}
		}
		t.Fatalf("process %s has no child", pid)
		return ""
	}
	link, err := os.Readlink("/proc/" + child(child(fmt.Sprint(signer))) + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// inNamespace returns the processes in it.
func inNamespace(space string) (list []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, f := range files {
		if link, _ := os.Readlink(f); link == space {
			list = append(list, f)
		}
	}
	return list
}

// BenchmarkWrap is the time until a runner runs: started bare, and by wrap with
// its view, its key and an empty bundle.
func BenchmarkWrap(b *testing.B) {
	started := func(b *testing.B, cmd *exec.Cmd) {
		out, err := cmd.StderrPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		b.StopTimer()
		if line != "started\n" {
			b.Fatalf("have %q", line)
		}
		_ = cmd.Wait()
	}
	runner := []string{"/bin/sh", "-c", "echo started >&2; printf '%s' '" + string(bundletest.RunLogEnd(0, 0, 0)) + "'"}
	var bare time.Duration
	b.Run("bare", func(b *testing.B) {
		for range b.N {
			b.StartTimer()
			started(b, exec.Command(runner[0], runner[1:]...))
		}
		bare = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("wrap", func(b *testing.B) {
		_, args := newWrapped(b)
		b.ResetTimer()
		for range b.N {
			b.StartTimer()
			started(b, exec.Command(attestFile, append(append(args, "--"), runner...)...))
		}
		b.ReportMetric(float64(b.Elapsed()/time.Duration(b.N)-bare)/1e6, "ms-more")
	})
}
