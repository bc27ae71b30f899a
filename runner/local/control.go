//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/runsc/boot"
)

// containerID is the name every sandbox has in its own state folder. The path of
// its control socket must stay below 108 bytes.
const containerID = "sandbox"

// A kernel speaks to the user-space kernel of one sandbox, over its control
// socket. It is how commands are started: running the runtime for each costs
// five times as much.
type kernel struct{ socket string }

func (k kernel) call(method string, arg, result any) error {
	conn, err := client.ConnectTo(k.socket)
	if err != nil {
		return fmt.Errorf("connect to the sandbox: %w", err)
	}
	defer conn.Close()
	return conn.Call(method, arg, result)
}

// running says whether the main process was started and has not ended.
func (k kernel) running() (bool, error) {
	id := containerID
	var state boot.ContainerRuntimeState
	if err := k.call(boot.ContMgrContainerRuntimeState, &id, &state); err != nil {
		return false, err
	}
	return state == boot.RuntimeStateRunning, nil
}

// wait blocks until the main process has ended and returns its wait status.
func (k kernel) wait() (uint32, error) {
	id := containerID
	var status uint32
	err := k.call(boot.ContMgrWait, &id, &status)
	return status, err
}

// startKiller runs a command as the guest's root with the one capability to signal
// every process: it works when code has used up its processes.
func (k kernel) startKiller(argv []string, null *os.File) (int32, error) {
	kill := auth.CapabilitySetOf(linux.CAP_KILL)
	args := control.ExecArgs{
		Argv: argv, Envv: []string{"PATH=/usr/bin:/bin"}, WorkingDirectory: "/",
		NoNewPrivileges: true,
		Capabilities:    &auth.TaskCapabilities{PermittedCaps: kill, EffectiveCaps: kill, BoundingCaps: kill},
		ContainerID:     containerID,
		FilePayload:     control.NewFilePayload(map[int]*os.File{0: null, 1: null, 2: null}, nil),
	}
	var pid int32
	err := k.call(boot.ContMgrExecuteAsync, &args, &pid)
	return pid, err
}

// start runs a command and returns its PID in the guest, which is also the
// number of its process group and session.
func (k kernel) start(argv, env []string, dir string, files [3]*os.File) (int32, error) {
	args := control.ExecArgs{
		Argv:             argv,
		Envv:             env,
		WorkingDirectory: dir,
		KUID:             guestUID,
		KGID:             guestUID,
		NoNewPrivileges:  true,
		Capabilities:     &auth.TaskCapabilities{},
		ContainerID:      containerID,
		FilePayload:      control.NewFilePayload(map[int]*os.File{0: files[0], 1: files[1], 2: files[2]}, nil),
	}
	var pid int32
	err := k.call(boot.ContMgrExecuteAsync, &args, &pid)
	return pid, err
}

// waitPID blocks until a command that start returned has ended.
func (k kernel) waitPID(pid int32) (uint32, error) {
	args := boot.WaitPIDArgs{PID: pid, CID: containerID}
	var status uint32
	err := k.call(boot.ContMgrWaitPID, &args, &status)
	return status, err
}

// signal sends a signal to one process of the guest.
func (k kernel) signal(pid, signo int32) error {
	args := boot.SignalArgs{CID: containerID, PID: pid, Signo: signo, Mode: boot.DeliverToProcess}
	return k.call(boot.ContMgrSignal, &args, nil)
}

// processes lists the guest's.
func (k kernel) processes() ([]*control.Process, error) {
	id := containerID
	var list []*control.Process
	err := k.call(boot.ContMgrProcesses, &id, &list)
	return list, err
}

// memory returns the file that holds all memory of the guest: its size on disk
// is what the guest uses.
func (k kernel) memory() (*os.File, error) {
	var usage control.MemoryUsageFile
	if err := k.call(boot.UsageUsageFD, &control.MemoryUsageFileOpts{Version: 1}, &usage); err != nil {
		return nil, err
	}
	for i, file := range usage.Files {
		if i != 1 {
			file.Close()
		}
	}
	if len(usage.Files) < 2 {
		return nil, errors.New("the sandbox named no memory file")
	}
	return usage.Files[1], nil
}

// waitRunning waits until the guest's PID 1 has become the main process, or until
// gone is closed.
func (k kernel) waitRunning(gone <-chan struct{}) error {
	for {
		if up, err := k.running(); err == nil && up {
			// It is called after the descriptor of its program before it has become one
			// of the guest's, which env may still be looking for.
			list, err := k.processes()
			if err == nil && len(list) > 0 && !strings.HasPrefix(list[0].Cmd, "host:") && list[0].Cmd != "env" {
				return nil
			}
		}
		select {
		case <-gone:
			return errors.New("it ended while it was starting")
		case <-time.After(time.Millisecond):
		}
	}
}
