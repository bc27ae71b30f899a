package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
)

// workspaceName is where the client makes all sandboxes.
const workspaceName = "default"

// ErrDiffers is wrapped when a sandbox is not what was asked for.
var ErrDiffers = errors.New("sandbox differs from what was asked for")

// errMainGone is wrapped when a sandbox is not ready any more.
var errMainGone = errors.New("sandbox has ended")

// seen is what a sandbox showed when it was first read back, or first after a
// start: it must not change after.
type seen struct {
	set, started               bool // once, and since the last start
	mainProcess, holder        string
	policyVersion              uint32
	revision, providerRevision uint64
	hash                       string
}

var policyDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// readBack reads everything about the sandbox that can be read, all of it anew,
// and refuses it for the first field that is not as it was asked for, or empty.
// Refusals wrap ErrDiffers or errMainGone, or are the gateway's when it gave no
// answer.
func (b *box) readBack(ctx context.Context) *call.Refused {
	ctx, cancel := context.WithTimeout(ctx, readBackTime)
	defer cancel()
	var (
		s         *openshell.Sandbox
		c         *openshell.Config
		p         *openshell.PolicyStatus
		providers int
		errs      [4]error
		all       sync.WaitGroup
	)
	all.Go(func() { s, errs[0] = b.gateway.Get(ctx, b.name) })
	all.Go(func() { c, errs[1] = b.gateway.Config(ctx, b.name) })
	all.Go(func() { p, errs[2] = b.gateway.PolicyStatus(ctx, b.name) })
	all.Go(func() { providers, errs[3] = b.gateway.Providers(ctx, b.name) })
	all.Wait()
	for _, err := range errs {
		if errors.Is(err, openshell.ErrNotFound) {
			return wrongGateway("%w: it is not there", errMainGone)
		}
	}
	for _, err := range errs {
		if err != nil {
			return gatewayGone("read the sandbox back", err)
		}
	}
	if s.Phase != openshell.PhaseReady {
		return wrongGateway("%w: phase %v (%.200s): %.512s", errMainGone, s.Phase, strings.Join(s.Reasons, ", "), s.Detail)
	}
	now := seen{
		set: true, started: true, mainProcess: s.MainProcess, policyVersion: c.PolicyVersion, revision: c.Revision,
		providerRevision: c.ProviderRevision, hash: c.PolicyHash, holder: c.ConfigurationHolder,
	}
	if !b.seen.set {
		b.seen = now
	}
	if !b.seen.started {
		b.seen.started, b.seen.mainProcess, b.seen.holder = true, now.mainProcess, now.holder
	}
	var d differences
	b.compareSandbox(&d, s)
	b.compareConfig(&d, c, p, &now)
	// Empty unless the policy was admitted.
	d.equal("status.configuration_admission.policy_hash", s.AdmittedHash, b.seen.hash)
	d.equal("providers attached", providers, 0)
	if d.err != nil {
		return wrongGateway("%w", d.err)
	}
	return b.runner.samePolicy(c.PolicyHash)
}

// samePolicy has every sandbox show the hash that the first one showed: the
// policies were the same, field by field.
func (r *Runner) samePolicy(hash string) *call.Refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hash == "" {
		r.hash = hash
	}
	if r.hash != hash {
		return wrongGateway("%w: policy_hash: have %.64s, want %s, which the same policy had before", ErrDiffers, hash, r.hash)
	}
	return nil
}

// differences keeps the first one.
type differences struct{ err error }

func (d *differences) note(field string, have, want any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: have %.120q, want %.120q", ErrDiffers, field, fmt.Sprint(have), fmt.Sprint(want))
	}
}

func (d *differences) equal(field string, have, want any) {
	if have != want {
		d.note(field, have, want)
	}
}

func (d *differences) empty(field string, n int, have any) {
	if n > 0 {
		d.note(field, have, "nothing")
	}
}

func (b *box) compareSandbox(d *differences, s *openshell.Sandbox) {
	d.equal("metadata.name", s.Name, b.name)
	d.equal("metadata.id", s.ID, b.id)
	d.equal("metadata.workspace", s.Workspace, workspaceName)
	if !maps.Equal(s.Labels, b.spec.Labels) {
		d.note("metadata.labels", s.Labels, b.spec.Labels)
	}
	spec := &s.Spec
	d.equal("spec.template.image", spec.Image, b.spec.Image)
	if !slices.Equal(spec.Command, b.spec.Command) {
		d.note("spec.command", spec.Command, b.spec.Command)
	}
	d.equal("spec.template.resources.limits.cpu", spec.Limits.CPU, b.spec.Limits.CPU)
	d.equal("spec.template.resources.limits.memory", spec.Limits.Memory, b.spec.Limits.Memory)
	d.empty("spec.template.resources", len(spec.OtherResources), spec.OtherResources)
	d.equal("spec.template.driver_config: size of /tmp", spec.TmpSize, b.spec.TmpSize)
	d.empty("spec.template.driver_config", len(spec.OtherDriverConfig), spec.OtherDriverConfig)
	if field := b.spec.Policy.Difference(&spec.Policy); field != "" {
		d.note("spec.policy."+field, spec.Policy, b.spec.Policy)
	}
	d.empty("spec.providers", len(spec.Providers), spec.Providers)
	d.empty("spec.environment", len(spec.Environment), spec.Environment)
	d.empty("spec.template.labels", len(spec.TemplateLabels), spec.TemplateLabels)
	d.empty("spec.template.annotations", len(spec.TemplateAnnotations), spec.TemplateAnnotations)
	d.equal("spec.template.agent_socket", spec.AgentSocket, "")
	d.equal("spec.template.runtime_class_name", spec.RuntimeClass, "")
	if spec.UserNamespaces != nil {
		d.note("spec.template.user_namespaces", *spec.UserNamespaces, "nothing")
	}
	d.equal("spec.resource_requirements: GPU", spec.GPU, false)
	d.equal("spec.restart_policy: restarts", spec.Restarts, false)
	d.equal("spec: unknown fields", spec.Unknown, false)
	d.equal("status.main_process_instance_id", s.MainProcess, b.seen.mainProcess)
}

func (b *box) compareConfig(d *differences, c *openshell.Config, p *openshell.PolicyStatus, now *seen) {
	if field := b.spec.Policy.Difference(&c.Policy); field != "" {
		d.note("policy."+field, c.Policy, b.spec.Policy)
	}
	d.equal("workspace", c.Workspace, workspaceName)
	d.equal("policy_source: global", c.PolicyGlobal, false)
	d.equal("global_policy_version", c.GlobalVersion, uint32(0))
	d.equal("supervisor_middleware_services", c.Middlewares, 0)
	d.equal("configuration_admitted", c.Admitted, true)
	d.equal("configuration_error", c.Error, "")
	if !c.ProposalsOff {
		d.note("agent_policy_proposals_enabled", c.ProposalsSeen, "there, and false or without value")
	}
	if !policyDigest.MatchString(c.PolicyHash) {
		d.note("policy_hash", c.PolicyHash, "64 hex digits")
	}
	d.equal("policy_hash", now.hash, b.seen.hash)
	d.equal("version", now.policyVersion, b.seen.policyVersion)
	d.equal("config_revision", now.revision, b.seen.revision)
	d.equal("provider_env_revision", now.providerRevision, b.seen.providerRevision)
	d.equal("configuration_instance_id", now.holder, b.seen.holder)
	d.equal("active_version", p.Active, c.PolicyVersion)
	d.equal("revision.version", p.Version, c.PolicyVersion)
	d.equal("revision.policy_hash", p.Hash, c.PolicyHash)
	d.equal("revision.status: loaded", p.Loaded, true)
	d.equal("revision.load_error", p.LoadError, "")
}
