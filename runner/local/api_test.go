//go:build linux

package local_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/plimsoll-attest/plimsoll/runner/local"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

func TestInfo(t *testing.T) {
	c := newClient(t, config(t))
	if h := must[pb.HealthResponse](c, "Health", &pb.HealthRequest{}); h.Version != local.Version || h.Status != pb.ServiceStatus_SERVICE_STATUS_HEALTHY {
		t.Errorf("health: %v", h)
	}
	info := must[pb.GetGatewayInfoResponse](c, "GetGatewayInfo", &pb.GetGatewayInfoRequest{})
	if len(info.ComputeDrivers) != 1 || info.ComputeDrivers[0].Name != local.DriverName || info.ComputeDrivers[0].Capabilities.DriverName != local.DriverName {
		t.Errorf("info: %v", info)
	}
	if u := must[pb.GetCurrentUserResponse](c, "GetCurrentUser", &pb.GetCurrentUserRequest{}); u.Subject != "unauthenticated-local-dev" {
		t.Errorf("user: %v", u)
	}
	settings := must[pb.GetGatewayConfigResponse](c, "GetGatewayConfig", &pb.GetGatewayConfigRequest{}).Settings
	if s, ok := settings["agent_policy_proposals_enabled"]; !ok || s.Value != nil {
		t.Errorf("settings: %v", settings)
	}
	for _, method := range []string{"UpdateConfig", "CreateSshSession", "AttachSandboxProvider"} {
		if _, err := rpc[pb.HealthResponse](c, method, &pb.HealthRequest{}); connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
	// Not gRPC: what a page in a browser could send.
	res, err := c.http.Post(c.base+"/openshell.v1.OpenShell/Health", "text/plain", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("plain text: status %d", res.StatusCode)
	}
}

// What the mount table cannot enforce exactly, or the driver does not have, is
// refused by name before anything is made.
func TestRefusedSpecs(t *testing.T) {
	c := newClient(t, config(t))
	object := func(v map[string]any) *structpb.Struct {
		s, err := structpb.NewStruct(v)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mount := func(v map[string]any) *structpb.Struct {
		return object(map[string]any{local.DriverName: map[string]any{"mounts": []any{v}}})
	}
	spec := func(f func(*pb.SandboxSpec)) func(*pb.CreateSandboxRequest) {
		return func(r *pb.CreateSandboxRequest) { f(r.Spec) }
	}
	pol := func(f func(*pb.SandboxPolicy)) func(*pb.CreateSandboxRequest) {
		return func(r *pb.CreateSandboxRequest) { f(r.Spec.Policy) }
	}
	template := func(f func(*pb.SandboxTemplate)) func(*pb.CreateSandboxRequest) {
		return func(r *pb.CreateSandboxRequest) { f(r.Spec.Template) }
	}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 1)
	for _, tc := range []struct {
		name   string
		change func(*pb.CreateSandboxRequest)
		code   connect.Code
		want   string
	}{
		{"no workspace", func(r *pb.CreateSandboxRequest) { r.WorkspaceScope = nil }, connect.CodeInvalidArgument, "workspace_scope"},
		{"other workspace", func(r *pb.CreateSandboxRequest) {
			r.WorkspaceScope = &pb.WorkspaceSelector{Selection: &pb.WorkspaceSelector_Workspace{Workspace: "x"}}
		}, connect.CodeNotFound, "workspace"},
		{"all workspaces", func(r *pb.CreateSandboxRequest) {
			r.WorkspaceScope = &pb.WorkspaceSelector{Selection: &pb.WorkspaceSelector_AllWorkspaces{AllWorkspaces: &pb.AllWorkspaces{}}}
		}, connect.CodeInvalidArgument, "workspace_scope"},
		{"long name", func(r *pb.CreateSandboxRequest) { r.Name = "a2345678901234567890" }, connect.CodeInvalidArgument, "name"},
		{"name with dots", func(r *pb.CreateSandboxRequest) { r.Name = "../x" }, connect.CodeInvalidArgument, "name"},
		{"double hyphen", func(r *pb.CreateSandboxRequest) { r.Name = "a--b" }, connect.CodeInvalidArgument, "name"},
		{"label key", func(r *pb.CreateSandboxRequest) { r.Labels = map[string]string{"-a": "b"} }, connect.CodeInvalidArgument, "label"},
		{"label value", func(r *pb.CreateSandboxRequest) { r.Labels = map[string]string{"a": "b c"} }, connect.CodeInvalidArgument, "label"},
		{"annotations", func(r *pb.CreateSandboxRequest) { r.Annotations = map[string]string{"a": "b"} }, connect.CodeInvalidArgument, "annotations"},
		{"workload template", func(r *pb.CreateSandboxRequest) { r.WorkloadTemplate = "x" }, connect.CodeInvalidArgument, "workload_template"},
		{"unknown field", func(r *pb.CreateSandboxRequest) { r.ProtoReflect().SetUnknown(unknown) }, connect.CodeInvalidArgument, "does not know"},
		{"environment", spec(func(s *pb.SandboxSpec) { s.Environment = map[string]string{"A": "b"} }), connect.CodeInvalidArgument, "spec.environment"},
		{"providers", spec(func(s *pb.SandboxSpec) { s.Providers = []string{"x"} }), connect.CodeInvalidArgument, "spec.providers"},
		{"gpu", spec(func(s *pb.SandboxSpec) { s.ResourceRequirements = &pb.ResourceRequirements{} }), connect.CodeFailedPrecondition, "resource_requirements"},
		{"restart", spec(func(s *pb.SandboxSpec) { s.RestartPolicy = 3 }), connect.CodeInvalidArgument, "restart_policy"},
		{"runtime class", template(func(s *pb.SandboxTemplate) { s.RuntimeClassName = "x" }), connect.CodeFailedPrecondition, "runtime_class_name"},
		{"agent socket", template(func(s *pb.SandboxTemplate) { s.AgentSocket = "x" }), connect.CodeFailedPrecondition, "agent_socket"},
		{"user namespaces", template(func(s *pb.SandboxTemplate) { s.UserNamespaces = proto.Bool(false) }), connect.CodeFailedPrecondition, "user_namespaces"},
		{"platform labels", template(func(s *pb.SandboxTemplate) { s.Labels = map[string]string{"a": "b"} }), connect.CodeInvalidArgument, "template.labels"},
		{"platform environment", template(func(s *pb.SandboxTemplate) { s.Environment = map[string]string{"a": "b"} }), connect.CodeInvalidArgument, "template.environment"},
		{"image", template(func(s *pb.SandboxTemplate) { s.Image = "ubuntu" }), connect.CodeFailedPrecondition, "template.image"},
		{"requests", template(func(s *pb.SandboxTemplate) {
			s.Resources = object(map[string]any{"requests": map[string]any{"cpu": "1"}})
		}), connect.CodeFailedPrecondition, "resources.requests"},
		{"half a CPU", template(func(s *pb.SandboxTemplate) {
			s.Resources = object(map[string]any{"limits": map[string]any{"cpu": "500m"}})
		}), connect.CodeInvalidArgument, "limits.cpu"},
		{"memory unit", template(func(s *pb.SandboxTemplate) {
			s.Resources = object(map[string]any{"limits": map[string]any{"memory": "256MB"}})
		}), connect.CodeInvalidArgument, "limits.memory"},
		{"little memory", template(func(s *pb.SandboxTemplate) {
			s.Resources = object(map[string]any{"limits": map[string]any{"memory": "1Mi"}})
		}), connect.CodeInvalidArgument, "limits.memory"},
		{"bind mount", template(func(s *pb.SandboxTemplate) {
			s.DriverConfig = mount(map[string]any{"type": "bind", "target": "/tmp", "source": "/"})
		}), connect.CodeInvalidArgument, "driver_config"},
		{"tmpfs elsewhere", template(func(s *pb.SandboxTemplate) {
			s.DriverConfig = mount(map[string]any{"type": "tmpfs", "target": "/usr", "size_bytes": 1 << 20})
		}), connect.CodeInvalidArgument, "driver_config"},
		{"tmpfs without size", template(func(s *pb.SandboxTemplate) {
			s.DriverConfig = mount(map[string]any{"type": "tmpfs", "target": "/tmp"})
		}), connect.CodeInvalidArgument, "driver_config"},
		{"other driver", template(func(s *pb.SandboxTemplate) {
			s.DriverConfig = object(map[string]any{"podman": map[string]any{}})
		}), connect.CodeInvalidArgument, "driver_config"},
		{"policy version", pol(func(p *pb.SandboxPolicy) { p.Version = 2 }), connect.CodeInvalidArgument, "policy.version"},
		{"network rule", pol(func(p *pb.SandboxPolicy) {
			p.NetworkPolicies = map[string]*pb.NetworkPolicyRule{"a": {}}
		}), connect.CodeInvalidArgument, "network_policies"},
		{"middleware", pol(func(p *pb.SandboxPolicy) {
			p.NetworkMiddlewares = map[string]*pb.NetworkMiddlewareConfig{"a": {}}
		}), connect.CodeInvalidArgument, "network_middlewares"},
		{"workdir", pol(func(p *pb.SandboxPolicy) { p.Filesystem.IncludeWorkdir = true }), connect.CodeInvalidArgument, "include_workdir"},
		{"no filesystem", pol(func(p *pb.SandboxPolicy) { p.Filesystem = nil }), connect.CodeInvalidArgument, "policy.filesystem"},
		{"writable /usr", pol(func(p *pb.SandboxPolicy) { p.Filesystem.ReadWrite = []string{"/dev/null", "/tmp", "/usr"} }), connect.CodeInvalidArgument, "read_write"},
		{"/tmp not writable", pol(func(p *pb.SandboxPolicy) { p.Filesystem.ReadWrite = []string{"/dev/null"} }), connect.CodeInvalidArgument, "read_write"},
		{"readable /home", pol(func(p *pb.SandboxPolicy) { p.Filesystem.ReadOnly = append(p.Filesystem.ReadOnly, "/home") }), connect.CodeInvalidArgument, "/home"},
		{"readable /usr/bin", pol(func(p *pb.SandboxPolicy) { p.Filesystem.ReadOnly = append(p.Filesystem.ReadOnly, "/usr/bin") }), connect.CodeInvalidArgument, "/usr/bin"},
		{"twice", pol(func(p *pb.SandboxPolicy) { p.Filesystem.ReadOnly = append(p.Filesystem.ReadOnly, "/usr") }), connect.CodeInvalidArgument, "twice"},
		{"without /proc", pol(func(p *pb.SandboxPolicy) { p.Filesystem.ReadOnly = []string{"/dev/urandom", "/usr"} }), connect.CodeInvalidArgument, "/proc"},
		{"Landlock", pol(func(p *pb.SandboxPolicy) {
			p.Landlock = &pb.LandlockPolicy{Compatibility: "hard_requirement"}
		}), connect.CodeInvalidArgument, "landlock"},
		{"user", pol(func(p *pb.SandboxPolicy) { p.Process.RunAsUser = "0" }), connect.CodeInvalidArgument, "run_as_user"},
		{"user by name", pol(func(p *pb.SandboxPolicy) { p.Process.RunAsUser = "sandbox" }), connect.CodeInvalidArgument, "run_as_user"},
		{"group", pol(func(p *pb.SandboxPolicy) { p.Process.RunAsGroup = "" }), connect.CodeInvalidArgument, "run_as_group"},
		{"unknown in the policy", pol(func(p *pb.SandboxPolicy) { p.Filesystem.ProtoReflect().SetUnknown(unknown) }), connect.CodeInvalidArgument, "does not know"},
	} {
		req := createRequest(c)
		tc.change(req)
		_, err := rpc[pb.SandboxResponse](c, "CreateSandbox", req)
		if connect.CodeOf(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: have %v, want %v with %q", tc.name, err, tc.code, tc.want)
		}
	}
	if list := must[pb.ListSandboxesResponse](c, "ListSandboxes", &pb.ListSandboxesRequest{WorkspaceScope: scope}); len(list.Sandboxes) > 0 {
		t.Errorf("%d sandboxes were made", len(list.Sandboxes))
	}
}

func TestRefusedExecs(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	for _, tc := range []struct {
		name string
		req  *pb.ExecSandboxRequest
		code connect.Code
	}{
		{"unknown sandbox", &pb.ExecSandboxRequest{Sandbox: "x", Command: []string{"/bin/true"}}, connect.CodeNotFound},
		{"no command", &pb.ExecSandboxRequest{}, connect.CodeInvalidArgument},
		{"empty program", &pb.ExecSandboxRequest{Command: []string{""}}, connect.CodeInvalidArgument},
		{"NUL", &pb.ExecSandboxRequest{Command: []string{"/bin/echo", "a\x00b"}}, connect.CodeInvalidArgument},
		{"long argument", &pb.ExecSandboxRequest{Command: []string{"/bin/echo", strings.Repeat("a", 32<<10+1)}}, connect.CodeInvalidArgument},
		{"many arguments", &pb.ExecSandboxRequest{Command: make([]string, 1025)}, connect.CodeInvalidArgument},
		{"relative workdir", &pb.ExecSandboxRequest{Command: []string{"/bin/true"}, Workdir: "tmp"}, connect.CodeInvalidArgument},
		{"terminal", &pb.ExecSandboxRequest{Command: []string{"/bin/true"}, Tty: true}, connect.CodeInvalidArgument},
		{"reserved variable", &pb.ExecSandboxRequest{Command: []string{"/bin/true"}, Environment: map[string]string{"OPENSHELL_SANDBOX": "0"}}, connect.CodeInvalidArgument},
		{"variable's name", &pb.ExecSandboxRequest{Command: []string{"/bin/true"}, Environment: map[string]string{"A B": ""}}, connect.CodeInvalidArgument},
		{"too large", &pb.ExecSandboxRequest{Command: []string{"/bin/cat"}, Stdin: make([]byte, 1<<20)}, connect.CodeResourceExhausted},
	} {
		if tc.req.Sandbox == "" {
			tc.req.Sandbox = name
		}
		if res := c.exec(t.Context(), tc.req); connect.CodeOf(res.err) != tc.code {
			t.Errorf("%s: have %v, want %v", tc.name, res.err, tc.code)
		}
	}
	args := append([]string{"/bin/echo"}, strings.Fields(strings.Repeat(strings.Repeat("a", 30<<10)+" ", 20))...)
	if res := c.exec(t.Context(), &pb.ExecSandboxRequest{Sandbox: name, Command: args}); res.err != nil || res.code != 0 || res.stdout.Len() != 20*(30<<10+1) {
		t.Errorf("600 KiB of arguments: %d, %d bytes, %v, %s", res.code, res.stdout.Len(), res.err, res.stderr.String())
	}
}

func TestListAndReadBack(t *testing.T) {
	c := newClient(t, config(t))
	var names []string
	for i := range 5 {
		req := createRequest(c)
		req.Labels = map[string]string{"plimsoll.dev/kind": "test", "n": fmt.Sprint(i % 2), "empty": ""}
		must[pb.SandboxResponse](c, "CreateSandbox", req)
		names = append(names, req.Name)
	}
	if _, err := rpc[pb.SandboxResponse](c, "CreateSandbox", &pb.CreateSandboxRequest{Name: names[0], WorkspaceScope: scope}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("same name: %v", err)
	}
	var seen []string
	for token := ""; ; {
		page := must[pb.ListSandboxesResponse](c, "ListSandboxes", &pb.ListSandboxesRequest{WorkspaceScope: scope, PageSize: 2, PageToken: token, LabelSelector: " plimsoll.dev/kind=test , empty="})
		for _, box := range page.Sandboxes {
			seen = append(seen, box.Metadata.Name)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if strings.Join(seen, " ") != strings.Join(names, " ") {
		t.Errorf("have %q, want %q", seen, names)
	}
	if page := must[pb.ListSandboxesResponse](c, "ListSandboxes", &pb.ListSandboxesRequest{WorkspaceScope: scope, LabelSelector: "n=1"}); len(page.Sandboxes) != 2 {
		t.Errorf("n=1: %d sandboxes", len(page.Sandboxes))
	}
	for _, selector := range []string{"n!=1", "n", "n in (1)", "=1"} {
		if _, err := rpc[pb.ListSandboxesResponse](c, "ListSandboxes", &pb.ListSandboxesRequest{WorkspaceScope: scope, LabelSelector: selector}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("selector %q: %v", selector, err)
		}
	}

	box := c.until(names[0], pb.SandboxPhase_SANDBOX_PHASE_READY)
	conf := must[pb.GetSandboxConfigResponse](c, "GetSandboxConfig", &pb.GetSandboxConfigRequest{Name: names[0], WorkspaceScope: scope})
	status := must[pb.GetSandboxPolicyStatusResponse](c, "GetSandboxPolicyStatus", &pb.GetSandboxPolicyStatusRequest{Sandbox: names[0], WorkspaceScope: scope})
	want := policy(c)
	if !proto.Equal(conf.Policy, want) || !proto.Equal(box.Spec.Policy, want) || !proto.Equal(status.Revision.Policy, want) {
		t.Error("another policy is read back")
	}
	if len(conf.PolicyHash) != 64 || conf.PolicyHash != status.Revision.PolicyHash || conf.PolicyHash != box.Status.ConfigurationAdmission.PolicyHash ||
		!conf.ConfigurationAdmitted || conf.PolicySource != pb.PolicySource_POLICY_SOURCE_SANDBOX || conf.Version != 1 || status.ActiveVersion != 1 ||
		status.Revision.Status != pb.PolicyStatus_POLICY_STATUS_LOADED || conf.ConfigurationInstanceId != box.Status.MainProcessInstanceId {
		t.Errorf("read back: %v, %v", conf, status)
	}
	if s, ok := conf.Settings["agent_policy_proposals_enabled"]; !ok || s.Value != nil {
		t.Errorf("settings: %v", conf.Settings)
	}
	if p := must[pb.ListSandboxProvidersResponse](c, "ListSandboxProviders", &pb.ListSandboxProvidersRequest{Sandbox: names[0], WorkspaceScope: scope}); len(p.Providers) > 0 {
		t.Error("providers")
	}
	// Deleted at once, whatever they are doing, by several at a time.
	done := make(chan bool)
	for _, name := range append(names, names[1:]...) {
		go func() {
			_, err := rpc[pb.DeleteSandboxResponse](c, "DeleteSandbox", &pb.DeleteSandboxRequest{Name: name, WorkspaceScope: scope, AllowMissing: true})
			if err != nil {
				t.Error(err)
			}
			done <- true
		}()
	}
	for range 9 {
		<-done
	}
	res := must[pb.DeleteSandboxResponse](c, "DeleteSandbox", &pb.DeleteSandboxRequest{Name: names[0], WorkspaceScope: scope, AllowMissing: true})
	if res.Outcome != pb.DeletionOutcome_DELETION_OUTCOME_ALREADY_ABSENT {
		t.Errorf("outcome %v", res.Outcome)
	}
	if _, err := rpc[pb.DeleteSandboxResponse](c, "DeleteSandbox", &pb.DeleteSandboxRequest{Name: names[0], WorkspaceScope: scope}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("second delete: %v", err)
	}
}

// Only what a policy names is there.
func TestPolicyIsTheMountTable(t *testing.T) {
	c := newClient(t, config(t))
	req := createRequest(c)
	var read []string
	for _, path := range req.Spec.Policy.Filesystem.ReadOnly {
		if path != "/etc" && path != "/sbin" {
			read = append(read, path)
		}
	}
	req.Spec.Policy.Filesystem.ReadOnly = read
	name := c.box(req)
	c.want(name, "ls -d /etc /sbin 2>/dev/null; ls -d /usr", "/usr", 0)
}

// A request without input is small; what it would take to decode a larger one is
// not spent.
func TestHugeRequest(t *testing.T) {
	c := newClient(t, config(t))
	req := createRequest(c)
	req.Labels = map[string]string{"a": strings.Repeat("b", 100<<10)}
	if _, err := rpc[pb.SandboxResponse](c, "CreateSandbox", req); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("have %v", err)
	}
}

// Deleting a sandbox while a command runs ends the command without an exit.
func TestDeleteUnderExec(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	result := make(chan *result)
	go func() {
		result <- c.exec(context.Background(), &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sleep", "600"}})
	}()
	time.Sleep(300 * time.Millisecond)
	c.delete(name)
	if res := <-result; res.code != -1 || connect.CodeOf(res.err) != connect.CodeUnavailable {
		t.Errorf("code %d, %v", res.code, res.err)
	}
}

// A cancelled fork bomb is over, by its end or by its sandbox's.
func TestCancelForkBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	c := newClient(t, config(t))
	for _, script := range []string{
		`perl -e 'for (1..5000) { my $p = fork(); if (defined $p && $p == 0) { sleep 600; exit } } sleep 600'`,
		`perl -e 'while (1) { fork() }'`,
		`b() { b | b & }; b; sleep 600`,
	} {
		name := c.box(withMemory(createRequest(c), "2Gi"))
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", script}})
		cancel()
		for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				t.Errorf("%s: not over", script)
				break
			}
			box := must[pb.SandboxResponse](c, "GetSandbox", &pb.GetSandboxRequest{Name: name, WorkspaceScope: scope}).Sandbox
			if box.Status.Phase != pb.SandboxPhase_SANDBOX_PHASE_READY {
				t.Logf("%s: the sandbox ended after %v: %s", script, time.Since(begin), box.Status.Conditions[0].Reason)
				break
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			res := c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", "ls -d /proc/[0-9]* | wc -l"}})
			cancel()
			if out := strings.TrimSpace(res.stdout.String()); res.err == nil && (out == "3" || out == "4") {
				t.Logf("%s: over after %v", script, time.Since(begin))
				break
			}
		}
		c.delete(name)
	}
}
