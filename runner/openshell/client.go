package openshell

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// Bounds on the wire.
const (
	maxUnaryBytes = 16 << 20  // an answer, a page of a list included
	maxEventBytes = 4 << 20   // an event of a stream
	maxSendBytes  = 1 << 20   // the gateway's bound on a request
	stdinFrame    = 256 << 10 // of a command's input
	listPage      = 100       // sandboxes a page
	maxPages      = 1000      // a gateway that never ends a list is broken
)

// workspace is where all sandboxes are made.
const workspace = "default"

// Procedure is the path under which a method of the API is served.
func Procedure(method string) string { return "/openshell.v1.OpenShell/" + method }

// Open asks the gateway at baseURL for its version and returns a client that
// speaks its dialect.
func Open(ctx context.Context, baseURL string, httpClient *http.Client) (Gateway, error) {
	c := newClient(baseURL, httpClient)
	health, err := c.Health(ctx)
	if err != nil {
		return nil, err
	}
	if !health.Healthy {
		return nil, fmt.Errorf("%w: it says that it is not healthy", ErrUnavailable)
	}
	if err := checkVersion(health.Version); err != nil {
		return nil, err
	}
	return c, nil
}

// HTTPClient returns a client for a gateway at baseURL: HTTP/2, over TLS or, on a
// loopback address only, in the clear. It uses no proxy and follows no redirect.
func HTTPClient(baseURL string, tlsConfig *tls.Config) (*http.Client, error) {
	u, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("gateway address: %w", err)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.TrimRight(u.Path, "/") != "":
		return nil, errors.New("gateway address: more than scheme, host and port")
	}
	transport := &http.Transport{
		Proxy:               nil,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig:     tlsConfig,
		Protocols:           new(http.Protocols),
	}
	switch u.Scheme {
	case "http":
		if !isLoopback(u.Hostname()) {
			return nil, fmt.Errorf("gateway address: %.200q: http is for loopback addresses only", u.Host)
		}
		transport.Protocols.SetUnencryptedHTTP2(true)
	case "https":
		transport.Protocols.SetHTTP2(true)
	default:
		return nil, fmt.Errorf("gateway address: scheme %.40q, want https", u.Scheme)
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// A client speaks dialect B, releases 0.1.x.
type client struct {
	health    func(context.Context, *pb.HealthRequest) (*pb.HealthResponse, error)
	info      func(context.Context, *pb.GetGatewayInfoRequest) (*pb.GetGatewayInfoResponse, error)
	create    func(context.Context, *pb.CreateSandboxRequest) (*pb.SandboxResponse, error)
	get       func(context.Context, *pb.GetSandboxRequest) (*pb.SandboxResponse, error)
	list      func(context.Context, *pb.ListSandboxesRequest) (*pb.ListSandboxesResponse, error)
	delete    func(context.Context, *pb.DeleteSandboxRequest) (*pb.DeleteSandboxResponse, error)
	stop      func(context.Context, *pb.StopSandboxRequest) (*pb.SandboxResponse, error)
	start     func(context.Context, *pb.StartSandboxRequest) (*pb.SandboxResponse, error)
	config    func(context.Context, *pb.GetSandboxConfigRequest) (*pb.GetSandboxConfigResponse, error)
	status    func(context.Context, *pb.GetSandboxPolicyStatusRequest) (*pb.GetSandboxPolicyStatusResponse, error)
	providers func(context.Context, *pb.ListSandboxProvidersRequest) (*pb.ListSandboxProvidersResponse, error)
	watch     *connect.Client[pb.WatchSandboxRequest, pb.SandboxStreamEvent]
	exec      *connect.Client[pb.ExecSandboxInput, pb.ExecSandboxEvent]
}

func newClient(baseURL string, hc *http.Client) *client {
	base := strings.TrimRight(baseURL, "/")
	return &client{
		health:    unary[pb.HealthRequest, pb.HealthResponse](hc, base, "Health"),
		info:      unary[pb.GetGatewayInfoRequest, pb.GetGatewayInfoResponse](hc, base, "GetGatewayInfo"),
		create:    unary[pb.CreateSandboxRequest, pb.SandboxResponse](hc, base, "CreateSandbox"),
		get:       unary[pb.GetSandboxRequest, pb.SandboxResponse](hc, base, "GetSandbox"),
		list:      unary[pb.ListSandboxesRequest, pb.ListSandboxesResponse](hc, base, "ListSandboxes"),
		delete:    unary[pb.DeleteSandboxRequest, pb.DeleteSandboxResponse](hc, base, "DeleteSandbox"),
		stop:      unary[pb.StopSandboxRequest, pb.SandboxResponse](hc, base, "StopSandbox"),
		start:     unary[pb.StartSandboxRequest, pb.SandboxResponse](hc, base, "StartSandbox"),
		config:    unary[pb.GetSandboxConfigRequest, pb.GetSandboxConfigResponse](hc, base, "GetSandboxConfig"),
		status:    unary[pb.GetSandboxPolicyStatusRequest, pb.GetSandboxPolicyStatusResponse](hc, base, "GetSandboxPolicyStatus"),
		providers: unary[pb.ListSandboxProvidersRequest, pb.ListSandboxProvidersResponse](hc, base, "ListSandboxProviders"),
		watch:     procedure[pb.WatchSandboxRequest, pb.SandboxStreamEvent](hc, base, "WatchSandbox", maxUnaryBytes),
		exec:      procedure[pb.ExecSandboxInput, pb.ExecSandboxEvent](hc, base, "ExecSandboxInteractive", maxEventBytes),
	}
}

func procedure[Req, Res any](hc *http.Client, base, method string, limit int) *connect.Client[Req, Res] {
	return connect.NewClient[Req, Res](hc, base+Procedure(method),
		connect.WithGRPC(), connect.WithReadMaxBytes(limit), connect.WithSendMaxBytes(maxSendBytes))
}

func unary[Req, Res any](hc *http.Client, base, method string) func(context.Context, *Req) (*Res, error) {
	c := procedure[Req, Res](hc, base, method, maxUnaryBytes)
	return func(ctx context.Context, req *Req) (*Res, error) {
		ctx, stop := ownDeadline(ctx)
		defer stop()
		res, err := c.CallUnary(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, wireError(ctx, method, err)
		}
		return res.Msg, nil
	}
}

// ownDeadline returns a context that ends with ctx, by the same cause, and that
// states no deadline. A deadline would be sent along, the gateway would end the
// call for it a moment before us, and its answer does not tell whose time was over.
func ownDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return own, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// wireError names the method and turns a code into the sentinel to decide by. The
// gateway's own words are kept for people, cut short.
func wireError(ctx context.Context, method string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // ours: the method has no part in it
	}
	kind := ErrProtocol
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		kind = ErrNotFound
	case connect.CodeAlreadyExists:
		kind = ErrExists
	case connect.CodeFailedPrecondition:
		kind = ErrNotReady
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded, connect.CodeAborted:
		kind = ErrUnavailable
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		kind = ErrDenied
	case connect.CodeInvalidArgument:
		kind = ErrInvalid
	case connect.CodeUnimplemented:
		kind = ErrUnsupported
	case connect.CodeOutOfRange:
		kind = ErrTooLarge
	case connect.CodeResourceExhausted:
		kind = ErrOverCapacity
	}
	// A connection that broke has no code of the gateway's.
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error)) {
		kind = ErrUnavailable
	}
	text := err.Error()
	if ce := new(connect.Error); errors.As(err, &ce) {
		text = ce.Message()
	}
	return fmt.Errorf("%s: %w: %.300q", method, kind, text)
}

func scope() *pb.WorkspaceSelector {
	return &pb.WorkspaceSelector{Selection: &pb.WorkspaceSelector_Workspace{Workspace: workspace}}
}

func (c *client) Health(ctx context.Context) (Health, error) {
	m, err := c.health(ctx, &pb.HealthRequest{})
	if err != nil {
		return Health{}, err
	}
	return Health{Healthy: m.Status == pb.ServiceStatus_SERVICE_STATUS_HEALTHY, Version: m.Version}, nil
}

func (c *client) Info(ctx context.Context) (Info, error) {
	m, err := c.info(ctx, &pb.GetGatewayInfoRequest{})
	if err != nil {
		return Info{}, err
	}
	info := Info{Version: m.GatewayVersion}
	for _, d := range m.ComputeDrivers {
		info.Drivers = append(info.Drivers, Driver{
			Name: d.GetName(), DriverName: d.GetCapabilities().GetDriverName(),
			DriverVersion: d.GetCapabilities().GetDriverVersion(),
		})
	}
	return info, nil
}

func (c *client) Create(ctx context.Context, spec Spec) (*Sandbox, error) {
	m, err := c.create(ctx, &pb.CreateSandboxRequest{
		Name: spec.Name, Labels: spec.Labels, Spec: wireSpec(&spec), WorkspaceScope: scope(),
	})
	return sandboxOf("CreateSandbox", m, err)
}

func (c *client) Get(ctx context.Context, name string) (*Sandbox, error) {
	m, err := c.get(ctx, &pb.GetSandboxRequest{Name: name, WorkspaceScope: scope()})
	return sandboxOf("GetSandbox", m, err)
}

func (c *client) Stop(ctx context.Context, name string) (*Sandbox, error) {
	m, err := c.stop(ctx, &pb.StopSandboxRequest{Name: name, WorkspaceScope: scope()})
	return sandboxOf("StopSandbox", m, err)
}

func (c *client) Start(ctx context.Context, name string) (*Sandbox, error) {
	m, err := c.start(ctx, &pb.StartSandboxRequest{Name: name, WorkspaceScope: scope()})
	return sandboxOf("StartSandbox", m, err)
}

func sandboxOf(method string, m *pb.SandboxResponse, err error) (*Sandbox, error) {
	if err != nil {
		return nil, err
	}
	if m.Sandbox == nil {
		return nil, fmt.Errorf("%s: %w: no sandbox in it", method, ErrProtocol)
	}
	return readSandbox(m.Sandbox), nil
}

func (c *client) List(ctx context.Context, labels map[string]string) ([]*Sandbox, error) {
	var all []*Sandbox
	token := ""
	for range maxPages {
		m, err := c.list(ctx, &pb.ListSandboxesRequest{
			PageSize: listPage, PageToken: token, LabelSelector: selector(labels), WorkspaceScope: scope(),
		})
		if err != nil {
			return nil, err
		}
		for _, s := range m.Sandboxes {
			all = append(all, readSandbox(s))
		}
		if token = m.NextPageToken; token == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("ListSandboxes: %w: more than %d pages", ErrProtocol, maxPages)
}

func (c *client) Delete(ctx context.Context, name string) (bool, error) {
	m, err := c.delete(ctx, &pb.DeleteSandboxRequest{Name: name, WorkspaceScope: scope()})
	if err != nil {
		return false, err
	}
	switch m.Outcome {
	case pb.DeletionOutcome_DELETION_OUTCOME_COMPLETED, pb.DeletionOutcome_DELETION_OUTCOME_ALREADY_ABSENT:
		return true, nil
	case pb.DeletionOutcome_DELETION_OUTCOME_ACCEPTED:
		return false, nil
	}
	return false, fmt.Errorf("DeleteSandbox: %w: outcome %d", ErrProtocol, m.Outcome)
}

func (c *client) Config(ctx context.Context, name string) (*Config, error) {
	m, err := c.config(ctx, &pb.GetSandboxConfigRequest{Name: name, WorkspaceScope: scope()})
	if err != nil {
		return nil, err
	}
	return readConfig(m), nil
}

func (c *client) PolicyStatus(ctx context.Context, name string) (*PolicyStatus, error) {
	m, err := c.status(ctx, &pb.GetSandboxPolicyStatusRequest{Sandbox: name, WorkspaceScope: scope()})
	if err != nil {
		return nil, err
	}
	return &PolicyStatus{
		Active: m.ActiveVersion, Version: m.Revision.GetVersion(), Hash: m.Revision.GetPolicyHash(),
		Loaded:    m.Revision.GetStatus() == pb.PolicyStatus_POLICY_STATUS_LOADED,
		LoadError: m.Revision.GetLoadError(),
	}, nil
}

func (c *client) Providers(ctx context.Context, name string) (int, error) {
	m, err := c.providers(ctx, &pb.ListSandboxProvidersRequest{Sandbox: name, PageSize: listPage, WorkspaceScope: scope()})
	if err != nil {
		return 0, err
	}
	n := len(m.Providers)
	if m.NextPageToken != "" {
		n++ // none is expected; that there is one is all that is asked
	}
	return n, nil
}

// pollEvery is the pause between two looks where a watch cannot be had.
const pollEvery = 100 * time.Millisecond

func (c *client) Wait(ctx context.Context, name string, done func(*Sandbox) bool) (*Sandbox, error) {
	if s := c.follow(ctx, name, done); s != nil {
		return s, nil
	}
	for {
		s, err := c.Get(ctx, name)
		switch {
		case err == nil && done(s):
			return s, nil
		case errors.Is(err, ErrNotFound), ctx.Err() != nil:
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

// follow watches until done is satisfied, and returns nil when the watch ends
// before.
func (c *client) follow(ctx context.Context, name string, done func(*Sandbox) bool) *Sandbox {
	ctx, cancel := ownDeadline(ctx)
	defer cancel()
	stream, err := c.watch.CallServerStream(ctx, connect.NewRequest(
		&pb.WatchSandboxRequest{Sandbox: name, FollowStatus: true, WorkspaceScope: scope()}))
	if err != nil {
		return nil
	}
	defer func() {
		cancel() // else Close drains what the gateway would still send
		_ = stream.Close()
	}()
	for stream.Receive() {
		if m := stream.Msg().GetSandbox(); m != nil {
			if s := readSandbox(proto.Clone(m).(*pb.Sandbox)); done(s) {
				return s
			}
		}
	}
	return nil
}
