package runner

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plimsoll-attest/plimsoll/record"
)

// workDir is where snippets and steps run, and what files and artifacts are
// relative to.
const workDir = "/tmp/work"

// guestPath finds programs in a sandbox, /opt/node being where a node from
// outside the system's folders is shown.
const guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/node/bin"

// shell is named by its path: to look through the folders of guestPath takes a
// tenth of a short step's time.
const shell = "/bin/sh"

// locale is the one variable that calls get beside PATH, HOME and what a gateway
// of ours says of itself.
var locale = map[string]string{"LANG": "C.UTF-8"}

// command is how programs start: with an environment of exactly this, so that
// nothing a gateway sets or a profile holds (BASH_ENV, NODE_OPTIONS, LD_PRELOAD)
// has a part in it. Our own gateway sets such an environment itself, and starting
// one program and not two is a third of a short step's time.
func (r *Runner) command(argv ...string) []string {
	if r.config.Local {
		return argv
	}
	return append([]string{"/usr/bin/env", "-i", "PATH=" + guestPath, "HOME=/tmp", "LANG=C.UTF-8"}, argv...)
}

// script is a shell script of ours with its arguments. It travels in the
// arguments, where no process of the sandbox can change it.
func (r *Runner) script(text string, args ...string) []string {
	return r.command(append([]string{shell, "-c", text, "plimsoll"}, args...)...)
}

// What the scripts below need of an image is sh, and env under a gateway that is
// not ours; mkdir and cat where there are files to write and to fetch; rm and chmod
// against obstacles only.

// statFunction reads /proc/PID/stat with what the shell itself has, so that it
// works where no process can be started any more. The name of the program in it
// may hold anything, newlines and brackets too; what counts comes after the last
// bracket.
const statFunction = `
stat() {
	text=
	while IFS= read -r line || [ -n "$line" ]; do text=$text$line; done 2>/dev/null <"/proc/$1/stat" || return 1
	[ -n "$text" ] || return 1
	set -- ${text##*)}
	state=$1 parent=$2 began=${20}
	[ -n "$began" ]
}
mine=" $$ "
up=$PPID
while [ "$up" -gt 1 ]; do
	mine="$mine$up "
	stat "$up" || break
	up=$parent
done
`

// repairScript has the work folder be one that calls can use: code owns it, and in
// some sandboxes /tmp too, and may have taken its rights or put something else in
// its place.
const repairScript = `
usable() { [ ! -L ` + workDir + ` ] && [ -d ` + workDir + ` ] && [ -r ` + workDir + ` ] && [ -w ` + workDir + ` ] && [ -x ` + workDir + ` ]; }
repair() {
	[ -r /tmp ] && [ -w /tmp ] && [ -x /tmp ] || chmod 1777 /tmp
	usable && return
	[ -L ` + workDir + ` ] || [ ! -e ` + workDir + ` ] || chmod 755 ` + workDir + `
	usable && return
	if [ -L ` + workDir + ` ] || [ -e ` + workDir + ` ]; then rm -rf ` + workDir + `; fi
	mkdir ` + workDir + ` && usable
} 2>/dev/null
`

// prepareScript makes the work folder and says what there is: "node PATH" when
// there is one, "ptrace N", and "process PID START" for each process but its own. It is
// run where no code of a call has run since the sandbox was started, so its output
// is the sandbox's own.
const prepareScript = statFunction + repairScript + `
repair || exit 65
if at=$(command -v node 2>/dev/null); then echo "node $at"; fi
if read -r scope 2>/dev/null </proc/sys/kernel/yama/ptrace_scope; then echo "ptrace $scope"; fi
for dir in /proc/[0-9]*; do
	pid=${dir#/proc/}
	case $mine in *" $pid "*) continue ;; esac
	if stat "$pid"; then echo "process $pid $began"; fi
done
`

// The exit statuses of sweepScript that are not success, and of prepareScript.
const (
	noWorkFolder   = 65
	sweepNotClean  = 66
	sweepMainGone  = 67
	sweepOverDisk  = 68
	sweepNoMeasure = 69
)

// sweepScript kills every process but those in $1 (" PID:START …"), its own
// ancestors and itself, until two looks in a row find none, and then repairs the
// work folder. $2 is a bound in KiB for what is in /tmp; empty, nothing is measured.
// A process that is there by its number is known by its start at the end only: to
// read that takes the shell a call a byte.
//
// A look at few processes is one reading of /proc, so one that finds none proves
// that there was none. What has ended and was not waited for counts too: it has a
// living parent, or a tracer that was born after the look began.
//
// Only its exit status counts, and what it prints is thrown away. A leftover can
// kill or stop it, which is not success, but not trace it: sessions are refused
// where one process may trace another.
const sweepScript = statFunction + repairScript + `
keep=$1 round=0 clean=0
for one in $keep; do mine="$mine${one%:*} "; done
while [ "$clean" -lt 2 ]; do
	round=$((round + 1))
	[ "$round" -le 200 ] || exit 66
	found=
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		case $mine in *" $pid "*) continue ;; esac
		kill -9 "$pid" 2>/dev/null
		found=1
	done
	if [ -n "$found" ]; then clean=0; else clean=$((clean + 1)); fi
	# Whoever forks faster than the loop kills is met with one signal to all, where
	# that spares the sandbox's own process.
	if [ "$round" -gt 2 ] && [ -n "$found" ]; then
		case $keep in " 1:"*" "?*) ;; " 1:"*) kill -9 -1 2>/dev/null ;; esac
	fi
done
for one in $keep; do
	stat "${one%:*}" && [ "$began" = "${one#*:}" ] || exit 67
done
repair || exit 65
if [ -n "$2" ]; then
	used=$(du -skx /tmp) || [ -n "$used" ] || exit 69
	set -- "$1" "$2" $used
	[ "$3" -le "$2" ] || exit 68
fi
exit 0
`

// The exit statuses of the scripts that move files.
const (
	fileNotWritten = 70 // and which is on stderr
	inputCutShort  = 71
	notThere       = 72
	notAFile       = 73
)

// receiveScript runs what it gets on its input once all of it is there. The last
// command of that sets a variable, so that a part of it is never taken for all.
const receiveScript = `
cd ` + workDir + ` || exit 70
umask 022
text=$(cat; echo .)
eval "${text%.}"
[ "$received" = yes ] || exit 71
`

// writeFiles returns the commands for receiveScript that write the files. File
// names and contents are quoted words in it; nothing of them is in any program's
// arguments, and no program is started for a file that has no obstacle in its way.
func writeFiles(files []record.ProjectFile) string {
	var b strings.Builder
	size := 512
	for _, f := range files {
		size += len(f.Content) + len(f.Path)*4 + 256
	}
	b.Grow(size)
	b.WriteString(`
put() {
	if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then rm -rf "$1"; fi
	{ printf '' >"$1"; } 2>/dev/null || { rm -rf "$1"; printf '' >"$1"; } || { echo "$2" >&2; exit ` + strconv.Itoa(fileNotWritten) + `; }
}
fail() { echo "$1" >&2; exit ` + strconv.Itoa(fileNotWritten) + `; }
`)
	made := make(map[string]bool)
	for i, f := range files {
		n := strconv.Itoa(i + 1)
		name := quote("./" + f.Path)
		if slash := strings.LastIndexByte(f.Path, '/'); slash >= 0 {
			if dir := f.Path[:slash]; !made[dir] {
				made[dir] = true
				dir := quote("./" + dir)
				b.WriteString("[ -d " + dir + " ] || mkdir -p " + dir + " || fail " + n + "\n")
			}
		}
		b.WriteString("put " + name + " " + n + "\n")
		for rest := f.Content; rest != ""; {
			// One command takes part of a file: where printf is a program, an
			// argument is bounded.
			part := rest[:min(len(rest), 64<<10)]
			rest = rest[len(part):]
			if strings.IndexByte(part, 0) < 0 {
				b.WriteString("printf %s " + quote(part))
			} else {
				b.WriteString("printf " + quote(printfFormat.Replace(part)))
			}
			b.WriteString(" >>" + name + " || fail " + n + "\n")
		}
	}
	b.WriteString("received=yes\n")
	return b.String()
}

// printfFormat spells a text as a format of printf, the only way to have a NUL.
var printfFormat = strings.NewReplacer("%", "%%", `\`, `\\`, "\x00", `\000`)

// quote returns s as one word of the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// readScript prints the file $1 of the work folder. Neither it nor a folder on
// the way to it may be a symbolic link.
const readScript = `
cd ` + workDir + ` || exit 72
path=$1 at=.
while :; do
	at=$at/${path%%/*}
	[ ! -L "$at" ] || exit 73
	case $path in */*) path=${path#*/} ;; *) break ;; esac
done
[ -e "$at" ] || exit 72
[ -f "$at" ] || exit 73
exec cat <"$at"
`

// A process is one of a sandbox's own, known by its number and its start.
type process struct{ pid, start uint64 }

// A prepared is what prepareScript says.
type prepared struct {
	node        string // its path; empty: none
	ptraceScope int    // -1: not said
	processes   []process
}

// maxOwnProcesses bounds what a sandbox may have before a call runs.
const maxOwnProcesses = 16

func parsePrepared(out []byte) (*prepared, error) {
	p := &prepared{ptraceScope: -1}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "node" && strings.HasPrefix(fields[1], "/") {
			p.node = fields[1]
			continue
		}
		var numbers []uint64
		for _, f := range fields[min(1, len(fields)):] {
			n, err := strconv.ParseUint(f, 10, 63)
			if err != nil {
				return nil, fmt.Errorf("unexpected line %.80q", line)
			}
			numbers = append(numbers, n)
		}
		switch {
		case len(fields) == 2 && fields[0] == "ptrace":
			p.ptraceScope = int(min(numbers[0], 9))
		case len(fields) == 3 && fields[0] == "process" && len(p.processes) < maxOwnProcesses:
			p.processes = append(p.processes, process{numbers[0], numbers[1]})
		default:
			return nil, fmt.Errorf("unexpected line %.80q", line)
		}
	}
	return p, nil
}

// keepList is the first argument of sweepScript.
func keepList(processes []process) string {
	var b strings.Builder
	b.WriteByte(' ')
	for _, p := range processes {
		fmt.Fprintf(&b, "%d:%d ", p.pid, p.start)
	}
	return b.String()
}
