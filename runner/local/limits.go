//go:build linux

package local

import (
	"bufio"
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

// A memoryCgroup is a place where memory cgroups can be made.
type memoryCgroup struct {
	parent string
	v2     bool
}

// findMemoryCgroup returns nil where there is no memory cgroup to be had.
func findMemoryCgroup() *memoryCgroup {
	own := map[string]string{} // controllers to our path
	if data, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(data)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) == 3 {
				own[parts[1]] = parts[2]
			}
		}
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer mounts.Close()
	var candidates []memoryCgroup
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(kind) < 3 {
			continue
		}
		at := fields[4]
		switch kind[0] {
		case "cgroup":
			if strings.Contains(","+kind[2]+",", ",memory,") {
				// Below our own group, so that what limits us limits our sandboxes.
				candidates = append(candidates, memoryCgroup{parent: filepath.Join(at, own["memory"])}, memoryCgroup{parent: at})
			}
		case "cgroup2":
			// A group with processes, such as our own, cannot have limited children.
			candidates = append(candidates, memoryCgroup{parent: at, v2: true})
		}
	}
	for _, candidate := range candidates {
		dir := candidate.path("probe-" + randomHex(4))
		if candidate.make(dir, 64<<20) == nil {
			removeCgroup(dir)
			return &candidate
		}
	}
	return nil
}

// path is the folder of a cgroup of ours.
func (c *memoryCgroup) path(name string) string { return filepath.Join(c.parent, "plimsoll-"+name) }

// make makes a cgroup with a memory limit.
func (c *memoryCgroup) make(dir string, limit int64) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	value := []byte(strconv.FormatInt(limit, 10))
	settings := []struct {
		file     string
		value    []byte
		optional bool
	}{
		{"memory.limit_in_bytes", value, false},
		{"memory.memsw.limit_in_bytes", value, true}, // only with swap accounting
		{"memory.swappiness", []byte("0"), true},
	}
	if c.v2 {
		settings = settings[:0]
		settings = append(settings, []struct {
			file     string
			value    []byte
			optional bool
		}{
			{"memory.max", value, false},
			{"memory.swap.max", []byte("0"), true},
			{"memory.oom.group", []byte("1"), true},
		}...)
	}
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join(dir, s.file), s.value, 0); err != nil && !s.optional {
			removeCgroup(dir)
			return err
		}
	}
	return nil
}

// oomKilled says whether the kernel has ended a process for the limit of a cgroup.
func oomKilled(dir string) bool {
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok && count != "0" {
				return true
			}
		}
	}
	return false
}

// removeCgroup removes a cgroup whose last process may still be on its way out.
func removeCgroup(dir string) {
	if !strings.HasPrefix(filepath.Base(dir), "plimsoll-") {
		return
	}
	for range 200 {
		err := unix.Rmdir(dir)
		if err != unix.EBUSY {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// memoryTick is how often the watchdog looks. A guest can use as much more than
// its limit as it can touch in this time.
const memoryTick = 5 * time.Millisecond

// watchMemory ends the sandboxes that use more memory than their limit, where no
// cgroup does. It looks at the size of the file that holds the guest's memory,
// which costs a microsecond, and now and then at what the user-space kernel itself
// takes.
func (g *Gateway) watchMemory() {
	if g.cgroup != nil {
		return
	}
	ticker := time.NewTicker(memoryTick)
	defer ticker.Stop()
	for tick := 0; ; tick++ {
		select {
		case <-g.closing.Done():
			return
		case <-ticker.C:
		}
		for _, s := range g.all() {
			if r := s.current(); r != nil {
				r.checkMemory(s.memory, tick%4 == 0)
			}
		}
	}
}

// checkMemory ends a run that uses more than its limit.
func (r *run) checkMemory(limit int64, kernelToo bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory == nil || r.cause != "" {
		return
	}
	if kernelToo && r.sandboxPID > 0 {
		r.kernelBytes = residentAnon(r.sandboxPID)
	}
	var stat unix.Stat_t
	if unix.Fstat(int(r.memory.Fd()), &stat) != nil {
		return
	}
	used := stat.Blocks*512 + r.kernelBytes
	r.peak = max(r.peak, used)
	if used > limit {
		r.endLocked(reasonMemory, fmt.Sprintf("%d bytes of memory used, limit %d", used, limit))
	}
}

// residentAnon is the private memory of a process.
func residentAnon(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Bounds of a walk through a /tmp. A tree with more entries or deeper counts as
// over its budget: it could not be measured in time.
const (
	maxEntries = 200000
	maxDepth   = 200
	// maxDeleted is how many files without a name code may keep open: each takes a
	// descriptor of the file server, of which there are 16,384, and a socket that is
	// sent over itself keeps one beyond the life of every process.
	maxDeleted = 1000
)

// diskTick is how often the free space of the file system is read; a sandbox's
// /tmp is measured when that has fallen by a part of the budget, and every
// diskRound at least.
const (
	diskTick  = 10 * time.Millisecond
	diskRound = 2 * time.Second
)

// watchDisk ends the sandboxes whose kept /tmp is larger than the budget.
func (g *Gateway) watchDisk() {
	ticker := time.NewTicker(diskTick)
	defer ticker.Stop()
	var freeThen uint64
	var last time.Time
	cost := time.Duration(0)
	for {
		select {
		case <-g.closing.Done():
			return
		case <-ticker.C:
		}
		var stat unix.Statfs_t
		if unix.Statfs(g.dir, &stat) != nil {
			continue
		}
		free := stat.Bavail * uint64(stat.Bsize)
		fell := freeThen > free && freeThen-free > uint64(g.config.DiskBudget)/8
		if !fell && time.Since(last) < max(diskRound, 20*cost) {
			continue
		}
		begin := time.Now()
		for _, s := range g.all() {
			if r := s.current(); r != nil && s.tmpSize == 0 {
				thaw := r.freeze()
				used, fits := diskUsage(s.tmpDir(), r.files(), g.config.DiskBudget)
				if !fits {
					r.end(reasonDisk, fmt.Sprintf("/tmp holds %d bytes or more; it may hold %d bytes, %d files, and %d deleted ones that are still open",
						used, g.config.DiskBudget, maxEntries, maxDeleted))
				}
				thaw() // one that has ended stays as it is until it is killed
			}
		}
		freeThen, last, cost = free, time.Now(), time.Since(begin)
	}
}

// files is the folder of the open files of a run's file server; empty when there
// is none.
func (r *run) files() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.goferPID == 0 {
		return ""
	}
	return fmt.Sprintf("/proc/%d/fd", r.goferPID)
}

// freeze stops a run's file server, by which every name in /tmp is made and moved,
// until the returned function is called: code that renames a folder faster than it
// is walked would hide it. It waits until it has stopped.
func (r *run) freeze() (thaw func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fd, ok := r.pidfds[r.goferPID]
	if !ok || unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0) != nil {
		return func() {} // it has ended
	}
	for range 1000 {
		if fields, err := statFields(r.goferPID); err != nil || fields[0] != "R" && fields[0] != "S" && fields[0] != "D" {
			break
		}
		time.Sleep(20 * time.Microsecond)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if fd, ok := r.pidfds[r.goferPID]; ok { // its end closes it
			_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		}
	}
}

// diskUsage measures a tree until it is larger than the budget, and what was
// deleted of it and is still open: files names the folder of the open files. It
// follows no link of the tree. What cannot be measured does not fit, and what is not
// there any more takes no room.
func diskUsage(dir, files string, budget int64) (int64, bool) {
	fd, err := openFolder(unix.AT_FDCWD, dir)
	if err != nil {
		return 0, err == unix.ENOENT
	}
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil {
		unix.Close(fd)
		return 0, false
	}
	w := diskWalk{budget: budget, left: maxEntries, seen: map[uint64]bool{}}
	fits := w.walk(fd, 0) && w.deleted(files, stat.Dev)
	return w.used, fits
}

// openFolder opens a folder. An ordinary user owns what code makes, and gives a
// folder its rights back that code took away to hide its files.
func openFolder(at int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	if err == unix.EACCES && unix.Fchmodat(at, name, 0o700, 0) == nil {
		fd, err = unix.Openat(at, name, flags, 0)
	}
	return fd, err
}

// deleted adds the files that are open and have no name any more.
func (w *diskWalk) deleted(files string, device uint64) bool {
	if files == "" {
		return true
	}
	entries, err := os.ReadDir(files)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // it has ended
	}
	count := 0
	for _, entry := range entries {
		var stat unix.Stat_t
		if unix.Stat(filepath.Join(files, entry.Name()), &stat) != nil || stat.Nlink > 0 || stat.Dev != device ||
			stat.Mode&unix.S_IFMT != unix.S_IFREG || w.seen[stat.Ino] {
			continue
		}
		w.seen[stat.Ino] = true
		count++
		if w.used += stat.Blocks * 512; w.used > w.budget || count > maxDeleted {
			return false
		}
	}
	return true
}

type diskWalk struct {
	budget, used int64
	left         int
	seen         map[uint64]bool // inodes with several names
}

func (w *diskWalk) walk(fd, depth int) bool {
	folder := os.NewFile(uintptr(fd), "folder")
	defer folder.Close()
	if depth > maxDepth {
		return false
	}
	for {
		names, err := folder.Readdirnames(1000)
		for _, name := range names {
			if w.left--; w.left < 0 {
				return false
			}
			var stat unix.Stat_t
			switch err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); {
			case err == unix.ENOENT:
				continue
			case err != nil:
				return false
			}
			if stat.Nlink > 1 && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
				if w.seen[stat.Ino] {
					continue
				}
				w.seen[stat.Ino] = true
			}
			if w.used += stat.Blocks * 512; w.used > w.budget {
				return false
			}
			if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			child, err := openFolder(fd, name)
			if err == unix.ENOENT {
				continue
			}
			if err != nil || !w.walk(child, depth+1) {
				return false
			}
		}
		if err != nil || len(names) == 0 {
			return true
		}
	}
}

// setAffinity confines one thread, by its number, or the calling one.
func setAffinity(tid int, cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(tid, &set)
}

// confineProcess confines all threads of a process. A thread that is made
// meanwhile has its maker's CPUs, so it takes a second look.
func confineProcess(pid int, cpus []int) error {
	for range 2 {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			if err := setAffinity(tid, cpus); err != nil && err != unix.ESRCH {
				return fmt.Errorf("sched_setaffinity: %w", err)
			}
		}
	}
	return nil
}

// parseMemory reads a memory limit: bytes, or a number with a suffix.
func parseMemory(text string) (int64, bool) {
	digits := strings.TrimRight(text, "KMGTPEi")
	factor, ok := map[string]int64{
		"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
		"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	}[text[len(digits):]]
	value, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || value <= 0 || value > 1<<46/factor {
		return 0, false
	}
	return value * factor, true
}
