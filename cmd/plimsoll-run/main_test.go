//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-attest/plimsoll/internal/asuser"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// The programs under test, built static whatever the test binary is (the race
// detector makes a dynamic one, which cannot run sandboxes).
var programFile, attestFile string

// binVariable names the folder of the two where they are built already.
const binVariable = "PLIMSOLL_TEST_BIN"

func TestMain(m *testing.M) {
	if target := os.Getenv(forbidVariable); target != "" {
		withoutNamespaces(target)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir := os.Getenv(binVariable)
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "pl-bin"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		cmd := exec.Command("go", "build", "-trimpath", "-o", dir, ".", "../plimsoll-attest")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v: %s\n", err, out)
			return 1
		}
		// For gVisor's processes, which are nobody's.
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	programFile, attestFile = filepath.Join(dir, "plimsoll-run"), filepath.Join(dir, "plimsoll-attest")
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "SANDBOX_") {
			os.Unsetenv(name)
		}
	}
	return m.Run()
}

// TestOrdinaryUser: the rest again, by somebody who is not root.
func TestOrdinaryUser(t *testing.T) {
	asuser.Rerun(t, ".", 15, []string{binVariable + "=" + filepath.Dir(programFile)}, "../../testdata/seed-session")
}

// A home is a state folder of a test's own, looked at when the test ends: nothing
// of a sandbox may be left.
type home struct {
	t     *testing.T
	state string
}

func newHome(t *testing.T) *home {
	t.Helper()
	dir, err := os.MkdirTemp("", "pl")
	if err != nil {
		t.Fatal(err)
	}
	h := &home{t, filepath.Join(dir, "s")}
	t.Cleanup(func() {
		h.mustBeClean()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return h
}

// left lists the processes, mounts and files that belong to sandboxes of the home.
func (h *home) left() []string {
	var left []string
	instances, _ := filepath.Glob(filepath.Join(h.state, "i-*"))
	left = append(left, instances...)
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte(h.state)) {
			left = append(left, name+": "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, h.state) {
			left = append(left, line)
		}
	}
	return left
}

func (h *home) mustBeClean() {
	h.t.Helper()
	var left []string
	for range 100 {
		if left = h.left(); len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	h.t.Errorf("left behind: %q", left)
}

// command is plimsoll-run with these arguments, which are those of a command that
// has a state folder.
func (h *home) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{args[0], "--state", h.state}, args[1:]...)
	return exec.CommandContext(ctx, programFile, args...)
}

// A finished is what a run of the program gave.
type finished struct {
	t      *testing.T
	lines  []*runlog.Line
	stdout string
	stderr string
	status int
	err    error // of the run log
}

// run runs the program to its end.
func (h *home) run(stdin string, args ...string) *finished {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 4*time.Minute)
	defer cancel()
	return finish(h.t, h.command(ctx, args...), stdin)
}

func finish(t *testing.T, cmd *exec.Cmd, stdin string) *finished {
	t.Helper()
	var out, errOut bytes.Buffer
	if cmd.Stdout, cmd.Stderr = &out, &errOut; cmd.Stdin == nil {
		cmd.Stdin = strings.NewReader(stdin)
	}
	err := cmd.Run()
	f := &finished{t: t, stdout: out.String(), stderr: errOut.String(), status: cmd.ProcessState.ExitCode()}
	if err != nil && f.status < 0 {
		t.Fatalf("%v: %v: %s", cmd.Args, err, f.stderr)
	}
	f.lines, f.err = readLog(&out)
	return f
}

func readLog(r io.Reader) ([]*runlog.Line, error) {
	var lines []*runlog.Line
	log := runlog.NewReader(r)
	for {
		line, err := log.Next()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
}

// must has the status and a whole run log.
func (f *finished) must(status int) *finished {
	f.t.Helper()
	if f.status != status || f.err != nil {
		f.t.Fatalf("status %d, want %d; run log: %v; %s", f.status, status, f.err, f.stderr)
	}
	return f
}

// result returns the answer of the n-th line, from 1.
func (f *finished) result(n int) *record.Response {
	f.t.Helper()
	if n > len(f.lines) || f.lines[n-1].Response == nil {
		f.t.Fatalf("line %d of the log is no answer: %s", n, f.stderr)
	}
	res, err := record.ParseResponse(f.lines[n-1].Response)
	if err != nil {
		f.t.Fatal(err)
	}
	rec, err := statement.ParseRecord(f.lines[n-1].Statement)
	if err != nil || *rec != *res.Record || rec.ResultSHA256 != res.ResultDigest() {
		f.t.Fatalf("line %d: the record does not hold: %v", n, err)
	}
	return res
}

// out is what the last step or the snippet of the n-th line printed.
func (f *finished) out(n int) string {
	f.t.Helper()
	res := f.result(n)
	if res.JavaScript != nil {
		return string(res.JavaScript.Stdout)
	}
	steps := res.Project.Steps
	if len(steps) == 0 {
		return ""
	}
	return string(steps[len(steps)-1].Stdout)
}

func (f *finished) refused(n int) *runlog.Refused {
	f.t.Helper()
	if n > len(f.lines) || f.lines[n-1].Refused == nil {
		f.t.Fatalf("line %d of the log is no refusal: %s", n, f.stderr)
	}
	return f.lines[n-1].Refused
}

type object = map[string]any

func jsCall(code string) object { return object{"javascript": object{"code": code}} }

func steps(commands ...string) object { return object{"project": object{"steps": commands}} }

// calls is the input of a session.
func calls(all ...object) string {
	var b strings.Builder
	for _, c := range all {
		line, err := json.Marshal(c)
		if err != nil {
			panic(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func with(c object, name string, value any) object {
	if p, ok := c["project"].(object); ok && (name == "files" || name == "artifacts") {
		p[name] = value
		return c
	}
	c[name] = value
	return c
}

// forbidVariable has this test binary become the program it names, where no
// namespace can be made.
const forbidVariable = "PLIMSOLL_TEST_FORBID"

func withoutNamespaces(target string) {
	die := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
			os.Exit(99)
		}
	}
	die("sysctl", os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0))
	const noRoot, noRootLocked = 1, 2
	die("securebits", unix.Prctl(unix.PR_SET_SECUREBITS, noRoot|noRootLocked, 0, 0, 0))
	die("no_new_privs", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	for capability := range uintptr(64) {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) // those there are
	}
	os.Unsetenv(forbidVariable)
	die("exec", syscall.Exec(target, append([]string{target}, os.Args[1:]...), os.Environ()))
}
