//go:build linux

package local_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// A 10 MiB input arrives whole, its end ends the program, and large outputs come
// in frames of at most 32 KiB.
func TestLargeInput(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	data := make([]byte, 10<<20)
	_, _ = rand.Read(data)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	res := c.interactive(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/cat"}}, bytes.NewReader(data))
	if res.err != nil || res.code != 0 || !bytes.Equal(res.stdout.Bytes(), data) {
		t.Errorf("code %d, %d bytes back, %v", res.code, res.stdout.Len(), res.err)
	}
	t.Logf("10 MiB through cat: %v, largest frame %d", time.Since(begin), res.frame)
	if res.frame > 32<<10 {
		t.Errorf("a frame of %d bytes", res.frame)
	}
	// A program that does not read its input is not held up by it.
	res = c.interactive(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/true"}}, bytes.NewReader(data))
	if res.err != nil || res.code != 0 {
		t.Errorf("unread input: code %d, %v", res.code, res.err)
	}
}

// Cancelling a command ends it, its group and its descendants.
func TestCancel(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	for _, script := range []string{
		"sleep 601",
		"sleep 602 & sleep 603 & wait",
		"trap '' TERM INT; while :; do sleep 604; done",
		"setsid sleep 605 & sleep 606",
		"while :; do (sleep 607 &) ; sleep 0.01; done",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		begin := time.Now()
		res := c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", script}})
		cancel()
		if res.err == nil || res.code != -1 {
			t.Errorf("%s: code %d, %v", script, res.code, res.err)
		}
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			left, _ := c.sh(name, "ps -eo args | grep '[s]leep 60'; true")
			if left == "" {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s: left %q", script, left)
				break
			}
		}
		t.Logf("%s: %v", script, time.Since(begin))
	}
}

// A process that left the command's session and holds its output does not keep
// the exec, and what the command wrote is not lost.
func TestLeftoverHoldsOutput(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	for _, script := range []string{
		"setsid sh -c '(sleep 600 &)' ; echo done",
		"(setsid sleep 600 &) ; echo done",
		"(setsid sh -c 'while :; do echo x; done' &) ; echo done",
	} {
		begin := time.Now()
		out, code := c.sh(name, script)
		if code != 0 || !strings.Contains(out, "done\n") {
			t.Errorf("%s: %d %.100q", script, code, out)
		}
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("%s: took %v", script, d)
		}
	}
	c.want(name, "head -c 3000000 /dev/zero | wc -c", "3000000", 0)
}

func TestStopStart(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	first := c.until(name, pb.SandboxPhase_SANDBOX_PHASE_READY)
	c.want(name, "mkdir -p /tmp/work/d && echo kept >/tmp/work/d/file && chmod 0 /tmp/work/d/file && ln -s /etc/passwd /tmp/l && mkfifo /tmp/f; stat -c '%u %g' /tmp/work", "1500 1500", 0)
	begin := time.Now()
	res := must[pb.SandboxResponse](c, "StopSandbox", &pb.StopSandboxRequest{Name: name, WorkspaceScope: scope})
	t.Logf("stop: %v", time.Since(begin))
	if res.Sandbox.Status.Phase != pb.SandboxPhase_SANDBOX_PHASE_STOPPED {
		t.Fatalf("phase after stop: %v", res.Sandbox.Status.Phase)
	}
	if res := c.exec(t.Context(), &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/true"}}); connect.CodeOf(res.err) != connect.CodeFailedPrecondition {
		t.Errorf("exec while stopped: %v", res.err)
	}
	begin = time.Now()
	must[pb.SandboxResponse](c, "StartSandbox", &pb.StartSandboxRequest{Name: name, WorkspaceScope: scope})
	second := c.until(name, pb.SandboxPhase_SANDBOX_PHASE_READY)
	t.Logf("start: %v", time.Since(begin))
	if first.Status.MainProcessInstanceId == second.Status.MainProcessInstanceId || first.Metadata.Id != second.Metadata.Id {
		t.Error("the instance is the same or the id another")
	}
	c.want(name, "chmod 400 /tmp/work/d/file && cat /tmp/work/d/file && readlink /tmp/l && stat -c '%u %g' /tmp/work/d/file", "kept\n/etc/passwd\n1500 1500", 0)
	c.delete(name)
}

func TestTmpfsSize(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(withTmpfs(createRequest(c), 64<<20))
	c.want(name, "dd if=/dev/zero of=/tmp/big bs=1M count=100 2>/dev/null; stat -c %s /tmp/big; stat -f -c %T /tmp", "67108864\ntmpfs", 0)
}

// Nothing but /tmp and the devices can be written, at every mount point and in
// every folder of the tree.
func TestOnlyTmpWritable(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	out, _ := c.sh(name, `cut -d' ' -f2 /proc/mounts; find / -xdev -type d -writable 2>/dev/null; for d in $(cut -d' ' -f2 /proc/mounts | sort -u) /etc /usr/local /dev/shm /dev/pts /var/tmp /run /home /root /sys /proc/sys/kernel; do (echo x >$d/.probe) 2>/dev/null && echo WRITABLE $d; done; find /dev /sys -writable ! -type l 2>/dev/null | sed 's/^/W /'; true`)
	t.Log(out)
	for line := range strings.Lines(out) {
		if d, ok := strings.CutPrefix(strings.TrimSpace(line), "WRITABLE "); ok && d != "/tmp" {
			t.Errorf("%s is writable", d)
		}
	}
	out, _ = c.sh(name, `grep -E 'Cap|NoNewPrivs|Uid|Gid|Groups|Seccomp' /proc/self/status; id; ulimit -u; nproc; grep MemTotal /proc/meminfo; ls -la / /dev /etc; cat /proc/mounts; cat /proc/self/environ | tr '\0' '\n'; cat /proc/1/cmdline | tr '\0' ' '; cat /proc/1/environ | tr '\0' '\n'; cat /proc/cmdline /proc/version; ls /proc; hostname`)
	t.Log(out)
}

func TestNoNetwork(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	out, _ := c.sh(name, `cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; node -e '
		const net=require("net");
		for (const [h,p] of [["1.1.1.1",53],["169.254.169.254",80],["127.0.0.1",22],["127.0.0.1",17670],["10.0.0.1",80]]) {
			const s=net.connect(p,h); s.setTimeout(1500); s.on("connect",()=>{console.log("CONNECTED",h,p);process.exit(1)}); s.on("error",()=>{}); s.on("timeout",()=>s.destroy());
		}
		const d=require("dgram").createSocket("udp4"); d.send("x",53,"1.1.1.1",(e)=>{console.log("udp",e?e.code:"SENT");d.close()});
		try { require("dgram").createSocket("udp4") } catch(e) {}
	'; for f in /run/*.sock /var/run/*.sock; do echo sock $f; done`)
	t.Log(out)
	if strings.Contains(out, "CONNECTED") || strings.Contains(out, "SENT") {
		t.Errorf("reached the network: %s", out)
	}
}

// Secrets of the host are nowhere in the guest: not in its tree, not in any
// environment.
func TestHostSecretsNotVisible(t *testing.T) {
	canary := "canary-" + rand.Text()
	t.Setenv("PLIMSOLL_SECRET", canary)
	planted := 0
	for _, dir := range []string{"/root", "/home", "/var", "/var/tmp", "/run", "/tmp", "/opt", "/srv", "/mnt", os.Getenv("HOME"), "."} {
		file := filepath.Join(dir, ".plimsoll-"+canary)
		if os.WriteFile(file, []byte(canary), 0o644) != nil {
			continue
		}
		planted++
		t.Cleanup(func() { os.Remove(file) })
	}
	if planted == 0 {
		t.Fatal("no canary could be planted")
	}
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	out, _ := c.sh(name, `find / -name '*plimsoll*' ! -path '/proc/*' 2>/dev/null; find / -path /proc -prune -o -path /usr -prune -o -path /sys -prune -o -type f -size -64k -print0 2>/dev/null | xargs -0 grep -l canary- 2>/dev/null; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep canary-; for p in /proc/[0-9]*; do ls -l $p/root/ $p/cwd/ $p/fd/ 2>/dev/null | grep plimsoll; done; ls -d /root /home /var /run /srv /mnt /opt 2>/dev/null; true`)
	// The command line of the search itself names the word.
	for line := range strings.Lines(out) {
		if strings.Contains(line, canary) || strings.HasPrefix(line, "/") && line != "/opt\n" {
			t.Errorf("visible: %s", line)
		}
	}
	t.Logf("%d canaries planted; output %q", planted, out)
}

// 10,000 forks: the process limit refuses those past it, or the memory limit, which
// so many processes reach first, ends the sandbox.
func TestForkBomb(t *testing.T) {
	c := newClient(t, config(t))
	const script = `$| = 1; my ($ok, $no) = (0, 0);
		for (1..10000) {
			my $p = fork();
			if (!defined $p) { last if ++$no > 100; next }
			if ($p == 0) { sleep 600; exit }
			$ok++
		}
		print "$ok $no\n"; kill 9, -$$;`
	for memory, ends := range map[string]bool{"256Mi": true, "4Gi": false} {
		name := c.box(withMemory(createRequest(c), memory))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		res := c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/usr/bin/perl", "-e", script}})
		cancel()
		status := must[pb.SandboxResponse](c, "GetSandbox", &pb.GetSandboxRequest{Name: name, WorkspaceScope: scope}).Sandbox.Status
		reason := status.Conditions[0].Reason
		var forked, refused int
		_, _ = fmt.Sscan(res.stdout.String(), &forked, &refused)
		switch {
		case res.code != 137:
			t.Errorf("%s: code %d, %v, want 137", memory, res.code, res.err)
		case ends && reason != "MemoryLimitExceeded":
			t.Errorf("%s: have %s after %q", memory, reason, res.stdout.String())
		case !ends && (forked < 900 || forked > 1024 || refused != 101 || reason != "DependenciesReady"):
			t.Errorf("%s: have %d forks, %d refused, %s; want at most 1024", memory, forked, refused, reason)
		}
		c.delete(name)
	}
}

func TestMemoryHog(t *testing.T) {
	c := newClient(t, config(t))
	for _, script := range []string{
		`node -e 'const a=[]; for(;;) a.push(Buffer.alloc(16<<20,1))'`,
		`perl -e '$x = "a" x (2000<<20); sleep 5'`,
		`dd if=/dev/zero of=/tmp/x bs=1M count=2000; sleep 1`,
	} {
		req := withMemory(createRequest(c), "256Mi")
		if strings.HasPrefix(script, "dd") {
			req = withTmpfs(req, 4<<30)
		}
		name := c.box(req)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		res := c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", script}})
		cancel()
		box := must[pb.SandboxResponse](c, "GetSandbox", &pb.GetSandboxRequest{Name: name, WorkspaceScope: scope}).Sandbox
		t.Logf("%.20s: %v code %d %.200q %v phase %v %v", script, time.Since(begin), res.code, res.stderr.String(), res.err, box.Status.Phase, box.Status.Conditions[0])
		if res.code != 137 {
			t.Errorf("%.20s: code %d, want 137", script, res.code)
		}
	}
}

func TestDiskBudget(t *testing.T) {
	conf := config(t)
	conf.DiskBudget = 64 << 20
	c := newClient(t, conf)
	name := c.box(createRequest(c))
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res := c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", "for i in 1 2 3 4 5 6; do dd if=/dev/zero of=/tmp/x$i bs=1M count=60; done; sleep 60"}})
	box := c.untilError(name)
	t.Logf("%v code %d %v %v", time.Since(begin), res.code, res.err, box.Status.Conditions[0])
	if box.Status.Conditions[0].Reason != "DiskBudgetExceeded" {
		t.Errorf("reason %q", box.Status.Conditions[0].Reason)
	}
	c.delete(name)
}

func (c *client) untilError(name string) *pb.Sandbox {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		box := must[pb.SandboxResponse](c, "GetSandbox", &pb.GetSandboxRequest{Name: name, WorkspaceScope: scope}).Sandbox
		if box.Status.Phase == pb.SandboxPhase_SANDBOX_PHASE_ERROR || box.Status.Phase == pb.SandboxPhase_SANDBOX_PHASE_COMPLETED {
			return box
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("phase %v", box.Status.Phase)
		}
	}
}

// The end of the main process is the end of the sandbox.
func TestMainProcess(t *testing.T) {
	c := newClient(t, config(t))
	t.Run("kill pid 1", func(t *testing.T) {
		name := c.box(createRequest(c))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		res := c.exec(ctx, &pb.ExecSandboxRequest{Sandbox: name, Command: []string{"/bin/sh", "-c", "kill -9 1; kill -15 1; sleep 1; echo alive"}})
		box := must[pb.SandboxResponse](c, "GetSandbox", &pb.GetSandboxRequest{Name: name, WorkspaceScope: scope}).Sandbox
		t.Logf("code %d %q %v; phase %v %v", res.code, res.stdout.String(), res.err, box.Status.Phase, box.Status.Conditions[0])
	})
	for _, tc := range []struct {
		command []string
		phase   pb.SandboxPhase
		code    int32
	}{
		{[]string{"/bin/sh", "-c", "sleep 1"}, pb.SandboxPhase_SANDBOX_PHASE_COMPLETED, 0},
		{[]string{"/bin/sh", "-c", "sleep 1; exit 7"}, pb.SandboxPhase_SANDBOX_PHASE_ERROR, 7},
		{[]string{"nope"}, pb.SandboxPhase_SANDBOX_PHASE_ERROR, 127},
	} {
		req := createRequest(c)
		req.Spec.Command = tc.command
		must[pb.SandboxResponse](c, "CreateSandbox", req)
		box := c.untilError(req.Name)
		t.Logf("%q: %v %v", tc.command, box.Status.Phase, box.Status.Conditions[0])
		if box.Status.Phase != tc.phase {
			t.Errorf("%q: phase %v, want %v", tc.command, box.Status.Phase, tc.phase)
		}
	}
}

// Orphans are reaped, or they would fill the process table of a session.
func TestOrphansReaped(t *testing.T) {
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	for range 3 {
		c.want(name, "for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c true & ) ; done; sleep 0.3", "", 0)
	}
	c.want(name, "grep -l '^State:.*Z' /proc/[0-9]*/status | wc -l", "0", 0)
}

func TestManyAtOnce(t *testing.T) {
	c := newClient(t, config(t))
	var wg sync.WaitGroup
	begin := time.Now()
	for range 20 {
		wg.Go(func() {
			req := createRequest(c)
			if _, err := rpc[pb.SandboxResponse](c, "CreateSandbox", req); err != nil {
				t.Error(err)
				return
			}
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
				res, err := rpc[pb.SandboxResponse](c, "GetSandbox", &pb.GetSandboxRequest{Name: req.Name, WorkspaceScope: scope})
				if err != nil {
					t.Error(err)
					return
				}
				if res.Sandbox.Status.Phase == pb.SandboxPhase_SANDBOX_PHASE_READY {
					break
				}
			}
			res := c.exec(t.Context(), &pb.ExecSandboxRequest{Sandbox: req.Name, Command: []string{"node", "-e", "console.log(1+1)"}})
			if res.stdout.String() != "2\n" || res.code != 0 {
				t.Errorf("%s: %d %q %q %v", req.Name, res.code, res.stdout.String(), res.stderr.String(), res.err)
			}
			if _, err := rpc[pb.DeleteSandboxResponse](c, "DeleteSandbox", &pb.DeleteSandboxRequest{Name: req.Name, WorkspaceScope: scope}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("20 sandboxes, node in each: %v", time.Since(begin))
}

// Folders nested without end, and without rights, are removed with the sandbox.
func TestHostileTree(t *testing.T) {
	conf := config(t)
	c := newClient(t, conf)
	for _, script := range []string{
		`perl -e 'chdir "/tmp"; for (1..3000) { mkdir "d" or die; chdir "d" or die } chmod 0, "/tmp/d"'`,
		`mkdir -p /tmp/a/b/c; echo x >/tmp/a/b/c/f; chmod 0 /tmp/a/b/c/f /tmp/a/b/c /tmp/a/b /tmp/a`,
		`perl -e 'chdir "/tmp"; for (1..300) { mkdir "e", 0700; open(F, ">", "f"); mkdir "g"; chmod 0, "g"; chdir "e" }'`,
		`ln -s / /tmp/root; ln -s /tmp /tmp/loop; mkfifo /tmp/p; perl -e 'open(F, ">", "/tmp/" . "n" x 255)'; printf x >"/tmp/$(printf 'a\nb')"`,
	} {
		name := c.box(createRequest(c))
		// The watchdog may take a tree that is too deep to measure for over its budget.
		if out, code := c.sh(name, script); code != 0 && (code != 137 || !strings.HasPrefix(script, "perl")) {
			t.Errorf("%.40s: %d %s", script, code, out)
		}
		c.delete(name)
		if left, _ := filepath.Glob(filepath.Join(conf.Dir, "i-*", "*", "tmp")); len(left) > 0 {
			t.Errorf("%.40s: left %q", script, left)
		}
	}
}

// Every thread of a sandbox, on the host, has its CPUs and no others.
func TestCPUs(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU")
	}
	conf := config(t)
	conf.CPUs = 1
	c := newClient(t, conf)
	name := c.box(createRequest(c))
	c.want(name, "nproc; node -p 'os.cpus().length'; perl -e 'for (1..4) { if (fork() == 0) { my $t = time; 1 while time < $t + 1; exit } } 1 while wait() > 0'", "1\n1", 0)
	pids := map[string]bool{}
	for _, line := range processesOf(conf.Dir) {
		pid, _, _ := strings.Cut(line, ":")
		pids[pid] = true
	}
	for changed := true; changed; { // and what they have made
		changed = false
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, file := range stats {
			data, _ := os.ReadFile(file)
			fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
			pid := filepath.Base(filepath.Dir(file))
			if len(fields) > 1 && pids[fields[1]] && !pids[pid] {
				pids[pid], changed = true, true
			}
		}
	}
	seen := map[string]int{}
	for pid := range pids {
		tasks, _ := filepath.Glob("/proc/" + pid + "/task/*/status")
		for _, task := range tasks {
			data, _ := os.ReadFile(task)
			if _, rest, found := strings.Cut(string(data), "Cpus_allowed_list:\t"); found {
				list, _, _ := strings.Cut(rest, "\n")
				seen[list]++
			}
		}
	}
	t.Logf("%d processes, threads by CPUs: %v", len(pids), seen)
	if len(seen) != 1 || seen["0"]+seen["1"] == 0 && runtime.NumCPU() == 2 {
		t.Errorf("CPUs: %v", seen)
	}
}
