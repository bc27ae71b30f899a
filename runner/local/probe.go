//go:build linux

package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-attest/plimsoll/internal/hostnode"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// A Finding is one thing that sandboxes on this machine need or have: whether it
// is there, what proves it, and how to get it.
type Finding struct {
	Name   string
	OK     bool
	Detail string
	Fix    string // for one that is not OK
}

// Probe finds out what this machine has for sandboxes, by making one. It returns
// when all is known or ctx is done.
func Probe(ctx context.Context, config Config) []Finding {
	var list []Finding
	add := func(name string, err error, detail, fix string) bool {
		f := Finding{Name: name, OK: err == nil, Detail: detail}
		if err != nil {
			f.Detail, f.Fix = err.Error(), fix
		}
		list = append(list, f)
		return err == nil
	}
	runtime := config.Runtime
	if runtime == "" {
		runtime = "/proc/self/exe"
	}
	if !add("static program", checkStatic(runtime), "no program interpreter in it", "build with CGO_ENABLED=0") {
		return list
	}
	if isRoot() {
		add("program readable by all", worldExecutable(runtime), "sandboxes run it as another user", "chmod a+rx, the folder does not matter")
	} else {
		if !add("user namespaces", tryUserNamespace(), "one was made, with the capabilities it needs", namespaceFix()) {
			return list
		}
	}
	_, where := hostnode.Prefix()
	if config.Image != "" {
		where = "the image's"
	}
	gate, err := New(config)
	if !add("state folder and programs", err, config.Dir, "name a folder of your own, mode 0700, with a short path") {
		return list
	}
	defer gate.Close()
	list = append(list, gate.Limits()...)

	begin := time.Now()
	r, err := gate.tryout(ctx)
	if !add("a sandbox starts", err, fmt.Sprintf("user-space kernel, platform systrap (no KVM needed), ready after %v", time.Since(begin).Round(time.Millisecond)), "where mounts are refused: kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for this program. Nothing is ever run on the host instead") {
		return list
	}
	out, err := r.output(ctx, "/bin/sh", "-c", isolationScript)
	want := "Uid: 1500\nCapEff: 0000000000000000\n3\n/tmp\n"
	if err == nil && out != want {
		err = fmt.Errorf("have %.200q, want %q", out, want)
	}
	add("isolation", err, "uid 1500, no capability, loopback only, only /tmp writable", "this must not happen: please report it")
	out, err = r.output(ctx, "/usr/bin/env", "node", "--version")
	version := strings.TrimSpace(out)
	if err != nil {
		err = fmt.Errorf("node in a sandbox (host: %s): %w", where, err)
	} else if major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "."); atoi(major) < 18 {
		err = fmt.Errorf("node %s, want 18 or later", version)
	}
	if config.Image != "" && err != nil {
		add("node", nil, "none of version 18 or later in the image: calls of JavaScript are refused", "")
		return list
	}
	add("node", err, fmt.Sprintf("%s, run in a sandbox (%s)", version, where), "install node 18 or later in /usr, or unpack an official build into a folder of its own and have its bin folder in PATH")
	return list
}

// isolationScript says who it is, what it may do, how many lines the list of
// interfaces has (two of heading) and where it can write. It needs no program.
const isolationScript = `
while read -r name value rest; do case $name in Uid: | CapEff:) echo "$name $value" ;; esac; done </proc/self/status
n=0; while read -r line; do n=$((n + 1)); done </proc/net/dev; echo "$n"
while read -r what dir rest; do (: >"$dir/.p") 2>/dev/null && echo "$dir"; done </proc/mounts; :`

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// Limits says how each limit of a sandbox holds here.
func (g *Gateway) Limits() []Finding {
	memory := fmt.Sprintf("a watchdog, which looks every %v: code can pass the limit by what it touches in that time before the sandbox ends (measured, of 256 MiB: 1 to 4 MiB; 40 MiB by filling pipes and sockets)", memoryTick)
	if g.cgroup != nil {
		version := 1
		if g.cgroup.v2 {
			version = 2
		}
		memory = fmt.Sprintf("a memory cgroup (version %d) below %s; gVisor's own memory counts", version, g.cgroup.parent)
	}
	return []Finding{
		{Name: "memory limit", OK: true, Detail: memory},
		{Name: "CPU limit", OK: true, Detail: fmt.Sprintf("affinity, whole CPUs, of %d", len(g.cpus))},
		{Name: "process limit", OK: true, Detail: fmt.Sprintf("%d processes and threads, counted by the user-space kernel; one more is refused (EAGAIN)", maxGuestProcesses)},
		{Name: "disk limit", OK: true, Detail: fmt.Sprintf("a tmpfs /tmp: exact; a kept /tmp: a watchdog, %d bytes, %d files and %d deleted ones still open, measured every %v, and at once when free space falls; the sandbox ends past it", g.config.DiskBudget, maxEntries, maxDeleted, diskRound)},
	}
}

// worldExecutable makes sure that gVisor's processes, which are nobody's, can
// execute the program.
func worldExecutable(name string) error {
	info, err := os.Stat(name)
	if err == nil && info.Mode()&0o001 == 0 {
		err = fmt.Errorf("%w (mode %v)", ErrMode, info.Mode().Perm())
	}
	return err
}

// tryUserNamespace starts a program in a user namespace of ours.
func tryUserNamespace() error {
	attr := &syscall.SysProcAttr{}
	userNamespace(attr)
	cmd := exec.Command("/bin/sh", "-c", "exit 0")
	cmd.SysProcAttr = attr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %w", ErrNamespaces, err)
	}
	return nil
}

// namespaceFix is what can be done about a machine without user namespaces.
func namespaceFix() string {
	if os.Geteuid() == 0 {
		return "this is uid 0 of a user namespace, without the capabilities to make another: be any other uid there"
	}
	return "sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0 (or an AppArmor profile for this program); in a container, a seccomp profile that allows unshare and mount"
}

// tryout makes a sandbox for Probe and waits until it is ready.
func (g *Gateway) tryout(ctx context.Context) (*run, error) {
	scope := &pb.WorkspaceSelector{Selection: &pb.WorkspaceSelector_Workspace{Workspace: workspace}}
	res, err := g.create(ctx, &pb.CreateSandboxRequest{WorkspaceScope: scope})
	if err != nil {
		return nil, err
	}
	s, err := g.find(res.Sandbox.Metadata.Name, scope)
	if err != nil {
		return nil, err
	}
	for {
		view, changed := s.snapshot()
		switch view.Status.Phase {
		case pb.SandboxPhase_SANDBOX_PHASE_READY:
			if r := s.current(); r != nil {
				return r, nil
			}
		case pb.SandboxPhase_SANDBOX_PHASE_ERROR, pb.SandboxPhase_SANDBOX_PHASE_COMPLETED:
			condition := view.Status.Conditions[0]
			return nil, fmt.Errorf("%s: %s", condition.Reason, condition.Message)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// output runs a command for Probe and returns what it wrote to its standard
// output.
func (r *run) output(ctx context.Context, argv ...string) (string, error) {
	var stdout, stderr strings.Builder
	code := int32(-1)
	c := &command{run: r, request: &pb.ExecSandboxRequest{Command: argv}, send: func(event *pb.ExecSandboxEvent) error {
		stdout.Write(event.GetStdout().GetData())
		stderr.Write(event.GetStderr().GetData())
		if exit := event.GetExit(); exit != nil {
			code = exit.ExitCode
		}
		return nil
	}}
	if err := c.do(ctx); err != nil {
		return "", err
	}
	if code != 0 {
		return "", fmt.Errorf("exit %d: %.300s", code, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
