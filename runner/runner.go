package runner

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
)

// Times that are not for callers to choose.
const (
	snippetTime   = 30 * time.Second
	projectTime   = 2 * time.Minute
	driverTime    = 10 * time.Second
	readyTime     = time.Minute
	readBackTime  = 30 * time.Second
	prepareTime   = 20 * time.Second
	sweepTime     = 10 * time.Second
	proofTime     = 30 * time.Second
	maxDeleteWait = 5 * time.Second
	deleteTime    = 5 * time.Minute
)

// MaxCallTime is the most time that a call gets, whatever it asks for.
const MaxCallTime = 5 * time.Minute

// MaxLifetime is the longest life of a session.
const MaxLifetime = 12 * time.Hour

// The drivers that a tier is known of.
const (
	localDriver  = "gvisor-local"
	dockerDriver = "docker"
)

// Labels of the sandboxes of this runner.
const (
	labelInstance = "plimsoll.instance"
	labelRun      = "plimsoll.run"
	labelLifetime = "plimsoll.lifetime"
)

// A Config says what sandboxes are. Zero values of the durations, limits and
// counts are the defaults.
type Config struct {
	// Instance tells this runner's sandboxes from others': 1 to 32 characters of
	// a-z, 0-9 and -.
	Instance string
	// Local says that the gateway is this program's own. No other is believed to
	// have its driver.
	Local bool
	// Image is what sandboxes are made of, Environment how records state it.
	Image, Environment string
	// Policy is sent with every sandbox and compared with the one in force.
	Policy openshell.Policy
	// Limits of each sandbox: 256Mi and 1 CPU.
	Limits openshell.Limits
	// TmpSize is the size of a single run's /tmp, a tmpfs: 128 MiB.
	TmpSize int64
	// MeasureDisk has the runner measure the /tmp of a session after each call. It
	// is for gateways that do not end a sandbox past DiskBudget themselves.
	MeasureDisk bool
	DiskBudget  int64 // 1024 MiB
	// Lifetime and Idle are those of sessions: 30 min until the end, 5 min until a
	// session without calls is suspended.
	Lifetime, Idle time.Duration
	// MaxSandboxes is how many sandboxes there may be at once, those on their way
	// out included: 64.
	MaxSandboxes int
	// Log is told what people may want to know, a line at a time. It never hears of
	// a session's ID. Nil is nobody.
	Log func(format string, args ...any)
	// Now is the clock of records.
	Now func() time.Time
}

// A Runner runs calls on one gateway. Its methods may be called concurrently.
type Runner struct {
	gateway openshell.Gateway
	config  Config
	slots   chan struct{}
	pending sync.WaitGroup

	mu     sync.Mutex
	closed bool
	hash   string // of the policy, as the first sandbox had it
}

var instanceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// New returns a runner. It does not speak to the gateway yet.
func New(gateway openshell.Gateway, config Config) (*Runner, error) {
	config.Limits.Memory = cmp.Or(config.Limits.Memory, "256Mi")
	config.Limits.CPU = cmp.Or(config.Limits.CPU, "1")
	config.TmpSize = cmp.Or(config.TmpSize, 128<<20)
	config.DiskBudget = cmp.Or(config.DiskBudget, 1024<<20)
	config.Lifetime = cmp.Or(config.Lifetime, 30*time.Minute)
	config.Idle = cmp.Or(config.Idle, 5*time.Minute)
	config.MaxSandboxes = cmp.Or(config.MaxSandboxes, 64)
	switch {
	case !instanceName.MatchString(config.Instance):
		return nil, fmt.Errorf("instance: %.40q is not 1 to 32 characters of a-z, 0-9 and -", config.Instance)
	case config.Policy.Version == 0:
		return nil, errors.New("no policy")
	case config.Lifetime < time.Second || config.Lifetime > MaxLifetime:
		return nil, fmt.Errorf("lifetime: have %v, want at most %v", config.Lifetime, MaxLifetime)
	case config.Idle < time.Second:
		return nil, fmt.Errorf("idle time: have %v, want at least %v", config.Idle, time.Second)
	case config.TmpSize < 0 || config.DiskBudget < 0 || config.MaxSandboxes < 0:
		return nil, errors.New("a size or count below zero")
	}
	if config.Log == nil {
		config.Log = func(string, ...any) {}
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Runner{gateway: gateway, config: config, slots: make(chan struct{}, config.MaxSandboxes)}, nil
}

// Shutdown lets no further sandbox be made and waits until those on their way out
// are gone. The sessions must have been closed.
func (r *Runner) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		r.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sandboxes are not gone: %w", context.Cause(ctx))
	}
}

// evidence is what every record of this runner states about where a call ran.
type evidence struct{ provider, tier string }

// driver asks the gateway for its compute driver, on which alone the tier rests.
func (r *Runner) driver(ctx context.Context) (evidence, *call.Refused) {
	ctx, cancel := context.WithTimeout(ctx, driverTime)
	defer cancel()
	info, err := r.gateway.Info(ctx)
	if err != nil {
		return evidence{}, gatewayGone("gateway", err)
	}
	if len(info.Drivers) != 1 {
		return evidence{}, wrongGateway("compute_drivers: have %d, want 1", len(info.Drivers))
	}
	want, e := dockerDriver, evidence{"openshell", record.TierContainer}
	if r.config.Local {
		want, e = localDriver, evidence{"openshell-local", record.TierKernel}
	}
	d := info.Drivers[0]
	switch {
	case d.Name != want:
		return evidence{}, wrongGateway("compute_drivers.name: have %.60q, want %q", d.Name, want)
	case d.DriverName != want:
		return evidence{}, wrongGateway("compute_drivers.capabilities.driver_name: have %.60q, want %q", d.DriverName, want)
	}
	return e, nil
}

func wrongGateway(format string, args ...any) *call.Refused {
	return call.Refuse(call.CodeFailedPrecondition, call.ReasonEnvironment, format, args...)
}

// gatewayGone refuses a call for an answer that the gateway did not give. Nothing
// ran.
func gatewayGone(what string, err error) *call.Refused {
	switch {
	case errors.Is(err, errDeadline):
		return call.Refuse(call.CodeDeadlineExceeded, call.ReasonCapacity, "%s: %w", what, err)
	case errors.Is(err, context.Canceled):
		return call.Refuse(call.CodeCanceled, call.ReasonCapacity, "%s: %w", what, err)
	case errors.Is(err, openshell.ErrOverCapacity):
		return call.Refuse(call.CodeResourceExhausted, call.ReasonCapacity, "%s: %w", what, err)
	case errors.Is(err, openshell.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return call.Refuse(call.CodeUnavailable, call.ReasonCapacity, "%s: %w", what, err)
	}
	return call.Refuse(call.CodeUnavailable, call.ReasonEnvironment, "%s: %w", what, err)
}

// admissible compares what a call demands with what sandboxes here have.
func (r *Runner) admissible(req *record.Request, e evidence) *call.Refused {
	if !record.MeetsFloor(e.tier, req.MinimumIsolation) {
		return call.Refuse(call.CodeFailedPrecondition, call.ReasonIsolation, "minimum_isolation: have %s, want %s", e.tier, req.MinimumIsolation)
	}
	// No executable image can be named for a tree of programs.
	if !req.SoftwareRule.Allows("") {
		return call.Refuse(call.CodeFailedPrecondition, call.ReasonEnvironment, "software_rule: the software here has no identity")
	}
	return nil
}

// callTime is how long a call may take.
func callTime(req *record.Request) time.Duration {
	if req.TimeoutMS > 0 {
		return min(time.Duration(req.TimeoutMS)*time.Millisecond, MaxCallTime)
	}
	if req.JavaScript != nil {
		return snippetTime
	}
	return projectTime
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
