// Package gatewaytest is a gateway for tests: it serves the OpenShell API, dialect
// B, over real handlers on a loopback port, keeps its sandboxes in memory, and
// lies and fails as it is told to.
package gatewaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/plimsoll-attest/plimsoll/runner/openshell"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// A Command is one exec, as the gateway sees it.
type Command struct {
	Context context.Context
	Start   *pb.ExecSandboxRequest
	// Stdin reads the input to its end.
	Stdin io.Reader
	// Stdout and Stderr send a piece of output; Exit sends the exit event. Without
	// it the stream ends with what the function returns, nil being no error.
	Stdout, Stderr func(string)
	Exit           func(code int32)
}

// A Gateway is scripted by its fields. They must not be changed while it is used,
// but from within its own functions; those may be called concurrently.
type Gateway struct {
	Version string
	Driver  string
	// Exec answers every command.
	Exec func(*Command) error
	// Fail is asked before each method is carried out, by its name; what it returns
	// is the answer.
	Fail func(method string) error
	// The others change an answer before it is sent.
	Info      func(*pb.GetGatewayInfoResponse)
	Sandbox   func(*pb.Sandbox)
	Config    func(*pb.GetSandboxConfigResponse)
	Status    func(*pb.GetSandboxPolicyStatusResponse)
	Providers func(*pb.ListSandboxProvidersResponse)
	Delete    func(*pb.DeleteSandboxResponse)
	PageSize  int

	URL string

	mu        sync.Mutex
	sandboxes map[string]*pb.Sandbox
	made      int
	deleted   []string
	calls     map[string]int
}

// Hash is the digest of every policy here.
const Hash = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// Start serves g until the end of the test.
func (g *Gateway) Start(t testing.TB) *Gateway {
	t.Helper()
	if g.Version == "" {
		g.Version = "0.1.5"
	}
	if g.Driver == "" {
		g.Driver = "docker"
	}
	g.sandboxes = make(map[string]*pb.Sandbox)
	g.calls = make(map[string]int)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: g.handler(), Protocols: protocols, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	g.URL = "http://" + listener.Addr().String()
	return g
}

// Client opens a client of the gateway.
func (g *Gateway) Client(t testing.TB) openshell.Gateway {
	t.Helper()
	hc, err := openshell.HTTPClient(g.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hc.CloseIdleConnections)
	c, err := openshell.Open(t.Context(), g.URL, hc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Sandboxes counts the sandboxes that are there.
func (g *Gateway) Sandboxes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sandboxes)
}

// Deleted lists the names of the sandboxes that were deleted.
func (g *Gateway) Deleted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.deleted...)
}

// Calls counts the calls of a method.
func (g *Gateway) Calls(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[method]
}

// Update changes a sandbox that is there, for example its phase.
func (g *Gateway) Update(change func(*pb.Sandbox)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.sandboxes {
		change(s)
	}
}

func (g *Gateway) handler() http.Handler {
	mux := http.NewServeMux()
	handle(mux, g, "Health", func(*pb.HealthRequest) (*pb.HealthResponse, error) {
		return &pb.HealthResponse{Status: pb.ServiceStatus_SERVICE_STATUS_HEALTHY, Version: g.Version}, nil
	})
	handle(mux, g, "GetGatewayInfo", func(*pb.GetGatewayInfoRequest) (*pb.GetGatewayInfoResponse, error) {
		m := &pb.GetGatewayInfoResponse{GatewayVersion: g.Version, ComputeDrivers: []*pb.ComputeDriverInfo{{
			Name: g.Driver, Capabilities: &pb.ComputeDriverCapabilities{DriverName: g.Driver, DriverVersion: "1"},
		}}}
		change(g.Info, m)
		return m, nil
	})
	handle(mux, g, "CreateSandbox", g.create)
	handle(mux, g, "GetSandbox", func(r *pb.GetSandboxRequest) (*pb.SandboxResponse, error) {
		return g.find(r.Name, r.WorkspaceScope, nil)
	})
	handle(mux, g, "ListSandboxes", g.list)
	handle(mux, g, "DeleteSandbox", g.remove)
	handle(mux, g, "StopSandbox", func(r *pb.StopSandboxRequest) (*pb.SandboxResponse, error) {
		return g.find(r.Name, r.WorkspaceScope, func(s *pb.Sandbox) { s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_STOPPED })
	})
	handle(mux, g, "StartSandbox", func(r *pb.StartSandboxRequest) (*pb.SandboxResponse, error) {
		return g.find(r.Name, r.WorkspaceScope, func(s *pb.Sandbox) {
			s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_READY
			s.Status.MainProcessInstanceId += "+"
		})
	})
	handle(mux, g, "GetSandboxConfig", func(r *pb.GetSandboxConfigRequest) (*pb.GetSandboxConfigResponse, error) {
		m, err := g.find(r.Name, r.WorkspaceScope, nil)
		if err != nil {
			return nil, err
		}
		c := &pb.GetSandboxConfigResponse{
			Policy: m.Sandbox.Spec.Policy, Version: 1, PolicyHash: Hash, PolicySource: pb.PolicySource_POLICY_SOURCE_SANDBOX,
			Settings:       map[string]*pb.EffectiveSetting{"agent_policy_proposals_enabled": {}},
			ConfigRevision: 7, ProviderEnvRevision: 9, Workspace: "default", ConfigurationAdmitted: true,
			ConfigurationInstanceId: "instance",
		}
		change(g.Config, c)
		return c, nil
	})
	handle(mux, g, "GetSandboxPolicyStatus", func(r *pb.GetSandboxPolicyStatusRequest) (*pb.GetSandboxPolicyStatusResponse, error) {
		if _, err := g.find(r.Sandbox, r.WorkspaceScope, nil); err != nil {
			return nil, err
		}
		m := &pb.GetSandboxPolicyStatusResponse{ActiveVersion: 1, Revision: &pb.SandboxPolicyRevision{
			Version: 1, PolicyHash: Hash, Status: pb.PolicyStatus_POLICY_STATUS_LOADED,
		}}
		change(g.Status, m)
		return m, nil
	})
	handle(mux, g, "ListSandboxProviders", func(r *pb.ListSandboxProvidersRequest) (*pb.ListSandboxProvidersResponse, error) {
		if _, err := g.find(r.Sandbox, r.WorkspaceScope, nil); err != nil {
			return nil, err
		}
		m := &pb.ListSandboxProvidersResponse{}
		change(g.Providers, m)
		return m, nil
	})
	watch := openshell.Procedure("WatchSandbox")
	mux.Handle(watch, connect.NewServerStreamHandler(watch, g.watch))
	exec := openshell.Procedure("ExecSandboxInteractive")
	mux.Handle(exec, connect.NewBidiStreamHandler(exec, g.exec, connect.WithReadMaxBytes(1<<20)))
	return mux
}

func change[M any](f func(*M), m *M) {
	if f != nil {
		f(m)
	}
}

func handle[Req, Res any](mux *http.ServeMux, g *Gateway, method string, f func(*Req) (*Res, error)) {
	path := openshell.Procedure(method)
	mux.Handle(path, connect.NewUnaryHandler(path, func(_ context.Context, r *connect.Request[Req]) (*connect.Response[Res], error) {
		if err := g.begin(method); err != nil {
			return nil, err
		}
		m, err := f(r.Msg)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(m), nil
	}, connect.WithReadMaxBytes(1<<20)))
}

func (g *Gateway) begin(method string) error {
	g.mu.Lock()
	g.calls[method]++
	g.mu.Unlock()
	if g.Fail != nil {
		return g.Fail(method)
	}
	return nil
}

func (g *Gateway) create(r *pb.CreateSandboxRequest) (*pb.SandboxResponse, error) {
	if r.WorkspaceScope.GetWorkspace() != "default" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("workspace required"))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sandboxes[r.Name] != nil {
		return nil, connect.NewError(connect.CodeAlreadyExists, errors.New("exists"))
	}
	g.made++
	s := &pb.Sandbox{
		Metadata: &pb.ObjectMeta{
			Id: fmt.Sprintf("id-%d", g.made), Name: r.Name, Labels: r.Labels, Workspace: "default",
			CreatedTime: timestamppb.New(time.Unix(1790000000, 0)),
		},
		Spec: r.Spec,
		Status: &pb.SandboxStatus{
			Phase: pb.SandboxPhase_SANDBOX_PHASE_READY, MainProcessInstanceId: "main",
			Conditions: []*pb.SandboxCondition{{Type: "Ready", Status: "True", Reason: "DependenciesReady"}},
			ConfigurationAdmission: &pb.SandboxConfigurationAdmission{
				State: pb.ConfigurationAdmissionState_CONFIGURATION_ADMISSION_STATE_ACCEPTED, PolicyHash: Hash,
			},
		},
	}
	g.sandboxes[r.Name] = s
	return &pb.SandboxResponse{Sandbox: proto.Clone(s).(*pb.Sandbox)}, nil
}

// find returns a copy of a sandbox, which the test may change.
func (g *Gateway) find(name string, scope *pb.WorkspaceSelector, change func(*pb.Sandbox)) (*pb.SandboxResponse, error) {
	if scope.GetWorkspace() != "default" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("workspace required"))
	}
	g.mu.Lock()
	s := g.sandboxes[name]
	if s != nil {
		if change != nil {
			change(s)
		}
		s = proto.Clone(s).(*pb.Sandbox)
	}
	g.mu.Unlock()
	if s == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such sandbox"))
	}
	if g.Sandbox != nil {
		g.Sandbox(s)
	}
	return &pb.SandboxResponse{Sandbox: s}, nil
}

func (g *Gateway) list(r *pb.ListSandboxesRequest) (*pb.ListSandboxesResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &pb.ListSandboxesResponse{}
	var at int
	_, _ = fmt.Sscan(r.PageToken, &at)
	var all []*pb.Sandbox
	for n := 1; n <= g.made; n++ {
		for _, s := range g.sandboxes {
			if s.Metadata.Id == fmt.Sprintf("id-%d", n) {
				all = append(all, proto.Clone(s).(*pb.Sandbox))
			}
		}
	}
	size := int(r.PageSize)
	if g.PageSize > 0 {
		size = g.PageSize
	}
	end := min(at+size, len(all))
	m.Sandboxes = all[at:end]
	if end < len(all) {
		m.NextPageToken = fmt.Sprint(end)
	}
	return m, nil
}

func (g *Gateway) remove(r *pb.DeleteSandboxRequest) (*pb.DeleteSandboxResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sandboxes[r.Name] == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such sandbox"))
	}
	m := &pb.DeleteSandboxResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_COMPLETED}
	change(g.Delete, m)
	if m.Outcome == pb.DeletionOutcome_DELETION_OUTCOME_COMPLETED {
		delete(g.sandboxes, r.Name)
		g.deleted = append(g.deleted, r.Name)
	}
	return m, nil
}

func (g *Gateway) watch(ctx context.Context, r *connect.Request[pb.WatchSandboxRequest], stream *connect.ServerStream[pb.SandboxStreamEvent]) error {
	if err := g.begin("WatchSandbox"); err != nil {
		return err
	}
	for {
		m, err := g.find(r.Msg.Sandbox, r.Msg.WorkspaceScope, nil)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.SandboxStreamEvent{Payload: &pb.SandboxStreamEvent_Sandbox{Sandbox: m.Sandbox}}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (g *Gateway) exec(ctx context.Context, stream *connect.BidiStream[pb.ExecSandboxInput, pb.ExecSandboxEvent]) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	if err := g.begin("ExecSandboxInteractive"); err != nil {
		return err
	}
	start := first.GetStart()
	if _, err := g.find(start.GetSandbox(), start.GetWorkspaceScope(), nil); err != nil {
		return err
	}
	send := func(e *pb.ExecSandboxEvent) { _ = stream.Send(e) }
	return g.Exec(&Command{
		Context: ctx, Start: start, Stdin: &input{stream: stream},
		Stdout: func(s string) {
			send(&pb.ExecSandboxEvent{Payload: &pb.ExecSandboxEvent_Stdout{Stdout: &pb.ExecSandboxStdout{Data: []byte(s)}}})
		},
		Stderr: func(s string) {
			send(&pb.ExecSandboxEvent{Payload: &pb.ExecSandboxEvent_Stderr{Stderr: &pb.ExecSandboxStderr{Data: []byte(s)}}})
		},
		Exit: func(code int32) {
			send(&pb.ExecSandboxEvent{Payload: &pb.ExecSandboxEvent_Exit{Exit: &pb.ExecSandboxExit{ExitCode: code}}})
		},
	})
}

type input struct {
	stream *connect.BidiStream[pb.ExecSandboxInput, pb.ExecSandboxEvent]
	rest   []byte
}

func (in *input) Read(p []byte) (int, error) {
	for len(in.rest) == 0 {
		m, err := in.stream.Receive()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		in.rest = m.GetStdin()
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}
