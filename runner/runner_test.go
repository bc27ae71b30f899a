package runner_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/gatewaytest"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/runner"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// What kind of command of the runner's a command is.
const (
	prepare = "prepare"
	sweep   = "sweep"
	receive = "receive"
	read    = "read"
	node    = "node"
	step    = "step"
)

func kindOf(c *gatewaytest.Command) string {
	argv := c.Start.Command
	text := strings.Join(argv, "\n")
	switch {
	case strings.Contains(text, "ptrace_scope"):
		return prepare
	case strings.Contains(text, "kill -9"):
		return sweep
	case strings.Contains(text, "eval"):
		return receive
	case strings.Contains(text, "exec cat"):
		return read
	case argv[len(argv)-1] == "-":
		return node
	}
	return step
}

// A guest answers commands as a sandbox would, but where the test says otherwise.
type guest struct {
	mu   sync.Mutex
	seen []string
	do   map[string]func(*gatewaytest.Command) error
}

func (g *guest) exec(c *gatewaytest.Command) error {
	kind := kindOf(c)
	g.mu.Lock()
	g.seen = append(g.seen, kind)
	do := g.do[kind]
	g.mu.Unlock()
	if do != nil {
		return do(c)
	}
	switch kind {
	case prepare:
		c.Stdout("node /usr/bin/node\nptrace 1\nprocess 1 17\n")
	case node:
		in, err := io.ReadAll(c.Stdin)
		if err != nil {
			return err
		}
		c.Stdout("ran " + string(in))
	case step:
		c.Stdout("did " + c.Start.Command[len(c.Start.Command)-1])
	}
	c.Exit(0)
	return nil
}

// commands returns the kinds of the commands so far.
func (g *guest) commands() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

func (g *guest) set(kind string, do func(*gatewaytest.Command) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.do == nil {
		g.do = make(map[string]func(*gatewaytest.Command) error)
	}
	g.do[kind] = do
}

func exits(code int32) func(*gatewaytest.Command) error {
	return func(c *gatewaytest.Command) error { c.Exit(code); return nil }
}

var policy = openshell.Policy{
	Version: 1, ReadOnly: []string{"/usr"}, ReadWrite: []string{"/dev/null", "/tmp"},
	RunAsUser: "1500", RunAsGroup: "1500",
}

// newRunner returns a runner on g whose sandboxes are all gone when the test ends.
func newRunner(t *testing.T, g *gatewaytest.Gateway, change func(*runner.Config)) *runner.Runner {
	t.Helper()
	config := runner.Config{
		Instance: "test", Image: "image@sha256:1", Environment: "docker-image:sha256:1", Policy: policy,
		Now: func() time.Time { return time.UnixMilli(1790000000000) }, Log: t.Logf,
	}
	if change != nil {
		change(&config)
	}
	r, err := runner.New(g.Client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if n := g.Sandboxes(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
	return r
}

func parse(t testing.TB, line string) *call.Call {
	t.Helper()
	c, refused := call.Parse([]byte(line))
	if refused != nil {
		t.Fatal(refused)
	}
	return c
}

const (
	snippet = `{"trace_id":"call-1","javascript":{"code":"1+1"}}`
	project = `{"trace_id":"call-2","project":{"files":[{"path":"a","content":"b"}],"steps":["s","t"],"artifacts":["a","b"]}}`
)

// checkAnswer is what a signer would ask of an answer.
func checkAnswer(t *testing.T, a *runner.Answer) {
	t.Helper()
	req, err := record.ParseRequest(a.Request)
	if err != nil {
		t.Fatal(err)
	}
	res, err := record.ParseResponse(a.Response)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := statement.ParseRecord(a.Statement)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := rec.Digest()
	if err != nil || *rec != *res.Record || rec.RecordSHA256 != digest || rec.CheckFields() != nil || rec.Version != 2 ||
		rec.RequestSHA256 != req.Digest() || rec.ResultSHA256 != res.ResultDigest() ||
		rec.Provider != res.Sandbox || rec.Isolation != res.Isolation || rec.Environment != res.Environment {
		t.Errorf("record %+v of %+v does not hold", rec, res)
	}
}

func TestRun(t *testing.T) {
	guest := &guest{}
	guest.set(read, func(c *gatewaytest.Command) error {
		if c.Start.Command[len(c.Start.Command)-1] == "a" {
			c.Stdout("content")
			c.Exit(0)
			return nil
		}
		c.Exit(72)
		return nil
	})
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	r := newRunner(t, g, nil)
	a, err := r.Run(t.Context(), parse(t, snippet))
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, a)
	if js := a.Result.JavaScript; string(js.Stdout) != "ran 1+1" || js.ExitCode != 0 || js.TimedOut {
		t.Errorf("have %+v", js)
	}
	want := record.Record{
		Version: 2, RequestSHA256: a.Record.RequestSHA256, ResultSHA256: a.Record.ResultSHA256,
		Provider: "openshell", Isolation: "container", Environment: "docker-image:sha256:1",
		Policy: "openshell-policy:sha256:" + gatewaytest.Hash, StartedUnixMS: 1790000000000,
		EndedUnixMS: a.Record.EndedUnixMS, RecordSHA256: a.Record.RecordSHA256,
	}
	if *a.Record != want || want.EndedUnixMS < want.StartedUnixMS {
		t.Errorf("have %+v, want %+v", *a.Record, want)
	}
	a, err = r.Run(t.Context(), parse(t, project))
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, a)
	p := a.Result.Project
	if len(p.Steps) != 2 || string(p.Steps[1].Stdout) != "did t" || p.Outcome != record.OutcomeCompleted ||
		len(p.Artifacts) != 1 || string(p.Artifacts[0].Content) != "content" || p.OutcomeDetail != `artifact "b": not there` {
		t.Errorf("have %+v", p)
	}
	if have := strings.Join(guest.commands(), " "); have != "prepare node prepare receive step step read read" {
		t.Errorf("commands: %s", have)
	}
}

// TestFailingStep: steps end at the first that fails, artifacts are fetched.
func TestFailingStep(t *testing.T) {
	guest := &guest{}
	guest.set(step, exits(3))
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	a, err := newRunner(t, g, nil).Run(t.Context(), parse(t, project))
	if err != nil {
		t.Fatal(err)
	}
	p := a.Result.Project
	if len(p.Steps) != 1 || p.Steps[0].ExitCode != 3 || p.Outcome != record.OutcomeCompleted || len(p.Artifacts) != 2 {
		t.Errorf("have %+v", p)
	}
}

func TestSetupFailed(t *testing.T) {
	for name, c := range map[string]struct {
		say  string
		code int32
		want string
	}{
		"named":        {"1\n", 70, `file "a" could not be written`},
		"out of range": {"2\n", 70, "the files could not be written: status 70"},
		"not a number": {"x\n", 70, "the files could not be written: status 70"},
		"cut short":    {"", 71, "the files could not be written: status 71"},
	} {
		guest := &guest{}
		guest.set(receive, func(cmd *gatewaytest.Command) error {
			cmd.Stderr(c.say)
			cmd.Exit(c.code)
			return nil
		})
		g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
		a, err := newRunner(t, g, nil).Run(t.Context(), parse(t, project))
		if err != nil {
			t.Fatal(err)
		}
		if p := a.Result.Project; p.Outcome != record.OutcomeSetupFailed || p.OutcomeDetail != c.want || len(p.Steps) > 0 {
			t.Errorf("%s: have %+v", name, p)
		}
	}
}

// TestTruncation: what is over the bound is read and thrown away, and said to be.
func TestTruncation(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	guest := &guest{}
	print := func(c *gatewaytest.Command) error {
		for range 8 {
			c.Stdout(big)
		}
		c.Stderr("e")
		c.Exit(0)
		return nil
	}
	guest.set(node, print)
	guest.set(step, print)
	guest.set(read, func(c *gatewaytest.Command) error {
		if c.Start.Command[len(c.Start.Command)-1] == "a" {
			for range 42 {
				c.Stdout(big)
			}
		}
		c.Stdout("small")
		c.Exit(0)
		return nil
	})
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	r := newRunner(t, g, nil)
	a, err := r.Run(t.Context(), parse(t, snippet))
	if err != nil {
		t.Fatal(err)
	}
	if js := a.Result.JavaScript; len(js.Stdout) != 1<<20 || !js.StdoutTruncated || string(js.Stderr) != "e" || js.StderrTruncated {
		t.Errorf("snippet: %d bytes, %v %v", len(js.Stdout), js.StdoutTruncated, js.StderrTruncated)
	}
	a, err = r.Run(t.Context(), parse(t, project))
	if err != nil {
		t.Fatal(err)
	}
	p := a.Result.Project
	if s := p.Steps[0]; len(s.Stdout) != 256<<10 || !s.StdoutTruncated || s.StderrTruncated {
		t.Errorf("step: %d bytes, %v", len(s.Stdout), s.StdoutTruncated)
	}
	if len(p.Artifacts) != 1 || p.Artifacts[0].Path != "b" || !p.ArtifactsTruncated {
		t.Errorf("artifacts: %d, %v", len(p.Artifacts), p.ArtifactsTruncated)
	}
}

// TestOwnExitCodes: a program's 124 or 137 is no time-out, and a time-out is one
// by the clock of the runner alone.
func TestOwnExitCodes(t *testing.T) {
	guest := &guest{}
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	r := newRunner(t, g, nil)
	for _, code := range []int32{1, 124, 137, 255, -1} {
		guest.set(node, exits(code))
		a, err := r.Run(t.Context(), parse(t, snippet))
		if err != nil {
			t.Fatal(err)
		}
		if js := a.Result.JavaScript; js.ExitCode != code || js.TimedOut {
			t.Errorf("exit %d: have %+v", code, js)
		}
	}
	hang := func(c *gatewaytest.Command) error {
		c.Stdout("so far")
		<-c.Context.Done()
		return c.Context.Err()
	}
	guest.set(node, hang)
	guest.set(step, hang)
	a, err := r.Run(t.Context(), parse(t, `{"timeout_ms":3000,"javascript":{"code":"1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, a)
	if js := a.Result.JavaScript; !js.TimedOut || js.ExitCode != 137 || string(js.Stdout) != "so far" {
		t.Errorf("have %+v", js)
	}
	a, err = r.Run(t.Context(), parse(t, `{"timeout_ms":3000,"project":{"steps":["s","t"],"artifacts":["a"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, a)
	if p := a.Result.Project; p.Outcome != record.OutcomeTimedOut || len(p.Steps) != 1 || !p.Steps[0].TimedOut || len(p.Artifacts) > 0 {
		t.Errorf("have %+v", p)
	}
}

// TestLies: a gateway that shows a sandbox that is not the one that was asked for
// is refused by the name of the field, and nothing runs.
func TestLies(t *testing.T) {
	unknown := func(m proto.Message) {
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
	}
	value := func(v any) *structpb.Value {
		m, err := structpb.NewValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	type gateway = gatewaytest.Gateway
	sandbox := func(f func(*pb.Sandbox)) func(*gateway) { return func(g *gateway) { g.Sandbox = f } }
	config := func(f func(*pb.GetSandboxConfigResponse)) func(*gateway) { return func(g *gateway) { g.Config = f } }
	status := func(f func(*pb.GetSandboxPolicyStatusResponse)) func(*gateway) {
		return func(g *gateway) { g.Status = f }
	}
	info := func(f func(*pb.GetGatewayInfoResponse)) func(*gateway) { return func(g *gateway) { g.Info = f } }
	for _, c := range []struct {
		field string
		lie   func(*gateway)
	}{
		{"compute_drivers: have 0", info(func(m *pb.GetGatewayInfoResponse) { m.ComputeDrivers = nil })},
		{"compute_drivers: have 2", info(func(m *pb.GetGatewayInfoResponse) {
			m.ComputeDrivers = append(m.ComputeDrivers, m.ComputeDrivers[0])
		})},
		{"compute_drivers.name", info(func(m *pb.GetGatewayInfoResponse) { m.ComputeDrivers[0].Name = "kubernetes" })},
		{"compute_drivers.name", info(func(m *pb.GetGatewayInfoResponse) {
			// Only our own gateway has this driver.
			m.ComputeDrivers[0].Name = "gvisor-local"
			m.ComputeDrivers[0].Capabilities.DriverName = "gvisor-local"
		})},
		{"driver_name", info(func(m *pb.GetGatewayInfoResponse) { m.ComputeDrivers[0].Capabilities.DriverName = "podman" })},
		{"driver_name", info(func(m *pb.GetGatewayInfoResponse) { m.ComputeDrivers[0].Capabilities = nil })},
		{"metadata.name", sandbox(func(s *pb.Sandbox) { s.Metadata.Name += "x" })},
		{"metadata.id", sandbox(func(s *pb.Sandbox) { s.Metadata.Id = "another" })},
		{"metadata.workspace", sandbox(func(s *pb.Sandbox) { s.Metadata.Workspace = "another" })},
		{"metadata.labels", sandbox(func(s *pb.Sandbox) { s.Metadata.Labels["plimsoll.instance"] = "another" })},
		{"metadata.labels", sandbox(func(s *pb.Sandbox) { s.Metadata.Labels["more"] = "" })},
		{"metadata.labels", sandbox(func(s *pb.Sandbox) { delete(s.Metadata.Labels, "plimsoll.lifetime") })},
		{"spec.template.image", sandbox(func(s *pb.Sandbox) { s.Spec.Template.Image = "another" })},
		{"spec.command", sandbox(func(s *pb.Sandbox) { s.Spec.Command = []string{"/bin/bash", "-l"} })},
		{"limits.cpu", sandbox(func(s *pb.Sandbox) {
			s.Spec.Template.Resources.Fields["limits"].GetStructValue().Fields["cpu"] = value("2")
		})},
		{"limits.memory", sandbox(func(s *pb.Sandbox) {
			delete(s.Spec.Template.Resources.Fields["limits"].GetStructValue().Fields, "memory")
		})},
		{"limits.cpu", sandbox(func(s *pb.Sandbox) { s.Spec.Template.Resources = nil })},
		{"template.resources", sandbox(func(s *pb.Sandbox) { s.Spec.Template.Resources.Fields["requests"] = value(map[string]any{"cpu": "1"}) })},
		{"template.resources", sandbox(func(s *pb.Sandbox) {
			s.Spec.Template.Resources.Fields["limits"].GetStructValue().Fields["pids"] = value("1")
		})},
		{"size of /tmp", sandbox(func(s *pb.Sandbox) { s.Spec.Template.DriverConfig = nil })},
		{"driver_config", sandbox(func(s *pb.Sandbox) {
			mounts := s.Spec.Template.DriverConfig.Fields["docker"].GetStructValue().Fields["mounts"].GetListValue()
			mounts.Values = append(mounts.Values, value(map[string]any{"type": "bind", "source": "/", "target": "/host"}))
		})},
		{"driver_config", sandbox(func(s *pb.Sandbox) { s.Spec.Template.DriverConfig.Fields["podman"] = value(map[string]any{"x": 1}) })},
		{"spec.policy.version", sandbox(func(s *pb.Sandbox) { s.Spec.Policy.Version = 2 })},
		{"spec.policy.network_policies", sandbox(func(s *pb.Sandbox) {
			s.Spec.Policy.NetworkPolicies = map[string]*pb.NetworkPolicyRule{"all": {}}
		})},
		{"spec.providers", sandbox(func(s *pb.Sandbox) { s.Spec.Providers = []string{"github"} })},
		{"spec.environment", sandbox(func(s *pb.Sandbox) { s.Spec.Environment = map[string]string{"LD_PRELOAD": "x"} })},
		{"spec.environment", sandbox(func(s *pb.Sandbox) { s.Spec.Template.Environment = map[string]string{"A": "b"} })},
		{"template.labels", sandbox(func(s *pb.Sandbox) { s.Spec.Template.Labels = map[string]string{"a": "b"} })},
		{"template.annotations", sandbox(func(s *pb.Sandbox) { s.Spec.Template.Annotations = map[string]string{"a": "b"} })},
		{"agent_socket", sandbox(func(s *pb.Sandbox) { s.Spec.Template.AgentSocket = "/run/s" })},
		{"runtime_class_name", sandbox(func(s *pb.Sandbox) { s.Spec.Template.RuntimeClassName = "runc" })},
		{"user_namespaces", sandbox(func(s *pb.Sandbox) { s.Spec.Template.UserNamespaces = proto.Bool(false) })},
		{"GPU", sandbox(func(s *pb.Sandbox) {
			s.Spec.ResourceRequirements = &pb.ResourceRequirements{Gpu: &pb.GpuResourceRequirements{}}
		})},
		{"restart_policy", sandbox(func(s *pb.Sandbox) { s.Spec.RestartPolicy = 3 })},
		{"unknown fields", sandbox(func(s *pb.Sandbox) { unknown(s.Spec) })},
		{"unknown fields", sandbox(func(s *pb.Sandbox) { unknown(s.Spec.Template) })},
		{"unknown fields", sandbox(func(s *pb.Sandbox) {
			s.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 20, protowire.BytesType), nil))
		})},
		{"configuration_admission", sandbox(func(s *pb.Sandbox) { s.Status.ConfigurationAdmission = nil })},
		{"configuration_admission", sandbox(func(s *pb.Sandbox) { s.Status.ConfigurationAdmission.State = 1 })},
		{"configuration_admission", sandbox(func(s *pb.Sandbox) { s.Status.ConfigurationAdmission.PolicyHash = strings.Repeat("0", 64) })},
		{"policy.version", config(func(m *pb.GetSandboxConfigResponse) { m.Policy = nil })},
		{"policy.version", config(func(m *pb.GetSandboxConfigResponse) { m.Policy.Version = 3 })},
		{"policy.filesystem.include_workdir", config(func(m *pb.GetSandboxConfigResponse) { m.Policy.Filesystem.IncludeWorkdir = true })},
		{"policy.filesystem.read_only", config(func(m *pb.GetSandboxConfigResponse) {
			m.Policy.Filesystem.ReadOnly = append(m.Policy.Filesystem.ReadOnly, "/root")
		})},
		{"policy.filesystem.read_write", config(func(m *pb.GetSandboxConfigResponse) {
			slices.Reverse(m.Policy.Filesystem.ReadWrite)
		})},
		{"policy.landlock.compatibility", config(func(m *pb.GetSandboxConfigResponse) {
			m.Policy.Landlock = &pb.LandlockPolicy{Compatibility: "best_effort"}
		})},
		{"policy.process.run_as_user", config(func(m *pb.GetSandboxConfigResponse) { m.Policy.Process.RunAsUser = "0" })},
		{"policy.process.run_as_group", config(func(m *pb.GetSandboxConfigResponse) { m.Policy.Process.RunAsGroup = "0" })},
		{"policy.network_policies", config(func(m *pb.GetSandboxConfigResponse) {
			m.Policy.NetworkPolicies = map[string]*pb.NetworkPolicyRule{"_provider_x": {}}
		})},
		{"policy.network_policies", config(func(m *pb.GetSandboxConfigResponse) {
			m.Policy.NetworkMiddlewares = map[string]*pb.NetworkMiddlewareConfig{"x": {}}
		})},
		{"policy.network_policies", config(func(m *pb.GetSandboxConfigResponse) { unknown(m.Policy.Process) })},
		{"workspace", config(func(m *pb.GetSandboxConfigResponse) { m.Workspace = "" })},
		{"policy_source", config(func(m *pb.GetSandboxConfigResponse) { m.PolicySource = pb.PolicySource_POLICY_SOURCE_GLOBAL })},
		{"policy_source", config(func(m *pb.GetSandboxConfigResponse) { m.PolicySource = 0 })},
		{"global_policy_version", config(func(m *pb.GetSandboxConfigResponse) { m.GlobalPolicyVersion = 1 })},
		{"supervisor_middleware_services", config(func(m *pb.GetSandboxConfigResponse) {
			m.SupervisorMiddlewareServices = []*pb.SupervisorMiddlewareService{{}}
		})},
		{"configuration_admitted", config(func(m *pb.GetSandboxConfigResponse) { m.ConfigurationAdmitted = false })},
		{"configuration_error", config(func(m *pb.GetSandboxConfigResponse) { m.ConfigurationError = "x" })},
		{"agent_policy_proposals_enabled", config(func(m *pb.GetSandboxConfigResponse) { m.Settings = nil })},
		{"agent_policy_proposals_enabled", config(func(m *pb.GetSandboxConfigResponse) {
			m.Settings["agent_policy_proposals_enabled"].Value = &pb.SettingValue{Value: &pb.SettingValue_BoolValue{BoolValue: true}}
		})},
		{"agent_policy_proposals_enabled", config(func(m *pb.GetSandboxConfigResponse) {
			m.Settings["agent_policy_proposals_enabled"].Value = &pb.SettingValue{Value: &pb.SettingValue_StringValue{StringValue: "false"}}
		})},
		{"agent_policy_proposals_enabled", config(func(m *pb.GetSandboxConfigResponse) {
			m.Settings["agent_policy_proposals_enabled"].Value = &pb.SettingValue{}
			unknown(m.Settings["agent_policy_proposals_enabled"].Value)
		})},
		{"policy_hash", config(func(m *pb.GetSandboxConfigResponse) { m.PolicyHash = "" })},
		{"policy_hash", config(func(m *pb.GetSandboxConfigResponse) { m.PolicyHash = strings.ToUpper(m.PolicyHash) + "\n" })},
		{"active_version", status(func(m *pb.GetSandboxPolicyStatusResponse) { m.ActiveVersion = 0 })},
		{"revision.version", status(func(m *pb.GetSandboxPolicyStatusResponse) { m.Revision = nil })},
		{"revision.policy_hash", status(func(m *pb.GetSandboxPolicyStatusResponse) { m.Revision.PolicyHash = "" })},
		{"revision.status", status(func(m *pb.GetSandboxPolicyStatusResponse) { m.Revision.Status = pb.PolicyStatus_POLICY_STATUS_PENDING })},
		{"revision.load_error", status(func(m *pb.GetSandboxPolicyStatusResponse) { m.Revision.LoadError = "x" })},
		{"providers attached", func(g *gateway) {
			g.Providers = func(m *pb.ListSandboxProvidersResponse) { m.Providers = []*pb.Provider{{}} }
		}},
		{"providers attached", func(g *gateway) {
			g.Providers = func(m *pb.ListSandboxProvidersResponse) { m.NextPageToken = "more" }
		}},
		{"phase", sandbox(func(s *pb.Sandbox) { s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_ERROR })},
		{"phase", sandbox(func(s *pb.Sandbox) { s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_COMPLETED })},
		{"phase", sandbox(func(s *pb.Sandbox) { s.Status.Phase = 42 })},
		{"ConfigurationInvalid", sandbox(func(s *pb.Sandbox) {
			s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_PROVISIONING
			s.Status.Conditions[0].Reason = "ConfigurationInvalid"
		})},
	} {
		guest := &guest{}
		g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
		c.lie(g)
		t.Run(c.field, func(t *testing.T) {
			r := newRunner(t, g, nil)
			errs := []error{second(r.Run(t.Context(), parse(t, snippet)))}
			if !strings.HasPrefix(c.field, "driver_config") && c.field != "size of /tmp" { // a session's /tmp is a folder
				errs = append(errs, second(r.Open(t.Context())))
			}
			for _, err := range errs {
				var refused *call.Refused
				if !errors.As(err, &refused) || !strings.Contains(refused.Detail, c.field) || refused.Code != "failed_precondition" {
					t.Errorf("have %v, want it refused for %q", err, c.field)
				}
			}
			if have := guest.commands(); len(have) > 0 {
				t.Errorf("commands were run: %q", have)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func fault(code connect.Code) error { return connect.NewError(code, errors.New("as told")) }

// TestFaults: what fails before a command was sent is refused, what fails after is
// lost, and nothing is sent twice.
func TestFaults(t *testing.T) {
	lost := func(code connect.Code) func(*gatewaytest.Command) error {
		return func(c *gatewaytest.Command) error { c.Stdout("x"); return fault(code) }
	}
	for name, c := range map[string]struct {
		fail     string // method
		code     connect.Code
		exec     map[string]func(*gatewaytest.Command) error
		refused  string // code
		detail   string
		lost     string
		commands string
	}{
		"info":                {fail: "GetGatewayInfo", code: connect.CodeUnavailable, refused: "unavailable", detail: "gateway: "},
		"info denied":         {fail: "GetGatewayInfo", code: connect.CodePermissionDenied, refused: "unavailable", detail: "permission denied"},
		"create":              {fail: "CreateSandbox", code: connect.CodeInvalidArgument, refused: "unavailable", detail: "create sandbox"},
		"create over":         {fail: "CreateSandbox", code: connect.CodeResourceExhausted, refused: "resource_exhausted", detail: "create sandbox"},
		"create exists":       {fail: "CreateSandbox", code: connect.CodeAlreadyExists, refused: "unavailable", detail: "already exists"},
		"get":                 {fail: "GetSandbox", code: connect.CodeUnavailable, refused: "unavailable", detail: "read the sandbox back"},
		"config":              {fail: "GetSandboxConfig", code: connect.CodePermissionDenied, refused: "unavailable", detail: "read the sandbox back"},
		"status":              {fail: "GetSandboxPolicyStatus", code: connect.CodeInternal, refused: "unavailable", detail: "read the sandbox back"},
		"providers":           {fail: "ListSandboxProviders", code: connect.CodeUnimplemented, refused: "unavailable", detail: "read the sandbox back"},
		"exec":                {fail: "ExecSandboxInteractive", code: connect.CodeUnavailable, refused: "unavailable", detail: "prepare sandbox"},
		"no env":              {exec: map[string]func(*gatewaytest.Command) error{prepare: exits(127)}, refused: "failed_precondition", detail: "no /usr/bin/env or /bin/sh", commands: "prepare"},
		"prepare fails":       {exec: map[string]func(*gatewaytest.Command) error{prepare: exits(1)}, refused: "failed_precondition", detail: "status 1", commands: "prepare"},
		"prepare babbles":     {exec: map[string]func(*gatewaytest.Command) error{prepare: func(c *gatewaytest.Command) error { c.Stdout("node x\n"); c.Exit(0); return nil }}, refused: "failed_precondition", detail: "unexpected line", commands: "prepare"},
		"no node":             {exec: map[string]func(*gatewaytest.Command) error{prepare: func(c *gatewaytest.Command) error { c.Stdout("ptrace 1\n"); c.Exit(0); return nil }}, refused: "failed_precondition", detail: "no node", commands: "prepare"},
		"not started":         {exec: map[string]func(*gatewaytest.Command) error{node: func(*gatewaytest.Command) error { return fault(connect.CodeFailedPrecondition) }}, refused: "unavailable", detail: "start the call", commands: "prepare node"},
		"lost":                {exec: map[string]func(*gatewaytest.Command) error{node: lost(connect.CodeUnavailable)}, lost: "(unavailable)", commands: "prepare node"},
		"lost at once":        {exec: map[string]func(*gatewaytest.Command) error{node: func(*gatewaytest.Command) error { return fault(connect.CodeUnavailable) }}, lost: "(unavailable)", commands: "prepare node"},
		"broken protocol":     {exec: map[string]func(*gatewaytest.Command) error{node: lost(connect.CodeInternal)}, lost: "(internal)", commands: "prepare node"},
		"ended without exit":  {exec: map[string]func(*gatewaytest.Command) error{node: func(c *gatewaytest.Command) error { c.Stdout("x"); return nil }}, lost: "(unavailable)", commands: "prepare node"},
		"cancelled by itself": {exec: map[string]func(*gatewaytest.Command) error{node: lost(connect.CodeCanceled)}, lost: "(unavailable)", commands: "prepare node"},
	} {
		t.Run(name, func(t *testing.T) {
			guest := &guest{do: c.exec}
			g := &gatewaytest.Gateway{Exec: guest.exec}
			if c.fail != "" {
				g.Fail = func(method string) error {
					if method == c.fail {
						return fault(c.code)
					}
					return nil
				}
			}
			r := newRunner(t, g.Start(t), nil)
			a, err := r.Run(t.Context(), parse(t, snippet))
			var refused *call.Refused
			switch {
			case a != nil:
				t.Errorf("an answer: %+v", a)
			case c.lost != "":
				if !errors.Is(err, runner.ErrLost) || !strings.Contains(err.Error(), c.lost) {
					t.Errorf("have %v, want it lost %s", err, c.lost)
				}
			case !errors.As(err, &refused) || refused.Code != c.refused || !strings.Contains(refused.Detail, c.detail) || refused.TraceID != "call-1":
				t.Errorf("have %v, want it refused: %s, %s", err, c.refused, c.detail)
			}
			if have := strings.Join(guest.commands(), " "); have != c.commands {
				t.Errorf("commands: %q, want %q", have, c.commands)
			}
		})
	}
}

// TestArtifactOfDeadSandbox: the answer of the steps is not lost with a sandbox
// that their end took down.
func TestArtifactOfDeadSandbox(t *testing.T) {
	guest := &guest{}
	guest.set(read, func(*gatewaytest.Command) error { return fault(connect.CodeFailedPrecondition) })
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	a, err := newRunner(t, g, nil).Run(t.Context(), parse(t, project))
	if err != nil {
		t.Fatal(err)
	}
	if p := a.Result.Project; len(p.Steps) != 2 || !strings.Contains(p.OutcomeDetail, "has ended") {
		t.Errorf("have %+v", p)
	}
}

// TestDeadlineWithoutProof: a time-out whose processes are not known to be gone is
// no answer.
func TestDeadlineWithoutProof(t *testing.T) {
	var deletes atomic.Int32
	guest := &guest{}
	guest.set(node, func(c *gatewaytest.Command) error { <-c.Context.Done(); return nil })
	g := &gatewaytest.Gateway{Exec: guest.exec}
	g.Fail = func(method string) error {
		if method == "DeleteSandbox" && deletes.Add(1) <= 3 {
			return fault(connect.CodeUnavailable)
		}
		return nil
	}
	r := newRunner(t, g.Start(t), nil)
	// Deleting fails three times and then works: proven, only later. The time is
	// enough to make the sandbox on a busy machine, too.
	a, err := r.Run(t.Context(), parse(t, `{"timeout_ms":3000,"javascript":{"code":"1"}}`))
	if err != nil || !a.Result.JavaScript.TimedOut || deletes.Load() < 4 {
		t.Errorf("have %+v, %v after %d deletes", a, err, deletes.Load())
	}
}

func TestCancelledCaller(t *testing.T) {
	guest := &guest{}
	started := make(chan struct{})
	guest.set(node, func(c *gatewaytest.Command) error { close(started); <-c.Context.Done(); return nil })
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	r := newRunner(t, g, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Run(ctx, parse(t, snippet))
	var refused *call.Refused
	if !errors.As(err, &refused) || refused.Code != "canceled" {
		t.Errorf("before: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := r.Run(ctx, parse(t, snippet)); !errors.Is(err, runner.ErrLost) || !errors.Is(err, context.Canceled) {
		t.Errorf("during: %v", err)
	}
}

// TestSlots: a slot is taken until the sandbox is gone, not until the answer.
func TestSlots(t *testing.T) {
	release := make(chan struct{})
	guest := &guest{}
	g := &gatewaytest.Gateway{Exec: guest.exec}
	g.Fail = func(method string) error {
		if method == "DeleteSandbox" {
			<-release
		}
		return nil
	}
	r := newRunner(t, g.Start(t), func(c *runner.Config) { c.MaxSandboxes = 1 })
	if _, err := r.Run(t.Context(), parse(t, snippet)); err != nil {
		t.Fatal(err)
	}
	var refused *call.Refused
	if _, err := r.Run(t.Context(), parse(t, snippet)); !errors.As(err, &refused) || refused.Code != "resource_exhausted" || refused.Reason != "capacity" {
		t.Errorf("have %v, want no room", err)
	}
	close(release)
	for range 200 {
		if _, err := r.Run(t.Context(), parse(t, snippet)); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the slot did not come back")
}

func TestFloorsAndRules(t *testing.T) {
	guest := &guest{}
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	r := newRunner(t, g, nil)
	for line, reason := range map[string]string{
		`{"minimum_isolation":"kernel","javascript":{"code":"1"}}`:                              "isolation",
		`{"software_rule":{"mode":"exact","identities":["x"]},"javascript":{"code":"1"}}`:       "environment",
		`{"minimum_isolation":"container","software_rule":{},"javascript":{"code":"1"}}`:        "",
		`{"minimum_isolation":"process","javascript":{"code":"1"}}`:                             "",
		`{"minimum_isolation":"vm","project":{"steps":["s"]}}`:                                  "isolation",
		`{"software_rule":{"mode":"approved","identities":["x"]},"project":{"steps":["true"]}}`: "environment",
	} {
		_, err := r.Run(t.Context(), parse(t, line))
		var refused *call.Refused
		switch {
		case reason == "" && err != nil:
			t.Errorf("%s: %v", line, err)
		case reason != "" && (!errors.As(err, &refused) || refused.Code != "failed_precondition" || refused.Reason != reason):
			t.Errorf("%s: have %v, want %s", line, err, reason)
		}
	}
}

// TestLocalDriver: our own gateway has the driver that no other is believed to
// have, and the better tier.
func TestLocalDriver(t *testing.T) {
	guest := &guest{}
	g := (&gatewaytest.Gateway{Exec: guest.exec, Driver: "gvisor-local"}).Start(t)
	r := newRunner(t, g, func(c *runner.Config) { c.Local = true })
	a, err := r.Run(t.Context(), parse(t, snippet))
	if err != nil {
		t.Fatal(err)
	}
	if a.Record.Provider != "openshell-local" || a.Record.Isolation != "kernel" {
		t.Errorf("have %+v", a.Record)
	}
}

// TestRunLog: what Serve writes is a whole run log, whatever becomes of its calls.
func TestRunLog(t *testing.T) {
	guest := &guest{}
	guest.set(step, func(c *gatewaytest.Command) error { return fault(connect.CodeUnavailable) })
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	r := newRunner(t, g, nil)
	in := strings.Join([]string{
		snippet, "", `{"trace_id":"bad","javascript":{}}`, "not json",
		strings.Repeat("x", call.MaxBytes+2),
		`{"trace_id":"lost","project":{"steps":["s"]}}`, snippet, `{"trace_id":"m","module":{}}`, snippet,
	}, "\n")
	var out bytes.Buffer
	var told []string
	if err := r.Serve(t.Context(), strings.NewReader(in), runlog.NewWriter(&out), func(o runner.Outcome) {
		told = append(told, fmt.Sprintf("%d %s", o.Line, o.TraceID))
	}); err != nil {
		t.Fatal(err)
	}
	log := runlog.NewReader(&out)
	var last string
	var sequence uint64
	var have []string
	for {
		line, err := log.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case line.Refused != nil:
			have = append(have, fmt.Sprintf("refused %d %s %s", line.Refused.Line, line.Refused.TraceID, line.Refused.Code))
		case line.End != nil:
			have = append(have, fmt.Sprintf("end %d %d %d", line.End.Calls, line.End.Refused, line.End.Sessions))
		case line.IsCall():
			rec, err := statement.ParseRecord(line.Statement)
			if err != nil {
				t.Fatal(err)
			}
			sequence++
			if rec.Sequence != sequence || rec.PreviousSHA256 != last || rec.Session == "" {
				t.Errorf("call %d: %+v does not follow %s", sequence, rec, last)
			}
			last = rec.RecordSHA256
			have = append(have, strings.TrimSpace(fmt.Sprintf("call v%d %s", rec.Version, rec.Unanswered)))
		default:
			c, err := statement.ParseClose(line.Statement)
			if err != nil || c.LastRecordSHA256 != last || c.Calls != sequence {
				t.Errorf("close %+v, %v", c, err)
			}
			have = append(have, "close")
		}
	}
	want := []string{
		"call v2", "refused 3 bad invalid_argument", "refused 4  invalid_argument", "refused 5  invalid_argument",
		"call v3 unavailable", "call v2", "refused 8 m unimplemented", "call v2", "close", "end 4 4 1",
	}
	if !slices.Equal(have, want) {
		t.Errorf("have %q\nwant %q", have, want)
	}
	if want := []string{"1 call-1", "3 bad", "4 ", "5 ", "6 lost", "7 call-1", "8 m", "9 call-1"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestRunLogWithoutSession: where no session can be had, every call is refused
// for that, and the log says so.
func TestRunLogWithoutSession(t *testing.T) {
	guest := &guest{}
	guest.set(prepare, exits(127))
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	var out bytes.Buffer
	err := newRunner(t, g, nil).Serve(t.Context(), strings.NewReader(snippet+"\nx\n"), runlog.NewWriter(&out), func(runner.Outcome) {})
	if !errors.As(err, new(*call.Refused)) {
		t.Fatalf("have %v, want a refusal", err)
	}
	for _, part := range []string{`"trace_id":"call-1","code":"failed_precondition"`, `"line":2,"trace_id":"","code":"invalid_argument"`, `{"end":{"calls":0,"refused":2,"sessions":0}}`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %s in %s", part, out.String())
		}
	}
}

// TestNoSecretInLog: the session's ID is in nothing that is written.
func TestNoSecretInLog(t *testing.T) {
	guest := &guest{}
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	var logged []string
	var mu sync.Mutex
	r := newRunner(t, g, func(c *runner.Config) {
		c.Log = func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			logged = append(logged, fmt.Sprintf(format, args...))
		}
	})
	s, err := r.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	guest.set(sweep, exits(67))
	a, err := s.Run(t.Context(), parse(t, snippet))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(t.Context(), parse(t, snippet))
	if _, closeErr := s.Close(t.Context()); closeErr != nil {
		t.Fatal(closeErr)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(logged, "\n") + err.Error() + string(a.Request) + string(a.Response) + string(a.Statement)
	if len(s.ID()) != 32 || strings.Contains(all, s.ID()) || strings.Contains(all, base64.StdEncoding.EncodeToString([]byte(s.ID()))) {
		t.Errorf("the session's ID was written")
	}
	if record.Fingerprint(s.ID()) != a.Record.Session || s.Fingerprint() != a.Record.Session {
		t.Errorf("another fingerprint")
	}
}
