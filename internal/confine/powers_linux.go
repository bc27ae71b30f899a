package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// exec gives up what the program shall not have and becomes it. It returns when
// that fails.
func (v *view) exec() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	err := newKeyring()
	if err := v.want(partKeyring, "", err); err != nil {
		return err
	}
	// With namespaces of processes and of the network nothing is in reach that the
	// scopes would keep from it: they are a second wall there.
	err = landlockScopes()
	if v.Spaces&unix.CLONE_NEWNET != 0 && v.Spaces&unix.CLONE_NEWPID != 0 {
		err = nil
	}
	if err := v.want(partScopes, "", err); err != nil {
		return err
	}
	// Root reaches the program where the other user may not.
	program, err := unix.Open(v.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", v.Path, err)
	}
	if err := v.want(partPowers, "", v.dropPowers()); err != nil {
		return err
	}
	// It dies with the launcher, unless it asks not to; the launcher kills it then.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the launcher: %w", err)
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("descriptors: %w", err)
	}
	env := append(v.Env, "HOME="+v.home, "TMPDIR="+v.home)
	if err = unix.Exec(v.Path, v.Args, env); errors.Is(err, unix.EACCES) {
		err = execFile(program, v.Args, env)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s: %w: its interpreter may be in a hidden folder", v.Path, err)
	case errors.Is(err, unix.EACCES) && v.ID != 0:
		return fmt.Errorf("%s: %w: it runs as user %d, who needs the right to execute it", v.Path, err, v.ID)
	}
	return fmt.Errorf("%s: %w", v.Path, err)
}

// execFile becomes the program of a descriptor (execveat(2)).
func execFile(fd int, args, env []string) error {
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	envv, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	empty, err := unix.BytePtrFromString("")
	if err != nil {
		return err
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH, 0)
	return errno
}

// newKeyring gives this thread a session keyring without a name, that no other has.
func newKeyring() error {
	_, _, errno := unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno != 0 && errno != unix.ENOSYS { // a kernel that keeps no keys
		return errno
	}
	return nil
}

// maxCapability is the highest number that a set of capabilities can hold.
const maxCapability = 63

// dropPowers becomes the other user and gives up all capabilities, for ever. All
// of this is the calling thread's alone.
func (v *view) dropPowers() error {
	for c := uintptr(0); c <= maxCapability; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		switch {
		case errors.Is(err, unix.EINVAL): // there are no more
		case errors.Is(err, unix.EPERM): // it may not, as it has none: no_new_privs is enough
		case err != nil:
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	if v.ID != 0 {
		id := uintptr(v.ID)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			return fmt.Errorf("setgroups: %w", errno)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
			return fmt.Errorf("setresgid: %w", errno)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
			return fmt.Errorf("setresuid: %w", errno)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// landlockScopes keeps signals and abstract sockets of the outside from this
// thread (landlock(7), ABI 6). Nothing else of Landlock is used: a domain that
// handles rights on files forbids mounts, which sandboxes need.
func landlockScopes() error {
	attr := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL}
	size := unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("%w (Linux 6.12 has them)", errno)
	}
	defer unix.Close(int(fd))
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// loopbackUp gives a new network namespace its 127.0.0.1.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}
