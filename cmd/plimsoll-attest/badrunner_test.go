//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// The hostile runner: this test binary under another name. "badrunner attack NAME
// WHERE…" tries something in its view of the machine and says on standard error
// what came of it; "badrunner log NAME" states something that is not so.
const badRunner = "badrunner"

func badRunnerMain() {
	switch os.Args[1] {
	case "attack":
		var args []string
		for _, arg := range os.Args[3:] {
			// wrap refuses arguments that name hidden files as they are.
			args = append(args, strings.TrimPrefix(arg, "at:"))
		}
		if got, err := attacks[os.Args[2]](args); err != nil {
			fmt.Fprintf(os.Stderr, "kept out: %v\n", err)
		} else {
			fmt.Fprintf(os.Stderr, "GOT %s\n", got)
		}
		os.Stdout.Write(bundletest.RunLogEnd(0, 0, 0))
	case "log":
		lies[os.Args[2]](&liar{in: bufio.NewReader(os.Stdin), session: bundletest.NewSession("bad runner")})
	case "without":
		spaces, _ := strconv.ParseUint(os.Args[2], 0, 32)
		fmt.Fprintln(os.Stderr, withoutSpaces(uint32(spaces), os.Args[3:]))
		os.Exit(1)
	}
}

// errNothing says that an attack found nothing.
var errNothing = errors.New("nothing there")

// An attack returns what it got, or why it got nothing. It is given paths, numbers
// and names of what it is after.
var attacks = map[string]func(args []string) (string, error){
	"read": func(args []string) (string, error) {
		data, err := os.ReadFile(args[0])
		return string(data), err
	},
	"list": func(args []string) (string, error) {
		entries, err := os.ReadDir(args[0])
		if err == nil && len(entries) == 0 {
			err = errNothing
		}
		return fmt.Sprint(entries), err
	},
	"hard link": func(args []string) (string, error) {
		if err := os.Link(args[0], "k"); err != nil {
			return "", err
		}
		data, err := os.ReadFile("k")
		return string(data), err
	},
	"rename": func(args []string) (string, error) {
		moved := filepath.Dir(args[0]) + ".moved"
		if err := os.Rename(filepath.Dir(args[0]), moved); err != nil {
			return "", err
		}
		return moved, nil
	},
	// Another view on top, or this one taken apart, in namespaces of its own.
	"unmount": func(args []string) (string, error) {
		cmd := exec.Command("/proc/self/exe", "attack", "unmount inside", args[0])
		cmd.Args[0] = badRunner
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		var out bytes.Buffer
		cmd.Stderr = &out
		err := cmd.Run()
		if text, ok := strings.CutPrefix(out.String(), "GOT "); ok {
			return text, nil
		}
		return "", fmt.Errorf("%s %v", out.String(), err)
	},
	"unmount inside": func(args []string) (string, error) {
		for dir := filepath.Dir(args[0]); ; dir = filepath.Dir(dir) {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			if data, err := os.ReadFile(args[0]); err == nil {
				return string(data), nil
			}
			if dir == "/" {
				return "", errNothing
			}
		}
	},
	"descriptors": func([]string) (string, error) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return "", err
		}
		got := ""
		for _, e := range entries {
			to, err := os.Readlink("/proc/self/fd/" + e.Name())
			// The three pipes, and what Go's runtime has opened; the listing's own is
			// closed by now.
			if err == nil && !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "anon_inode:[event") && !strings.HasPrefix(to, "/sys/fs/cgroup/") {
				got += e.Name() + " " + to + "\n"
			}
		}
		if got == "" {
			return "", errNothing
		}
		return got, nil
	},
	"environment": func(args []string) (string, error) {
		if all := strings.Join(os.Environ(), "\n"); strings.Contains(all, args[0]) || strings.Contains(all, "SSH_AUTH_SOCK") {
			return all, nil
		}
		return "", errNothing
	},
	// Any process's memory of its beginning.
	"environments": func(args []string) (string, error) {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, f := range files {
			if data, _ := os.ReadFile(f); bytes.Contains(data, []byte(args[0])) {
				return f, nil
			}
		}
		return "", errNothing
	},
	"processes": func([]string) (string, error) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		var all []string
		for _, f := range files {
			data, _ := os.ReadFile(f)
			if f != "/proc/1/cmdline" && !bytes.HasPrefix(data, []byte(badRunner)) {
				all = append(all, f+" "+string(data))
			}
		}
		if os.Getpid() != 1 {
			all = append(all, "not the first process")
		}
		if len(all) == 0 {
			return "", errNothing
		}
		return strings.Join(all, "\n"), nil
	},
	"process files": func(args []string) (string, error) {
		var errs []error
		for _, name := range []string{"mem", "maps", "environ", "fd", "root/etc/passwd", "cwd/.", "exe", "task"} {
			path := filepath.Join("/proc", args[0], name)
			f, err := os.Open(path)
			if err == nil {
				f.Close()
				return path, nil
			}
			errs = append(errs, err)
		}
		return "", errors.Join(errs...)
	},
	"ptrace": func(args []string) (string, error) {
		pid, _ := strconv.Atoi(args[0])
		if err := syscall.PtraceAttach(pid); err != nil {
			return "", err
		}
		return "attached", nil
	},
	"memory of another": func(args []string) (string, error) {
		pid, _ := strconv.Atoi(args[0])
		buf := make([]byte, 16)
		n, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: 16}}, []unix.RemoteIovec{{Base: 0x400000, Len: 16}}, 0)
		return fmt.Sprint(n), err
	},
	"descriptor of another": func(args []string) (string, error) {
		pid, _ := strconv.Atoi(args[0])
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return "", err
		}
		_, err = unix.PidfdGetfd(fd, 3, 0)
		return "descriptor 3", err
	},
	"signal": func(args []string) (string, error) {
		pid, _ := strconv.Atoi(args[0])
		return "signalled", syscall.Kill(pid, 0)
	},
	"core files": func([]string) (string, error) {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
			return "", err
		}
		if limit.Max == 0 {
			return "", errors.New("at most 0 bytes")
		}
		return fmt.Sprint(limit), nil
	},
	"socket": func(args []string) (string, error) {
		conn, err := net.DialTimeout(args[0], args[1], time.Second)
		if err != nil {
			return "", err
		}
		conn.Close()
		return "connected", nil
	},
	"keyring": func(args []string) (string, error) {
		var errs []error
		for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
			id, err := unix.KeyctlSearch(ring, "user", args[0], 0)
			if err == nil {
				return fmt.Sprint(id), nil
			}
			errs = append(errs, err)
		}
		return "", errors.Join(errs...)
	},
	"powers": func([]string) (string, error) {
		text, err := os.ReadFile("/proc/self/status")
		got := ""
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if strings.HasPrefix(name, "Cap") && value != "0000000000000000" || name == "NoNewPrivs" && value != "1" {
				got += line
			}
		}
		if os.Getuid() == 0 {
			got += "user 0"
		}
		if got == "" && err == nil {
			err = errNothing
		}
		return got, err
	},
	// Where can it write, but in its own folder?
	"write": func([]string) (string, error) {
		var got []string
		_ = filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
			switch {
			case err != nil || !d.IsDir():
				return nil
			case path == "/proc" || path == "/sys" || path == os.Getenv("HOME"):
				return filepath.SkipDir
			case strings.Count(path, "/") > 3:
				return filepath.SkipDir
			}
			f, err := os.CreateTemp(path, "w")
			if err == nil {
				f.Close()
				os.Remove(f.Name())
				got = append(got, path)
			}
			return nil
		})
		f, err := os.CreateTemp("", "w")
		if err != nil {
			return "not even in its own folder", nil
		}
		f.Close()
		os.Remove(f.Name())
		if len(got) == 0 {
			return "", errNothing
		}
		return strings.Join(got, " "), nil
	},
	"bundle": func(args []string) (string, error) {
		path := args[0]
		var errs []error
		for name, try := range map[string]func() error{
			"truncate": func() error { return os.Truncate(path, 0) },
			"append": func() error {
				f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
				if err == nil {
					f.Close()
				}
				return err
			},
			"create":  func() error { return os.WriteFile(path+".x", nil, 0o600) },
			"rename":  func() error { return os.Rename(path, path+".old") },
			"replace": func() error { return errors.Join(os.WriteFile("b", nil, 0o600), os.Rename("b", path)) },
			"link":    func() error { return errors.Join(os.WriteFile("b", nil, 0o600), os.Link("b", path+".l")) },
			"remove":  func() error { return os.Remove(path) },
			"chmod":   func() error { return os.Chmod(path, 0o777) },
			"lock": func() error {
				f, err := os.Open(path)
				if err == nil {
					f.Close()
				}
				return err
			},
		} {
			err := try()
			if err == nil {
				return name, nil
			}
			errs = append(errs, err)
		}
		return "", errors.Join(errs...)
	},
	// Input for a terminal, by any descriptor or device.
	"terminal": func(args []string) (string, error) {
		fmt.Fprint(os.Stderr, "\x1b[5n\x1bc\u009b31m")
		inject := func(fd int) error {
			c := byte('x')
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
			if errno != 0 {
				return errno
			}
			return nil
		}
		var errs []error
		for fd := range 3 {
			err := inject(fd)
			if err == nil {
				return fmt.Sprint("descriptor ", fd), nil
			}
			errs = append(errs, err)
		}
		_, _ = unix.Setsid()
		for _, path := range append(args, "/dev/tty", "/dev/console", "/dev/tty1", "/dev/ptmx", "/dev/pts/ptmx") {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err == nil {
				err = inject(int(f.Fd()))
				return fmt.Sprint("opened ", path, ", inject: ", err), nil
			}
			errs = append(errs, err)
		}
		return "", errors.Join(errs...)
	},
	// Its group, in which the launcher is not.
	"group": func([]string) (string, error) {
		signal.Ignore(syscall.SIGTERM)
		if err := syscall.Kill(0, syscall.SIGTERM); err != nil {
			return err.Error(), nil
		}
		_ = syscall.Kill(-1, syscall.SIGKILL)
		time.Sleep(100 * time.Millisecond)
		return "", errors.New("it is left to be seen")
	},
	// A child that ignores what can be ignored, in a session of its own.
	"outlive": func(args []string) (string, error) {
		cmd := exec.Command("/bin/sh", "-c", "trap '' HUP INT TERM; exec sleep "+args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return err.Error(), nil
		}
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
		if len(args) > 1 {
			fmt.Fprintln(os.Stderr, "ready")
			time.Sleep(time.Hour)
		}
		return "", errors.New("it is left to be seen")
	},
}

// A liar states what is not so.
type liar struct {
	in      *bufio.Reader
	session *bundletest.Session
}

// next reads a call and makes the record that a runner would state of it, in the
// session unless it is a single run.
func (l *liar) next() *bundletest.Call {
	var line []byte
	for len(bytes.TrimSpace(line)) == 0 {
		var err error
		if line, err = l.in.ReadBytes('\n'); err != nil {
			os.Exit(9)
		}
	}
	asked, refused := call.Parse(bytes.TrimSpace(line))
	if refused != nil {
		os.Exit(8)
	}
	c := bundletest.JavaScript("", "", "1\n")
	c.Request = asked.Request
	return c.Seal()
}

func state(entries ...bundletest.Entry) {
	for _, e := range entries {
		os.Stdout.Write(bundletest.RunLogLine(e))
	}
}

func (l *liar) answer() { state(l.session.Add(l.next()).Entry()) }

// finish ends a log of calls of one session.
func (l *liar) finish(calls uint64) {
	state(l.session.Close())
	os.Stdout.Write(bundletest.RunLogEnd(calls, 0, 1))
}

var lies = map[string]func(*liar){
	"no lie": func(l *liar) {
		l.answer()
		l.answer()
		l.finish(2)
	},
	"single runs": func(l *liar) {
		state(l.next().Entry())
		state(l.next().Entry())
		os.Stdout.Write(bundletest.RunLogEnd(2, 0, 0))
	},
	"other code": func(l *liar) {
		l.answer()
		c := l.next()
		c.Request.JavaScript.Code += " "
		state(l.session.Add(c).Entry())
		l.finish(2)
	},
	"other trace ID": func(l *liar) {
		c := l.next()
		c.Request.TraceID += "x"
		state(l.session.Add(c).Entry())
		l.finish(1)
	},
	"the call before again": func(l *liar) {
		c := l.next()
		again := bundletest.JavaScript("", "", "2\n")
		again.Request = c.Request
		state(l.session.Add(c).Entry())
		l.next()
		state(l.session.Add(again).Entry())
		l.finish(2)
	},
	"the same line twice": func(l *liar) {
		c := l.session.Add(l.next()).Entry()
		state(c, c)
		l.finish(2)
	},
	"more than was asked": func(l *liar) {
		l.answer()
		l.answer()
		state(l.session.Add(bundletest.JavaScript("extra", "1", "")).Entry())
		l.finish(3)
	},
	"before it was asked": func(l *liar) {
		state(l.session.Add(bundletest.JavaScript("early", "1", "")).Entry())
		l.finish(1)
	},
	"other session in the middle": func(l *liar) {
		l.answer()
		state(bundletest.NewSession("another").Add(l.next()).Entry())
		l.finish(2)
	},
	"other session closed": func(l *liar) {
		l.answer()
		l.answer()
		state(bundletest.NewSession("never was").Close())
		l.finish(2)
	},
	"session that never was": func(l *liar) {
		l.answer()
		l.answer()
		state(l.session.Close(), bundletest.NewSession("never was").Close())
		os.Stdout.Write(bundletest.RunLogEnd(2, 0, 2))
	},
	"close that counts less": func(l *liar) {
		l.answer()
		l.answer()
		l.session.Calls--
		l.finish(2)
	},
	"wrong result digest": func(l *liar) {
		c := l.session.Add(l.next())
		c.Response.JavaScript.Stdout = []byte("3\n")
		state(c.Entry())
		l.finish(1)
	},
	"wrong order in the session": func(l *liar) {
		c := l.session.Add(l.next())
		c.Record.Sequence = 2
		state(c.SealRecord().Entry())
		l.finish(1)
	},
	"other predicate type": func(l *liar) {
		e := l.session.Add(l.next()).Entry()
		e.Payload = bytes.Replace(e.Payload, []byte("run-record/v1"), []byte("run-record/v9"), 1)
		state(e)
		l.finish(1)
	},
	"a link": func(l *liar) {
		l.next()
		state(bundletest.Entry{Payload: statement.AppendLink(nil, statement.Link{Index: 1, EntrySHA256: strings.Repeat("ab", 32)})})
		l.finish(1)
	},
	"a checkpoint": func(l *liar) {
		l.next()
		state(bundletest.Entry{Payload: statement.AppendLink(nil, statement.Link{Index: 2, PreviousSHA256: strings.Repeat("ab", 32), Checkpoint: true, Lines: 1})})
		l.finish(1)
	},
	"refusal of another call": func(l *liar) {
		l.next()
		os.Stdout.Write(bundletest.RunLog(nil, bundletest.Refused{Line: 7, TraceID: "a", Code: "invalid_argument", Reason: "request"}))
	},
	"no end": func(l *liar) {
		l.answer()
		l.next()
		os.Exit(0)
	},
	"death": func(l *liar) {
		l.answer()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // as process 1 it cannot
		panic("dead")
	},
	"silence": func(l *liar) {
		l.answer()
		l.next()
		time.Sleep(time.Hour)
	},
	"no exit": func(l *liar) {
		l.answer()
		l.answer()
		l.finish(2)
		os.Stdout.Close()
		time.Sleep(time.Hour)
	},
	"garbage": func(l *liar) {
		l.answer()
		l.next()
		fmt.Println("Hello, world!")
		time.Sleep(time.Hour)
	},
	"flood of one line": func(l *liar) {
		l.answer()
		l.next()
		_, _ = io.Copy(os.Stdout, zeros{})
	},
	"flood of standard error": func(l *liar) {
		_, _ = io.CopyN(os.Stderr, zeros{}, 8<<20)
		l.answer()
		l.answer()
		l.finish(2)
	},
	"nothing read": func(*liar) { time.Sleep(time.Hour) },
	"every line": func(l *liar) {
		calls := uint64(0)
		for {
			line, err := l.in.ReadBytes('\n')
			if err != nil {
				break
			}
			asked, refused := call.Parse(bytes.TrimSuffix(line, []byte("\n")))
			if refused != nil {
				os.Exit(8)
			}
			c := bundletest.JavaScript("", "", "1\n")
			c.Request = asked.Request
			state(l.session.Add(c).Entry())
			calls++
		}
		l.finish(calls)
	},
}

// zeros is a line of a run log that does not end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// withoutSpaces becomes another program in a process that the kernel gives none of
// the namespaces: what a container's filter does.
func withoutSpaces(spaces uint32, args []string) error {
	runtime.LockOSThread()
	const nr, arg0 = 0, 16 // in seccomp_data; the low half of the argument where bytes are little-endian
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	ret := func(errno unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	program := []unix.SockFilter{
		load(nr),
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 5, 0),
		jump(unix.BPF_JEQ, unix.SYS_UNSHARE, 1, 0),
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(arg0),
		jump(unix.BPF_JSET, spaces, 0, 2),
		ret(unix.EPERM),
		ret(unix.ENOSYS),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0); err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return unix.Exec(path, args, os.Environ())
}
