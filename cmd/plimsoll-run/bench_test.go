//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runner"
	"github.com/plimsoll-attest/plimsoll/runner/local"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
)

// A rig is a runner on a gateway of its own.
type rig struct {
	*runner.Runner
	gateway *local.Gateway
	client  openshell.Gateway
	dir     string
}

func newRig(b *testing.B) *rig {
	b.Helper()
	dir, err := os.MkdirTemp("", "pl")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	gateway, err := local.New(local.Config{Dir: dir, Runtime: programFile})
	if err != nil {
		b.Fatal(err)
	}
	base, hc := gateway.Client()
	client, err := openshell.Open(b.Context(), base, hc)
	if err != nil {
		b.Fatal(err)
	}
	r, err := runner.New(client, runner.Config{Instance: "bench", Local: true, Policy: localPolicy(gateway)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			b.Error(err)
		}
		hc.CloseIdleConnections()
		if err := gateway.Close(); err != nil {
			b.Error(err)
		}
	})
	return &rig{r, gateway, client, dir}
}

// A bareRuntime is gVisor's own command, linked into our program, with a bundle
// like the gateway's: what our figures are compared with.
type bareRuntime struct {
	t             testing.TB
	bundle, state string
}

func newBare(t testing.TB) *bareRuntime {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("gVisor's own command makes sandboxes for root only")
	}
	dir, err := os.MkdirTemp("", "pl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bareRuntime{t, filepath.Join(dir, "bare"), filepath.Join(dir, "bare-r")}
	root := filepath.Join(b.bundle, "rootfs")
	for _, name := range []string{"proc", "dev", "sys", "tmp", "usr", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	mount := func(at, kind, source string, options ...string) map[string]any {
		return map[string]any{"destination": at, "type": kind, "source": source, "options": options}
	}
	spec := map[string]any{
		"ociVersion": "1.1.0",
		"process": map[string]any{
			"user": map[string]any{"uid": 1500, "gid": 1500}, "args": []string{"/usr/bin/sleep", "2147483647"},
			"env": []string{"PATH=/usr/bin:/bin"}, "cwd": "/tmp", "noNewPrivileges": true, "capabilities": map[string]any{},
		},
		"root": map[string]any{"path": root, "readonly": true}, "hostname": "bare",
		"mounts": []any{
			mount("/proc", "proc", "proc"), mount("/usr", "bind", "/usr", "rbind", "ro"),
			mount("/tmp", "tmpfs", "tmpfs", "size=67108864", "mode=1777"),
		},
		"linux": map[string]any{"namespaces": []any{
			map[string]any{"type": "pid"},
			map[string]any{"type": "network"},
			map[string]any{"type": "ipc"},
			map[string]any{"type": "uts"},
			map[string]any{"type": "mount"},
		}},
	}
	data, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.bundle, "config.json"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bareRuntime) run(args ...string) {
	b.t.Helper()
	cmd := exec.Command(programFile, append([]string{
		"--root=" + b.state, "--network=none", "--platform=systrap", "--ignore-cgroups", "--overlay2=none", "--host-settings=ignore",
	}, args...)...)
	cmd.Args[0] = "runsc"
	cmd.Env = []string{}
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("runsc %q: %v", args, err)
	}
}

// start makes a sandbox and starts its main process.
func (b *bareRuntime) start(id string) {
	b.t.Helper()
	b.run("create", "--bundle="+b.bundle, id)
	b.run("start", id)
}

func benchCall(b *testing.B, req record.Request) *call.Call {
	b.Helper()
	asked, refused := call.New(req)
	if refused != nil {
		b.Fatal(refused)
	}
	return asked
}

// measure runs the two by turns, with what is between outside both, and reports
// their medians and the ratio of those.
func measure(b *testing.B, bare, ours, between func()) {
	b.Helper()
	var times [2][]time.Duration
	for b.Loop() {
		for i, f := range []func(){bare, ours} {
			began := time.Now()
			f()
			times[i] = append(times[i], time.Since(began))
			between()
		}
	}
	median := func(i int) float64 {
		slices.Sort(times[i])
		return float64(times[i][len(times[i])/2]) / float64(time.Millisecond)
	}
	b.ReportMetric(median(0), "ms/bare")
	b.ReportMetric(median(1), "ms/call")
	b.ReportMetric(median(1)/median(0), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSession compares calls of a session, end to end (read-back, exec,
// record), with gVisor's own exec of the same command.
func BenchmarkSession(b *testing.B) {
	r := newRig(b)
	s, err := r.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	bare := newBare(b)
	bare.start("x")
	defer bare.run("delete", "--force", "x")
	const node = "console.log(1+1)"
	script := record.Request{Project: &record.ProjectRun{Steps: []string{"echo hi"}}}
	steps := record.Request{Project: &record.ProjectRun{
		Files: []record.ProjectFile{{Path: "a.sh", Content: "echo hi\n"}}, Steps: []string{"sh a.sh", "sh a.sh"}, Artifacts: []string{"a.sh"},
	}}
	for _, c := range []struct {
		name string
		req  record.Request
		bare func()
	}{
		{"shell", script, func() { bare.run("exec", "x", "/bin/sh", "-c", "echo hi") }},
		{"node", record.Request{JavaScript: &record.JavaScriptRun{Code: node}}, func() { bare.run("exec", "x", "/usr/bin/env", "node", "-e", node) }},
		// A file, two steps, an artifact: four execs.
		{"project", steps, func() {
			for range 4 {
				bare.run("exec", "x", "/bin/sh", "-c", "echo hi")
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			asked := benchCall(b, c.req)
			measure(b, c.bare, func() {
				if _, err := s.Run(b.Context(), asked); err != nil {
					b.Fatal(err)
				}
			}, func() { time.Sleep(100 * time.Millisecond) }) // a sweep is not the caller's time
		})
	}
}

// BenchmarkRun compares a single run with gVisor's own create, start and exec.
func BenchmarkRun(b *testing.B) {
	r := newRig(b)
	bare := newBare(b)
	n := 0
	asked := benchCall(b, record.Request{JavaScript: &record.JavaScriptRun{Code: "console.log(1+1)"}})
	measure(b, func() {
		n++
		id := fmt.Sprintf("x%d", n)
		bare.start(id)
		bare.run("exec", id, "/usr/bin/env", "node", "-e", "console.log(1+1)")
	}, func() {
		if _, err := r.Run(b.Context(), asked); err != nil {
			b.Fatal(err)
		}
	}, func() { // deletes are nobody's time
		for i := 1; i <= n; i++ {
			bare.run("delete", "--force", fmt.Sprintf("x%d", i))
		}
		n = 0
		for b.Context().Err() == nil {
			if all, err := r.client.List(b.Context(), nil); err != nil || len(all) == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// BenchmarkSustained runs calls in several sessions at once for as long as
// -benchtime says, each waiting for the sweep of the one before. It reports calls
// a second and what has grown between the first tenth and the end: memory and
// descriptors of this program and of the sandboxes, processes and goroutines.
func BenchmarkSustained(b *testing.B) {
	for _, c := range []struct {
		name string
		req  record.Request
	}{
		{"shell", record.Request{Project: &record.ProjectRun{Steps: []string{"echo hi"}}}},
		{"leftover", record.Request{Project: &record.ProjectRun{Steps: []string{"echo hi; (sleep 100 &)"}}}},
		{"node", record.Request{JavaScript: &record.JavaScriptRun{Code: "console.log(1+1)"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b)
			var sessions []*runner.Session
			for range 4 {
				s, err := r.Open(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close(context.Background())
				sessions = append(sessions, s)
			}
			asked := benchCall(b, c.req)
			rounds := func(n int) {
				var all sync.WaitGroup
				for _, s := range sessions {
					all.Go(func() {
						for range max(1, n/len(sessions)) {
							if _, err := s.Run(b.Context(), asked); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
			}
			rounds(b.N / 10)
			before := r.usage(b)
			b.ResetTimer()
			rounds(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			after := r.usage(b)
			for unit, n := range after {
				b.ReportMetric(n-before[unit], "+"+unit)
			}
		})
	}
}

// usage measures this program and its sandboxes.
func (r *rig) usage(b *testing.B) map[string]float64 {
	b.Helper()
	time.Sleep(time.Second) // for the last sweeps
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	u := map[string]float64{"goroutines": float64(goruntime.NumGoroutine()), "heap-KiB": float64(m.HeapAlloc >> 10)}
	count := func(pid string) {
		u["processes"]++
		open, _ := os.ReadDir("/proc/" + pid + "/fd")
		u["descriptors"] += float64(len(open))
		status, _ := os.ReadFile("/proc/" + pid + "/status")
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				var kib float64
				_, _ = fmt.Sscan(rest, &kib)
				u["sandbox-KiB"] += kib
			}
		}
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), r.dir) {
			count(filepath.Base(filepath.Dir(name)))
		}
	}
	open, _ := os.ReadDir("/proc/self/fd")
	u["descriptors"] += float64(len(open))
	return u
}
