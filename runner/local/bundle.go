//go:build linux

package local

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/plimsoll-attest/plimsoll/internal/hostnode"
)

// A tree is one top-level path of a sandbox's root.
type tree struct {
	path   string // in the sandbox
	source string // on the host; empty for what gVisor makes itself
	link   string // target, where it is a symbolic link
	// parts are the folders of source that are shown; none: all of it.
	parts []string
}

// hostTrees are the parts of the host that sandboxes may see, and never others:
// the system's programs and libraries, and a generated /etc. Home folders, /root,
// /var, /run and the host's /etc are not among them. The node found on the host is
// added, by its installation prefix, when it lives elsewhere.
func hostTrees(etc string) ([]tree, error) {
	trees := []tree{{path: "/dev/urandom"}, {path: "/proc"}, {path: "/etc", source: etc}}
	for _, name := range []string{"/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(name)
		switch {
		case err != nil:
		case info.IsDir():
			trees = append(trees, tree{path: name, source: name})
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return nil, err
			}
			trees = append(trees, tree{path: name, link: target})
		}
	}
	if prefix, _ := hostnode.Prefix(); prefix != "" {
		// Not its etc, where npm keeps tokens.
		trees = append(trees, tree{path: nodeMount, source: prefix, parts: []string{"bin", "lib"}})
	}
	return trees, nil
}

// nodeMount is where a node from outside the system's folders appears.
const nodeMount = "/opt/node"

// writeEtc makes the /etc of sandboxes on the host's tree: what programs need to
// know about users and libraries, and the host's links of /etc/alternatives, by
// which commands such as awk are found.
func writeEtc(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "alternatives"), 0o755); err != nil {
		return err
	}
	files := map[string]string{
		"passwd":        "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nsandbox:x:1500:1500:sandbox:/tmp:/bin/sh\n",
		"group":         "root:x:0:\nnogroup:x:65534:\nsandbox:x:1500:\n",
		"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
		"hostname":      "sandbox\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"resolv.conf":   "",
		"shells":        "/bin/sh\n",
	}
	for _, name := range []string{"ld.so.cache"} {
		data, err := os.ReadFile(filepath.Join("/etc", name))
		if err == nil {
			files[name] = string(data)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	links, _ := filepath.Glob("/etc/alternatives/*")
	for _, name := range links {
		target, err := os.Readlink(name)
		if err != nil || !strings.HasPrefix(target, "/usr/") {
			continue
		}
		if err := os.Symlink(target, filepath.Join(dir, "alternatives", filepath.Base(name))); err != nil {
			return err
		}
	}
	return nil
}

// imageTrees are the top-level folders of an unpacked image.
func imageTrees(root string) ([]tree, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	trees := []tree{{path: "/dev/urandom"}, {path: "/proc"}}
	for _, entry := range entries {
		path := "/" + entry.Name()
		if !utf8.ValidString(path) {
			return nil, fmt.Errorf("%w: %q at its top is not UTF-8, and no policy could name it", ErrImage, path)
		}
		if slices.Contains([]string{"/dev", "/proc", "/sys", "/tmp"}, path) {
			continue
		}
		switch {
		case entry.IsDir():
			trees = append(trees, tree{path: path, source: filepath.Join(root, entry.Name())})
		case entry.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(filepath.Join(root, entry.Name()))
			if err != nil {
				return nil, err
			}
			trees = append(trees, tree{path: path, link: target})
		}
	}
	return trees, nil
}

func paths(trees []tree) []string {
	var list []string
	for _, t := range trees {
		list = append(list, t.path)
	}
	slices.Sort(list)
	return list
}

// The part of an OCI configuration that sandboxes need.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		User            ociUser     `json:"user"`
		Args            []string    `json:"args"`
		Env             []string    `json:"env"`
		Cwd             string      `json:"cwd"`
		Capabilities    struct{}    `json:"capabilities"`
		NoNewPrivileges bool        `json:"noNewPrivileges"`
		Rlimits         []ociRlimit `json:"rlimits"`
	}
	ociUser struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options"`
	}
	ociLinux struct {
		Namespaces  []ociNamespace `json:"namespaces"`
		UIDMappings []ociMapping   `json:"uidMappings,omitempty"`
		GIDMappings []ociMapping   `json:"gidMappings,omitempty"`
	}
	ociNamespace struct {
		Type string `json:"type"`
	}
	ociMapping struct {
		ContainerID int `json:"containerID"`
		HostID      int `json:"hostID"`
		Size        int `json:"size"`
	}
)

// guestEnv is the whole environment of every command: nothing of the host's.
func guestEnv(trees []tree) []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, t := range trees {
		if t.path == nodeMount && t.source != "" {
			path = nodeMount + "/bin:" + path // the one that the host would run
		}
	}
	return []string{"PATH=" + path, "HOME=/tmp", "OPENSHELL_SANDBOX=1", "TERM=xterm", "USER=sandbox"}
}

// maxGuestProcesses is how many processes and threads code may have. gVisor
// counts them itself; a pids cgroup would count its own threads instead.
const maxGuestProcesses = 1024

// writeBundle makes the root folder and the configuration of a sandbox in dir.
func (s *sandbox) writeBundle(dir string) error {
	root := filepath.Join(dir, "rootfs")
	mounts := []ociMount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "dev", Source: "dev", Options: []string{"nosuid", "noexec"}},
		{Destination: "/sys", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "nosuid", "noexec", "nodev", "mode=0555", "size=4096"}},
	}
	for _, name := range []string{"proc", "dev", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	for _, t := range s.gateway.trees {
		if !slices.Contains(s.policy.Filesystem.ReadOnly, t.path) {
			continue
		}
		at := filepath.Join(root, t.path)
		switch {
		case t.link != "":
			if err := os.Symlink(t.link, at); err != nil {
				return err
			}
		case t.source != "":
			parts := t.parts
			if len(parts) == 0 {
				parts = []string{""}
			}
			for _, part := range parts {
				source := filepath.Join(t.source, part)
				if info, err := os.Stat(source); err != nil || !info.IsDir() {
					continue
				}
				if err := os.MkdirAll(filepath.Join(at, part), 0o755); err != nil {
					return err
				}
				mounts = append(mounts, ociMount{
					Destination: filepath.Join(t.path, part), Type: "bind", Source: source,
					Options: []string{"rbind", "ro", "nosuid", "nodev"},
				})
			}
		}
	}
	// All of them: gVisor has one set for PID 1 and for all commands, in which code can
	// set PID 1's, and it sets anew with each command those that are named here.
	const infinity = math.MaxUint64
	limits := []ociRlimit{
		{"RLIMIT_NPROC", maxGuestProcesses, maxGuestProcesses},
		{"RLIMIT_NOFILE", 4096, 4096},
		{"RLIMIT_CORE", 0, 0},
		{"RLIMIT_AS", infinity, infinity},
		{"RLIMIT_CPU", infinity, infinity},
		{"RLIMIT_DATA", infinity, infinity},
		{"RLIMIT_LOCKS", infinity, infinity},
		{"RLIMIT_MEMLOCK", 64 << 10, 64 << 10},
		{"RLIMIT_MSGQUEUE", 800 << 10, 800 << 10},
		{"RLIMIT_NICE", 0, 0},
		{"RLIMIT_RSS", infinity, infinity},
		{"RLIMIT_RTPRIO", 0, 0},
		{"RLIMIT_RTTIME", infinity, infinity},
		{"RLIMIT_SIGPENDING", 0, 0},
		{"RLIMIT_STACK", infinity, 8 << 20},
	}
	if s.tmpSize > 0 {
		options := []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(s.tmpSize, 10)}
		if s.tmpNoexec {
			options = append(options, "noexec")
		}
		mounts = append(mounts, ociMount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: options})
		limits = append(limits, ociRlimit{"RLIMIT_FSIZE", infinity, infinity})
	} else {
		mounts = append(mounts, ociMount{
			Destination: "/tmp", Type: "bind", Source: s.tmpDir(),
			Options: []string{"rbind", "rw", "nosuid", "nodev"},
		})
		// The watchdog comes too late for a file that is allocated at once. One as large
		// as this does not set it off, with what else takes a block.
		size := uint64(s.gateway.config.DiskBudget - s.gateway.config.DiskBudget/64)
		limits = append(limits, ociRlimit{"RLIMIT_FSIZE", size, size})
	}
	argv := s.spec.Command
	if !strings.HasPrefix(argv[0], "/") {
		argv = append([]string{"/usr/bin/env"}, argv...)
	}
	spec := ociSpec{
		Version: "1.1.0",
		Process: ociProcess{
			User:            ociUser{guestUID, guestUID},
			Args:            argv,
			Env:             guestEnv(s.gateway.trees),
			Cwd:             "/tmp",
			NoNewPrivileges: true,
			Rlimits:         limits,
		},
		Root:     ociRoot{Path: root, Readonly: true},
		Hostname: "sandbox",
		Mounts:   mounts,
		Linux:    ociLinux{Namespaces: []ociNamespace{{"pid"}, {"network"}, {"ipc"}, {"uts"}, {"mount"}}},
	}
	if !s.gateway.root {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, ociNamespace{"user"})
		spec.Linux.UIDMappings = []ociMapping{{guestUID, guestUID, 1}}
		spec.Linux.GIDMappings = spec.Linux.UIDMappings
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
}
