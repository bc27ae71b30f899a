//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-attest/plimsoll/internal/asuser"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// TestWrapAsOrdinaryUser runs the tests of this package again without root's
// rights: the view is made otherwise then.
func TestWrapAsOrdinaryUser(t *testing.T) {
	asuser.Rerun(t, "HostileRunner|AnotherUser|MissingNamespaces|Signer|Launcher|Input|NothingOutlives|Terminal|Runner|Session|Record", 10, nil)
}

const (
	plain          = "--no-passphrase" // which takes its time
	testPassphrase = "a passphrase for the tests of wrap"
	// twoCalls are the calls that lies are about.
	twoCalls = `{"trace_id":"a","javascript":{"code":"1"}}` + "\n" + `{"traceId":"b","javascript":{"code":"2"}}` + "\n"
)

// A scene is a key, a bundle that has a session already, and an agent's socket.
type scene struct {
	dir, key, pub, bundle, socket string
	before                        []byte // the bundle
}

func newScene(t *testing.T, keygen ...string) *scene {
	t.Helper()
	dir := t.TempDir()
	s := &scene{
		dir: dir, key: filepath.Join(dir, "keys", "k"), pub: filepath.Join(dir, "p"),
		bundle: filepath.Join(dir, "evidence", "b.jsonl"),
	}
	for _, d := range []string{"keys", "evidence"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PLIMSOLL_KEY_PASSPHRASE", testPassphrase)
	args := append([]string{"keygen", "--key", s.key, "--pub", s.pub}, keygen...)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := bundletest.NewSession("first")
	log := bundletest.RunLog([]bundletest.Entry{first.Add(bundletest.JavaScript("first", "1", "")).Entry(), first.Close()})
	sign := exec.Command(program, "sign", "--key", s.key, "--bundle", s.bundle)
	sign.Stdin = bytes.NewReader(log)
	if out, err := sign.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.before = s.content(t)
	sockets, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	s.socket = filepath.Join(sockets, "s")
	listen(t, "unix", s.socket)
	t.Setenv("SSH_AUTH_SOCK", s.socket)
	return s
}

func (s *scene) content(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(s.bundle)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// wrap is the command with a runner, not started.
func (s *scene) wrap(flags []string, runner ...string) *exec.Cmd {
	args := append([]string{"wrap", "--key", s.key, "--bundle", s.bundle}, flags...)
	return exec.Command(program, append(append(args, "--"), runner...)...)
}

// runCmd runs a command to its end, which must come in time.
func runCmd(t *testing.T, cmd *exec.Cmd, stdin string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Errorf("not over: %s", errs.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestHostileRunner: what a runner tries in its view of the machine, it does not
// get. With free, the same attempt without the view succeeds, so that the test
// could fail.
func TestHostileRunner(t *testing.T) {
	s := newScene(t, plain)
	tcp := listen(t, "tcp", "127.0.0.1:0").Addr().String()
	abstract := fmt.Sprintf("@plimsoll-test-%d", os.Getpid())
	listen(t, "unix", abstract)
	key, keyErr := unix.AddKey("user", "plimsoll-test", []byte("secret"), unix.KEY_SPEC_USER_KEYRING)
	if keyErr == nil {
		defer unix.KeyctlInt(unix.KEYCTL_INVALIDATE, key, 0, 0, 0)
	}
	pid := strconv.Itoa(os.Getpid())

	for _, c := range []struct {
		name string
		args []string
		free bool
	}{
		{"read", []string{s.key}, true},
		{"read", []string{"/proc/1/root" + s.key}, false},
		{"read", []string{"/proc/self/root" + s.key}, true},
		{"list", []string{filepath.Dir(s.key)}, true},
		{"list", []string{"/home"}, false},
		{"list", []string{"/root"}, false},
		{"list", []string{"/run"}, false},
		{"list", []string{"/var"}, true},
		{"hard link", []string{s.key}, false},
		{"unmount", []string{s.key}, false},
		{"descriptors", nil, false},
		{"environment", []string{testPassphrase}, true},
		{"environments", []string{testPassphrase}, true},
		{"processes", nil, true},
		{"process files", []string{pid}, true},
		{"process files", []string{strconv.Itoa(os.Getppid())}, false},
		{"ptrace", []string{pid}, false},
		{"memory of another", []string{pid}, false},
		{"descriptor of another", []string{pid}, false},
		{"signal", []string{pid}, true},
		{"group", nil, false},
		{"core files", nil, false},
		{"socket", []string{"unix", s.socket}, true},
		{"socket", []string{"unix", abstract}, true},
		{"socket", []string{"tcp", tcp}, true},
		{"keyring", []string{"plimsoll-test"}, keyErr == nil},
		{"powers", nil, true},
		{"write", nil, true},
		{"bundle", []string{s.bundle}, false},
		{"rename", []string{s.bundle}, false},
		{"terminal", nil, false},
	} {
		t.Run(c.name+" "+strings.Join(c.args, " "), func(t *testing.T) {
			attack := []string{badRunner, "attack", c.name}
			for _, arg := range c.args {
				attack = append(attack, "at:"+arg)
			}
			if c.free {
				if _, _, free := runCmd(t, exec.Command(attack[0], attack[1:]...), ""); !strings.HasPrefix(free, "GOT ") {
					t.Errorf("not even without the view: %s", free)
				}
			}
			code, _, stderr := runCmd(t, s.wrap(nil, attack...), "")
			if code != 0 || !strings.Contains(stderr, "kept out: ") || strings.Contains(stderr, "GOT ") {
				t.Errorf("exit status %d: %s", code, stderr)
			}
			if strings.ContainsAny(stderr, "\x1b\u009b") {
				t.Errorf("an escape sequence is passed on: %q", stderr)
			}
			t.Log(strings.TrimSpace(stderr))
		})
	}
	if !bytes.Equal(s.content(t), s.before) {
		t.Error("the bundle has changed")
	}
}

// TestAnotherUser: root's runner is another user, and so are its files.
func TestAnotherUser(t *testing.T) {
	s := newScene(t, plain)
	code, _, stderr := runCmd(t, s.wrap(nil, "sh", "-c", "cd; id -u >&2; touch f; stat -c %u f >&2; printf '%s\n' '"+strings.TrimSpace(string(bundletest.RunLogEnd(0, 0, 0)))+"'"), "")
	want := "1000\n1000\n"
	if os.Geteuid() == 0 {
		want = "2147000001\n2147000001\n"
	}
	if code != 0 || stderr != want {
		t.Errorf("exit status %d: have %q, want %q", code, stderr, want)
	}
}

// TestMissingNamespaces: where the kernel refuses one nothing runs, and what is
// missing is named; it runs when that is waived, and is told what is open.
func TestMissingNamespaces(t *testing.T) {
	const all = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET
	s := newScene(t, plain)
	mark := filepath.Join(s.dir, "ran")
	for _, c := range []struct {
		name   string
		spaces uint32
		parts  []string // that are named
		user   bool     // an ordinary user's alone: root needs none
	}{
		{"all", all, []string{"mount namespace", "process namespace", "IPC namespace", "network namespace"}, false},
		{"users", unix.CLONE_NEWUSER, []string{"user namespace"}, true},
		{"mounts", unix.CLONE_NEWNS, []string{"mount namespace"}, false},
		{"processes", unix.CLONE_NEWPID, []string{"process namespace"}, false},
		{"network", unix.CLONE_NEWNET, []string{"network namespace"}, false},
	} {
		root := os.Geteuid() == 0
		switch {
		case root && c.user:
			continue
		case !root && c.spaces == all:
			c.parts = []string{"user namespace"} // without which there are no others
		}
		t.Run(c.name, func(t *testing.T) {
			filtered := func(flags []string, runner ...string) *exec.Cmd {
				cmd := s.wrap(flags, runner...)
				return exec.Command(badRunner, append([]string{"without", fmt.Sprint(c.spaces)}, cmd.Args...)...)
			}
			code, _, stderr := runCmd(t, filtered(nil, "sh", "-c", "touch "+mark), "")
			if _, err := os.Stat(mark); err == nil || code != exitUnsigned || !strings.Contains(stderr, "no isolation from the runner: ") {
				t.Errorf("exit status %d, %v: %s", code, err, stderr)
			}
			for _, part := range c.parts {
				if !strings.Contains(stderr, part+": ") {
					t.Errorf("%s is not named: %s", part, stderr)
				}
			}
			code, _, stderr = runCmd(t, filtered([]string{"--allow-weak-isolation"}, badRunner, "attack", "core files"), "")
			if code != 0 || !strings.Contains(stderr, "OPEN: ") {
				t.Errorf("exit status %d: %s", code, stderr)
			}
			for _, part := range c.parts {
				if !strings.Contains(stderr, "OPEN: "+part+": ") {
					t.Errorf("%s is not named: %s", part, stderr)
				}
			}
			t.Log(stderr)
		})
	}
}

// TestSignerIsProtected looks at the signer while its runner sleeps, as another
// process of its user.
func TestSignerIsProtected(t *testing.T) {
	s := newScene(t, plain)
	cmd := s.wrap(nil, badRunner, "attack", "outlive", "86399", "stay")
	stop := startUntil(t, cmd, "ready")
	defer stop()
	dir := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	limits, err := os.ReadFile(dir + "limits")
	if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0") {
		t.Errorf("core files: %v %s", err, limits)
	}
	if os.Geteuid() != 0 {
		for _, name := range []string{"environ", "mem", "maps", "fd"} {
			if f, err := os.Open(dir + name); err == nil {
				if _, err := f.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s can be read", name)
				}
				f.Close()
			}
		}
		if err := syscall.PtraceAttach(cmd.Process.Pid); err == nil {
			t.Error("can be traced")
		}
	}
}

// startUntil starts a command and waits for a line on its standard error. The
// function it returns kills it.
func startUntil(t *testing.T, cmd *exec.Cmd, line string) (stop func()) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	seen := make(chan bool, 1)
	go func() {
		var all []byte
		buf := make([]byte, 1024)
		for {
			n, err := stderr.Read(buf)
			all = append(all, buf[:n]...)
			if bytes.Contains(all, []byte(line)) {
				seen <- true
				io.Copy(io.Discard, stderr)
				return
			}
			if err != nil {
				seen <- false
				return
			}
		}
	}()
	select {
	case ok := <-seen:
		if ok {
			return stop
		}
	case <-time.After(30 * time.Second):
	}
	stop()
	t.Fatalf("no %q", line)
	return nil
}

// TestNothingOutlives: whatever ends the runner or the signer ends what the runner
// has started.
func TestNothingOutlives(t *testing.T) {
	for name, c := range map[string]struct {
		runner string // makes it stay
		end    func(*exec.Cmd)
	}{
		"the runner exits": {"", nil},
		"SIGTERM twice": {"stay", func(c *exec.Cmd) {
			c.Process.Signal(unix.SIGTERM)
			time.Sleep(200 * time.Millisecond)
			c.Process.Signal(unix.SIGTERM)
		}},
		"deaf to SIGTERM":   {"stay", func(c *exec.Cmd) { c.Process.Signal(unix.SIGTERM) }},
		"the signer killed": {"stay", func(c *exec.Cmd) { c.Process.Kill() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, plain)
			token := strconv.Itoa(100000 + int(time.Now().UnixNano()%1e6))
			attack := []string{badRunner, "attack", "outlive", token}
			if c.end == nil {
				if code, _, stderr := runCmd(t, s.wrap(nil, attack...), ""); code != 0 {
					t.Errorf("exit status %d: %s", code, stderr)
				}
			} else {
				cmd := s.wrap([]string{"--call-timeout", "2s"}, append(attack, c.runner)...)
				defer startUntil(t, cmd, "ready")()
				for begin := time.Now(); !running(token); time.Sleep(10 * time.Millisecond) {
					if time.Since(begin) > 10*time.Second {
						t.Fatal("the child does not run: nothing is shown")
					}
				}
				c.end(cmd)
			}
			for deadline := time.Now().Add(10 * time.Second); running(token); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it is still there")
				}
			}
			if !bytes.Equal(s.content(t), s.before) {
				t.Error("the bundle has changed")
			}
		})
	}
}

// running reports whether a process of the machine has the word in its arguments.
func running(word string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		data, _ := os.ReadFile(f)
		if bytes.HasPrefix(data, []byte("sleep\x00"+word)) {
			return true
		}
	}
	return false
}

// TestTerminal runs wrap on a terminal: the runner has none, nor can it type into
// that one or have it type.
func TestTerminal(t *testing.T) {
	s := newScene(t, plain)
	cmd := s.wrap(nil, badRunner, "attack", "terminal")
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	cmd.Args = append(cmd.Args, tty.Name())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	late := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	out, _ := io.ReadAll(terminal) // EIO at the end
	err = cmd.Wait()
	if err != nil || !bytes.Contains(out, []byte("kept out")) || bytes.Contains(out, []byte("GOT")) || bytes.ContainsRune(out, 0x1b) {
		t.Errorf("%v: %q", err, out)
	}
}

// TestLyingRunner: what did not happen is not signed. The bundle stays as it was,
// byte by byte, and what had been signed of the run is in a side file.
func TestLyingRunner(t *testing.T) {
	for lie, c := range map[string]struct {
		stderr string
		moved  int // calls in the side file
		flags  []string
	}{
		"other code":                  {"line 2: unexpected call: request of line 2: have ", 1, nil},
		"other trace ID":              {"line 1: unexpected call: request of line 1: have \"ax ", 0, nil},
		"the call before again":       {"line 2: unexpected call: request of line 2: have \"a ", 1, nil},
		"the same line twice":         {"line 2: unexpected call: ", 1, nil},
		"more than was asked":         {"line 3: unexpected call: none is out, 2 were forwarded", 2, nil},
		"other session in the middle": {"line 2: unexpected call: session: have ", 1, nil},
		"other session closed":        {"line 3: unexpected close: session: have ", 2, nil},
		"close that counts less":      {"line 3: chain: calls of the session: have 1, want 2", 2, nil},
		"wrong result digest":         {"line 1: stored: ", 0, nil},
		"wrong order in the session":  {"line 1: chain: sequence: have 2, want 1", 0, nil},
		"other predicate type":        {"line 1: statement: ", 0, nil},
		"a link":                      {"line 1: statement: ", 0, nil},
		"a checkpoint":                {"line 1: statement: ", 0, nil},
		"refusal of another call":     {"line 1: unexpected refusal: line: have 7, want 1", 0, nil},
		"no end":                      {"line 2: incomplete: the log stops here, without its end; session ", 1, nil},
		"death":                       {"line 2: incomplete: the log stops here, without its end; session ", 1, nil},
		"silence":                     {"no answer to line 2 within 1s: killed", 1, []string{"--call-timeout", "1s"}},
		"nothing read":                {"no answer to line 1 within 1s: killed", 0, []string{"--call-timeout", "1s"}},
		"garbage":                     {"line 2: malformed: ", 1, nil},
		"flood of one line":           {"line 2: malformed: ", 1, nil},
	} {
		if testing.Short() && c.moved != 1 {
			continue // it asks nothing of the user
		}
		t.Run(lie, func(t *testing.T) {
			s := newScene(t, plain)
			expect := filepath.Join(s.dir, "evidence", "expect.txt")
			flags := append([]string{"--calls", "-", "--expect-out", expect}, c.flags...)
			code, stdout, stderr := runCmd(t, s.wrap(flags, badRunner, "log", lie), twoCalls)
			if code != exitUnsigned || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit status %d, want %d and %q:\n%s", code, exitUnsigned, c.stderr, stderr)
			}
			if !bytes.Equal(s.content(t), s.before) {
				t.Error("the bundle has changed")
			}
			end := lastLine(t, stdout)
			if end.Error == "" || end.Calls != 0 || int(end.Moved) != c.moved {
				t.Errorf("end: %+v", end)
			}
			side, _ := filepath.Glob(s.bundle + ".unsealed-*.jsonl")
			if (c.moved > 0) != (len(side) == 1) || len(side) != len(end.SideFiles) {
				t.Errorf("side files %q, told of %q", side, end.SideFiles)
			}
			for _, f := range side {
				if data, _ := os.ReadFile(f); bytes.Count(data, []byte("\n")) < c.moved || !strings.Contains(stderr, f) {
					t.Errorf("side file %s: %s", f, data)
				}
			}
			if code, _, _ := runCmd(t, exec.Command(program, "verify", "--pub", s.pub, "--expect", expect, s.bundle), ""); code != exitRefused {
				t.Errorf("verify with the caller's list: exit status %d", code)
			}
		})
	}
}

// TestMoreThanTheSession: what is stated after the calls were signed and closed
// is refused, and what was whole stays.
func TestMoreThanTheSession(t *testing.T) {
	for lie, want := range map[string]string{
		"session that never was": "line 4: unexpected close: there was one already",
		"no exit":                "it did not exit after the end of its log within 2s: killed",
	} {
		t.Run(lie, func(t *testing.T) {
			s := newScene(t, plain)
			code, stdout, stderr := runCmd(t, s.wrap([]string{"--calls", "-", "--call-timeout", "2s"}, badRunner, "log", lie), twoCalls)
			if code != exitUnsigned || !strings.Contains(stderr, want) {
				t.Errorf("exit status %d: %s", code, stderr)
			}
			if end := lastLine(t, stdout); !end.Sealed || end.Calls != 2 {
				t.Errorf("end: %+v", end)
			}
			if code, _, stderr := runCmd(t, exec.Command(program, "verify", "--pub", s.pub, "--expect-ids", "first,a,b", s.bundle), ""); code != 0 {
				t.Error(stderr)
			}
		})
	}
}

// TestReplayedRecord: the record of an earlier run is no answer to a call made now.
func TestReplayedRecord(t *testing.T) {
	s := newScene(t, plain)
	for i, want := range []int{0, exitUnsigned} {
		code, _, stderr := runCmd(t, s.wrap([]string{"--calls", "-"}, badRunner, "log", "single runs"), twoCalls)
		if code != want {
			t.Errorf("run %d: exit status %d: %s", i, code, stderr)
		}
	}
}

// TestHonestRunner: with a flood on its standard error, and before it was asked.
func TestHonestRunner(t *testing.T) {
	for _, log := range []string{"no lie", "single runs", "flood of standard error"} {
		t.Run(log, func(t *testing.T) {
			s := newScene(t, plain)
			expect := filepath.Join(s.dir, "expect.txt")
			if err := os.WriteFile(expect, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := runCmd(t, s.wrap([]string{"--calls", "-", "--expect-out", expect}, badRunner, "log", log), "\n"+twoCalls+"\n")
			if code != 0 {
				t.Fatalf("exit status %d: %.1000s", code, stderr)
			}
			var lines []wrapLine
			for line := range strings.Lines(stdout) {
				var l wrapLine
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				lines = append(lines, l)
			}
			if len(lines) != 3 || lines[0].Call.TraceID != "a" || lines[1].Call.Line != lines[0].Call.Line+1 || string(lines[1].Call.Steps[0].Stdout) != "1\n" || lines[2].End.Error != "" {
				t.Errorf("have %s", stdout)
			}
			list, _ := os.ReadFile(expect)
			if items := strings.Fields(string(list)); len(items) != 4 || items[0] != lines[0].Call.RequestSHA256 || items[3] != "b" {
				t.Errorf("list: %s", list)
			}
			if code, _, stderr := runCmd(t, exec.Command(program, "verify", "--pub", s.pub, "--expect-count", "3", s.bundle), ""); code != 0 {
				t.Error(stderr)
			}
		})
	}
}

// lastLine returns wrap's last line.
func lastLine(t *testing.T, stdout string) *wrapEnd {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var l wrapLine
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &l); err != nil || l.End == nil {
		t.Fatalf("no end: %v: %s", err, stdout)
	}
	return l.End
}

// TestArgumentsThatAreHidden: what the caller sees and the runner would not, or as
// something else, is no argument for it.
func TestArgumentsThatAreHidden(t *testing.T) {
	s := newScene(t, plain)
	project := filepath.Join(s.dir, "project")
	file := filepath.Join(project, "a.js")
	if err := errors.Join(os.Mkdir(project, 0o755), os.WriteFile(file, []byte("the caller's"), 0o644)); err != nil {
		t.Fatal(err)
	}
	end := "; printf '%s\n' '" + strings.TrimSpace(string(bundletest.RunLogEnd(0, 0, 0))) + "'"
	for _, c := range []struct {
		name  string
		dir   string
		flags []string
		args  []string // after sh -c SCRIPT
		code  int
		want  string
	}{
		{"a file", project, nil, []string{"a.js"}, exitUnsigned, "a.js: the runner cannot see it"},
		{"the folder it is in", project, nil, []string{"."}, exitUnsigned, ".: the runner cannot see it"},
		{"by its path", "/", nil, []string{file}, exitUnsigned, file + ": the runner cannot see it"},
		{"a flag's value", project, nil, []string{"--call=a.js"}, exitUnsigned, "a.js: the runner cannot see it"},
		{"exposed", project, []string{"--expose", project}, []string{"a.js"}, 0, "the caller's"},
		{"exposed, by its path", "/", []string{"--expose", project}, []string{file}, 0, "the caller's"},
		{"no file", project, nil, []string{"b.js"}, 0, ""},
		{"with the key in it", s.dir, []string{"--expose", s.dir}, nil, exitUnsigned, "expose " + s.dir + ": it holds "},
		{"the key", s.dir, []string{"--expose", s.key}, nil, exitUnsigned, "expose " + s.key + ": it holds "},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := s.wrap(c.flags, append([]string{"sh", "-c", `cat "$0" >&2` + end}, c.args...)...)
			cmd.Dir = c.dir
			if code, _, stderr := runCmd(t, cmd, ""); code != c.code || !strings.Contains(stderr, c.want) {
				t.Errorf("exit status %d, want %d and %q: %s", code, c.code, c.want, stderr)
			}
		})
	}
}

// TestKeyMountedTwice: the key's folder is hidden wherever it is mounted.
func TestKeyMountedTwice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts")
	}
	s := newScene(t, plain)
	again := "/mnt" // seen by the runner
	attack := s.wrap(nil, badRunner, "attack", "read", "at:"+again+"/keys/k")
	script := fmt.Sprintf(`mount --bind '%s' %s && cat %s/keys/k > /dev/null && exec "$@"`, s.dir, again, again)
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, "sh"}, attack.Args...)...)
	if code, _, stderr := runCmd(t, cmd, ""); code != 0 || !strings.Contains(stderr, "kept out: ") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}

// TestKeyMountedAsFile: as containers are given keys. And what is exposed may not
// hold it by another way.
func TestKeyMountedAsFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts")
	}
	s := newScene(t, plain)
	for name, c := range map[string]struct {
		mount string // of the key or its folder, at /mnt/x
		flags []string
		args  []string
		code  int
		want  string
	}{
		"a file":            {"touch /mnt/x/k2; mount --bind '%s/keys/k' /mnt/x/k2", nil, []string{"read", "at:/mnt/x/k2"}, 0, "kept out: "},
		"exposed elsewhere": {"mount --bind '%s' /mnt/x", []string{"--expose", "/mnt/x"}, []string{"read", "at:/mnt/x/keys/k"}, exitUnsigned, "which is to be exposed, holds /mnt/x/"},
	} {
		t.Run(name, func(t *testing.T) {
			attack := s.wrap(c.flags, append([]string{badRunner, "attack"}, c.args...)...)
			script := "mount -t tmpfs x /mnt; mkdir /mnt/x; " + fmt.Sprintf(c.mount, s.dir) + `; exec "$@"`
			cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, "sh"}, attack.Args...)...)
			if code, _, stderr := runCmd(t, cmd, ""); code != c.code || !strings.Contains(stderr, c.want) {
				t.Errorf("exit status %d: %s", code, stderr)
			}
		})
	}
}

// TestLauncherKilled: by somebody else than the runner. The runner goes too, and
// what it had stated is not in the bundle.
func TestLauncherKilled(t *testing.T) {
	s := newScene(t, plain)
	cmd := s.wrap(nil, badRunner, "attack", "outlive", "86398", "stay")
	stop := startUntil(t, cmd, "ready")
	defer stop()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	killed := false
	for _, f := range children {
		data, _ := os.ReadFile(f)
		for _, pid := range strings.Fields(string(data)) {
			n, _ := strconv.Atoi(pid)
			killed = syscall.Kill(n, syscall.SIGKILL) == nil
		}
	}
	if !killed {
		t.Fatal("no launcher is seen")
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("wrap does not end")
	}
	if code := cmd.ProcessState.ExitCode(); code != exitUnsigned {
		t.Errorf("exit status %d", code)
	}
	for begin := time.Now(); running("86398"); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the runner is still there")
		}
	}
	if !bytes.Equal(s.content(t), s.before) {
		t.Error("the bundle has changed")
	}
}

// TestInputOfTheRunner: without --calls standard input is the runner's, whenever it
// comes and however long it takes.
func TestInputOfTheRunner(t *testing.T) {
	s := newScene(t, plain)
	cmd := s.wrap([]string{"--call-timeout", "100ms"}, badRunner, "log", "every line")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(400 * time.Millisecond)
	fmt.Fprint(stdin, twoCalls)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
	if end := lastLine(t, out.String()); end.Calls != 2 || !end.Sealed {
		t.Errorf("end: %+v", end)
	}
}

// TestCallsAreNotChanged: what is signed is what was asked, byte for byte, or it is
// refused.
func TestCallsAreNotChanged(t *testing.T) {
	js := func(code string) string { return `{"trace_id":"a","javascript":{"code":"` + code + `"}}` }
	for name, c := range map[string]struct {
		calls string
		code  int
		want  int // calls in the bundle
	}{
		"a call":                   {js("1") + "\n", 0, 1},
		"no line end":              {js("1"), 0, 1},
		"a line of CR and LF":      {js("1") + "\r\n", 0, 1},
		"blank before":             {"\n \n" + js("1"), exitUnsigned, 0}, // the test's runner takes no blank lines
		"bytes that are not UTF-8": {js("a\xffb"), exitUnsigned, 0},
		"CR in a string":           {js("a\rb"), exitUnsigned, 0},
		"NUL in a string":          {js("a\x00b"), exitUnsigned, 0},
		"a no-break space before":  {"\u00a0" + js("1"), exitUnsigned, 0},
		"many":                     {},
		"long":                     {js(strings.Repeat("x", 200_000)), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "many" {
				var b strings.Builder
				for i := range 300 {
					fmt.Fprintf(&b, `{"trace_id":"a%d","javascript":{"code":"%d"}}`+"\n", i, i)
				}
				c.calls, c.code, c.want = b.String(), 0, 300
			}
			s := newScene(t, plain)
			code, stdout, stderr := runCmd(t, s.wrap([]string{"--calls", "-"}, badRunner, "log", "every line"), c.calls)
			if end := lastLine(t, stdout); code != c.code || int(end.Calls) != c.want {
				t.Errorf("exit status %d, want %d, %d calls, want %d: %.500s", code, c.code, end.Calls, c.want, stderr)
			}
		})
	}
}

// TestLongCallThatNobodyReads: the time of a call counts from its sending.
func TestLongCallThatNobodyReads(t *testing.T) {
	s := newScene(t, plain)
	long := `{"javascript":{"code":"` + strings.Repeat("x", 200_000) + `"}}`
	code, _, stderr := runCmd(t, s.wrap([]string{"--calls", "-", "--call-timeout", "1s"}, badRunner, "log", "nothing read"), long)
	if code != exitUnsigned || !strings.Contains(stderr, "no answer to line 1 within 1s: killed") {
		t.Errorf("exit status %d: %.500s", code, stderr)
	}
}

// TestListBeforeTheCall: a call that may have run when the signer was killed is on
// the caller's list, so that the bundle without it is refused.
func TestListBeforeTheCall(t *testing.T) {
	s := newScene(t, plain)
	list := filepath.Join(s.dir, "list")
	cmd := s.wrap([]string{"--calls", "-", "--expect-out", list}, badRunner, "log", "nothing read")
	cmd.Stdin = strings.NewReader(twoCalls)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if data, _ := os.ReadFile(list); bytes.HasSuffix(data, []byte(" a\n")) {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal("it is not on the list")
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	for args, want := range map[string]int{"--expect=" + list: exitRefused, "--expect-ids=first": exitDone} {
		if code, _, stderr := runCmd(t, exec.Command(program, "verify", "--pub", s.pub, args, s.bundle), ""); code != want {
			t.Errorf("%s: exit status %d, want %d: %s", args, code, want, stderr)
		}
	}
}

// TestKeyOfTwoNames: a folder hides one.
func TestKeyOfTwoNames(t *testing.T) {
	s := newScene(t, plain)
	if err := os.Link(s.key, filepath.Join(s.dir, "another")); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runCmd(t, s.wrap(nil, "true"), ""); code != exitUnsigned || !strings.Contains(stderr, "has 2 names (hard links)") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
}

// TestSignerAway: where the key cannot be had nothing runs.
func TestSignerAway(t *testing.T) {
	s := newScene(t)
	mark := filepath.Join(s.dir, "ran")
	for name, prepare := range map[string]func(*exec.Cmd){
		"wrong passphrase": func(c *exec.Cmd) { c.Env = append(os.Environ(), "PLIMSOLL_KEY_PASSPHRASE=wrong") },
		"no agent": func(c *exec.Cmd) {
			c.Args[3] = "agent:SHA256:" + strings.Repeat("A", 43)
			c.Env = append(os.Environ(), "SSH_AUTH_SOCK="+filepath.Join(s.dir, "nosuch"))
		},
		"no key": func(c *exec.Cmd) { c.Args[3] += "x" },
		"bundle of another key": func(c *exec.Cmd) {
			other := filepath.Join(s.dir, "keys", "other")
			if out, err := exec.Command(program, "keygen", "--key", other, "--pub", other+".pub").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			c.Args[3] = other
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := s.wrap([]string{"--allow-weak-isolation", "--expose", "/etc"}, "sh", "-c", "touch "+mark)
			prepare(cmd)
			code, stdout, stderr := runCmd(t, cmd, "")
			if _, err := os.Stat(mark); code != exitUnsigned || stdout != "" || stderr == "" || err == nil {
				t.Errorf("exit status %d: %q %q %v", code, stdout, stderr, err)
			}
			if !bytes.Equal(s.content(t), s.before) {
				t.Error("the bundle has changed")
			}
		})
	}
}
