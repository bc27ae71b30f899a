package openshell

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// proposalsKey is the setting by which code in a sandbox may propose a policy of
// its own.
const proposalsKey = "agent_policy_proposals_enabled"

func selector(labels map[string]string) string {
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		terms = append(terms, key+"="+labels[key])
	}
	return strings.Join(terms, ",")
}

func wireSpec(spec *Spec) *pb.SandboxSpec {
	template := &pb.SandboxTemplate{Image: spec.Image}
	if limits := spec.Limits; limits != (Limits{}) {
		fields := make(map[string]*structpb.Value)
		if limits.CPU != "" {
			fields["cpu"] = structpb.NewStringValue(limits.CPU)
		}
		if limits.Memory != "" {
			fields["memory"] = structpb.NewStringValue(limits.Memory)
		}
		template.Resources = object(map[string]*structpb.Value{"limits": structpb.NewStructValue(object(fields))})
	}
	if spec.TmpSize > 0 {
		mount := object(map[string]*structpb.Value{
			"type":       structpb.NewStringValue("tmpfs"),
			"target":     structpb.NewStringValue("/tmp"),
			"size_bytes": structpb.NewNumberValue(float64(spec.TmpSize)),
			"mode":       structpb.NewNumberValue(tmpMode),
		})
		mounts := &structpb.ListValue{Values: []*structpb.Value{structpb.NewStructValue(mount)}}
		block := object(map[string]*structpb.Value{"mounts": structpb.NewListValue(mounts)})
		template.DriverConfig = object(map[string]*structpb.Value{spec.Driver: structpb.NewStructValue(block)})
	}
	return &pb.SandboxSpec{Template: template, Command: spec.Command, Policy: wirePolicy(&spec.Policy)}
}

// tmpMode is 01777 in decimal, as the setting wants it.
const tmpMode = 0o1777

func object(fields map[string]*structpb.Value) *structpb.Struct {
	return &structpb.Struct{Fields: fields}
}

func wirePolicy(p *Policy) *pb.SandboxPolicy {
	m := &pb.SandboxPolicy{
		Version:    p.Version,
		Filesystem: &pb.FilesystemPolicy{IncludeWorkdir: p.IncludeWorkdir, ReadOnly: p.ReadOnly, ReadWrite: p.ReadWrite},
		Process:    &pb.ProcessPolicy{RunAsUser: p.RunAsUser, RunAsGroup: p.RunAsGroup},
	}
	if p.Landlock != "" {
		m.Landlock = &pb.LandlockPolicy{Compatibility: p.Landlock}
	}
	return m
}

func readPolicy(m *pb.SandboxPolicy) Policy {
	p := Policy{
		Version:        m.GetVersion(),
		IncludeWorkdir: m.GetFilesystem().GetIncludeWorkdir(),
		ReadOnly:       m.GetFilesystem().GetReadOnly(),
		ReadWrite:      m.GetFilesystem().GetReadWrite(),
		Landlock:       m.GetLandlock().GetCompatibility(),
		RunAsUser:      m.GetProcess().GetRunAsUser(),
		RunAsGroup:     m.GetProcess().GetRunAsGroup(),
		Rules:          len(m.GetNetworkPolicies()) + len(m.GetNetworkMiddlewares()),
	}
	if hasUnknown(m) {
		p.Rules++
	}
	return p
}

// Difference names the first field in which p and q differ, lists in another order
// included. It is empty when they are the same policy.
func (p *Policy) Difference(q *Policy) string {
	switch {
	case p.Version != q.Version:
		return "version"
	case p.IncludeWorkdir != q.IncludeWorkdir:
		return "filesystem.include_workdir"
	case !slices.Equal(p.ReadOnly, q.ReadOnly):
		return "filesystem.read_only"
	case !slices.Equal(p.ReadWrite, q.ReadWrite):
		return "filesystem.read_write"
	case p.Landlock != q.Landlock:
		return "landlock.compatibility"
	case p.RunAsUser != q.RunAsUser:
		return "process.run_as_user"
	case p.RunAsGroup != q.RunAsGroup:
		return "process.run_as_group"
	case p.Rules != q.Rules:
		return "network_policies"
	}
	return ""
}

func readSandbox(m *pb.Sandbox) *Sandbox {
	s := &Sandbox{
		ID:           m.Metadata.GetId(),
		Name:         m.Metadata.GetName(),
		Labels:       m.Metadata.GetLabels(),
		Workspace:    m.Metadata.GetWorkspace(),
		Phase:        Phase(m.Status.GetPhase()),
		MainProcess:  m.Status.GetMainProcessInstanceId(),
		AdmittedHash: m.Status.GetConfigurationAdmission().GetPolicyHash(),
		Spec:         readSpec(m.Spec),
	}
	if t := m.Metadata.GetCreatedTime(); t.IsValid() && t.GetSeconds() > 0 {
		s.Created = t.AsTime()
	}
	if m.Status.GetConfigurationAdmission().GetState() != pb.ConfigurationAdmissionState_CONFIGURATION_ADMISSION_STATE_ACCEPTED {
		s.AdmittedHash = ""
	}
	for _, c := range m.Status.GetConditions() {
		s.Reasons = append(s.Reasons, c.GetReason())
		if text := c.GetMessage(); text != "" && len(s.Detail) < maxDetail {
			s.Detail = strings.TrimPrefix(s.Detail+"; "+text[:min(len(text), maxDetail)], "; ")
		}
	}
	if madeFromTemplate(m) {
		s.Spec.Unknown = true
	}
	return s
}

// madeFromTemplate looks for the field that says that a stored template, and not
// the request, made the sandbox. Other fields of newer releases only inform.
func madeFromTemplate(m *pb.Sandbox) bool {
	const provenance = 20
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 || num == provenance {
			return true
		}
		b = b[n:]
	}
	return false
}

func readSpec(m *pb.SandboxSpec) ReadBack {
	t := m.GetTemplate()
	r := ReadBack{
		Image:               t.GetImage(),
		Command:             m.GetCommand(),
		Policy:              readPolicy(m.GetPolicy()),
		Providers:           m.GetProviders(),
		TemplateLabels:      t.GetLabels(),
		TemplateAnnotations: t.GetAnnotations(),
		AgentSocket:         t.GetAgentSocket(),
		RuntimeClass:        t.GetRuntimeClassName(),
		GPU:                 m.GetResourceRequirements() != nil,
		Restarts:            m.GetRestartPolicy() > restartNever,
		Environment:         make(map[string]string),
		Unknown:             m == nil || hasUnknown(m),
	}
	if t != nil {
		r.UserNamespaces = t.UserNamespaces
	}
	maps.Copy(r.Environment, m.GetEnvironment())
	maps.Copy(r.Environment, t.GetEnvironment())
	readResources(&r, t.GetResources())
	readDriverConfig(&r, t.GetDriverConfig())
	return r
}

// maxDetail bounds what is kept of each condition's message.
const maxDetail = 512

// restartNever and 0, which means the same, leave an ended main process ended.
const restartNever = 1

func readResources(r *ReadBack, m *structpb.Struct) {
	for _, key := range slices.Sorted(maps.Keys(m.GetFields())) {
		limits := m.Fields[key].GetStructValue()
		if key != "limits" || limits == nil {
			r.OtherResources = append(r.OtherResources, key)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(limits.Fields)) {
			text, isText := limits.Fields[name].GetKind().(*structpb.Value_StringValue)
			switch {
			case isText && name == "cpu":
				r.Limits.CPU = text.StringValue
			case isText && name == "memory":
				r.Limits.Memory = text.StringValue
			default:
				r.OtherResources = append(r.OtherResources, "limits."+name)
			}
		}
	}
}

// readDriverConfig takes the one setting of ours, a tmpfs at /tmp, and names
// whatever else there is. A number comes back as a double.
func readDriverConfig(r *ReadBack, m *structpb.Struct) {
	other := func(path ...string) { r.OtherDriverConfig = append(r.OtherDriverConfig, strings.Join(path, ".")) }
	for _, driver := range slices.Sorted(maps.Keys(m.GetFields())) {
		block := m.Fields[driver].GetStructValue()
		if block == nil {
			other(driver)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(block.Fields)) {
			if key != "mounts" {
				other(driver, key)
				continue
			}
			for i, v := range block.Fields[key].GetListValue().GetValues() {
				mount := v.GetStructValue().GetFields()
				size := mount["size_bytes"].GetNumberValue()
				if r.TmpSize != 0 || len(mount) != 4 || mount["type"].GetStringValue() != "tmpfs" ||
					mount["target"].GetStringValue() != "/tmp" || mount["mode"].GetNumberValue() != tmpMode ||
					size != float64(int64(size)) || size <= 0 {
					other(driver, key, fmt.Sprint(i))
					continue
				}
				r.TmpSize = int64(size)
			}
		}
	}
}

func readConfig(m *pb.GetSandboxConfigResponse) *Config {
	c := &Config{
		Policy:              readPolicy(m.Policy),
		PolicyVersion:       m.Version,
		PolicyHash:          m.PolicyHash,
		PolicyGlobal:        m.PolicySource != pb.PolicySource_POLICY_SOURCE_SANDBOX,
		GlobalVersion:       m.GlobalPolicyVersion,
		Revision:            m.ConfigRevision,
		ProviderRevision:    m.ProviderEnvRevision,
		Middlewares:         len(m.SupervisorMiddlewareServices),
		Admitted:            m.ConfigurationAdmitted,
		Error:               m.ConfigurationError,
		Workspace:           m.Workspace,
		ConfigurationHolder: m.ConfigurationInstanceId,
	}
	setting, found := m.Settings[proposalsKey]
	if !found {
		c.ProposalsSeen = "nothing"
		return c
	}
	switch v := setting.GetValue().GetValue().(type) {
	case nil:
		c.ProposalsOff = !hasUnknown(setting)
		c.ProposalsSeen = "no value"
	case *pb.SettingValue_BoolValue:
		c.ProposalsOff = !v.BoolValue
		c.ProposalsSeen = fmt.Sprint(v.BoolValue)
	default:
		c.ProposalsSeen = fmt.Sprintf("%T", v)
	}
	return c
}

// hasUnknown reports whether m, which may be nil, has fields that this client does
// not know.
func hasUnknown(m proto.Message) bool {
	return m != nil && m.ProtoReflect().IsValid() && pb.HasUnknown(m.ProtoReflect())
}
