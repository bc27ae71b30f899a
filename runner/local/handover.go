//go:build linux

package local

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/runsc/cli/maincli"
)

// launcherName is the argv[0] of the process that starts one sandbox and lives
// as long as it does.
const launcherName = "plimsoll-sandbox"

// Descriptors that a launcher inherits.
const (
	lifeFD = 3 // a pipe; its end is the end of the gateway
	initFD = 4 // the program of the guest's PID 1
)

// HandOver gives the process to gVisor, and does not return, when this is one of
// the processes that a sandbox is made of. Call it first in main, and first in
// TestMain.
func HandOver() {
	if len(os.Args) == 0 {
		return
	}
	switch name := os.Args[0]; {
	case name == launcherName:
		launch(os.Args[1:])
	case strings.HasPrefix(name, "runsc"):
		confine(os.Args)
	case name == "/proc/self/exe": // gVisor's helper that unmounts /proc
	default:
		return
	}
	maincli.Main()
	os.Exit(1)
}

// launch prepares the process for gVisor's "run": args are the folder of the
// sandbox, the file by which to join its cgroup (or nothing) and runsc's own.
func launch(args []string) {
	if len(args) < 3 {
		fmt.Fprintln(os.Stderr, "plimsoll-sandbox: started by hand")
		os.Exit(2)
	}
	dir, procs := args[0], args[1]
	if procs != "" {
		if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
			fmt.Fprintf(os.Stderr, "join the memory cgroup: %v\n", err)
			os.Exit(2)
		}
	}
	unix.CloseOnExec(lifeFD)
	go outlive(dir)
	os.Args = append([]string{"runsc"}, args[2:]...)
}

// outlive waits for the end of the gateway, then ends the sandbox and removes
// what it kept: nobody else would before the next start. The processes are stopped
// before that, so that none writes any more, and killed after it, because gVisor
// ends this process with them. The notes of
// processes and cgroups stay for the next start, which removes the rest by them.
func outlive(dir string) {
	var b [1]byte
	for {
		n, err := unix.Read(lifeFD, b[:])
		if n == 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
			break
		}
	}
	for _, pid := range childrenOf(os.Getpid()) {
		_ = unix.Kill(pid, unix.SIGSTOP)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range names {
		if base := filepath.Base(name); base != "pids" && base != "cgroup" {
			_ = removeTree(name)
		}
	}
	for _, pid := range childrenOf(os.Getpid()) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

// childrenOf lists the living children of a process.
func childrenOf(pid int) []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var children []int
	for _, name := range tasks {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(field)
			if err == nil && !isZombie(child) {
				children = append(children, child)
			}
		}
	}
	return children
}

// bundleName is the name of a sandbox's bundle. It tells the sandbox process, which
// gets no environment and can soon read no file of ours, its memory in bytes and
// its CPUs.
func bundleName(memory int64, cpus []int) string {
	name := "b" + strconv.FormatInt(memory, 10)
	for _, cpu := range cpus {
		name += "-" + strconv.Itoa(cpu)
	}
	return name
}

func parseBundleName(name string) (memory uint64, cpus []int) {
	text, list, _ := strings.Cut(strings.TrimPrefix(name, "b"), "-")
	memory, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, nil
	}
	for _, text := range strings.Split(list, "-") {
		if cpu, err := strconv.Atoi(text); err == nil {
			cpus = append(cpus, cpu)
		}
	}
	return memory, cpus
}

// confine gives the sandbox process its CPUs, and the guest its memory limit as
// the machine's memory (node sizes its heap by it).
func confine(args []string) {
	var memory uint64
	var cpus []int
	boot, rootless := false, false
	for i, arg := range args {
		boot = boot || arg == "boot"
		rootless = rootless || strings.HasPrefix(arg, "--rootless")
		if value, ok := strings.CutPrefix(arg, "--bundle="); ok {
			memory, cpus = parseBundleName(filepath.Base(value))
		}
		// gVisor tells its sandbox process the machine's memory in an argument, and
		// the limit itself only when it manages the cgroup.
		if arg == "--total-memory" && i+1 < len(args) && memory > 0 {
			if have, err := strconv.ParseUint(args[i+1], 10, 64); err == nil && memory < have {
				args[i+1] = strconv.FormatUint(memory, 10)
			}
		}
	}
	if !boot {
		return
	}
	if len(cpus) > 0 && runtime.NumCPU() > len(cpus) {
		// The other processes of a sandbox start beside this one, on all CPUs, and are
		// moved later. This one must be confined before its runtime counts CPUs: as root
		// gVisor starts it again anyway, from this goroutine, else it is done here.
		runtime.LockOSThread() // what this thread executes inherits its CPUs
		err := setAffinity(0, cpus)
		if err == nil && rootless {
			err = syscall.Exec("/proc/self/exe", args, os.Environ())
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "confine the sandbox to %v: %v\n", cpus, err)
			os.Exit(2)
		}
	}
	if runtime.NumCPU() == 1 {
		// On one CPU a goroutine that waits for the guest would keep all others from
		// running for milliseconds. The guest still sees one.
		gomaxprocs.Add(1)
	}
}

// ErrNotStatic says that this program cannot run sandboxes.
var ErrNotStatic = errors.New("this program is dynamically linked and cannot run sandboxes; build it with CGO_ENABLED=0")

// CheckStatic returns ErrNotStatic for a program that gVisor cannot start again
// from its empty root.
func CheckStatic() error { return checkStatic("/proc/self/exe") }

func checkStatic(name string) error {
	file, err := elf.Open(name)
	if err != nil {
		return fmt.Errorf("look at the program: %w", err)
	}
	defer file.Close()
	for _, prog := range file.Progs {
		if prog.Type == elf.PT_INTERP {
			return ErrNotStatic
		}
	}
	return nil
}
