package attest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/confine"
	"github.com/plimsoll-attest/plimsoll/internal/hostnode"
)

// view says what the runner sees of the machine.
func (w *Wrapped) view(o *Options) (*confine.View, error) {
	r := &w.runner
	if len(r.Args) == 0 {
		return nil, fmt.Errorf("%w: no program given", ErrRunner)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(r.Args[0])
	if err == nil {
		path, err = realPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRunner, err)
	}
	v := &confine.View{Path: path, Args: r.Args, Weak: r.AllowWeakIsolation}
	if err := w.environment(v); err != nil {
		return nil, err
	}
	var guarded []string
	for _, file := range append([]string{o.Bundle, o.Signer.secret, os.Getenv(agentSockEnv)}, r.Hide...) {
		if file == "" {
			continue
		}
		if _, err := os.Stat(filepath.Dir(file)); err != nil && file == os.Getenv(agentSockEnv) {
			continue // of an agent that is gone
		}
		// The file may not be there yet. Its folder must be; where it is a link, so
		// must what it leads to.
		dir, err := realPath(filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		guarded = append(guarded, filepath.Join(dir, filepath.Base(file)))
		if path, err := realPath(file); err == nil && path != guarded[len(guarded)-1] {
			guarded = append(guarded, path)
		}
	}
	for _, secret := range append([]string{o.Signer.secret}, r.Hide...) {
		if err := onlyName(secret); err != nil {
			return nil, err
		}
	}
	v.Guard = guarded
	for _, file := range guarded {
		dir := filepath.Dir(file)
		if slices.Contains(shownFolders, dir) {
			return nil, fmt.Errorf("%w: %s: the runner needs %s to be seen: keep it in a folder of its own", ErrIsolation, file, dir)
		}
		v.Hide = append(v.Hide, dir)
	}
	for _, dir := range append(hiddenFolders, os.Getenv("HOME"), os.TempDir()) {
		if dir == "" {
			continue
		}
		if dir, err := realPath(dir); err == nil && !slices.Contains(shownFolders, dir) {
			v.Hide = append(v.Hide, dir)
		}
	}
	for _, name := range append(exposedBySettings(), r.Expose...) {
		path, err := realPath(name)
		if err != nil {
			return nil, fmt.Errorf("expose: %w", err)
		}
		if file := heldBy(path, guarded); file != "" {
			return nil, fmt.Errorf("%w: expose %s: it holds %s", ErrIsolation, path, file)
		}
		v.Expose = append(v.Expose, path)
	}
	exposeNode(v, guarded)
	if v.Dir, err = os.Getwd(); err == nil {
		v.Dir, err = filepath.EvalSymlinks(v.Dir)
	}
	if err != nil || !shows(v, v.Dir) {
		v.Dir = ""
	}
	return v, checkArgs(v)
}

// heldBy returns the guarded file that a folder holds, or is.
func heldBy(path string, guarded []string) string {
	for _, file := range guarded {
		if confine.Inside(file, path) {
			return file
		}
	}
	return ""
}

// shows reports whether the runner sees a path.
func shows(v *confine.View, path string) bool {
	in := func(dir string) bool { return confine.Inside(path, dir) }
	return !slices.ContainsFunc(v.Hide, in) || slices.ContainsFunc(v.Expose, in)
}

// exposeNode shows the runner a node that is installed in a hidden folder, as many
// are, for its sandboxes.
func exposeNode(v *confine.View, guarded []string) {
	prefix, _ := hostnode.Prefix()
	if prefix == "" || shows(v, prefix) || heldBy(prefix, guarded) != "" {
		return
	}
	for _, name := range []string{"bin", "lib"} { // not its etc, where npm keeps tokens
		if path, err := realPath(filepath.Join(prefix, name)); err == nil && confine.Inside(path, prefix) {
			v.Expose = append(v.Expose, path)
		}
	}
	// The entry of PATH that led to it may be a link in a hidden folder.
	for i, entry := range v.Env {
		if strings.HasPrefix(entry, "PATH=") {
			v.Env[i] += string(filepath.ListSeparator) + filepath.Join(prefix, "bin")
		}
	}
}

// checkArgs refuses arguments that name a file which is there for the caller and
// would not be, or would be another, for the runner: it would run, and have signed,
// something else than was meant.
func checkArgs(v *confine.View) error {
	for _, arg := range v.Args[1:] {
		if flag, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(flag, "-") {
			arg = value
		}
		if arg == "" {
			continue
		}
		path, err := realPath(arg)
		if err != nil || v.Dir != "" && shows(v, path) || filepath.IsAbs(arg) && shows(v, path) {
			continue
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() && filepath.Base(arg) == arg && arg != "." && arg != ".." {
			continue // a word that is the name of a folder too
		}
		return fmt.Errorf("%w: %s: the runner cannot see it: give it by standard input, or expose it and give its absolute path", ErrIsolation, arg)
	}
	return nil
}

var (
	// hiddenFolders hold files and sockets of users and services.
	hiddenFolders = []string{"/home", "/root", "/tmp", "/run", "/var", "/dev/shm"}
	// shownFolders are what no program runs without.
	shownFolders = []string{"/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin"}
)

// realPath returns the absolute path of an existing file without symbolic links.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// passedOn are the variables that a runner is given, by name or beginning.
var passedOn = []string{"PATH=", "LANG=", "LANGUAGE=", "LC_", "TZ=", "NO_COLOR=", "PLIMSOLL_HARDENED=", settingPrefix}

const (
	settingPrefix = "SANDBOX_"
	// remotePrefix begins the settings of a gateway that is reached by the network.
	remotePrefix = settingPrefix + "OPENSHELL_"
	// stateSetting is the runner's folder: it is in its scratch folder here.
	stateSetting = settingPrefix + "STATE="
	imageSetting = settingPrefix + "IMAGE"
)

func (w *Wrapped) environment(v *confine.View) error {
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, stateSetting) ||
			!slices.ContainsFunc(passedOn, func(name string) bool { return strings.HasPrefix(entry, name) }) {
			continue
		}
		v.Env = append(v.Env, entry)
		v.Network = v.Network || strings.HasPrefix(entry, remotePrefix)
	}
	for _, entry := range w.runner.Env {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			return fmt.Errorf("%w: variable %.60q, want NAME=VALUE", ErrRunner, entry)
		}
		if name == PassphraseEnv || name == agentSockEnv {
			return fmt.Errorf("%w: the variable %s is the signer's", ErrIsolation, name)
		}
		v.Env = append(v.Env, entry)
	}
	return nil
}

// exposedBySettings are the files that the environment's settings name.
func exposedBySettings() []string {
	if image := os.Getenv(imageSetting); image != "" {
		return []string{image}
	}
	return nil
}
