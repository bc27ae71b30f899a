//go:build linux

package local_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/runner/local"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// hold is a runner that will be killed: a process with sandboxes, one of them in
// the middle of a command.
func hold(dir string) {
	gate, err := local.New(local.Config{Dir: dir, Runtime: os.Getenv("PLIMSOLL_TEST_RUNTIME"), NoCgroup: os.Getenv("PLIMSOLL_TEST_NOCGROUP") != ""})
	if err != nil {
		fmt.Println("no gateway:", err)
		os.Exit(1)
	}
	base, httpClient := gate.Client()
	c := &client{&testing.T{}, httpClient, base, gate}
	for range 2 {
		name := c.box(createRequest(c))
		go c.exec(context.Background(), &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", "echo x >/tmp/file; setsid sleep 611 & sleep 612"}})
	}
	// One that is only just starting.
	must[pb.SandboxResponse](c, "CreateSandbox", createRequest(c))
	time.Sleep(100 * time.Millisecond)
	fmt.Println("held")
	select {}
}

// processesOf lists the processes whose command line names a folder.
func processesOf(dir string) []string {
	var found []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		data, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(data), dir) {
			found = append(found, fmt.Sprintf("%s: %.80q", filepath.Base(filepath.Dir(name)), data))
		}
	}
	return found
}

// A runner that is killed leaves no process, and its files go with the next start
// at the latest.
func TestRunnerKilled(t *testing.T) {
	conf := config(t)
	for _, way := range []string{"the runner", "the runner, its launchers stopped"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args[0] = "runner" // not what is handed over
		cmd.Env = append(os.Environ(), "PLIMSOLL_TEST_HOLD="+conf.Dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		if line != "held\n" {
			t.Fatalf("have %q", line)
		}
		before := processesOf(conf.Dir)
		if len(before) < 6 {
			t.Errorf("only %d processes: %q", len(before), before)
		}
		pids, _ := filepath.Glob(filepath.Join(conf.Dir, "i-*", "*", "pids"))
		if len(pids) == 0 {
			t.Fatal("no sandboxes")
		}
		instance := filepath.Base(filepath.Dir(filepath.Dir(pids[0])))
		if way != "the runner" {
			// Then nobody is left to clean up, and the next start has to.
			for _, name := range pids {
				data, _ := os.ReadFile(name)
				var pid int
				if _, err := fmt.Sscan(string(data), &pid); err == nil {
					_ = syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
		}
		begin := time.Now()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if way == "the runner" {
			for len(processesOf(conf.Dir)) > 0 && time.Since(begin) < 10*time.Second {
				time.Sleep(5 * time.Millisecond)
			}
			if left := processesOf(conf.Dir); len(left) > 0 {
				t.Errorf("left running: %q", left)
			}
			boxes, _ := filepath.Glob(filepath.Join(conf.Dir, "i-*", "*", "tmp"))
			t.Logf("all %d processes gone after %v; folders left %q", len(before), time.Since(begin), boxes)
		}
		count, err := local.Cleanup(conf.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for len(processesOf(conf.Dir)) > 0 && time.Since(begin) < 10*time.Second {
			time.Sleep(5 * time.Millisecond)
		}
		t.Logf("%s: cleanup took %d sandboxes", way, count)
		if left := processesOf(conf.Dir); len(left) > 0 {
			t.Errorf("%s: left running after the cleanup: %q", way, left)
		}
		if left, _ := filepath.Glob(filepath.Join(conf.Dir, "i-*")); len(left) > 0 {
			t.Errorf("%s: left %q", way, left)
		}
		for _, at := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/*", "/sys/fs/cgroup/memory/*/*"} {
			if groups, _ := filepath.Glob(filepath.Join(at, "plimsoll-"+instance+"-*")); len(groups) > 0 {
				t.Errorf("%s: left %q", way, groups)
			}
		}
	}
}

// A launcher that is killed takes its sandbox with it.
func TestLauncherKilled(t *testing.T) {
	conf := config(t)
	c := newClient(t, conf)
	name := c.box(createRequest(c))
	pids, _ := filepath.Glob(filepath.Join(conf.Dir, "i-*", "*", "pids"))
	data, err := os.ReadFile(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(data), &pid); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	box := c.untilError(name)
	t.Logf("%v: %v; left %q", time.Since(begin), box.Status.Conditions[0].Reason, processesOf(conf.Dir))
	c.delete(name)
	if left := processesOf(conf.Dir); len(left) > 0 {
		t.Errorf("left running: %q", left)
	}
}

// A program that gVisor could not start again is refused before anything is made.
func TestNotStatic(t *testing.T) {
	conf := config(t)
	if conf.Runtime = "/bin/sh"; local.CheckStatic() != nil {
		conf.Runtime = "" // this very program
	}
	if _, err := local.New(conf); !errors.Is(err, local.ErrNotStatic) {
		t.Errorf("have %v", err)
	}
	if _, err := os.Stat(conf.Dir); err == nil {
		t.Error("a folder was made")
	}
}

// A machine that forbids user namespaces gets a refusal by name, and nothing runs.
func TestForbiddenNamespaces(t *testing.T) {
	if dir := os.Getenv("PLIMSOLL_TEST_FORBIDDEN"); dir != "" {
		_, err := local.New(local.Config{Dir: dir, Runtime: os.Getenv("PLIMSOLL_TEST_RUNTIME")})
		fmt.Println(errors.Is(err, local.ErrNamespaces), err)
		return
	}
	conf := config(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// In a user namespace of its own, the test can forbid more of them.
	cmd := exec.Command("/bin/sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" -test.run '^TestForbiddenNamespaces$'`, self)
	cmd.Env = append(os.Environ(), "PLIMSOLL_TEST_FORBIDDEN="+conf.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "true ") {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	_ = os.RemoveAll(conf.Dir)
}
