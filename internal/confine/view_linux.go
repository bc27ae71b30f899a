package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// becomeProgram is the first process of the namespaces: it makes the view and then
// becomes the program.
func becomeProgram() {
	runtime.LockOSThread() // what follows is this thread's
	unix.CloseOnExec(eventsFile)
	events := json.NewEncoder(os.NewFile(eventsFile, "events"))
	var v view
	orders := os.NewFile(ordersFile, "setup")
	err := json.NewDecoder(orders).Decode(&v.setup)
	orders.Close()
	if err == nil {
		v.open = func(e *partError) { _ = events.Encode(event{Open: e.open()}) }
		err = v.make()
	}
	if err == nil {
		err = v.exec()
	}
	if lack := (*partError)(nil); errors.As(err, &lack) {
		_ = events.Encode(event{Lacking: err.Error()})
	} else {
		_ = events.Encode(event{Failed: err.Error()})
	}
	os.Exit(1)
}

// A view is being made.
type view struct {
	setup
	home string           // the scratch folder, as the program sees it
	open func(*partError) // told of what there is not
}

// want returns err, which is of a part, or tells it where the caller does without.
func (v *view) want(p part, of string, err error) error {
	if err == nil {
		return nil
	}
	e := &partError{part: p, of: of, err: err}
	if v.Weak {
		v.open(e)
		return nil
	}
	return e
}

func (v *view) make() error {
	defer unix.Umask(unix.Umask(0o022)) // folders on the way to what is shown are for all
	if v.Spaces&unix.CLONE_NEWNET != 0 {
		if err := v.want(partNetwork, "", loopbackUp()); err != nil {
			return err
		}
	}
	if v.home = v.Scratch; v.Spaces&unix.CLONE_NEWNS == 0 {
		return v.enter() // the mounts are everybody's
	}
	// What is done here is not seen outside. Nothing else may be done before.
	// What is mounted outside later is not seen here either.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return &partError{part: partMounts, err: err}
	}
	return v.mounts()
}

// A binding is a mount that is taken from where it is before that is hidden.
type binding struct {
	tree   int // descriptor
	path   string
	folder bool
}

// mounts makes the view's file system.
func (v *view) mounts() error {
	newProc := false
	if v.Spaces&unix.CLONE_NEWPID != 0 {
		err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		if err := v.want(partProc, "", err); err != nil {
			return err
		}
		newProc = err == nil
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return &partError{part: partHidden, err: err}
	}
	guarded, err := v.guarded(string(mountinfo))
	if err != nil {
		return err
	}
	hide := outermost(append(guarded, v.Hide...), string(mountinfo))
	binds, err := v.bindings(hide)
	if err != nil {
		return err
	}
	devices := deviceBindings()

	err = unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
	if err := v.want(partReadOnly, "", err); err != nil {
		return err
	}
	if newProc { // where a sandbox's user namespace is written
		err := unix.MountSetattr(unix.AT_FDCWD, "/proc", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		if err != nil {
			return &partError{part: partProc, err: err}
		}
	}
	var hidden []string
	for _, dir := range hide {
		err := unix.Mount("hidden", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m,nr_inodes=4096")
		if err := v.want(partHidden, dir, err); err != nil {
			return err
		}
		if err == nil {
			hidden = append(hidden, dir)
		}
	}
	if err := v.want(partDev, "", newDev(devices)); err != nil {
		return err
	}
	for _, b := range binds {
		if err := v.want(partExposed, b.path, b.mount()); err != nil {
			return err
		}
	}
	for _, dir := range append(hidden, "/dev") {
		err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		if err := v.want(partReadOnly, dir, err); err != nil {
			return err
		}
	}
	v.home = ScratchPath
	return v.enter()
}

// enter goes to the folder that the program starts in.
func (v *view) enter() error {
	if v.Dir != "" {
		return os.Chdir(v.Dir)
	}
	return os.Chdir(v.home)
}

// guarded returns the folders of the guarded files, wherever those are mounted.
func (v *view) guarded(mountinfo string) (dirs []string, err error) {
	for _, file := range v.Guard {
		for _, path := range places(file, mountinfo) {
			dir := filepath.Dir(path)
			if dir == "/" {
				return nil, &partError{part: partHidden, of: path, err: errors.New("the file is mounted in /, which cannot be hidden")}
			}
			for _, exposed := range v.Expose {
				if Inside(path, exposed) {
					return nil, &partError{part: partHidden, of: dir, err: fmt.Errorf("%s, which is to be exposed, holds %s", exposed, path)}
				}
			}
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// bindings takes what is shown in hidden folders: the program, what is exposed,
// and the scratch folder.
func (v *view) bindings(hide []string) (list []binding, err error) {
	add := func(from, to string, attr uint64) error {
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr | unix.MOUNT_ATTR_NOSUID})
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		list = append(list, binding{tree, to, info.IsDir()})
		return nil
	}
	for _, path := range append([]string{v.Path}, v.Expose...) {
		if !slices.ContainsFunc(hide, func(dir string) bool { return Inside(path, dir) }) {
			continue // seen as it is
		}
		if err := v.want(partExposed, path, add(path, path, unix.MOUNT_ATTR_RDONLY)); err != nil {
			return nil, err
		}
	}
	// Parents first, so that none lies over its children.
	slices.SortFunc(list, func(a, b binding) int { return strings.Compare(a.path, b.path) })
	if err := add(v.Scratch, ScratchPath, unix.MOUNT_ATTR_NODEV); err != nil {
		return nil, &partError{part: partExposed, of: v.Scratch, err: err}
	}
	return list, nil
}

func (b *binding) mount() error {
	defer unix.Close(b.tree)
	if err := b.point(); err != nil {
		return err
	}
	return unix.MoveMount(b.tree, "", unix.AT_FDCWD, b.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// point makes what is mounted over.
func (b *binding) point() error {
	if b.folder {
		return os.MkdirAll(b.path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(b.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

var devices = []string{"null", "zero", "full", "random", "urandom"}

// deviceBindings takes the devices that there are.
func deviceBindings() (list []binding) {
	for _, name := range devices {
		path := "/dev/" + name
		if tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err == nil {
			list = append(list, binding{tree: tree, path: path})
		}
	}
	return list
}

// newDev mounts a /dev of those devices.
func newDev(devices []binding) error {
	if err := unix.Mount("dev", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=64k,nr_inodes=64"); err != nil {
		return err
	}
	for _, b := range devices {
		if err := b.mount(); err != nil {
			return fmt.Errorf("%s: %w", b.path, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(to, "/dev/"+name); err != nil {
			return err
		}
	}
	return os.Mkdir("/dev/shm", 0o755)
}

// outermost returns the folders that are to be mounted over: those that exist,
// wherever they are mounted, and none in another.
func outermost(dirs []string, mountinfo string) []string {
	var all []string
	for _, dir := range dirs {
		for _, path := range places(dir, mountinfo) {
			if Inside(path, "/dev") {
				continue // there is another one
			}
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				all = append(all, path)
			}
		}
	}
	slices.Sort(all)
	var list []string
	for _, path := range all {
		if len(list) == 0 || !Inside(path, list[len(list)-1]) {
			list = append(list, path)
		}
	}
	return list
}

// A mountPoint is a line of mountinfo (proc(5)).
type mountPoint struct {
	device     string
	root, path string // of the file system, and where that is seen
}

func mountPoints(mountinfo string) (list []mountPoint) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		list = append(list, mountPoint{f[2], unescape.Replace(f[3]), unescape.Replace(f[4])})
	}
	return list
}

// places returns all paths of a folder: a file system, or a part of it, can be
// mounted at several.
func places(dir, mountinfo string) []string {
	mounts := mountPoints(mountinfo)
	var at *mountPoint // where dir is: the last of the longest
	for i := range mounts {
		if m := &mounts[i]; Inside(dir, m.path) && (at == nil || len(m.path) >= len(at.path)) {
			at = m
		}
	}
	list := []string{dir}
	if at == nil {
		return list
	}
	in := filepath.Join(at.root, strings.TrimPrefix(dir, at.path)) // its path in the file system
	for _, m := range mounts {
		if m.device != at.device {
			continue
		}
		var path string
		switch {
		case Inside(in, m.root):
			path = filepath.Join(m.path, strings.TrimPrefix(in, m.root))
		case Inside(m.root, in): // a part of the folder
			path = m.path
		default:
			continue
		}
		if path != "/" && path != dir {
			list = append(list, path)
		}
	}
	return list
}
