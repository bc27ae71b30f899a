//go:build linux

package local

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

const (
	service = "/openshell.v1.OpenShell/"
	// workspace is the only one there is.
	workspace = "default"
	// maxRequestBytes is the largest message that the API takes, maxSpecBytes that of
	// methods without input: decoded, one can take fifty times as much.
	maxRequestBytes = 1 << 20
	maxSpecBytes    = 64 << 10
	// Settings, policies and providers of a sandbox never change here.
	configRevision   = 1
	providerRevision = 1
	maxPageSize      = 1000
)

// MinMemory is the least memory, in bytes, that a sandbox may be given: gVisor
// itself needs some.
const MinMemory = 64 << 20

// Handler serves the API: gRPC on the paths of openshell.v1.OpenShell.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	options := []connect.HandlerOption{connect.WithReadMaxBytes(maxSpecBytes)}
	withInput := []connect.HandlerOption{connect.WithReadMaxBytes(maxRequestBytes)}
	unary(mux, "Health", g.health, options)
	unary(mux, "GetCurrentUser", g.currentUser, options)
	unary(mux, "GetGatewayInfo", g.info, options)
	unary(mux, "GetGatewayConfig", g.gatewayConfig, options)
	unary(mux, "CreateSandbox", g.create, options)
	unary(mux, "GetSandbox", g.get, options)
	unary(mux, "ListSandboxes", g.list, options)
	unary(mux, "DeleteSandbox", g.delete, options)
	unary(mux, "StopSandbox", g.stop, options)
	unary(mux, "StartSandbox", g.restart, options)
	unary(mux, "GetSandboxConfig", g.sandboxConfig, options)
	unary(mux, "GetSandboxPolicyStatus", g.policyStatus, options)
	unary(mux, "ListSandboxProviders", g.providers, options)
	mux.Handle(service+"WatchSandbox", connect.NewServerStreamHandler(service+"WatchSandbox", g.watch, options...))
	mux.Handle(service+"ExecSandbox", connect.NewServerStreamHandler(service+"ExecSandbox", g.exec, withInput...))
	mux.Handle(service+"ExecSandboxInteractive", connect.NewBidiStreamHandler(service+"ExecSandboxInteractive", g.execInteractive, withInput...))
	mux.Handle(service, connect.NewUnaryHandler(service, func(context.Context, *connect.Request[pb.HealthRequest]) (*connect.Response[pb.HealthResponse], error) {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("not a method of this gateway"))
	}, options...))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The API is gRPC only. A page in a browser cannot send this type unasked.
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			http.Error(w, "not gRPC", http.StatusUnsupportedMediaType)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func unary[Req, Res any](mux *http.ServeMux, method string, f func(context.Context, *Req) (*Res, error), options []connect.HandlerOption) {
	mux.Handle(service+method, connect.NewUnaryHandler(service+method, func(ctx context.Context, req *connect.Request[Req]) (*connect.Response[Res], error) {
		res, err := f(ctx, req.Msg)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(res), nil
	}, options...))
}

func fault(code connect.Code, format string, args ...any) error {
	return connect.NewError(code, fmt.Errorf(format, args...))
}

func invalid(format string, args ...any) error {
	return fault(connect.CodeInvalidArgument, format, args...)
}

func (g *Gateway) health(context.Context, *pb.HealthRequest) (*pb.HealthResponse, error) {
	return &pb.HealthResponse{Status: pb.ServiceStatus_SERVICE_STATUS_HEALTHY, Version: Version}, nil
}

func (g *Gateway) currentUser(context.Context, *pb.GetCurrentUserRequest) (*pb.GetCurrentUserResponse, error) {
	return &pb.GetCurrentUserResponse{
		Subject: "unauthenticated-local-dev", DisplayName: "local", Roles: []string{"openshell-user", "openshell-admin"},
		Scopes: []string{"openshell:all"}, IdentityProvider: "local_dev",
	}, nil
}

func (g *Gateway) info(context.Context, *pb.GetGatewayInfoRequest) (*pb.GetGatewayInfoResponse, error) {
	return &pb.GetGatewayInfoResponse{
		Status: pb.ServiceStatus_SERVICE_STATUS_HEALTHY, GatewayVersion: Version,
		ComputeDrivers: []*pb.ComputeDriverInfo{{
			Name:         DriverName,
			Capabilities: &pb.ComputeDriverCapabilities{DriverName: DriverName, DriverVersion: GVisorVersion},
		}},
	}, nil
}

// proposals is the one setting clients ask for: there, and without a value.
const proposals = "agent_policy_proposals_enabled"

func (g *Gateway) gatewayConfig(context.Context, *pb.GetGatewayConfigRequest) (*pb.GetGatewayConfigResponse, error) {
	return &pb.GetGatewayConfigResponse{Settings: map[string]*pb.SettingValue{proposals: {}}, SettingsRevision: configRevision}, nil
}

// inWorkspace checks the selector that every call about sandboxes needs.
func inWorkspace(selector *pb.WorkspaceSelector, orAll bool) error {
	switch s := selector.GetSelection().(type) {
	case *pb.WorkspaceSelector_Workspace:
		if s.Workspace == workspace {
			return nil
		}
		return fault(connect.CodeNotFound, "workspace %.63q does not exist", s.Workspace)
	case *pb.WorkspaceSelector_AllWorkspaces:
		if orAll {
			return nil
		}
		return invalid("workspace_scope: one workspace is needed here")
	default:
		return invalid("workspace_scope: missing")
	}
}

func (g *Gateway) find(name string, selector *pb.WorkspaceSelector) (*sandbox, error) {
	if err := inWorkspace(selector, false); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.sandboxes[name]; s != nil {
		return s, nil
	}
	return nil, fault(connect.CodeNotFound, "sandbox %.63q does not exist", name)
}

const maxNameBytes = 19

var (
	sandboxName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	environName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// pythonFunction is the one reserved variable that a client may set: the published
// Python client sends functions in it.
const pythonFunction = "OPENSHELL_PYFUNC_B64"

func labelFault(key, value string) string {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	switch {
	case len(key) > 253, !labelName.MatchString(name), found && !labelPrefix.MatchString(prefix):
		return fmt.Sprintf("label %.60q: not a label key", key)
	case value != "" && !labelName.MatchString(value):
		return fmt.Sprintf("label %.60q: not a label value", key)
	}
	return ""
}

func (g *Gateway) create(_ context.Context, req *pb.CreateSandboxRequest) (*pb.SandboxResponse, error) {
	if err := inWorkspace(req.WorkspaceScope, false); err != nil {
		return nil, err
	}
	switch {
	case pb.HasUnknown(req.ProtoReflect()):
		return nil, invalid("the request has fields that this gateway does not know")
	case len(req.Annotations) > 0:
		return nil, invalid("annotations: not supported")
	case req.WorkloadTemplate != "":
		return nil, invalid("workload_template: not supported")
	case req.AwaitMainProcessAttachment:
		return nil, invalid("await_main_process_attachment: not supported")
	}
	if req.Name == "" {
		req.Name = "sandbox-" + randomHex(4)
	}
	if len(req.Name) > maxNameBytes || !sandboxName.MatchString(req.Name) {
		return nil, invalid("name: %.63q is not a DNS label of at most %d characters", req.Name, maxNameBytes)
	}
	for key, value := range req.Labels {
		if text := labelFault(key, value); text != "" {
			return nil, invalid("%s", text)
		}
	}
	s := &sandbox{
		gateway: g, id: newID(), name: req.Name, labels: req.Labels, created: g.config.Now(),
		spec: req.Spec, removed: make(chan struct{}), changed: make(chan struct{}), instance: newID(),
	}
	if s.spec == nil {
		s.spec = &pb.SandboxSpec{}
	}
	if err := s.readSpec(); err != nil {
		return nil, err
	}
	if err := g.admit(s); err != nil {
		return nil, err
	}
	view, _ := s.snapshot()
	g.work.Go(func() { s.start(reasonCreate) })
	return &pb.SandboxResponse{Sandbox: view}, nil
}

// admit gives a sandbox its place and folder.
func (g *Gateway) admit(s *sandbox) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return fault(connect.CodeUnavailable, "the gateway is closing")
	case g.sandboxes[s.name] != nil:
		return fault(connect.CodeAlreadyExists, "sandbox %q exists", s.name)
	case len(g.sandboxes) >= g.config.MaxSandboxes:
		return fault(connect.CodeResourceExhausted, "%d sandboxes are all there may be", g.config.MaxSandboxes)
	}
	g.serial++
	s.serial, s.cpuSet = g.serial, g.pickCPUs(s.cpus)
	s.dir = filepath.Join(g.dir, strconv.FormatUint(s.serial, 36))
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return fault(connect.CodeInternal, "state folder: %w", err)
	}
	s.set(pb.SandboxPhase_SANDBOX_PHASE_PROVISIONING, reasonStarting, "") // nobody else knows it yet
	g.sandboxes[s.name] = s
	return nil
}

// readSpec takes from a spec what is supported and refuses everything else that
// is not empty.
func (s *sandbox) readSpec() error {
	spec, g := s.spec, s.gateway
	switch {
	case len(spec.Environment) > 0:
		return invalid("spec.environment: not supported")
	case len(spec.Providers) > 0:
		return invalid("spec.providers: not supported")
	case spec.ProviderAttachmentEpoch != "":
		return invalid("spec.provider_attachment_epoch: not supported")
	case spec.ResourceRequirements != nil:
		return fault(connect.CodeFailedPrecondition, "spec.resource_requirements: not supported")
	case spec.RestartPolicy > 1:
		return invalid("spec.restart_policy: nothing is restarted")
	case len(spec.Command) > 1024:
		return invalid("spec.command: more than 1024 arguments")
	}
	if len(spec.Command) == 0 {
		spec.Command = []string{"sleep", "2147483647"}
	}
	for _, arg := range spec.Command {
		if len(arg) > 32<<10 || strings.ContainsRune(arg, 0) {
			return invalid("spec.command: an argument is longer than 32 KiB or holds a NUL")
		}
	}
	if spec.Command[0] == "" {
		return invalid("spec.command: no program")
	}
	s.memory, s.cpus = g.config.Memory, g.config.CPUs
	if template := spec.Template; template != nil {
		switch {
		case template.RuntimeClassName != "":
			return fault(connect.CodeFailedPrecondition, "template.runtime_class_name: not supported")
		case template.AgentSocket != "":
			return fault(connect.CodeFailedPrecondition, "template.agent_socket: not supported")
		case template.UserNamespaces != nil:
			return fault(connect.CodeFailedPrecondition, "template.user_namespaces: not supported")
		case len(template.Labels) > 0:
			return invalid("template.labels: not supported")
		case len(template.Annotations) > 0:
			return fault(connect.CodeFailedPrecondition, "template.annotations: not supported")
		case len(template.Environment) > 0:
			return invalid("template.environment: not supported")
		case template.Image != "" && template.Image != g.ImageName():
			return fault(connect.CodeFailedPrecondition, "template.image: have %.200q, this gateway has %q", template.Image, g.ImageName())
		}
		template.Image = g.ImageName()
		if err := s.readResources(template); err != nil {
			return err
		}
		if err := s.readDriverConfig(template); err != nil {
			return err
		}
	} else if g.image != nil {
		spec.Template = &pb.SandboxTemplate{Image: g.ImageName()}
	}
	s.policy = spec.Policy
	if s.policy == nil {
		s.policy = g.defaultPolicy()
	}
	if text := policyFault(s.policy, g.paths); text != "" {
		return invalid("%s", text)
	}
	s.hash = policyHash(s.policy)
	return nil
}

func (s *sandbox) readResources(template *pb.SandboxTemplate) error {
	for key, value := range template.Resources.GetFields() {
		limits := value.GetStructValue()
		if key != "limits" || limits == nil {
			return fault(connect.CodeFailedPrecondition, "template.resources.%.60s: not supported", key)
		}
		for name, limit := range limits.Fields {
			text := limit.GetStringValue()
			switch name {
			case "memory":
				memory, ok := parseMemory(text)
				if !ok || memory < MinMemory {
					return invalid("template.resources.limits.memory: have %.60q, want at least %d bytes", text, MinMemory)
				}
				s.memory = memory
			case "cpu":
				cpus, err := strconv.ParseUint(text, 10, 16)
				if err != nil || cpus == 0 {
					return invalid("template.resources.limits.cpu: have %.60q, want whole CPUs: they are limited by affinity", text)
				}
				if have := len(s.gateway.cpus); int(cpus) > have {
					return invalid("template.resources.limits.cpu: have %d, this machine has %d", cpus, have)
				}
				s.cpus = int(cpus)
			default:
				return fault(connect.CodeFailedPrecondition, "template.resources.limits.%.60s: not supported", name)
			}
		}
	}
	return nil
}

// readDriverConfig takes a tmpfs at /tmp, in the shape the docker driver has for
// it, and nothing else.
func (s *sandbox) readDriverConfig(template *pb.SandboxTemplate) error {
	refuse := func(what string) error {
		return invalid("template.driver_config: %s: only one tmpfs mount at /tmp is supported", what)
	}
	for driver, block := range template.DriverConfig.GetFields() {
		if driver != DriverName && driver != "docker" || block.GetStructValue() == nil || len(template.DriverConfig.Fields) > 1 {
			return refuse(fmt.Sprintf("%.60q", driver))
		}
		for key, value := range block.GetStructValue().Fields {
			if key != "mounts" || len(value.GetListValue().GetValues()) != 1 {
				return refuse(fmt.Sprintf("%.60q", key))
			}
			mount := value.GetListValue().Values[0].GetStructValue().GetFields()
			for key, value := range mount {
				switch key {
				case "type":
					if value.GetStringValue() != "tmpfs" {
						return refuse("type")
					}
				case "target":
					if value.GetStringValue() != "/tmp" {
						return refuse("target")
					}
				case "size_bytes":
					size := value.GetNumberValue()
					if size < 1<<16 || size > 1<<42 || size != float64(int64(size)) {
						return refuse("size_bytes")
					}
					s.tmpSize = int64(size)
				case "mode":
					if value.GetNumberValue() != 0o1777 {
						return refuse("mode")
					}
				case "options":
					for _, option := range value.GetListValue().GetValues() {
						if option.GetStringValue() != "noexec" {
							return refuse("options")
						}
						s.tmpNoexec = true
					}
				default:
					return refuse(fmt.Sprintf("%.60q", key))
				}
			}
			if s.tmpSize == 0 || mount["type"] == nil || mount["target"] == nil {
				return refuse("incomplete")
			}
		}
	}
	return nil
}

func (g *Gateway) get(_ context.Context, req *pb.GetSandboxRequest) (*pb.SandboxResponse, error) {
	s, err := g.find(req.Name, req.WorkspaceScope)
	if err != nil {
		return nil, err
	}
	view, _ := s.snapshot()
	return &pb.SandboxResponse{Sandbox: view}, nil
}

func (g *Gateway) list(_ context.Context, req *pb.ListSandboxesRequest) (*pb.ListSandboxesResponse, error) {
	if err := inWorkspace(req.WorkspaceScope, true); err != nil {
		return nil, err
	}
	size := int(req.PageSize)
	switch {
	case size < 0:
		return nil, invalid("page_size: negative")
	case size == 0:
		size = 100
	}
	size = min(size, maxPageSize)
	var after uint64
	if req.PageToken != "" {
		data, err := base64.RawURLEncoding.DecodeString(req.PageToken)
		if err == nil {
			after, err = strconv.ParseUint(string(data), 10, 64)
		}
		if err != nil {
			return nil, invalid("page_token: not one of ours")
		}
	}
	want, err := parseSelector(req.LabelSelector)
	if err != nil {
		return nil, err
	}
	res := &pb.ListSandboxesResponse{}
	for _, s := range g.all() {
		if s.serial <= after || !matches(s.labels, want) {
			continue
		}
		if len(res.Sandboxes) == size {
			res.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(after, 10)))
			break
		}
		view, _ := s.snapshot()
		res.Sandboxes = append(res.Sandboxes, view)
		after = s.serial
	}
	return res, nil
}

func parseSelector(text string) (map[string]string, error) {
	want := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return want, nil
	}
	terms := strings.Split(text, ",")
	if len(terms) > 64 {
		return nil, invalid("label_selector: more than 64 terms")
	}
	for _, term := range terms {
		key, value, found := strings.Cut(term, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !found || labelFault(key, value) != "" {
			return nil, invalid("label_selector: %.60q is not key=value", term)
		}
		want[key] = value
	}
	return want, nil
}

func matches(labels, want map[string]string) bool {
	for key, value := range want {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

func (g *Gateway) delete(_ context.Context, req *pb.DeleteSandboxRequest) (*pb.DeleteSandboxResponse, error) {
	s, err := g.find(req.Name, req.WorkspaceScope)
	if err != nil {
		if req.AllowMissing && connect.CodeOf(err) == connect.CodeNotFound {
			return &pb.DeleteSandboxResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_ALREADY_ABSENT}, nil
		}
		return nil, err
	}
	// Not tied to the caller, who may have gone when half is done.
	s.remove()
	return &pb.DeleteSandboxResponse{Outcome: pb.DeletionOutcome_DELETION_OUTCOME_COMPLETED, SandboxId: s.id}, nil
}

func (g *Gateway) stop(_ context.Context, req *pb.StopSandboxRequest) (*pb.SandboxResponse, error) {
	s, err := g.find(req.Name, req.WorkspaceScope)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	phase, r := s.phase, s.run
	if phase == pb.SandboxPhase_SANDBOX_PHASE_READY {
		s.set(pb.SandboxPhase_SANDBOX_PHASE_STOPPING, reasonStopping, "")
	}
	s.mu.Unlock()
	switch phase {
	case pb.SandboxPhase_SANDBOX_PHASE_READY:
		r.end(reasonStopped, "")
		<-r.gone
	case pb.SandboxPhase_SANDBOX_PHASE_STOPPED:
	default:
		return nil, fault(connect.CodeFailedPrecondition, "sandbox is not ready")
	}
	view, _ := s.snapshot()
	return &pb.SandboxResponse{Sandbox: view}, nil
}

func (g *Gateway) restart(_ context.Context, req *pb.StartSandboxRequest) (*pb.SandboxResponse, error) {
	s, err := g.find(req.Name, req.WorkspaceScope)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	switch s.phase {
	case pb.SandboxPhase_SANDBOX_PHASE_STOPPED, pb.SandboxPhase_SANDBOX_PHASE_COMPLETED:
	case pb.SandboxPhase_SANDBOX_PHASE_READY:
		s.mu.Unlock()
		view, _ := s.snapshot()
		return &pb.SandboxResponse{Sandbox: view}, nil
	default:
		if s.phase != pb.SandboxPhase_SANDBOX_PHASE_ERROR || s.reason != reasonMain {
			s.mu.Unlock()
			return nil, fault(connect.CodeFailedPrecondition, "sandbox is not stopped")
		}
	}
	s.instance, s.exitCode = newID(), nil
	s.set(pb.SandboxPhase_SANDBOX_PHASE_STARTING, reasonStarting, "")
	s.mu.Unlock()
	g.work.Go(func() { s.start(reasonStart) })
	view, _ := s.snapshot()
	return &pb.SandboxResponse{Sandbox: view}, nil
}

func (g *Gateway) sandboxConfig(_ context.Context, req *pb.GetSandboxConfigRequest) (*pb.GetSandboxConfigResponse, error) {
	s, err := g.find(req.Name, req.WorkspaceScope)
	if err != nil {
		return nil, err
	}
	view, _ := s.snapshot()
	return &pb.GetSandboxConfigResponse{
		Policy: proto.Clone(s.policy).(*pb.SandboxPolicy), Version: 1, PolicyHash: s.hash,
		Settings:       map[string]*pb.EffectiveSetting{proposals: {}},
		ConfigRevision: configRevision, PolicySource: pb.PolicySource_POLICY_SOURCE_SANDBOX,
		ProviderEnvRevision: providerRevision, Workspace: workspace,
		PolicyValidationFailureMode: "fail_closed", ConfigurationAdmitted: true,
		ConfigurationInstanceId: view.Status.MainProcessInstanceId, SettingsRevision: configRevision,
	}, nil
}

func (g *Gateway) policyStatus(_ context.Context, req *pb.GetSandboxPolicyStatusRequest) (*pb.GetSandboxPolicyStatusResponse, error) {
	if req.Global {
		return nil, fault(connect.CodeNotFound, "there is no global policy")
	}
	s, err := g.find(req.Sandbox, req.WorkspaceScope)
	if err != nil {
		return nil, err
	}
	if req.Version > 1 {
		return nil, fault(connect.CodeNotFound, "the policy has version 1 only")
	}
	return &pb.GetSandboxPolicyStatusResponse{
		ActiveVersion: 1,
		Revision: &pb.SandboxPolicyRevision{
			Version: 1, PolicyHash: s.hash, Status: pb.PolicyStatus_POLICY_STATUS_LOADED,
			Policy: proto.Clone(s.policy).(*pb.SandboxPolicy), CreatedTime: timestamppb.New(s.created), LoadedTime: timestamppb.New(s.created),
		},
	}, nil
}

func (g *Gateway) providers(_ context.Context, req *pb.ListSandboxProvidersRequest) (*pb.ListSandboxProvidersResponse, error) {
	if _, err := g.find(req.Sandbox, req.WorkspaceScope); err != nil {
		return nil, err
	}
	return &pb.ListSandboxProvidersResponse{}, nil
}

func (g *Gateway) watch(ctx context.Context, req *connect.Request[pb.WatchSandboxRequest], stream *connect.ServerStream[pb.SandboxStreamEvent]) error {
	s, err := g.find(req.Msg.Sandbox, req.Msg.WorkspaceScope)
	if err != nil {
		return err
	}
	for {
		view, changed := s.snapshot()
		select {
		case <-s.removed:
			return fault(connect.CodeCanceled, "stream closed")
		default:
		}
		event := &pb.SandboxStreamEvent{
			Payload: &pb.SandboxStreamEvent_Sandbox{Sandbox: view},
			Cursor:  strconv.FormatUint(view.Metadata.ResourceVersion, 10),
		}
		if err := stream.Send(event); err != nil {
			return err
		}
		if !req.Msg.FollowStatus || req.Msg.StopOnTerminal && isTerminal(view.Status.Phase) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return connect.NewError(connect.CodeCanceled, ctx.Err())
		case <-g.closing.Done():
			return fault(connect.CodeUnavailable, "the gateway is closing")
		}
	}
}

// isTerminal says whether a phase changes by a client's request or an accident
// only.
func isTerminal(phase pb.SandboxPhase) bool {
	switch phase {
	case pb.SandboxPhase_SANDBOX_PHASE_READY, pb.SandboxPhase_SANDBOX_PHASE_ERROR,
		pb.SandboxPhase_SANDBOX_PHASE_STOPPED, pb.SandboxPhase_SANDBOX_PHASE_COMPLETED:
		return true
	}
	return false
}

// ready finds the sandbox of an exec and checks the request.
func (g *Gateway) ready(req *pb.ExecSandboxRequest) (*run, error) {
	s, err := g.find(req.GetSandbox(), req.GetWorkspaceScope())
	if err != nil {
		return nil, err
	}
	switch {
	case pb.HasUnknown(req.ProtoReflect()):
		return nil, invalid("the request has fields that this gateway does not know")
	case len(req.Command) == 0 || req.Command[0] == "":
		return nil, invalid("command: no program")
	case len(req.Command) > 1024:
		return nil, invalid("command: more than 1024 arguments")
	case len(req.Workdir) > 4096 || req.Workdir != "" && !filepath.IsAbs(req.Workdir) || strings.ContainsRune(req.Workdir, 0):
		return nil, invalid("workdir: not an absolute path of at most 4096 bytes")
	case req.Tty:
		return nil, invalid("tty: there are no terminals")
	case req.ExecutionTimeout != nil && (!req.ExecutionTimeout.IsValid() || req.ExecutionTimeout.AsDuration() < 0):
		return nil, invalid("execution_timeout: not a duration from 0")
	}
	for _, arg := range req.Command {
		if len(arg) > 32<<10 || strings.ContainsRune(arg, 0) {
			return nil, invalid("command: an argument is longer than 32 KiB or holds a NUL")
		}
	}
	for name, value := range req.Environment {
		switch {
		case !environName.MatchString(name) || strings.HasPrefix(name, "OPENSHELL_") && name != pythonFunction:
			return nil, invalid("environment: %.60q is not a name that can be set", name)
		case len(value) > 32<<10 && name != pythonFunction || strings.ContainsAny(value, "\n\x00"):
			return nil, invalid("environment: the value of %s is longer than 32 KiB or holds a newline or NUL", name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != pb.SandboxPhase_SANDBOX_PHASE_READY || s.run == nil {
		return nil, fault(connect.CodeFailedPrecondition, "sandbox is not ready")
	}
	return s.run, nil
}

func (g *Gateway) exec(ctx context.Context, req *connect.Request[pb.ExecSandboxRequest], stream *connect.ServerStream[pb.ExecSandboxEvent]) error {
	r, err := g.ready(req.Msg)
	if err != nil {
		return err
	}
	c := &command{run: r, request: req.Msg, send: stream.Send}
	if len(req.Msg.Stdin) > 0 {
		c.stdin = strings.NewReader(string(req.Msg.Stdin))
	}
	return c.do(ctx)
}

func (g *Gateway) execInteractive(ctx context.Context, stream *connect.BidiStream[pb.ExecSandboxInput, pb.ExecSandboxEvent]) error {
	first, err := stream.Receive()
	if err != nil {
		return invalid("no start: %w", err)
	}
	start := first.GetStart()
	if start == nil {
		return invalid("the first message is not a start")
	}
	r, err := g.ready(start)
	if err != nil {
		return err
	}
	input := &streamInput{receive: stream.Receive, rest: slices.Clone(start.Stdin)}
	c := &command{run: r, request: start, stdin: input, send: stream.Send}
	return c.do(ctx)
}

// A streamInput reads the input frames of an interactive exec. The client ends it
// by closing its side of the stream.
type streamInput struct {
	receive func() (*pb.ExecSandboxInput, error)
	rest    []byte
}

func (in *streamInput) Read(p []byte) (int, error) {
	for len(in.rest) == 0 {
		msg, err := in.receive()
		if err != nil {
			return 0, io.EOF // a lost client is seen by the context
		}
		in.rest = msg.GetStdin()
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}
