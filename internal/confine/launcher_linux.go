package confine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A setup is what the view's process is told.
type setup struct {
	View
	Spaces uintptr // the namespaces that it is in: CLONE_ flags
	ID     int     // another user's and group's to become, 0 for none
}

// innerID is the user in a namespace of users. It is not 0: a program of user 0
// would have capabilities there again.
const innerID = 1000

// spaces are the namespaces of a view, in the order in which they are tried.
var spaces = []struct {
	flag uintptr
	part part
}{
	{unix.CLONE_NEWUSER, partUsers},
	{unix.CLONE_NEWNS, partMounts},
	{unix.CLONE_NEWPID, partProcesses},
	{unix.CLONE_NEWIPC, partIPC},
	{unix.CLONE_NEWUTS, partHostname},
	{unix.CLONE_NEWNET, partNetwork},
}

// launch is the launcher. Its memory holds nothing but the view.
func launch() {
	runtime.LockOSThread() // the program's parent is this thread
	// Whoever ends all of a service's processes at once leaves the end of the program
	// to the one that was asked to end it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	_ = unix.CloseRange(eventsFile+1, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	unix.CloseOnExec(ordersFile)
	unix.CloseOnExec(eventsFile)
	events := json.NewEncoder(os.NewFile(eventsFile, "events"))
	orders := json.NewDecoder(os.NewFile(ordersFile, "orders"))
	s := setup{}
	if err := orders.Decode(&s.View); err != nil {
		os.Exit(1)
	}
	cmd, told, err := s.start(events)
	if err != nil {
		if lacking := lackingError(nil); errors.As(err, &lacking) {
			_ = events.Encode(event{Lacking: err.Error()})
		} else {
			_ = events.Encode(event{Failed: err.Error()})
		}
		os.Exit(1)
	}
	// From here on only the program has the streams: their ends are its end.
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(null, fd, 0)
		}
	}
	alone := make(chan struct{})
	go func() {
		obey(io.MultiReader(orders.Buffered(), os.NewFile(ordersFile, "orders")), cmd.Process)
		close(alone)
	}()
	for {
		var e event
		if err := told.Decode(&e); err != nil {
			break // it has become the program, or is dead
		}
		_ = events.Encode(e)
		if e.Open == "" {
			_ = cmd.Wait()
			os.Exit(1)
		}
	}
	_ = events.Encode(event{Started: cmd.Process.Pid})
	_ = cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	_ = events.Encode(event{Ended: &code})
	// Who started this closes the orders when it has seen the end. If it is not
	// there to see it, nobody else cleans up.
	<-alone
	_ = RemoveScratch(s.Scratch)
	os.Exit(0)
}

// obey sends the program what signals it is told to, until whoever tells is gone,
// or has seen its end. It kills it then.
func obey(orders io.Reader, program *os.Process) {
	buf := make([]byte, 1)
	for {
		if _, err := io.ReadFull(orders, buf); err != nil {
			_ = program.Kill()
			return
		}
		if buf[0] != '\n' { // which ends the view's JSON
			_ = program.Signal(unix.Signal(buf[0])) // not to another that has its number now
		}
	}
}

// start starts the process that sets up the view. What it has to tell ends when it
// has become the program.
func (s *setup) start(events *json.Encoder) (*exec.Cmd, *json.Decoder, error) {
	flags := uintptr(0)
	root := isRoot()
	for _, space := range spaces {
		if space.flag == unix.CLONE_NEWNET && s.Network || space.flag == unix.CLONE_NEWUSER && root {
			continue
		}
		flags |= space.flag
	}
	var missing lackingError
	if err := probe(flags); err != nil {
		flags, missing = available(flags)
		if len(missing) == 0 {
			return nil, nil, fmt.Errorf("namespaces: %w", err) // each alone can be had
		}
	}
	if root {
		id, err := otherID()
		if err != nil {
			missing = append(missing, &partError{part: partUser, err: err})
		}
		s.ID = id
	}
	if len(missing) > 0 && !s.Weak {
		return nil, nil, missing
	}
	for _, lack := range missing {
		_ = events.Encode(event{Open: lack.open()})
	}
	s.Spaces = flags
	if s.ID != 0 && s.Scratch != "" {
		if err := os.Chown(s.Scratch, s.ID, s.ID); err != nil {
			return nil, nil, err
		}
	}
	return s.startView()
}

func (s *setup) startView() (*exec.Cmd, *json.Decoder, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, nil, err
	}
	tellRead, tellWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	setupRead, setupWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd := again(viewName, s.Spaces)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{setupRead, tellWrite}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the view: %w", err)
	}
	tellWrite.Close()
	setupRead.Close()
	go func() {
		_, _ = io.Copy(setupWrite, bytes.NewReader(text)) // its death is seen elsewhere
		setupWrite.Close()
	}()
	return cmd, json.NewDecoder(tellRead), nil
}

// again is this program started anew in namespaces.
func again(name string, flags uintptr) *exec.Cmd {
	// A session of its own: a signal to its group reaches nothing else.
	attr := &syscall.SysProcAttr{Cloneflags: flags, Setsid: true}
	if flags&unix.CLONE_NEWUSER != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: innerID, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: innerID, HostID: os.Getegid(), Size: 1}}
		// What sets up the view needs them, and gives them up.
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN}
	}
	return &exec.Cmd{Path: "/proc/self/exe", Args: []string{name}, Env: []string{}, Dir: "/", SysProcAttr: attr}
}

// probe reports whether a process can be started in namespaces.
func probe(flags uintptr) error {
	err := again(probeName, flags).Run()
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// available returns which of the namespaces can be had, and why not the others.
func available(flags uintptr) (have uintptr, missing lackingError) {
	user := flags & unix.CLONE_NEWUSER
	for _, space := range spaces {
		if space.flag&flags == 0 {
			continue
		}
		if err := probe(user | space.flag); err != nil {
			missing = append(missing, &partError{part: space.part, err: err})
			if space.flag == unix.CLONE_NEWUSER {
				return 0, missing // nor any other
			}
			continue
		}
		have |= space.flag
	}
	return have, missing
}

// isRoot reports whether this process may make namespaces without one of users,
// and become another user.
func isRoot() bool {
	if os.Geteuid() != 0 || len(mappedIDs("uid")) == 0 {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	for _, c := range []uint{unix.CAP_SYS_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_CHOWN, unix.CAP_SETPCAP} {
		if data[0].Effective&(1<<c) == 0 {
			return false
		}
	}
	return true
}

// wantedID is the user that root's runner is, where there is that one: beyond all
// that distributions, containers and directories give out.
const wantedID = 2_147_000_001

// otherID returns the number of a user and group that nobody is.
func otherID() (int, error) {
	groups := mappedIDs("gid")
	for _, users := range mappedIDs("uid") {
		for _, g := range groups {
			low, high := max(users.low, g.low), min(users.high, g.high)
			switch {
			case low <= wantedID && wantedID <= high:
				return wantedID, nil
			case high > low:
				return high, nil
			}
		}
	}
	return 0, errors.New("this user namespace has no second user")
}

type idRange struct{ low, high int }

// mappedIDs returns the ranges of users, or groups, that this process's namespace
// has, but for 0 and what is no number of a user.
func mappedIDs(kind string) []idRange {
	text, err := os.ReadFile("/proc/self/" + kind + "_map")
	if err != nil {
		return nil
	}
	var list []idRange
	for line := range strings.Lines(string(text)) {
		var inside, outside, size int
		if n, _ := fmt.Sscan(line, &inside, &outside, &size); n != 3 {
			continue
		}
		r := idRange{max(inside, 1), min(inside+size-1, 1<<32-2)}
		if r.low <= r.high {
			list = append(list, r)
		}
	}
	return list
}
