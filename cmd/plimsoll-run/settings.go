//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/runner"
	"github.com/plimsoll-attest/plimsoll/runner/local"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
)

// remote are the variables that choose a gateway of another program, by their
// beginning.
const remote = "SANDBOX_OPENSHELL_"

// checkRemote refuses to run on the embedded gateway where another was asked for,
// or a limit that there is not.
func checkRemote(environ []string) error {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case strings.HasPrefix(name, remote), name == "SANDBOX_PROVIDER" && value != "" && value != "openshell-local":
			return fmt.Errorf("%.60s is set: gateways of other programs are not supported by this build; "+
				"to use the embedded one, unset SANDBOX_PROVIDER and all "+remote+"… variables", name)
		case name == "SANDBOX_PIDS":
			return errors.New("SANDBOX_PIDS is set: the number of processes is no setting, see doctor for the limit")
		}
	}
	return nil
}

// settings are the flags of all commands that have a gateway. Each has a variable,
// which counts where the flag is not given: --disk-mb has SANDBOX_DISK_MB.
type settings struct {
	state       string
	image       string
	memory      int // MiB, as are the next two
	disk        int
	sessionDisk int
	cpus        int

	lifetime, idle time.Duration
}

func (s *settings) add(cmd *cobra.Command) {
	s.addState(cmd)
	f := cmd.Flags()
	f.StringVar(&s.image, "image", "", "OCI image layout `folder` to make sandboxes of ($SANDBOX_IMAGE; default: the host's programs, read-only)")
	cli.Number(f, &s.memory, "memory-mb", 256, "`MiB` of memory of a sandbox ($SANDBOX_MEMORY_MB)")
	cli.Number(f, &s.cpus, "cpus", 1, "CPUs of a sandbox ($SANDBOX_CPUS)")
}

func (s *settings) addState(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.state, "state", "", "`folder` for the sandboxes' files, of this user alone ($SANDBOX_STATE; default "+defaultStateHelp+")")
}

// addSingle is for commands that make sandboxes for one call.
func (s *settings) addSingle(cmd *cobra.Command) {
	cli.Number(cmd.Flags(), &s.disk, "disk-mb", 128, "`MiB` of /tmp, which count as memory too ($SANDBOX_DISK_MB)")
}

// addSession is for commands that make sandboxes for many.
func (s *settings) addSession(cmd *cobra.Command) {
	f := cmd.Flags()
	s.addSessionDisk(cmd)
	f.DurationVar(&s.lifetime, "session-lifetime", 30*time.Minute, "how long a session may last, at most 12h ($SANDBOX_SESSION_LIFETIME)")
	f.DurationVar(&s.idle, "session-idle", 5*time.Minute, "when a session without calls is suspended ($SANDBOX_SESSION_IDLE)")
}

func (s *settings) addSessionDisk(cmd *cobra.Command) {
	cli.Number(cmd.Flags(), &s.sessionDisk, "session-disk-mb", 1024, "`MiB` that the /tmp of a session may hold ($SANDBOX_SESSION_DISK_MB)")
}

// settingNames are the flags that have a variable.
var settingNames = []string{
	"state", "image", "memory-mb", "cpus", "disk-mb", "session-disk-mb", "session-lifetime", "session-idle",
}

func variable(flag string) string {
	return "SANDBOX_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that were not given from their variables.
func fromEnvironment(cmd *cobra.Command, getenv func(string) string) error {
	for _, name := range settingNames {
		flag := cmd.Flags().Lookup(name)
		value := getenv(variable(name))
		if flag == nil || flag.Changed || value == "" {
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			return fmt.Errorf("$%s: %w", variable(name), err)
		}
	}
	return nil
}

const defaultStateHelp = "~/.local/state/plimsoll, or /tmp/plimsoll-UID"

// stateFolder is where sandboxes' files are kept. A path that is too long for the
// sockets in it is not taken by default.
func (s *settings) stateFolder() string {
	if s.state != "" {
		if path, err := filepath.Abs(s.state); err == nil {
			return path
		}
		return s.state
	}
	const longest = 64
	base := os.Getenv("XDG_STATE_HOME")
	if home := os.Getenv("HOME"); base == "" && filepath.IsAbs(home) {
		if info, err := os.Stat(home); err == nil && info.IsDir() { // system users name one that is not there
			base = filepath.Join(home, ".local", "state")
		}
	}
	if path := filepath.Join(base, "plimsoll"); filepath.IsAbs(base) && len(path) <= longest {
		return path
	}
	return "/tmp/plimsoll-" + strconv.Itoa(os.Getuid())
}

// prepare reads the environment. Every command that has a gateway begins so.
func (s *settings) prepare(cmd *cobra.Command, std *streams) error {
	if err := checkRemote(os.Environ()); err != nil {
		return err
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "SANDBOX_") && name != "SANDBOX_PROVIDER" && !slices.ContainsFunc(settingNames, func(s string) bool { return variable(s) == name }) {
			std.complain("%.60s is set, and is no setting of this program", name)
		}
	}
	if err := fromEnvironment(cmd, os.Getenv); err != nil {
		return err
	}
	for _, n := range []struct {
		name       string
		value, low int
	}{
		{"memory-mb", s.memory, local.MinMemory >> 20},
		{"cpus", s.cpus, 1},
		{"disk-mb", s.disk, 1},
		{"session-disk-mb", s.sessionDisk, 1},
	} {
		if cmd.Flags().Lookup(n.name) != nil && (n.value < n.low || n.value > 1<<20) {
			return fmt.Errorf("--%s: have %d, want %d to %d", n.name, n.value, n.low, 1<<20)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		high  time.Duration
	}{
		{"session-lifetime", s.lifetime, runner.MaxLifetime},
		{"session-idle", s.idle, runner.MaxLifetime},
	} {
		if cmd.Flags().Lookup(d.name) != nil && (d.value < time.Second || d.value > d.high) {
			return fmt.Errorf("--%s: have %v, want 1s to %v", d.name, d.value, d.high)
		}
	}
	if cmd.Flags().Lookup("cpus") != nil && s.cpus > runtime.NumCPU() {
		return fmt.Errorf("--cpus: have %d, this machine has %d", s.cpus, runtime.NumCPU())
	}
	return nil
}

func (s *settings) gatewayConfig() local.Config {
	return local.Config{Dir: s.stateFolder(), Image: s.image, DiskBudget: int64(s.sessionDisk) << 20}
}

// A sandboxes is a runner with the gateway behind it.
type sandboxes struct {
	*runner.Runner
	gateway *local.Gateway
}

// open makes a runner on the embedded gateway. Where that cannot be had, the
// runner refuses every call, each with the reason.
func (s *settings) open(ctx context.Context, std *streams) (*sandboxes, error) {
	config := runner.Config{
		Instance: instanceName(),
		Local:    true,
		Limits:   openshell.Limits{CPU: strconv.Itoa(s.cpus), Memory: strconv.Itoa(s.memory) + "Mi"},
		TmpSize:  int64(s.disk) << 20,
		Lifetime: s.lifetime,
		Idle:     s.idle,
		Log:      std.complain,
	}
	var client openshell.Gateway
	gateway, err := local.New(s.gatewayConfig())
	if errors.Is(err, local.ErrPath) || errors.Is(err, local.ErrImage) {
		return nil, err // a setting, and not the machine
	}
	if err == nil {
		config.Image, config.Environment = gateway.ImageName(), gateway.Environment()
		config.Policy = localPolicy(gateway)
		baseURL, httpClient := gateway.Client()
		if client, err = openshell.Open(ctx, baseURL, httpClient); err != nil {
			gateway.Close()
			gateway = nil
		}
	}
	if err != nil {
		client, config.Policy.Version = noGateway{err: err}, 1
	}
	r, err := runner.New(client, config)
	if err != nil {
		if gateway != nil {
			gateway.Close()
		}
		return nil, err
	}
	return &sandboxes{r, gateway}, nil
}

// close ends the sandboxes at once: all that is to be known of them is known.
func (s *sandboxes) close(std *streams) {
	if s.gateway == nil {
		return
	}
	if err := s.gateway.Close(); err != nil {
		std.complain("%v", err)
	}
}

// localPolicy is the policy of every sandbox: no network, all that the gateway
// shows readable, only /tmp writable.
func localPolicy(gateway *local.Gateway) openshell.Policy {
	return openshell.Policy{
		Version: 1, ReadOnly: gateway.Paths(), ReadWrite: []string{"/dev/null", "/tmp"},
		RunAsUser: "1500", RunAsGroup: "1500",
	}
}

// noGateway answers every call with the reason why there is none.
type noGateway struct {
	openshell.Gateway
	err error
}

func (g noGateway) Info(context.Context) (openshell.Info, error) { return openshell.Info{}, g.err }

func instanceName() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return "run-" + hex.EncodeToString(b)
}
