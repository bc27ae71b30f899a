package confine

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrIsolation is wrapped when a part of the view cannot be had.
var ErrIsolation = errors.New("no isolation from the runner")

// A View says what to start, and what it sees.
type View struct {
	// Path is the program, absolute and without symbolic links; Args its
	// arguments, of which the first is its name.
	Path string
	Args []string
	// Env is its environment, to which HOME and TMPDIR are added: the scratch folder.
	Env []string
	// Hide are folders in which it sees nothing, absolute and without symbolic
	// links; those that do not exist are hidden as they are. The places under
	// which they are mounted as well are hidden too.
	Hide []string
	// Guard are files whose folders are hidden wherever the files are mounted, and
	// that nothing exposed may hold.
	Guard []string
	// Expose are files and folders that it may read, although they are in hidden
	// folders.
	Expose []string
	// Scratch is a folder that is its own to write to. It sees it as ScratchPath.
	Scratch string
	// Dir is where it starts, the scratch folder when empty.
	Dir string
	// Network leaves it the machine's network.
	Network bool
	// Weak starts it also where a part of the view cannot be had.
	Weak bool
}

// ScratchPath is where a program sees its scratch folder.
const ScratchPath = "/tmp/scratch"

// A part is one thing of which a view is made, and what is open without it.
type part struct{ name, open string }

var (
	partUsers     = part{"user namespace", "it is this user without any namespace: it reads and writes what this user does, the key's file too, and sees this user's processes"}
	partMounts    = part{"mount namespace", "it sees all files: it reads and writes what its user does"}
	partProcesses = part{"process namespace", "it sees other processes, and what it started outlives it"}
	partIPC       = part{"IPC namespace", "it reaches System V memory and message queues of its user"}
	partHostname  = part{"host name namespace", "it shares the host's name"}
	partNetwork   = part{"network namespace", "it reaches the machine's network and abstract sockets"}
	partProc      = part{"/proc of its own", "it finds other processes in /proc"}
	partReadOnly  = part{"read-only file systems", "it writes to what its user may write to"}
	partHidden    = part{"hidden folder", "it sees what is in that folder"}
	partExposed   = part{"exposed file or folder", "" /* less than was asked for is no hole */}
	partDev       = part{"/dev of its own", "it may read and write its user's terminals"}
	partKeyring   = part{"keyring of its own", "it reads the session's keys in the kernel"}
	partScopes    = part{"Landlock scopes", "it reaches abstract sockets of this machine's network"}
	partUser      = part{"user of its own", "it is the signer's user"}
	partPowers    = part{"no capabilities", "it has capabilities"}
)

// A partError says which part could not be had.
type partError struct {
	part part
	of   string // which one, where there are several
	err  error
}

func (e *partError) Error() string {
	return strings.TrimSpace(e.part.name+" "+e.of) + ": " + e.err.Error()
}

// open says what it means to do without.
func (e *partError) open() string { return e.Error() + ": " + e.part.open }

// A lackingError is the parts that could not be had.
type lackingError []*partError

func (e lackingError) Error() string {
	texts := make([]string, len(e))
	for i, part := range e {
		texts[i] = part.Error()
	}
	return strings.Join(texts, "; ")
}

// A Process is a program that was started.
type Process struct {
	Stdin          io.WriteCloser
	Stdout, Stderr io.ReadCloser
	// Open says what parts of the view there are not, one sentence each.
	Open []string

	launcher
}

// Inside reports whether a path is a folder or in it.
func Inside(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// RemoveScratch removes a scratch folder with what a program has left in it,
// whatever rights it has given that. A launcher whose caller is gone does so too.
func RemoveScratch(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
