// Package local is the embedded gateway: the OpenShell API (openshell.v1.OpenShell
// as releases 0.1.x speak it) over gVisor sandboxes, with nothing installed and,
// where user namespaces are allowed, without root.
//
// gVisor is linked into the program and started from it again, so the program
// must be static and call HandOver first thing in main:
//
//	func main() {
//		local.HandOver()
//		…
//	}
//
// What holds a sandbox:
//
//   - A user-space kernel of its own (platform systrap) in namespaces of its own,
//     with no network but loopback.
//   - Its mount table is the filesystem policy: the listed trees read-only, /tmp
//     writable, nothing else of the host. There is no Landlock in gVisor, and
//     nothing here says there is; a policy this table cannot enforce exactly is
//     refused. /dev and /proc are gVisor's own.
//   - Code runs as uid and gid 1500 without capabilities and with no_new_privs;
//     each command in a session and process group of its own.
//   - Processes: 1,024, counted by gVisor (RLIMIT_NPROC); one more is EAGAIN.
//   - Memory: a memory cgroup as root; else a watchdog reads the size of the
//     sandbox's memory file and ends the sandbox past the limit.
//   - CPU: whole CPUs, by affinity.
//   - /tmp: a tmpfs of exactly the asked size, or a private folder that is kept
//     over stop and start, with a watchdog for its disk budget.
//   - The life of the process that made it: when that is gone, however it went,
//     its sandboxes end, and what is left of their files goes with the next New on
//     the same folder.
package local
