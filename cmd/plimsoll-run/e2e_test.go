//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/runlog"
	"github.com/plimsoll-attest/plimsoll/runner"
	"github.com/plimsoll-attest/plimsoll/runner/local"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// seedSession reads the real session in testdata: its calls as a caller writes
// them, their trace IDs, and what came back then. A failing test, a patch, the test
// again with no files sent, a process left behind, and a look for it.
func seedSession(t *testing.T) (input string, ids []string, then []*record.Response) {
	t.Helper()
	dir := "../../testdata/seed-session/"
	text, err := os.ReadFile(dir + "calls.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(dir + "calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(dir + "bundle.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for text := range bytes.Lines(bundle) {
		var line struct{ Response []byte }
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatal(err)
		}
		if line.Response == nil {
			continue
		}
		res, err := record.ParseResponse(line.Response)
		if err != nil {
			t.Fatal(err)
		}
		then = append(then, res)
	}
	return string(text), strings.Fields(string(list)), then
}

func TestFiveCalls(t *testing.T) {
	t.Parallel()
	input, ids, then := seedSession(t)
	if len(ids) != 5 || len(then) != 5 {
		t.Fatalf("%d calls and %d answers, want 5", len(ids), len(then))
	}
	f := newHome(t).run(input, "session").must(exitDone)
	for i, want := range then {
		have := f.result(i + 1)
		switch js := want.JavaScript; {
		case js == nil:
			// All but how long it took.
			want.Project.Steps[0].DurationMS = have.Project.Steps[0].DurationMS
			if diff := cmp.Diff(want.Project, have.Project); diff != "" {
				t.Errorf("%s: then and now: %s", ids[i], diff)
			}
		case strings.Contains(string(js.Stdout), "as pid"):
			if !strings.Contains(string(have.JavaScript.Stdout), "as pid") || have.JavaScript.ExitCode != 0 {
				t.Errorf("%s: have %q", ids[i], have.JavaScript.Stdout)
			}
		default:
			if diff := cmp.Diff(js, have.JavaScript); diff != "" {
				t.Errorf("%s: then and now: %s", ids[i], diff)
			}
		}
		// The request is the caller's and nothing else: its digest is that of the
		// session that somebody else ran.
		if have.Record.RequestSHA256 != want.Record.RequestSHA256 || have.Record.Sequence != uint64(i+1) {
			t.Errorf("%s: another request: %+v", ids[i], have.Record)
		}
	}
	if last := f.lines[len(f.lines)-1].End; last == nil || *last != (runlog.End{Calls: 5, Sessions: 1}) {
		t.Errorf("have %+v", last)
	}
	signAndVerify(t, f.stdout, ids)
}

// signAndVerify has the other program sign a run log, and verify it with the list
// of its calls.
func signAndVerify(t *testing.T, log string, ids []string) {
	t.Helper()
	dir := t.TempDir()
	key, pub, bundle, list := filepath.Join(dir, "k"), filepath.Join(dir, "k.pub"), filepath.Join(dir, "b.jsonl"), filepath.Join(dir, "list")
	if err := os.WriteFile(list, []byte(strings.Join(ids, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"keygen", "--key", key, "--pub", pub, "--no-passphrase"},
		{"sign", "--key", key, "--bundle", bundle},
		{"verify", "--pub", pub, "--expect", list, "--min-isolation", "kernel", bundle},
	} {
		cmd := exec.CommandContext(t.Context(), attestFile, args...)
		cmd.Stdin = strings.NewReader(log)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args[0], err, out)
		}
	}
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "code.js")
	if err := os.WriteFile(file, []byte("console.log('file', process.cwd())"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, stdin string
		args        []string
		status      int
		out         string
	}{
		{"done", "", []string{"exec", "-e", "console.log(1+1)"}, exitDone, "2\n"},
		{"one dash", "", []string{"exec", "-trace-id", "x", "-e", "console.log(1+1)"}, exitDone, "2\n"},
		{"file", "", []string{"exec", file}, exitDone, "file /tmp/work\n"},
		{"standard input", "console.log('in')", []string{"exec", "-"}, exitDone, "in\n"},
		{"call", calls(jsCall("console.log(3)")), []string{"exec", "--call", "-"}, exitDone, "3\n"},
		{"exits with 7", "", []string{"exec", "-e", "process.exit(7)"}, exitFailed, ""},
		{"exits with 4, which is no status of ours", "", []string{"exec", "-e", "process.exit(4)"}, exitFailed, ""},
		{"syntax error", "", []string{"exec", "-e", "("}, exitFailed, ""},
		{"time over", "", []string{"exec", "--timeout", "2s", "-e", "console.log('so far'); for (;;);"}, exitFailed, "so far\n"},
		{"step fails", calls(steps("echo one; exit 9", "echo two")), []string{"exec", "--call", "-"}, exitFailed, "one\n"},
		{"floor too high", "", []string{"exec", "--minimum-isolation", "vm", "-e", "1"}, exitRefused, ""},
		{"bad trace ID", "", []string{"exec", "--trace-id", "a b", "-e", "1"}, exitRefused, ""},
		{"no code", "", []string{"exec", "-e", ""}, exitRefused, ""},
		{"module", `{"module":{"model":"m"}}`, []string{"exec", "--call", "-"}, exitRefused, ""},
	} {
		f := h.run(c.stdin, c.args...).must(c.status)
		if len(f.lines) != 2 || f.lines[1].End == nil {
			t.Errorf("%s: the log has %d lines", c.name, len(f.lines))
			continue
		}
		if c.status == exitRefused {
			f.refused(1)
		} else if have := f.out(1); have != c.out {
			t.Errorf("%s: have %q, want %q", c.name, have, c.out)
		}
	}
	for name, args := range map[string][]string{
		"nothing to run":     {"exec"},
		"two sources":        {"exec", "-e", "1", file},
		"missing file":       {"exec", filepath.Join(dir, "missing")},
		"unknown flag":       {"exec", "--nope"},
		"flag of the call":   {"exec", "--call", file, "--trace-id", "x"},
		"negative time":      {"exec", "--timeout", "-1s", "-e", "1"},
		"missing folder":     {"project", filepath.Join(dir, "missing"), "--step", "true"},
		"listen on all":      {"gateway", "--listen", "0.0.0.0:0"},
		"listen on a name":   {"gateway", "--listen", "localhost:0"},
		"lifetime of a year": {"session", "--session-lifetime", "9000h"},
		"no CPU":             {"exec", "--cpus", "0", "-e", "1"},
		"image that is none": {"exec", "--image", dir, "-e", "1"},
	} {
		f := h.run("", args...)
		if f.status != exitUsage || f.stdout != "" || !strings.HasPrefix(f.stderr, "plimsoll-run: ") || strings.Count(f.stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %q", name, f.status, f.stdout, f.stderr)
		}
	}
}

// TestNoFallBack: who asks for another gateway is never served by the embedded one.
func TestNoFallBack(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, args := range [][]string{{"exec", "-e", "1"}, {"session"}, {"project", ".", "--step", "true"}, {"doctor"}, {"gateway"}, {"cleanup"}} {
		for _, variable := range []string{"SANDBOX_OPENSHELL_GATEWAY_URL=https://127.0.0.1:1", "SANDBOX_OPENSHELL_ANYTHING=", "SANDBOX_PROVIDER=openshell"} {
			cmd := h.command(t.Context(), args...)
			cmd.Env = append(os.Environ(), variable)
			if f := finish(t, cmd, ""); f.status != exitUsage || f.stdout != "" || !strings.Contains(f.stderr, "not supported by this build") {
				t.Errorf("%v with %s: status %d, %q, %q", args, variable, f.status, f.stdout, f.stderr)
			}
		}
	}
}

// TestVariables: a setting counts by its variable too, under its flag.
func TestVariables(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	size := calls(steps("df -k /tmp | tail -1 | awk '{print $2}'"))
	for _, c := range []struct {
		variable string
		args     []string
		status   int
		want     string // of stdout, or in the error
	}{
		{"SANDBOX_DISK_MB=32", nil, exitDone, "32768\n"},
		{"SANDBOX_DISK_MB=32", []string{"--disk-mb", "16"}, exitDone, "16384\n"},
		{"SANDBOX_DISK_MB=", nil, exitDone, "131072\n"},
		{"SANDBOX_DISK_MB=much", nil, exitUsage, `$SANDBOX_DISK_MB: have "much", want a decimal number`},
		{"SANDBOX_MEMORY_MB=1", nil, exitUsage, "--memory-mb: have 1, want 64"},
		{"SANDBOX_CPUS=100000", nil, exitUsage, "--cpus: have 100000, this machine has"},
		{"SANDBOX_STATE=/proc/self/exe", nil, exitDone, "131072\n"}, // under its flag
		{"SANDBOX_DISK_MB=0", nil, exitUsage, "--disk-mb: have 0"},
		{"SANDBOX_CPUS=-1", nil, exitUsage, `$SANDBOX_CPUS: have "-1", want a decimal number`},
		{"SANDBOX_PIDS=10", nil, exitUsage, "SANDBOX_PIDS is set"},
	} {
		cmd := h.command(t.Context(), append([]string{"exec", "--call", "-"}, c.args...)...)
		cmd.Env = append(os.Environ(), c.variable)
		f := finish(t, cmd, size)
		if c.status == exitDone {
			if have := f.must(exitDone).out(1); have != c.want {
				t.Errorf("%s %q: have %q, want %q", c.variable, c.args, have, c.want)
			}
		} else if f.status != c.status || !strings.Contains(f.stderr, c.want) {
			t.Errorf("%s %q: status %d, %s", c.variable, c.args, f.status, f.stderr)
		}
	}
}

func TestProject(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.js": "require('./lib/a.js')", "lib/a.js": "require('fs').writeFileSync('out.txt', 'made')",
		".git/config": "\xff", "-rf": "dash", "it's \"q\" $(x)": "odd",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := h.run("", "project", dir, "--step", "node main.js", "--step", "ls -A | sort", "--artifact", "out.txt", "--artifact", "none", "--show").must(exitDone)
	p := f.result(1).Project
	if string(p.Steps[1].Stdout) != "-rf\nit's \"q\" $(x)\nlib\nmain.js\nout.txt\n" {
		t.Errorf("have %q", p.Steps[1].Stdout)
	}
	if len(p.Artifacts) != 1 || string(p.Artifacts[0].Content) != "made" || p.ArtifactsTruncated {
		t.Errorf("have %+v", p.Artifacts)
	}
	if !strings.Contains(f.stderr, "$ node main.js\n") || !strings.Contains(f.stderr, "artifact out.txt: 4 bytes") {
		t.Errorf("shown: %s", f.stderr)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if f := h.run("", "project", dir, "--step", "true"); f.status != exitUsage || !strings.Contains(f.stderr, "link: not a regular file") {
		t.Errorf("a link: status %d, %s", f.status, f.stderr)
	}
}

// TestShow: what a program prints does nothing to the terminal.
func TestShow(t *testing.T) {
	t.Parallel()
	f := newHome(t).run("", "exec", "--show", "-e", `process.stdout.write('a\x1b[2J\r\x00é\u202e\nb'); process.stderr.write(Buffer.from([0xff, 10]))`).must(exitDone)
	if want := "a⟨U+001B⟩[2J⟨U+000D⟩⟨U+0000⟩é⟨U+202E⟩\nb\n⟨byte ff⟩\n"; f.stderr != want {
		t.Errorf("have %q, want %q", f.stderr, want)
	}
	if f.out(1) != "a\x1b[2J\r\x00é\u202e\nb" {
		t.Errorf("have %q", f.out(1))
	}
}

// hostile are sessions of code that means harm, each with what must be true of
// their answers. All sessions are small, so that their bounds are met soon.
var hostile = map[string]struct {
	calls  []object
	status int
	check  func(t *testing.T, f *finished)
}{
	"leftover that left its group and holds the output": {
		calls: []object{
			steps("(setsid sleep 1000 &); (setsid sh -c 'trap \"\" TERM HUP; sleep 1001' &); echo done"),
			steps("for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done | grep -c '^sleep 100[01]'"),
		},
		check: func(t *testing.T, f *finished) {
			if f.out(1) != "done\n" || f.out(2) != "0\n" {
				t.Errorf("have %q and %q", f.out(1), f.out(2))
			}
		},
	},
	"leftover that forks for ever": {
		calls: []object{steps("(setsid sh -c 'while :; do sh -c : & done' &); sleep 0.3; echo done"), steps("ls /proc | grep -c '^[0-9]'")},
		check: func(t *testing.T, f *finished) {
			if f.out(1) != "done\n" || f.out(2) != "4\n" && f.out(2) != "3\n" {
				t.Errorf("have %q and %q", f.out(1), f.out(2))
			}
		},
	},
	"leftover whose name is a newline and brackets": {
		calls: []object{
			jsCall(`require('child_process').spawn('node',['-e','process.title=") 1 (\\n) R 0";setTimeout(()=>{},1e6)'],{detached:true,stdio:'ignore'}).unref(); setTimeout(()=>process.exit(0),500)`),
			steps("ls /proc | grep -c '^[0-9]'"),
		},
		check: func(t *testing.T, f *finished) {
			if f.out(2) != "4\n" && f.out(2) != "3\n" {
				t.Errorf("have %q", f.out(2))
			}
		},
	},
	"10,000 forks": {
		calls:  []object{with(jsCall(`const {spawn}=require('child_process');for(let i=0;i<10000;i++){try{const c=spawn('sleep',['1000'],{detached:true,stdio:'ignore'});c.on('error',()=>{});c.unref()}catch{}}process.exit(0)`), "timeout_ms", 120000), steps("echo alive")},
		status: -1, // by the count of processes or by their memory
		check: func(t *testing.T, f *finished) {
			f.result(1)
			if len(f.lines) != 4 || f.lines[1].Refused == nil && f.out(2) != "alive\n" {
				t.Errorf("have %d lines: %s", len(f.lines), f.stderr)
			}
		},
	},
	"a fork bomb": {
		calls:  []object{with(steps("f(){ f|f & }; f; sleep 1000"), "timeout_ms", 5000), steps("echo alive")},
		status: -1,
		check: func(t *testing.T, f *finished) {
			f.result(1)
			if len(f.lines) != 4 || f.lines[1].Refused == nil && f.out(2) != "alive\n" {
				t.Errorf("have %d lines: %s", len(f.lines), f.stderr)
			}
		},
	},
	"kills everything it can": {
		calls:  []object{steps("kill -9 1; kill -9 -1; echo not reached"), steps("echo alive")},
		status: exitRefused,
		check: func(t *testing.T, f *finished) {
			f.result(1)
			if r := f.refused(2); !strings.Contains(r.Detail, runner.EndMainProcess) {
				t.Errorf("have %+v", r)
			}
		},
	},
	"fills /tmp": {
		calls:  []object{steps("for i in 1 2 3 4 5 6; do head -c 60000000 /dev/zero >f$i; done; sleep 20"), steps("echo alive")},
		status: exitRefused,
		check: func(t *testing.T, f *finished) {
			f.result(1)
			if r := f.refused(2); !strings.Contains(r.Detail, runner.EndDisk) {
				t.Errorf("have %+v", r)
			}
		},
	},
	"fills /tmp with one file": {
		calls: []object{steps("head -c 400000000 /dev/zero >f; echo $?; stat -c %s f; rm f"), steps("echo alive")},
		check: func(t *testing.T, f *finished) {
			if have := f.out(1); have != "153\n66060288\n" || f.out(2) != "alive\n" {
				t.Errorf("have %q", have)
			}
		},
	},
	"hides what it fills /tmp with": {
		calls: []object{
			steps("exec 5>a 6>b; rm a b; head -c 40000000 /dev/zero >&5; head -c 40000000 /dev/zero >&6; sleep 20; echo survived"),
			steps("echo not reached"),
		},
		status: exitRefused,
		check: func(t *testing.T, f *finished) {
			if have := f.result(1).Project.Steps[0]; have.ExitCode != 137 || !strings.Contains(f.refused(2).Detail, "session ended: disk_exceeded") {
				t.Errorf("have %+v, %+v", have, f.refused(2))
			}
		},
	},
	"hides its folder from the watchdog": {
		calls: []object{
			steps("chmod 0 /tmp; mkdir d; head -c 40000000 /dev/zero >d/a; head -c 40000000 /dev/zero >d/b; chmod 0 d; sleep 20; echo survived"),
			steps("echo not reached"),
		},
		status: exitRefused,
		check: func(t *testing.T, f *finished) {
			if !strings.Contains(f.refused(2).Detail, "session ended: disk_exceeded") {
				t.Errorf("have %+v", f.refused(2))
			}
		},
	},
	"hides a folder by renaming it": {
		calls: []object{
			steps(`perl -e 'for $d (1..100) { mkdir "d$d"; for (1..50) { open F, ">", "d$d/$_" } }
				mkdir "big0"; for $f (1, 2) { open F, ">", "big0/$f"; print F "x" x 40000000; close F }
				$end = time + 20; for ($n = 0; time < $end; $n++) { rename "big$n", "big" . ($n + 1) }'`),
			steps("echo not reached"),
		},
		status: exitRefused,
		check: func(t *testing.T, f *finished) {
			if !strings.Contains(f.refused(2).Detail, "session ended: disk_exceeded") {
				t.Errorf("have %+v", f.refused(2))
			}
		},
	},
	"sets the limits of the main process": {
		calls: []object{
			steps("prlimit --pid 1 --as=20000000:20000000 --cpu=1:1 --data=100000:100000 --nofile=8:8 --nproc=2:2"),
			jsCall("const end = Date.now() + 2000; while (Date.now() < end); console.log('ran')"),
		},
		check: func(t *testing.T, f *finished) {
			if f.out(2) != "ran\n" {
				t.Errorf("have %q", f.out(2))
			}
		},
	},
	"takes its folders' rights away": {
		calls: []object{
			steps("echo kept >f; chmod 0 /tmp/work /tmp; true"),
			steps("cat f; echo ran >g"),
			steps("rm -rf /tmp/work; ln -s /usr /tmp/work; chmod 555 /tmp; true"),
			steps("pwd -P; ls"),
			steps("rm -rf /tmp/work; echo x >/tmp/work; chmod 0 /tmp; true"),
			steps("pwd -P; ls"),
		},
		check: func(t *testing.T, f *finished) {
			if f.out(2) != "kept\n" || f.out(4) != "/tmp/work\n" || f.out(6) != "/tmp/work\n" {
				t.Errorf("have %q, %q, %q", f.out(2), f.out(4), f.out(6))
			}
		},
	},
	"allocates past its memory": {
		calls:  []object{jsCall("const a=[];for(;;)a.push(Buffer.alloc(16<<20,1))"), steps("echo alive")},
		status: -1,
		check: func(t *testing.T, f *finished) {
			if js := f.result(1).JavaScript; js.ExitCode == 0 || js.TimedOut {
				t.Errorf("have %+v", js)
			}
		},
	},
	"prints 1 GiB": {
		calls: []object{with(steps("head -c 1073741824 /dev/zero"), "timeout_ms", 180000), steps("echo alive")},
		check: func(t *testing.T, f *finished) {
			if s := f.result(1).Project.Steps[0]; len(s.Stdout) != 256<<10 || !s.StdoutTruncated || s.ExitCode != 0 || s.TimedOut {
				t.Errorf("have %d bytes, %v, %d, %v", len(s.Stdout), s.StdoutTruncated, s.ExitCode, s.TimedOut)
			}
			if f.out(2) != "alive\n" {
				t.Errorf("have %q", f.out(2))
			}
		},
	},
	"prints bytes that are no text": {
		calls: []object{jsCall(`const b=Buffer.from(Array.from({length:4096},(_,i)=>i&255));process.stdout.write(b);process.stderr.write(Buffer.from([0xc3]));setTimeout(()=>process.stderr.write(Buffer.from([0xa9,0xff])),100)`)},
		check: func(t *testing.T, f *finished) {
			js := f.result(1).JavaScript
			for i, b := range js.Stdout {
				if b != byte(i) {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
			if len(js.Stdout) != 4096 || string(js.Stderr) != "\xc3\xa9\xff" {
				t.Errorf("have %d bytes and %q", len(js.Stdout), js.Stderr)
			}
		},
	},
	"closes its streams": {
		calls: []object{steps("exec 0<&- 1>&- 2>&-; sleep 0.2; exit 5"), jsCall("const fs=require('fs');fs.closeSync(1);fs.closeSync(2);process.exitCode=6")},
		check: func(t *testing.T, f *finished) {
			if p, js := f.result(1).Project, f.result(2).JavaScript; p.Steps[0].ExitCode != 5 || js.ExitCode != 6 {
				t.Errorf("have %+v and %+v", p.Steps[0], js)
			}
		},
	},
	"its own 124 and 137": {
		calls: []object{steps("exit 124"), steps("kill -9 $$"), with(steps("trap '' TERM INT HUP; sleep 1000", "echo not reached"), "timeout_ms", 1000), steps("ls /proc | grep -c '^[0-9]'")},
		check: func(t *testing.T, f *finished) {
			for i, want := range []int32{124, 137, 137} {
				if s := f.result(i + 1).Project.Steps[0]; s.ExitCode != want || s.TimedOut != (i == 2) {
					t.Errorf("call %d: have %+v", i+1, s)
				}
			}
			if p := f.result(3).Project; p.Outcome != record.OutcomeTimedOut || len(p.Steps) != 1 {
				t.Errorf("have %+v", p)
			}
			if f.out(4) != "4\n" && f.out(4) != "3\n" {
				t.Errorf("have %q", f.out(4))
			}
		},
	},
	"plants what shells and node read": {
		calls: []object{
			steps(`for f in .bashrc .profile .bash_profile .shrc .node_repl_history; do echo 'echo PWNED' >$f; cp $f /tmp; done
echo 'console.log("PWNED")' >evil.js; export BASH_ENV=/tmp/.bashrc ENV=/tmp/.bashrc NODE_OPTIONS=--require=/tmp/work/evil.js`),
			jsCall("console.log(Object.keys(process.env).sort().join())"),
			steps("echo; sh -c 'env | cut -d= -f1 | sort | tr \"\\n\" ,'"),
		},
		check: func(t *testing.T, f *finished) {
			if f.out(2) != "HOME,LANG,OPENSHELL_SANDBOX,PATH,TERM,USER\n" || f.out(3) != "\nHOME,LANG,OPENSHELL_SANDBOX,PATH,PWD,TERM,USER," {
				t.Errorf("have %q and %q", f.out(2), f.out(3))
			}
		},
	},
	"puts obstacles in the way of the next call's files": {
		calls: []object{
			steps("mkfifo a; ln -s /dev/zero b; ln -s / c; mkdir d; touch d/x e; chmod 000 e; ln -s loop loop"),
			with(steps("cat a b c d e loop; ls -la /usr/x 2>/dev/null"), "files", []object{
				{"path": "a", "content": "1"},
				{"path": "b", "content": "2"},
				{"path": "c", "content": "3"},
				{"path": "d", "content": "4"},
				{"path": "e", "content": "5"},
				{"path": "loop", "content": "6\n"},
			}),
			steps("cd /; rm -rf /tmp/work; ln -s /etc /tmp/work"),
			with(steps("pwd -P; cat x"), "files", []object{{"path": "x", "content": "7"}}),
			steps("chmod 000 /tmp/work; rm -rf /tmp/work; touch /tmp/work"),
			with(steps("pwd -P; cat x"), "files", []object{{"path": "x", "content": "8"}}),
		},
		check: func(t *testing.T, f *finished) {
			if f.out(2) != "123456\n" || f.out(4) != "/tmp/work\n7" || f.out(6) != "/tmp/work\n8" {
				t.Errorf("have %q, %q and %q", f.out(2), f.out(4), f.out(6))
			}
		},
	},
	"puts obstacles in the way of its artifacts": {
		calls: []object{with(steps(`echo a >a; ln a hard; ln -s a soft; ln -s /etc/passwd host; ln -s /etc etc; mkdir d; echo f >d/f; ln -s d dl; mkfifo p
head -c 9000000 /dev/zero >big; printf '\000\377' >bin; echo x >"it's"; echo y >./-n; ln -s /proc/self/environ env; echo z >secret; chmod 000 secret`),
			"artifacts", []string{"a", "hard", "soft", "host", "etc/passwd", "d", "d/f", "dl/f", "p", "big", "bin", "it's", "-n", "env", "secret", "none", "none/x", "a/x"})},
		check: func(t *testing.T, f *finished) {
			p := f.result(1).Project
			var have []string
			for _, a := range p.Artifacts {
				have = append(have, a.Path+"="+string(a.Content))
			}
			want := []string{"a=a\n", "hard=a\n", "d/f=f\n", "bin=\x00\xff", "it's=x\n", "-n=y\n"}
			if !slices.Equal(have, want) || !p.ArtifactsTruncated || p.Outcome != record.OutcomeCompleted {
				t.Errorf("have %q, %v, %s", have, p.ArtifactsTruncated, p.OutcomeDetail)
			}
		},
	},
	"file names and contents of every kind": {
		calls: []object{with(steps("cat -- *; ls -A | wc -l; wc -c <big; tail -c 4 big"), "files", []object{
			{"path": "-rf", "content": "1\n"},
			{"path": "it's \"q\" $(touch pwned) `x` ;&|", "content": "'\"$(touch pwned)\\\n"},
			{"path": "*", "content": "%s%d\\n"},
			{"path": " ", "content": ""},
			{"path": "é😀", "content": "é\u2028\x01\x1b\r\n"},
			{"path": "nul", "content": "a\x00b%s\\'\x00\x00"},
			{"path": ".hidden", "content": "x"},
		})},
		check: func(t *testing.T, f *finished) {
			out := f.out(1)
			for _, part := range []string{"1\n", "'\"$(touch pwned)\\\n", "%s%d\\n", "é\u2028\x01\x1b\r\n", "a\x00b%s\\'\x00\x00", "7\n"} {
				if !strings.Contains(out, part) {
					t.Errorf("no %q in %q", part, out)
				}
			}
			if strings.Contains(out, "8\n") {
				t.Errorf("a name was run: %q", out)
			}
		},
	},
	"4 MiB of files and 200 KiB of code": {
		calls: []object{
			with(steps("cat a b | wc -c; tail -c 3 b; ls | wc -l"), "files", append([]object{
				{"path": "a", "content": strings.Repeat("'\\\n%é", 1<<20/6)},
				{"path": "b", "content": strings.Repeat("x", 4<<20-1<<20/6*6-198-3) + "end"},
			}, manyFiles(198)...)), // 4 MiB to the byte
			jsCall("//" + strings.Repeat("é", 100<<10) + "\nconsole.log('ran')"),
		},
		check: func(t *testing.T, f *finished) {
			want := fmt.Sprintf("%d\nend200\n", 4<<20-198)
			if f.out(1) != want || f.out(2) != "ran\n" {
				t.Errorf("have %q and %q, want %q", f.out(1), f.out(2), want)
			}
		},
	},
	"looks for a way out": {
		calls: []object{
			steps(`for d in / /usr /usr/bin /etc /bin /lib /opt /var /home /root /dev /sys /proc /run /tmp /tmp/work; do if (echo >"$d/.w") 2>/dev/null; then echo "$d"; rm "$d/.w"; fi; done`),
			steps("ls -A /home /root /var /run /mnt /media /srv 2>/dev/null | grep -v ':$' | grep .; cat /etc/shadow /etc/sudoers /etc/hostname 2>/dev/null; true"),
			steps("id -u; id -G; grep -E '^Cap(Inh|Prm|Eff|Bnd):' /proc/self/status | tr -d '\\n\\t'; sed 1,2d /proc/net/dev | grep -vc lo:; su -c id 2>/dev/null; true"),
			jsCall(`const net=require('net'),dns=require('dns');let n=0;const done=s=>{console.log(s);if(++n===4)process.exit(0)};
for(const [h,p] of [['127.0.0.1',` + "PORT" + `],['169.254.169.254',80],['1.1.1.1',53]]){const s=net.connect(p,h,()=>done('CONNECTED '+h));s.on('error',e=>done(e.code));s.setTimeout(3000,()=>{s.destroy();done('timeout')})}
dns.lookup('example.com',e=>done(e?'no name':'RESOLVED'))`),
			steps("cat /proc/1/environ; ls -l /proc/1/fd /proc/1/cwd /proc/1/root 2>&1 | grep -E 'home|state|/pl'; mount -t tmpfs x /tmp 2>/dev/null && echo MOUNTED; true"),
		},
		check: func(t *testing.T, f *finished) {
			if f.out(1) != "/tmp\n/tmp/work\n" {
				t.Errorf("writable: %q", f.out(1))
			}
			if out := f.out(2); out != "sandbox\n" && out != "" {
				t.Errorf("of the host: %q", out)
			}
			if out := f.out(3); !strings.HasPrefix(out, "1500\n1500\n") || strings.Count(out, "0000000000000000") != 4 || !strings.HasSuffix(out, "0\n") {
				t.Errorf("privileges: %q", out)
			}
			if out := f.out(4); strings.Contains(out, "CONNECTED") || strings.Contains(out, "RESOLVED") || strings.Count(out, "\n") != 4 {
				t.Errorf("network: %q", out)
			}
			if out := f.out(5); strings.Contains(out, "MOUNTED") || strings.Contains(out, "/pl") {
				t.Errorf("proc: %q", out)
			}
		},
	},
}

func manyFiles(n int) []object {
	var all []object
	for i := range n {
		all = append(all, object{"path": fmt.Sprintf("f%03d", i), "content": "x"})
	}
	return all
}

func TestHostile(t *testing.T) {
	// A port of the host that code would find if it had a network.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input := strings.ReplaceAll(calls(c.calls...), "PORT", port)
			f := newHome(t).run(input, "session", "--session-disk-mb", "64")
			if c.status >= 0 {
				f.must(c.status)
			} else if f.err != nil {
				t.Fatalf("run log: %v: %s", f.err, f.stderr)
			}
			c.check(t, f)
			if last := f.lines[len(f.lines)-1]; last.End == nil || last.End.Sessions != 1 {
				t.Errorf("have %+v", last)
			}
		})
	}
}

// TestSingleRunTmp: the /tmp of a single run is of its size and no larger.
func TestSingleRunTmp(t *testing.T) {
	t.Parallel()
	f := newHome(t).run(calls(steps("head -c 100000000 /dev/zero >f; wc -c <f")), "exec", "--disk-mb", "16", "--call", "-").must(exitDone)
	if f.out(1) != "16777216\n" {
		t.Errorf("have %q", f.out(1))
	}
}

// TestRunnerKilled: the log of a runner that was killed shows the hole, its
// sandbox ends with it, and what is left is gone with cleanup and the next start.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, how := range []string{"cleanup", "the next start"} {
		cmd := h.command(t.Context(), "session")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(in, calls(steps("echo first")))
		first, err := bufio.NewReader(out).ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(in, calls(steps("sleep 1000")))
		time.Sleep(500 * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		lines, err := readLog(bytes.NewReader(first))
		if len(lines) != 1 || !errors.Is(err, runlog.ErrIncomplete) {
			t.Errorf("have %d lines, %v", len(lines), err)
		}
		if how == "cleanup" {
			if f := h.run("", "cleanup"); f.status != exitDone || !strings.HasPrefix(f.stdout, "sandboxes removed: ") {
				t.Errorf("cleanup: %d, %q, %q", f.status, f.stdout, f.stderr)
			}
		} else {
			h.run("", "exec", "-e", "1").must(exitDone)
		}
		h.mustBeClean()
	}
}

// TestGatewayGone: a gateway that is killed before, during or after a call leaves
// the call refused, unanswered or answered, and the session with its statement.
func TestGatewayGone(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "during", "after"} {
		h := newHome(t)
		paths, err := local.New(local.Config{Dir: h.state, Runtime: programFile})
		if err != nil {
			t.Fatal(err)
		}
		policy := localPolicy(paths)
		if err := paths.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := h.command(t.Context(), "gateway", "--listen", "127.0.0.1:0")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		address, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		kill := func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		defer kill()
		hc, err := openshell.HTTPClient(strings.TrimSpace(address), nil)
		if err != nil {
			t.Fatal(err)
		}
		client, err := openshell.Open(t.Context(), strings.TrimSpace(address), hc)
		if err != nil {
			t.Fatal(err)
		}
		r, err := runner.New(client, runner.Config{Instance: "gone", Local: true, Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		step := "echo done"
		switch when {
		case "before":
			kill()
		case "during":
			step = "sleep 1000"
			time.AfterFunc(500*time.Millisecond, kill)
		}
		asked, bad := call.New(record.Request{Project: &record.ProjectRun{Steps: []string{step}}})
		if bad != nil {
			t.Fatal(bad)
		}
		a, err := s.Run(t.Context(), asked)
		var refused *call.Refused
		var unanswered *runner.Unanswered
		want := uint64(1)
		switch {
		case when == "before" && errors.As(err, &refused) && refused.Code == "unavailable":
			want = 0
		case when == "during" && errors.As(err, &unanswered) && unanswered.Record.Unanswered == "unavailable":
		case when == "after" && err == nil && string(a.Result.Project.Steps[0].Stdout) == "done\n":
			kill()
		default:
			t.Errorf("%s: have %+v, %v", when, a, err)
		}
		if c, err := s.Close(t.Context()); err != nil || c.Calls != want {
			t.Errorf("%s: close: have %+v, %v, want %d calls", when, c, err, want)
		}
		hc.CloseIdleConnections()
		if f := h.run("", "cleanup"); f.status != exitDone {
			t.Errorf("%s: cleanup: status %d, %s", when, f.status, f.stderr)
		}
	}
}

// TestSessionTimes: a session without calls is suspended and goes on with its
// files; one whose lifetime is over says so.
func TestSessionTimes(t *testing.T) {
	t.Parallel()
	f := slowly(t, newHome(t).command(t.Context(), "session", "--session-idle", "1s"), 3*time.Second,
		steps("echo kept >file; (setsid sleep 1000 &); cut -d' ' -f22 /proc/1/stat"),
		steps("cat file; ls -d /proc/[0-9]* | wc -l; cut -d' ' -f22 /proc/1/stat"))
	f.must(exitDone)
	if have := f.out(2); !strings.HasPrefix(have, "kept\n") {
		t.Errorf("have %q", have)
	}
	f = slowly(t, newHome(t).command(t.Context(), "session", "--session-lifetime", "3s"), 8*time.Second, steps("echo one"), steps("echo two"))
	f.must(exitRefused)
	if f.out(1) != "one\n" || !strings.Contains(f.refused(2).Detail, "session ended: expired") {
		t.Errorf("have %+v", f.lines)
	}
	if last := f.lines[len(f.lines)-1].End; last == nil || *last != (runlog.End{Calls: 1, Refused: 1, Sessions: 1}) {
		t.Errorf("have %+v", last)
	}
}

// slowly gives a session its calls with a pause between two.
func slowly(t *testing.T, cmd *exec.Cmd, pause time.Duration, list ...object) *finished {
	t.Helper()
	in, w := io.Pipe()
	cmd.Stdin = in
	go func() {
		for i, c := range list {
			if i > 0 {
				time.Sleep(pause)
			}
			_, _ = io.WriteString(w, calls(c))
		}
		w.Close()
	}()
	return finish(t, cmd, "")
}

// TestInterrupted: a caller that gives up gets the record of the call that may
// have run, the close and the end.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		h := newHome(t)
		cmd := h.command(t.Context(), "session")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(out)
		fmt.Fprint(in, calls(steps("echo first")))
		first, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(in, calls(steps("sleep 1000")))
		time.Sleep(500 * time.Millisecond)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		rest := new(bytes.Buffer)
		if _, err := rest.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		lines, err := readLog(bytes.NewReader(append(first, rest.Bytes()...)))
		if err != nil || len(lines) != 4 || cmd.ProcessState.ExitCode() != exitLost {
			t.Fatalf("%v: %d lines, %v, status %d", sig, len(lines), err, cmd.ProcessState.ExitCode())
		}
		rec, err := statement.ParseRecord(lines[1].Statement)
		if err != nil || rec.Unanswered != "canceled" || rec.Sequence != 2 {
			t.Errorf("%v: have %+v, %v", sig, rec, err)
		}
	}
}

// TestOutputGone: a run log that nobody reads any more is an error, and nothing
// is left.
func TestOutputGone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cmd := h.command(t.Context(), "exec", "-e", "1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd.Stdout = w
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	_ = cmd.Run()
	w.Close()
	if status := cmd.ProcessState.ExitCode(); status != exitUsage || !strings.Contains(errOut.String(), "run log") {
		t.Errorf("status %d, %q", status, errOut.String())
	}
}

// TestNamespacesForbidden: where no sandbox can be made, nothing runs, least of all
// on the host.
func TestNamespacesForbidden(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	proof := filepath.Join(t.TempDir(), "ran")
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"exec", "-e", "require('fs').writeFileSync('" + proof + "','')"}},
		{calls(steps("touch "+proof), jsCall("1")), []string{"session"}},
	} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", h.command(t.Context(), c.args...).Args[1:]...)
		cmd.Env = append(os.Environ(), forbidVariable+"="+programFile)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		f := finish(t, cmd, c.stdin).must(exitRefused)
		for _, line := range f.lines[:len(f.lines)-1] {
			if line.Refused == nil {
				t.Errorf("%s: a line that is no refusal", c.args[0])
			}
		}
		if _, err := os.Stat(proof); err == nil {
			t.Fatal("it ran on the host")
		}
	}
}

// TestFiftySessions: they all run, none sees another's files.
func TestFiftySessions(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h := newHome(t)
	gateway, err := local.New(local.Config{Dir: h.state, Runtime: programFile})
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	base, hc := gateway.Client()
	client, err := openshell.Open(t.Context(), base, hc)
	if err != nil {
		t.Fatal(err)
	}
	defer hc.CloseIdleConnections()
	r, err := runner.New(client, runner.Config{Instance: "fifty", Local: true, Policy: localPolicy(gateway), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	const n = 50
	ready := new(sync.WaitGroup)
	ready.Add(n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			s, err := r.Open(t.Context())
			ready.Done()
			if err != nil {
				t.Errorf("session %d: %v", i, err)
				return
			}
			ready.Wait() // all of them at once
			for _, c := range []struct{ step, want string }{
				{fmt.Sprintf("echo %d >mine; ls /tmp/work", i), "mine\n"},
				{"cat mine", fmt.Sprintf("%d\n", i)},
			} {
				asked, refused := call.New(record.Request{Project: &record.ProjectRun{Steps: []string{c.step}}})
				if refused != nil {
					t.Error(refused)
					return
				}
				a, err := s.Run(t.Context(), asked)
				if err != nil {
					t.Errorf("session %d: %v", i, err)
				} else if have := string(a.Result.Project.Steps[0].Stdout); have != c.want {
					t.Errorf("session %d: have %q, want %q", i, have, c.want)
				}
			}
			if _, err := s.Close(t.Context()); err != nil {
				t.Errorf("session %d: %v", i, err)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	f := h.run("", "doctor", "--format", "json")
	var report doctorReport
	if err := json.Unmarshal([]byte(f.stdout), &report); err != nil || f.status != exitDone || !report.OK || len(report.Checks) < 6 {
		t.Errorf("status %d, %v: %s", f.status, err, f.stdout)
	}
	if f := h.run("", "doctor"); f.status != exitDone || strings.Contains(f.stdout, "MISSING") {
		t.Errorf("status %d: %s", f.status, f.stdout)
	}
}

// TestGatewayCommand: it serves a client, and nothing is left when it ends.
func TestGatewayCommand(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cmd := h.command(t.Context(), "gateway", "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address = strings.TrimSpace(address)
	hc, err := openshell.HTTPClient(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := openshell.Open(t.Context(), address, hc)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody else's gateway is believed to have this driver.
	r, err := runner.New(client, runner.Config{Instance: "test", Policy: openshell.Policy{Version: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var refused *call.Refused
	if _, err := r.Open(t.Context()); !errors.As(err, &refused) || !strings.Contains(refused.Detail, local.DriverName) {
		t.Errorf("have %v", err)
	}
	hc.CloseIdleConnections()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
