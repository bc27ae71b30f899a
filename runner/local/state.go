//go:build linux

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The state folder of a gateway, below the one that it shares with others:
//
//	lock        held by the gateway as long as it lives
//	etc, bin    shared by its sandboxes
//	<n>/        one sandbox
//	<n>/pids    its processes on the host: number and start time, a line each
//	<n>/cgroup  the folder of its cgroup
//	<n>/tmp     the kept /tmp
//	<n>/b<…>    the bundle of the present start
//	<n>/r       gVisor's state of the present start

// privateDir makes a folder that is ours alone, or makes sure that it is.
func privateDir(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%w: none given", ErrPath)
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	if err := os.MkdirAll(name, 0o700); err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	// gVisor refuses links on the way to its root folder.
	if name, err = filepath.EvalSymlinks(name); err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	var stat unix.Stat_t
	if err := unix.Lstat(name, &stat); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrPath, name, err)
	}
	if int(stat.Uid) != os.Geteuid() || stat.Mode&0o077 != 0 {
		return "", fmt.Errorf("%w: %s is not ours alone: owner %d, mode %03o", ErrPath, name, stat.Uid, stat.Mode&0o777)
	}
	return name, nil
}

// newInstance makes the folder of one gateway and locks it.
func newInstance(parent string) (string, *os.File, error) {
	for range 10 {
		dir := filepath.Join(parent, "i-"+randomHex(4))
		if err := os.Mkdir(dir, 0o700); err != nil {
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return "", nil, fmt.Errorf("%w: %w", ErrPath, err)
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // taken for a dead gateway's, as below
		}
		if err != nil {
			return "", nil, fmt.Errorf("%w: %w", ErrPath, err)
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			// Another gateway's Cleanup may have taken the folder for a dead one's
			// before the lock was ours.
			if _, err := os.Stat(lock.Name()); err == nil {
				return dir, lock, nil
			}
		}
		lock.Close()
	}
	return "", nil, fmt.Errorf("%w: no folder to be had in %s", ErrPath, parent)
}

// Cleanup ends and removes what gateways that are gone left in a folder, and
// counts their sandboxes. Gateways that live hold a lock and are not touched.
func Cleanup(dir string) (int, error) {
	instances, err := filepath.Glob(filepath.Join(dir, "i-*"))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrPath, err)
	}
	count := 0
	for _, instance := range instances {
		n, err := cleanInstance(instance)
		if err != nil {
			return count, err
		}
		count += n
	}
	return count, nil
}

func cleanInstance(dir string) (int, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // gone meanwhile
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrPath, err)
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return 0, nil // its gateway lives
	}
	sandboxes, _ := filepath.Glob(filepath.Join(dir, "*", "pids"))
	for _, name := range sandboxes {
		killRecorded(name)
	}
	groups, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup"))
	for _, name := range groups {
		folder, _ := os.ReadFile(name)
		removeCgroup(strings.TrimSpace(string(folder)))
	}
	if err := removeTree(dir); err != nil {
		return 0, fmt.Errorf("%w: leftovers of another run: %w", ErrPath, err)
	}
	return len(sandboxes), nil
}

// recordPIDs writes down which processes a sandbox consists of.
func recordPIDs(name string, pids []int) error {
	var b strings.Builder
	for _, pid := range pids {
		start, err := startTime(pid)
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, "%d %s\n", pid, start)
	}
	return os.WriteFile(name, []byte(b.String()), 0o600)
}

// killRecorded kills the processes that recordPIDs wrote down, if they are still
// the same, and waits for their end.
func killRecorded(name string) {
	data, err := os.ReadFile(name)
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		number, start, _ := strings.Cut(strings.TrimSpace(line), " ")
		pid, err := strconv.Atoi(number)
		if err != nil || pid <= 1 {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if have, err := startTime(pid); err == nil && have == start {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			waitPidfd(fd, 5*time.Second)
		}
		unix.Close(fd)
	}
}

// startTime tells a process from a later one of the same number.
func startTime(pid int) (string, error) {
	fields, err := statFields(pid)
	if err != nil {
		return "", err
	}
	return fields[19], nil
}

// statFields are those of /proc/<pid>/stat after the name, the state first.
func statFields(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	at := strings.LastIndexByte(string(data), ')')
	fields := strings.Fields(string(data[at+1:]))
	if at < 0 || len(fields) < 20 {
		return nil, errors.New("unknown format")
	}
	return fields, nil
}

func isZombie(pid int) bool {
	fields, err := statFields(pid)
	return err != nil || fields[0] == "Z" || fields[0] == "X"
}

// waitPidfd waits for the end of a process.
func waitPidfd(fd int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

// removeTree removes a folder that code could write to: it may have taken the
// rights to its own folders away, or nested them deeper than there are
// descriptors for.
func removeTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	if err := flatten(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// flatten empties a folder without going deeper than one level: what is in the
// folders of it is moved up, until nothing is left. It follows no link. Nothing
// else may write to the tree.
func flatten(dir string) error {
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	serial := 0
	for {
		names, err := listAt(top, ".")
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if unix.Unlinkat(top, name, 0) == nil {
				continue
			}
			if err := unix.Fchmodat(top, name, 0o700, 0); err != nil {
				return &fs.PathError{Op: "chmod", Path: name, Err: err}
			}
			inner, err := listAt(top, name)
			if err != nil {
				return &fs.PathError{Op: "read", Path: name, Err: err}
			}
			fd, err := unix.Openat(top, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return &fs.PathError{Op: "open", Path: name, Err: err}
			}
			for _, child := range inner {
				if unix.Unlinkat(fd, child, 0) == nil {
					continue
				}
				_ = unix.Fchmodat(fd, child, 0o700, 0)
				serial++
				if err = unix.Renameat(fd, child, top, fmt.Sprintf("%s.%d", randomHex(8), serial)); err != nil {
					break
				}
			}
			unix.Close(fd)
			if err == nil {
				err = unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
			}
			if err != nil {
				return &fs.PathError{Op: "remove", Path: name, Err: err}
			}
		}
	}
}

func listAt(at int, name string) ([]string, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	folder := os.NewFile(uintptr(fd), name)
	defer folder.Close()
	return folder.Readdirnames(-1)
}
