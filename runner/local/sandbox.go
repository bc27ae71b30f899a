//go:build linux

package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// Reasons of the Ready condition.
const (
	reasonStarting  = "Starting"
	reasonReady     = "DependenciesReady"
	reasonStopping  = "Stopping"
	reasonStopped   = "Stopped"
	reasonDeleting  = "Deleting"
	reasonCompleted = "MainProcessCompleted"
	reasonMain      = "MainProcessFailed"
	reasonCreate    = "ContainerCreateFailed"
	reasonStart     = "StartFailed"
	reasonExited    = "ContainerExited"
	reasonMemory    = "MemoryLimitExceeded"
	reasonDisk      = "DiskBudgetExceeded"
	reasonStuck     = "KernelUnresponsive"
)

// A sandbox is one entry of the gateway, over all its starts.
type sandbox struct {
	gateway   *Gateway
	id, name  string
	dir       string
	serial    uint64
	created   time.Time
	labels    map[string]string
	spec      *pb.SandboxSpec // as it was asked for
	policy    *pb.SandboxPolicy
	hash      string
	memory    int64
	cpus      int
	cpuSet    []int
	tmpSize   int64
	tmpNoexec bool

	launching sync.Mutex // held while processes are being started
	removal   sync.Once
	removed   chan struct{} // closed when nothing is left of it

	mu         sync.Mutex
	phase      pb.SandboxPhase
	reason     string
	message    string
	transition time.Time
	version    uint64
	changed    chan struct{} // closed and replaced at every change
	instance   string
	exitCode   *int32
	run        *run
}

// A run is the time between a start and the next end.
type run struct {
	sandbox *sandbox
	kernel  kernel
	cmd     *exec.Cmd
	life    *os.File // the launcher ends everything when this is closed
	cgroup  string
	gone    chan struct{} // closed when the last process has ended

	mu          sync.Mutex
	started     bool
	pidfds      map[int]int // by PID: gVisor's processes
	sandboxPID  int
	goferPID    int // the file server's
	memory      *os.File
	kernelBytes int64
	peak        int64
	cause       string // why it was ended; empty while nobody ended it
	detail      string
	mainStatus  *uint32
}

func (s *sandbox) tmpDir() string { return filepath.Join(s.dir, "tmp") }

func (s *sandbox) bundleDir() string {
	return filepath.Join(s.dir, bundleName(s.memory, s.cpuSet))
}

// current is the run of a sandbox that has processes.
func (s *sandbox) current() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// set changes the phase. The caller holds s.mu.
func (s *sandbox) set(phase pb.SandboxPhase, reason, message string) {
	s.phase, s.reason, s.message = phase, reason, message
	s.transition = s.gateway.config.Now()
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// snapshot is what clients see, and a channel that is closed when it is out of
// date.
func (s *sandbox) snapshot() (*pb.Sandbox, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := "False"
	if s.phase == pb.SandboxPhase_SANDBOX_PHASE_READY {
		ready = "True"
	}
	return &pb.Sandbox{
		Metadata: &pb.ObjectMeta{
			Id: s.id, Name: s.name, Labels: maps.Clone(s.labels), ResourceVersion: s.version,
			Workspace: workspace, CreatedTime: timestamppb.New(s.created),
		},
		Spec: proto.Clone(s.spec).(*pb.SandboxSpec),
		Status: &pb.SandboxStatus{
			Phase: s.phase,
			Conditions: []*pb.SandboxCondition{{
				Type: "Ready", Status: ready, Reason: s.reason, Message: s.message,
				TransitionTime: timestamppb.New(s.transition),
			}},
			CurrentPolicyVersion:  1,
			MainProcessInstanceId: s.instance,
			ExitCode:              clonePointer(s.exitCode),
			ConfigurationAdmission: &pb.SandboxConfigurationAdmission{
				InstanceId: s.instance, State: pb.ConfigurationAdmissionState_CONFIGURATION_ADMISSION_STATE_ACCEPTED,
				PolicyVersion: 1, PolicyHash: s.hash, ConfigRevision: configRevision, ProviderEnvRevision: providerRevision,
			},
			ConfigurationActivated: proto.Bool(s.phase == pb.SandboxPhase_SANDBOX_PHASE_READY),
		},
	}, s.changed
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// start begins a run and brings the sandbox to the phase ready, or to error.
func (s *sandbox) start(failure string) {
	g := s.gateway
	g.starts <- struct{}{}
	defer func() { <-g.starts }()
	r := &run{sandbox: s, gone: make(chan struct{}), pidfds: map[int]int{}}
	if !s.launch(r, failure) {
		return
	}
	late := time.AfterFunc(g.config.StartTimeout, func() {
		r.end(failure, fmt.Sprintf("not running after %v", g.config.StartTimeout))
	})
	defer late.Stop()
	err := r.kernel.waitRunning(r.gone)
	if err == nil {
		err = r.adopt()
	}
	if err != nil {
		r.end(failure, fmt.Sprintf("%v%s", err, r.runtimeError()))
		return
	}
	g.work.Go(r.waitMain)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.mu.Lock()
	r.started = true
	ended := r.cause != ""
	r.mu.Unlock()
	if !ended && s.run == r && s.phase != pb.SandboxPhase_SANDBOX_PHASE_DELETING {
		s.set(pb.SandboxPhase_SANDBOX_PHASE_READY, reasonReady, "")
	}
}

// launch starts the processes of a run, unless the sandbox is being removed.
func (s *sandbox) launch(r *run, failure string) bool {
	s.launching.Lock()
	defer s.launching.Unlock()
	s.mu.Lock()
	phase := s.phase
	s.mu.Unlock()
	if phase != pb.SandboxPhase_SANDBOX_PHASE_PROVISIONING && phase != pb.SandboxPhase_SANDBOX_PHASE_STARTING {
		return false
	}
	err := r.launch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		r.clean()
		close(r.gone)
		if s.phase != pb.SandboxPhase_SANDBOX_PHASE_DELETING {
			s.set(pb.SandboxPhase_SANDBOX_PHASE_ERROR, failure, err.Error())
		}
		return false
	}
	s.run = r
	s.gateway.work.Go(r.watch)
	return true
}

func (r *run) launch() error {
	s, g := r.sandbox, r.sandbox.gateway
	bundle, state := s.bundleDir(), filepath.Join(s.dir, "r")
	for _, dir := range []string{bundle, state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if s.tmpSize == 0 {
		if err := os.Mkdir(s.tmpDir(), 0o777); err == nil {
			// As root its owner is root, so that code cannot take its rights away.
			if err := os.Chmod(s.tmpDir(), 0o777|os.ModeSticky); err != nil {
				return err
			}
		} else if !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := s.writeBundle(bundle); err != nil {
		return err
	}
	procs := ""
	if g.cgroup != nil {
		r.cgroup = g.cgroup.path(filepath.Base(g.dir) + "-" + filepath.Base(s.dir) + "-" + randomHex(3))
		procs = filepath.Join(r.cgroup, "cgroup.procs")
		// Written down first: a cgroup is no part of the folder that the next start
		// would find.
		if err := os.WriteFile(filepath.Join(s.dir, "cgroup"), []byte(r.cgroup+"\n"), 0o600); err != nil {
			return err
		}
		if err := g.cgroup.make(r.cgroup, s.memory); err != nil {
			return fmt.Errorf("memory cgroup: %w", err)
		}
	}
	args := []string{
		launcherName, s.dir, procs,
		"--root=" + state,
		"--log=" + filepath.Join(bundle, "log"),
		"--network=none", "--platform=systrap", "--ignore-cgroups", "--directfs=false",
		"--overlay2=none", "--file-access=exclusive", "--file-access-mounts=exclusive",
		"--host-uds=none", "--host-fifo=none", "--host-settings=ignore", "--fdlimit=16384",
	}
	if g.config.DebugLog != "" {
		args = append(args, "--debug", "--debug-log="+g.config.DebugLog+"/")
	}
	if !g.root {
		args = append(args, "--rootless")
	}
	// -exec-fd: the guest's PID 1 is a program of ours, which becomes the command.
	args = append(args, "run", "--bundle="+bundle, fmt.Sprintf("--exec-fd=%d", initFD), containerID)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	lifeEnd := os.NewFile(uintptr(pipe[0]), "life")
	defer lifeEnd.Close()
	r.life = os.NewFile(uintptr(pipe[1]), "life")
	r.cmd = &exec.Cmd{
		Path: g.config.Runtime, Args: args, Dir: "/", Env: []string{},
		ExtraFiles:  []*os.File{lifeEnd, g.program},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if !g.root {
		// gVisor finds the programs that write its user mappings by this.
		r.cmd.Env = []string{"PATH=" + filepath.Join(g.dir, "bin")}
		userNamespace(r.cmd.SysProcAttr)
	}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("start the sandbox: %w", err)
	}
	r.kernel = kernel{filepath.Join(state, "runsc-"+containerID+".sock")}
	return recordPIDs(filepath.Join(s.dir, "pids"), []int{r.cmd.Process.Pid})
}

// pickCPUs takes turns with the CPUs we may use. The caller holds g.mu.
func (g *Gateway) pickCPUs(count int) []int {
	var cpus []int
	for range min(count, len(g.cpus)) {
		cpus = append(cpus, g.cpus[g.nextCPU%len(g.cpus)])
		g.nextCPU++
	}
	return cpus
}

// userNamespace has a process started in a user namespace where the caller is
// the code's user, so that files in /tmp have an owner on both sides, with the
// capabilities there that gVisor needs to make a sandbox.
func userNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: guestUID, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: guestUID, HostID: os.Getegid(), Size: 1}}
	attr.AmbientCaps = []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID,
		unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_SYS_CHROOT,
		unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_NET_ADMIN,
	}
}

// writeMapHelpers writes the programs by which gVisor, as an ordinary user, has
// the user mappings of its file server written. The system's need a line in
// /etc/subuid, and we need a single mapping only, which needs no privilege.
func writeMapHelpers(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, file := range map[string]string{"newuidmap": "uid_map", "newgidmap": "gid_map"} {
		script := "#!/bin/sh\nprintf '%s %s %s\\n' \"$2\" \"$3\" \"$4\" >\"/proc/$1/" + file + "\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes note of gVisor's processes and of the guest's memory.
func (r *run) adopt() error {
	var state struct {
		GoferPID int `json:"goferPid"`
		Sandbox  struct {
			PID int `json:"pid"`
		} `json:"sandbox"`
	}
	name := filepath.Join(r.sandbox.dir, "r", containerID+"_sandbox:"+containerID+".state")
	data, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil || state.GoferPID <= 1 || state.Sandbox.PID <= 1 {
		return fmt.Errorf("gVisor's processes are not known: %w", err)
	}
	memory, err := r.kernel.memory()
	if err != nil {
		return fmt.Errorf("the guest's memory: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory, r.sandboxPID, r.goferPID = memory, state.Sandbox.PID, state.GoferPID
	for _, pid := range []int{state.Sandbox.PID, state.GoferPID, r.cmd.Process.Pid} {
		if err := confineProcess(pid, r.sandbox.cpuSet); err != nil {
			return fmt.Errorf("CPUs of %d: %w", pid, err)
		}
		if pid == r.cmd.Process.Pid {
			break
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("pidfd of %d: %w", pid, err)
		}
		r.pidfds[pid] = fd
	}
	return recordPIDs(filepath.Join(r.sandbox.dir, "pids"), []int{r.cmd.Process.Pid, state.Sandbox.PID, state.GoferPID})
}

// waitMain waits for the end of the main process: the guest ends with it.
func (r *run) waitMain() {
	status, err := r.kernel.wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cause != "":
	case err != nil:
		r.endLocked(reasonExited, "the user-space kernel has ended"+r.runtimeError())
	default:
		r.mainStatus = &status
		r.endLocked(reasonMain, "")
	}
}

// end kills every process of a run. The first cause given stays.
func (r *run) end(cause, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(cause, detail)
}

func (r *run) endLocked(cause, detail string) {
	if r.cause != "" {
		return
	}
	r.cause, r.detail = cause, detail
	// The launcher, stopped, starts nothing more and keeps its number, so what has it
	// as its parent is all there is.
	if r.cmd.Process.Signal(unix.SIGSTOP) == nil {
		for _, child := range childrenOf(r.cmd.Process.Pid) {
			if _, ok := r.pidfds[child]; !ok {
				if fd, err := unix.PidfdOpen(child, 0); err == nil {
					r.pidfds[child] = fd
				}
			}
		}
	}
	// The kernel first: without its file server it would kill the guest's processes
	// one by one, and say so.
	if fd, ok := r.pidfds[r.sandboxPID]; ok {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	for _, fd := range r.pidfds {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	_ = r.cmd.Process.Kill()
}

// ending reports whether somebody has ended the run.
func (r *run) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause != ""
}

// watch waits until a run is over, removes what it leaves, and says what became
// of the sandbox.
func (r *run) watch() {
	_ = r.cmd.Wait() // what it returns says nothing that the cause does not
	r.mu.Lock()
	if r.cause == "" {
		// The launcher went by itself or was killed; its children have died with it.
		r.cause, r.detail = reasonExited, "the sandbox's processes ended unasked"+r.runtimeError()
	}
	killed := r.cause == reasonExited || r.cause == reasonMain && exitCode(*r.mainStatus) == 128+int32(unix.SIGKILL)
	if killed && r.cgroup != "" && oomKilled(r.cgroup) {
		r.cause, r.detail = reasonMemory, fmt.Sprintf("memory limit of %d bytes passed", r.sandbox.memory)
	}
	cause, detail, status := r.cause, r.detail, r.mainStatus
	fds := r.pidfds
	r.pidfds = map[int]int{}
	if r.memory != nil {
		r.memory.Close()
		r.memory = nil
	}
	r.mu.Unlock()
	for _, fd := range fds {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		waitPidfd(fd, 30*time.Second)
		unix.Close(fd)
	}
	r.clean()
	r.sandbox.settle(r, cause, detail, status)
	close(r.gone)
}

// settle says what became of a sandbox whose run is over.
func (s *sandbox) settle(r *run, cause, detail string, status *uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == r {
		s.run = nil
	}
	if s.phase == pb.SandboxPhase_SANDBOX_PHASE_DELETING {
		return
	}
	switch cause {
	case reasonStopped:
		s.set(pb.SandboxPhase_SANDBOX_PHASE_STOPPED, reasonStopped, "")
	case reasonMain:
		code := exitCode(*status)
		s.exitCode = &code
		if code == 0 {
			s.set(pb.SandboxPhase_SANDBOX_PHASE_COMPLETED, reasonCompleted, "")
		} else {
			s.set(pb.SandboxPhase_SANDBOX_PHASE_ERROR, reasonMain, fmt.Sprintf("the main process ended with %d", code))
		}
	default:
		s.set(pb.SandboxPhase_SANDBOX_PHASE_ERROR, cause, detail)
	}
}

// clean removes what a run that is over leaves.
func (r *run) clean() {
	if r.life != nil {
		r.life.Close()
	}
	if r.cgroup != "" {
		removeCgroup(r.cgroup)
	}
	_ = removeTree(r.sandbox.bundleDir())
	for _, name := range []string{"r", "pids", "cgroup"} {
		_ = removeTree(filepath.Join(r.sandbox.dir, name))
	}
}

// runtimeError is the last thing that gVisor's processes complained of.
func (r *run) runtimeError() string {
	data, err := os.ReadFile(filepath.Join(r.sandbox.bundleDir(), "log"))
	if err != nil || len(data) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return ": " + lines[len(lines)-1]
}

// remove ends the sandbox and removes all of it. It returns when that is done.
func (s *sandbox) remove() {
	s.removal.Do(func() {
		s.mu.Lock()
		s.set(pb.SandboxPhase_SANDBOX_PHASE_DELETING, reasonDeleting, "")
		s.mu.Unlock()
		s.launching.Lock() // from here on no run begins
		r := s.current()
		s.launching.Unlock()
		if r != nil {
			r.end(reasonDeleting, "")
			<-r.gone
		}
		_ = removeTree(s.dir)
		s.gateway.mu.Lock()
		delete(s.gateway.sandboxes, s.name)
		s.gateway.mu.Unlock()
		s.mu.Lock()
		close(s.changed)
		s.changed = make(chan struct{})
		close(s.removed)
		s.mu.Unlock()
	})
	<-s.removed
}

// all lists the sandboxes in the order of their creation.
func (g *Gateway) all() []*sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.sandboxes), func(a, b *sandbox) int { return int(a.serial) - int(b.serial) })
}

// exitCode is the exit code that the API gives a wait status.
func exitCode(status uint32) int32 {
	ws := unix.WaitStatus(status)
	if ws.Signaled() {
		return 128 + int32(ws.Signal())
	}
	return int32(ws.ExitStatus())
}
