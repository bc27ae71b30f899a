//go:build linux

package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/plimsoll-attest/plimsoll/internal/asuser"
	"github.com/plimsoll-attest/plimsoll/runner/local"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

func TestMain(m *testing.M) {
	local.HandOver()
	if dir := os.Getenv("PLIMSOLL_TEST_HOLD"); dir != "" {
		hold(dir)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if os.Getenv("PLIMSOLL_TEST_RUNTIME") != "" || local.CheckStatic() == nil {
		return m.Run()
	}
	// The race detector makes a dynamic program, which cannot run sandboxes.
	dir, err := os.MkdirTemp("", "pl-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "plimsoll-run")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../../cmd/plimsoll-run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v: %s\n", err, out)
		return 1
	}
	// For gVisor's processes, which are nobody's.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("PLIMSOLL_TEST_RUNTIME", program)
	return m.Run()
}

// TestOrdinaryUser: limits and namespaces are made in other ways then.
func TestOrdinaryUser(t *testing.T) {
	// The interpreter of the Python client need not be that user's to read.
	asuser.Rerun(t, ".", 30, []string{"PLIMSOLL_TEST_PYTHON="}, "testdata")
}

// A client calls a gateway the way any other program does.
type client struct {
	t    testing.TB
	http *http.Client
	base string
	gate *local.Gateway
}

var scope = &pb.WorkspaceSelector{Selection: &pb.WorkspaceSelector_Workspace{Workspace: "default"}}

// config is one for tests: a folder of its own, the runtime of the environment
// where the test binary itself is not static.
func config(t testing.TB) local.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "pl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cpus, _ := strconv.Atoi(os.Getenv("PLIMSOLL_TEST_CPUS"))
	return local.Config{
		CPUs: cpus,
		Dir:  filepath.Join(dir, "s"), Runtime: os.Getenv("PLIMSOLL_TEST_RUNTIME"),
		DebugLog: os.Getenv("PLIMSOLL_TEST_DEBUG"), NoCgroup: os.Getenv("PLIMSOLL_TEST_NOCGROUP") != "",
	}
}

func newClient(t testing.TB, config local.Config) *client {
	t.Helper()
	gate, err := local.New(config)
	if err != nil {
		t.Fatal(err)
	}
	base, httpClient := gate.Client()
	c := &client{t, httpClient, base, gate}
	t.Cleanup(func() {
		httpClient.CloseIdleConnections()
		if err := gate.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(config.Dir, "i-*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return c
}

func rpc[Res, Req any](c *client, method string, req *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	res, err := connect.NewClient[Req, Res](c.http, c.base+"/openshell.v1.OpenShell/"+method, connect.WithGRPC()).
		CallUnary(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func must[Res, Req any](c *client, method string, req *Req) *Res {
	c.t.Helper()
	res, err := rpc[Res](c, method, req)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	return res
}

var serial atomic.Int64

func policy(c *client) *pb.SandboxPolicy {
	return &pb.SandboxPolicy{
		Version:    1,
		Filesystem: &pb.FilesystemPolicy{ReadOnly: c.gate.Paths(), ReadWrite: []string{"/dev/null", "/tmp"}},
		Process:    &pb.ProcessPolicy{RunAsUser: "1500", RunAsGroup: "1500"},
	}
}

func createRequest(c *client) *pb.CreateSandboxRequest {
	return &pb.CreateSandboxRequest{
		Name: fmt.Sprintf("t-%d", serial.Add(1)), WorkspaceScope: scope,
		Spec: &pb.SandboxSpec{Policy: policy(c), Command: []string{"sleep", "2147483647"}, Template: &pb.SandboxTemplate{Image: c.gate.ImageName()}},
	}
}

func withTmpfs(req *pb.CreateSandboxRequest, size float64) *pb.CreateSandboxRequest {
	config, err := structpb.NewStruct(map[string]any{local.DriverName: map[string]any{
		"mounts": []any{map[string]any{"type": "tmpfs", "target": "/tmp", "size_bytes": size}},
	}})
	if err != nil {
		panic(err)
	}
	req.Spec.Template.DriverConfig = config
	return req
}

func withMemory(req *pb.CreateSandboxRequest, memory string) *pb.CreateSandboxRequest {
	resources, err := structpb.NewStruct(map[string]any{"limits": map[string]any{"cpu": "1", "memory": memory}})
	if err != nil {
		panic(err)
	}
	req.Spec.Template.Resources = resources
	return req
}

// box creates a sandbox and waits until it is ready.
func (c *client) box(req *pb.CreateSandboxRequest) string {
	c.t.Helper()
	must[pb.SandboxResponse](c, "CreateSandbox", req)
	c.until(req.Name, pb.SandboxPhase_SANDBOX_PHASE_READY)
	return req.Name
}

// until watches a sandbox until it has a phase, and fails at another final one.
func (c *client) until(name string, phase pb.SandboxPhase) *pb.Sandbox {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := connect.NewClient[pb.WatchSandboxRequest, pb.SandboxStreamEvent](c.http, c.base+"/openshell.v1.OpenShell/WatchSandbox", connect.WithGRPC()).
		CallServerStream(ctx, connect.NewRequest(&pb.WatchSandboxRequest{Sandbox: name, WorkspaceScope: scope, FollowStatus: true}))
	if err != nil {
		c.t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		box := stream.Msg().GetSandbox()
		if box.Status.Phase == phase {
			return box
		}
		if box.Status.Phase == pb.SandboxPhase_SANDBOX_PHASE_ERROR {
			c.t.Fatalf("%s: phase error: %s: %s", name, box.Status.Conditions[0].Reason, box.Status.Conditions[0].Message)
		}
	}
	c.t.Fatalf("%s: watch: %v", name, stream.Err())
	return nil
}

type result struct {
	code           int32
	stdout, stderr bytes.Buffer
	frame          int // the largest
	err            error
}

// exec runs a command and reads its events.
func (c *client) exec(ctx context.Context, req *pb.ExecSandboxRequest) *result {
	req.WorkspaceScope = scope
	res := &result{code: -1}
	stream, err := connect.NewClient[pb.ExecSandboxRequest, pb.ExecSandboxEvent](c.http, c.base+"/openshell.v1.OpenShell/ExecSandbox", connect.WithGRPC()).
		CallServerStream(ctx, connect.NewRequest(req))
	if err != nil {
		res.err = err
		return res
	}
	defer stream.Close()
	for stream.Receive() {
		res.take(stream.Msg())
	}
	res.err = stream.Err()
	return res
}

func (r *result) take(event *pb.ExecSandboxEvent) {
	if r.code >= 0 {
		r.err = errors.New("an event after the exit")
	}
	switch event := event.Payload.(type) {
	case *pb.ExecSandboxEvent_Stdout:
		r.frame = max(r.frame, len(event.Stdout.Data))
		r.stdout.Write(event.Stdout.Data)
	case *pb.ExecSandboxEvent_Stderr:
		r.frame = max(r.frame, len(event.Stderr.Data))
		r.stderr.Write(event.Stderr.Data)
	case *pb.ExecSandboxEvent_Exit:
		r.code = event.Exit.ExitCode
	}
}

// interactive runs a command with input and ends the input.
func (c *client) interactive(ctx context.Context, req *pb.ExecSandboxRequest, stdin io.Reader) *result {
	req.WorkspaceScope = scope
	res := &result{code: -1}
	stream := connect.NewClient[pb.ExecSandboxInput, pb.ExecSandboxEvent](c.http, c.base+"/openshell.v1.OpenShell/ExecSandboxInteractive", connect.WithGRPC()).CallBidiStream(ctx)
	if err := stream.Send(&pb.ExecSandboxInput{Payload: &pb.ExecSandboxInput_Start{Start: req}}); err != nil {
		res.err = err
		return res
	}
	go func() {
		buf := make([]byte, 256<<10)
		for {
			n, err := stdin.Read(buf)
			if n > 0 && stream.Send(&pb.ExecSandboxInput{Payload: &pb.ExecSandboxInput_Stdin{Stdin: buf[:n]}}) != nil {
				return
			}
			if err != nil {
				_ = stream.CloseRequest()
				return
			}
		}
	}()
	for {
		event, err := stream.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				res.err = err
			}
			_ = stream.CloseResponse()
			return res
		}
		res.take(event)
	}
}

// sh runs a shell command and returns its output and exit code.
func (c *client) sh(name, script string) (string, int32) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res := c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", script}})
	if res.err != nil {
		c.t.Fatalf("%s: %v", script, res.err)
	}
	return res.stdout.String() + res.stderr.String(), res.code
}

func (c *client) want(name, script, output string, code int32) {
	c.t.Helper()
	if have, haveCode := c.sh(name, script); strings.TrimSpace(have) != output || haveCode != code {
		c.t.Errorf("%s: have %q and %d, want %q and %d", script, have, haveCode, output, code)
	}
}

func (c *client) delete(name string) {
	c.t.Helper()
	res := must[pb.DeleteSandboxResponse](c, "DeleteSandbox", &pb.DeleteSandboxRequest{Name: name, WorkspaceScope: scope})
	if res.Outcome != pb.DeletionOutcome_DELETION_OUTCOME_COMPLETED {
		c.t.Errorf("delete: outcome %v", res.Outcome)
	}
}

func TestExec(t *testing.T) {
	c := newClient(t, config(t))
	begin := time.Now()
	name := c.box(createRequest(c))
	t.Logf("create to ready: %v", time.Since(begin))
	ctx := t.Context()
	for _, tc := range []struct {
		name           string
		req            *pb.ExecSandboxRequest
		stdout, stderr string
		code           int32
	}{
		{"true", &pb.ExecSandboxRequest{Command: []string{"/bin/true"}}, "", "", 0},
		{"by PATH", &pb.ExecSandboxRequest{Command: []string{"echo", "hi"}}, "hi\n", "", 0},
		{"code", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "exit 42"}}, "", "", 42},
		{"own 124", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "exit 124"}}, "", "", 124},
		{"own 137", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "exit 137"}}, "", "", 137},
		{"signal", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "kill -9 $$"}}, "", "", 137},
		{"term", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "kill $$"}}, "", "", 143},
		{"both streams", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "echo out; echo err >&2"}}, "out\n", "err\n", 0},
		{"stdin", &pb.ExecSandboxRequest{Command: []string{"/bin/cat"}, Stdin: []byte("in\x00\xff")}, "in\x00\xff", "", 0},
		{"no stdin", &pb.ExecSandboxRequest{Command: []string{"/bin/cat"}}, "", "", 0},
		{"workdir", &pb.ExecSandboxRequest{Command: []string{"/bin/pwd"}, Workdir: "/usr/bin"}, "/usr/bin\n", "", 0},
		{"default workdir", &pb.ExecSandboxRequest{Command: []string{"/bin/pwd"}}, "/tmp\n", "", 0},
		{"missing workdir", &pb.ExecSandboxRequest{Command: []string{"/bin/pwd"}, Workdir: "/nope"}, "", "/nope: no such file or directory\n", 1},
		{"missing program", &pb.ExecSandboxRequest{Command: []string{"/nope"}}, "", "/nope: no such file or directory\n", 127},
		{"missing by PATH", &pb.ExecSandboxRequest{Command: []string{"nope"}}, "", "nope: no such file or directory\n", 127},
		{"not executable", &pb.ExecSandboxRequest{Command: []string{"/etc/passwd"}}, "", "/etc/passwd: permission denied\n", 126},
		{"a folder", &pb.ExecSandboxRequest{Command: []string{"/etc"}}, "", "/etc: permission denied\n", 126},
		{"environment", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "env | grep -v -e PWD -e SHLVL -e ^_= | sort"}, Environment: map[string]string{"A": "b c"}}, "A=b c\nHOME=/tmp\nOPENSHELL_SANDBOX=1\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nTERM=xterm\nUSER=sandbox\n", "", 0},
		{"timeout", &pb.ExecSandboxRequest{Command: []string{"/bin/sh", "-c", "echo a; sleep 600"}, ExecutionTimeout: durationpb.New(300 * time.Millisecond)}, "a\n", "", 124},
		{"random bytes", &pb.ExecSandboxRequest{Command: []string{"/usr/bin/printf", `\377\000\303`}}, "\xff\x00\xc3", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.req.Sandbox = name
			res := c.exec(ctx, tc.req)
			if res.err != nil {
				t.Fatal(res.err)
			}
			if res.code != tc.code || res.stdout.String() != tc.stdout || res.stderr.String() != tc.stderr {
				t.Errorf("have %d %q %q, want %d %q %q", res.code, res.stdout.String(), res.stderr.String(), tc.code, tc.stdout, tc.stderr)
			}
		})
	}
	begin = time.Now()
	c.delete(name)
	t.Logf("delete: %v", time.Since(begin))
	if _, err := rpc[pb.SandboxResponse](c, "GetSandbox", &pb.GetSandboxRequest{Name: name, WorkspaceScope: scope}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("get after delete: %v", err)
	}
}
