//go:build linux

package runner

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestSweepSeesTheDead runs the sweep in a PID namespace of its own, among processes
// that it is to keep. A process that has ended and has a living parent or tracer is
// no proof that nothing of the call is left: a leftover can have itself killed while
// the sweep looks at it, and be followed by one that was born after the look began.
func TestSweepSeesTheDead(t *testing.T) {
	for name, c := range map[string]struct {
		leftover string
		want     int
	}{
		"nothing":                      {":", 0},
		"a living process":             {"sleep 1000 &", 0},
		"a dead one of a process kept": {`perl -e 'if (fork) { sleep 1000 }' & keeper=$!`, sweepNotClean},
	} {
		script := `mount -t proc proc /proc; mount -t tmpfs tmpfs /tmp; mkdir /tmp/work
` + c.leftover + `
sleep 0.3
set -- " "
for pid in 1 $keeper; do
	read -r line </proc/$pid/stat; fields=${line##*)}; set -- "$1" $fields; began=${21}; set -- "$1$pid:$began "
done
/bin/sh -c "$SWEEP" plimsoll "$1" ""
status=$?
kill -9 -1 2>/dev/null
exit $status`
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "SWEEP="+sweepScript)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("no namespaces here: %v", err)
		}
		if have := cmd.ProcessState.ExitCode(); have != c.want {
			t.Errorf("%s: status %d, want %d: %v: %s", name, have, c.want, err, strings.TrimSpace(string(out)))
		}
	}
}
