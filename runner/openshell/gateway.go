// Package openshell is a client of an OpenShell gateway: sandboxes are created,
// read back, used and deleted through it.
//
// Gateway is what the rest of the runner sees. It speaks of sandboxes in
// neutral types, so that the two incompatible dialects of the API (releases
// 0.0.x and 0.1.x) are a matter of this package alone. The wire messages are
// our own, with the gateway's field numbers.
package openshell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Gateway runs sandboxes. Its methods may be called concurrently. Errors of
// the gateway wrap one of the sentinels below where one fits, and never are
// decided by their text.
type Gateway interface {
	// Health says whether the gateway serves, and its version.
	Health(ctx context.Context) (Health, error)
	// Info names the compute drivers. It is asked before every run.
	Info(ctx context.Context) (Info, error)
	// Create asks for a sandbox and returns at once, with the phase provisioning.
	Create(ctx context.Context, spec Spec) (*Sandbox, error)
	// Get reads a sandbox back.
	Get(ctx context.Context, name string) (*Sandbox, error)
	// List returns all sandboxes that have these labels, all pages of them.
	List(ctx context.Context, labels map[string]string) ([]*Sandbox, error)
	// Delete removes a sandbox and returns when it is gone or going; a missing
	// one is ErrNotFound. Gone is false when the gateway only accepted it.
	Delete(ctx context.Context, name string) (gone bool, err error)
	// Stop ends all processes and keeps the files; Start makes it ready again
	// with a new main process. Both return before the phase is reached.
	Stop(ctx context.Context, name string) (*Sandbox, error)
	Start(ctx context.Context, name string) (*Sandbox, error)
	// Wait follows the sandbox until done says so, watching and, where that
	// fails, polling. It returns the sandbox that done accepted.
	Wait(ctx context.Context, name string, done func(*Sandbox) bool) (*Sandbox, error)
	// Exec starts a command. See ExecRequest and Exec.
	Exec(ctx context.Context, req ExecRequest) (Exec, error)
	// Config reads the effective policy and settings of a sandbox back.
	Config(ctx context.Context, name string) (*Config, error)
	// PolicyStatus says which version of the policy is in force.
	PolicyStatus(ctx context.Context, name string) (*PolicyStatus, error)
	// Providers returns how many credential providers are attached.
	Providers(ctx context.Context, name string) (int, error)
}

// The errors that callers decide by.
var (
	ErrNotFound     = errors.New("not found")
	ErrExists       = errors.New("already exists")
	ErrNotReady     = errors.New("sandbox is not ready")
	ErrUnavailable  = errors.New("gateway unavailable")
	ErrDenied       = errors.New("permission denied")
	ErrInvalid      = errors.New("invalid argument")
	ErrUnsupported  = errors.New("unsupported by the gateway")
	ErrNoExit       = errors.New("stream ended without an exit status")
	ErrTooLarge     = errors.New("message too large")
	ErrOverCapacity = errors.New("over capacity")
	ErrProtocol     = errors.New("unexpected answer of the gateway")
)

// Health is a gateway's answer to a probe.
type Health struct {
	Healthy bool
	Version string // a semantic version
}

// Info names the gateway's compute drivers: what a tier is proven by.
type Info struct {
	Version string
	Drivers []Driver
}

// A Driver is a compute driver, under the name it is configured by and the one
// it gives itself.
type Driver struct{ Name, DriverName, DriverVersion string }

// A Spec is all that a sandbox is asked to be. What is not in it is left empty
// on the wire.
type Spec struct {
	Name    string            // DNS label of at most 19 characters
	Labels  map[string]string // ours
	Image   string
	Command []string // the main process
	Limits  Limits
	TmpSize int64  // bytes of a tmpfs at /tmp; 0: /tmp is a folder kept over stop and start
	Driver  string // whose setting the tmpfs is; needed with TmpSize only
	Policy  Policy
}

// Limits are a sandbox's resources in the gateway's own notation: "256Mi", "1".
type Limits struct{ CPU, Memory string }

// A Policy is what the code in a sandbox may do. Difference compares it with one
// read back.
type Policy struct {
	Version        uint32
	IncludeWorkdir bool
	ReadOnly       []string
	ReadWrite      []string
	Landlock       string // compatibility
	RunAsUser      string
	RunAsGroup     string
	// Rules counts network rules, middlewares and fields we do not know: 0 in
	// any policy of ours.
	Rules int
}

// A Phase is where a sandbox is in its life. Numbers without a name are as good
// as PhaseUnknown.
type Phase int

// The phases, with their numbers on the wire.
const (
	PhaseUnspecified Phase = iota
	PhaseProvisioning
	PhaseReady
	PhaseError
	PhaseDeleting
	PhaseUnknown
	PhaseStopping
	PhaseStopped
	PhaseStarting
	PhaseCompleted
)

var phaseNames = []string{
	"unspecified", "provisioning", "ready", "error", "deleting", "unknown", "stopping", "stopped", "starting", "completed",
}

func (p Phase) String() string {
	if p >= 0 && int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("number %d", int(p))
}

// A Sandbox is a sandbox as the gateway shows it.
type Sandbox struct {
	ID, Name  string
	Labels    map[string]string
	Workspace string
	Created   time.Time // zero when the gateway states none
	Phase     Phase
	Reasons   []string // of its conditions
	Detail    string   // of its conditions, for people
	// MainProcess changes with every start of the main process.
	MainProcess string
	// Policy admission, dialect B.
	AdmittedHash string
	Spec         ReadBack
}

// A ReadBack is a stored spec, every field of it that must be as it was sent or
// empty.
type ReadBack struct {
	Image               string
	Command             []string
	Limits              Limits
	OtherResources      []string // keys of resources that Limits does not show
	TmpSize             int64
	OtherDriverConfig   []string // what the driver's settings hold besides TmpSize
	Policy              Policy
	Providers           []string
	Environment         map[string]string // the spec's and the template's
	TemplateLabels      map[string]string
	TemplateAnnotations map[string]string
	AgentSocket         string
	RuntimeClass        string
	UserNamespaces      *bool
	GPU                 bool
	Restarts            bool // the gateway starts an ended main process again
	Unknown             bool // fields that this client does not know
}

// Config is what is in force for a sandbox.
type Config struct {
	Policy              Policy
	PolicyVersion       uint32
	PolicyHash          string // hex
	PolicyGlobal        bool   // not the sandbox's own
	GlobalVersion       uint32
	Revision            uint64
	ProviderRevision    uint64
	Middlewares         int
	Admitted            bool
	Error               string
	ProposalsOff        bool   // agent_policy_proposals_enabled is there, and false or unset
	ProposalsSeen       string // what is there instead, for an error
	Workspace           string
	ConfigurationHolder string // instance that admitted it
}

// PolicyStatus says which version of a policy is in force.
type PolicyStatus struct {
	Active, Version uint32
	Hash            string
	Loaded          bool
	LoadError       string
}

// An ExecRequest is a command to run in a sandbox. Command[0] is an absolute
// path: gateways put a shell in front, which must have nothing to interpret.
type ExecRequest struct {
	Sandbox string // name
	ID      string // dialect A addresses by it
	Command []string
	Workdir string
	// Environment is added to what the gateway sets.
	Environment map[string]string
	// Stdin is sent to the command, then its end, where the dialect can signal
	// one while the command runs. Nil: no input, ended at once.
	Stdin io.Reader
	// OnOutput is called with each piece of output, in the order of arrival,
	// from one goroutine at a time. The slice is the callee's to read only.
	OnOutput func(stream Stream, data []byte)
}

// A Stream is one of a command's outputs.
type Stream int

// The outputs.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// An Exec is a command that was started. Wait returns its exit code when the
// gateway has said it; ErrNoExit when the stream ended without, which leaves
// unknown whether and how far the command ran. Cancelling the context given to
// Gateway.Exec ends the stream.
type Exec interface {
	Wait() (exitCode int32, err error)
}
