//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// DriverName is the name of the compute driver: what tells this gateway from any
// other.
const DriverName = "gvisor-local"

// Version is the release of the API that the gateway speaks, with our mark.
const Version = "0.1.5+plimsoll"

// GVisorVersion is the version of the linked user-space kernel, reported as the
// driver's.
const GVisorVersion = "20260224225140-573d5e7127a8"

// Config says where and how a gateway runs sandboxes. The zero value of every
// field but Dir is a default.
type Config struct {
	// Dir is a folder of our own, made with mode 0700 if it is not there. Gateways
	// of several processes can share it.
	Dir string
	// Image is the path of an OCI image layout. Empty: the host's own programs.
	Image string
	// Memory and CPUs apply where a sandbox asks for nothing: 256 MiB, 1.
	Memory int64
	CPUs   int
	// DiskBudget is how many bytes the kept /tmp of a sandbox may take: 1024 MiB.
	DiskBudget int64
	// MaxSandboxes is how many there may be at once: 256.
	MaxSandboxes int
	// StartTimeout is how long a sandbox may take to become ready: 60 s.
	StartTimeout time.Duration
	// Runtime is the program to start sandboxes with, for tests whose own is not
	// static. Empty: this program.
	Runtime string
	// DebugLog is a folder for gVisor's debug logs; empty, there are none.
	DebugLog string
	// NoCgroup has memory limited by the watchdog even where a cgroup could be had.
	NoCgroup bool
	// Now is the clock.
	Now func() time.Time
}

// A Gateway runs sandboxes and serves the OpenShell API for them. It trusts all
// who can speak to it: there is no authentication.
type Gateway struct {
	config  Config
	root    bool // real root: cgroups, no user namespace of our own
	dir     string
	lock    *os.File
	image   *image
	trees   []tree
	paths   []string
	cgroup  *memoryCgroup // nil: watchdog
	program *os.File      // of the guests' PID 1
	starts  chan struct{} // slots for sandboxes that are starting
	cpus    []int
	work    sync.WaitGroup
	closing context.Context
	close   context.CancelFunc

	mu        sync.Mutex
	closed    bool
	sandboxes map[string]*sandbox
	serial    uint64
	nextCPU   int
	servers   []*http.Server
	pipe      *pipeListener
}

// Errors of New, besides ErrNotStatic and ErrImage.
var (
	ErrPath       = errors.New("state folder")
	ErrProc       = errors.New("/proc is that of another PID namespace: processes could not be told apart")
	ErrMode       = errors.New("sandboxes run this program as another user, who has no right to execute it: chmod a+rx")
	ErrNamespaces = errors.New("user namespaces are not to be had here, and without root there is no sandbox without them")
)

// New makes a gateway. What gateways that are gone left in the folder is removed
// first.
func New(config Config) (*Gateway, error) {
	if config.Runtime == "" {
		if err := CheckStatic(); err != nil {
			return nil, err
		}
		config.Runtime = "/proc/self/exe"
	} else if err := checkStatic(config.Runtime); err != nil {
		return nil, err
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, ErrProc
	}
	if !isRoot() {
		if err := tryUserNamespace(); err != nil {
			return nil, err
		}
	} else if err := worldExecutable(config.Runtime); err != nil {
		return nil, err
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Memory = orDefault(config.Memory, 256<<20)
	config.CPUs = orDefault(config.CPUs, 1)
	config.DiskBudget = orDefault(config.DiskBudget, 1024<<20)
	config.MaxSandboxes = orDefault(config.MaxSandboxes, 256)
	config.StartTimeout = orDefault(config.StartTimeout, 60*time.Second)
	// gVisor's client would write its complaints between our lines.
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	g := &Gateway{config: config, root: isRoot(), sandboxes: map[string]*sandbox{}}
	if err := g.open(); err != nil {
		if g.lock != nil {
			_ = removeTree(g.dir)
			g.lock.Close()
		}
		return nil, err
	}
	g.closing, g.close = context.WithCancel(context.Background())
	g.work.Go(g.watchMemory)
	g.work.Go(g.watchDisk)
	return g, nil
}

// isRoot says whether we are root of the machine, not of a user namespace, and
// may make namespaces as such.
func isRoot() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 || strings.Join(strings.Fields(string(data)), " ") != "0 0 4294967295" {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	return unix.Capget(&header, &caps[0]) == nil && caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

func orDefault[T int | int64 | time.Duration](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

// open takes a folder of this gateway's own and prepares what its sandboxes share.
func (g *Gateway) open() error {
	parent, err := privateDir(g.config.Dir)
	if err != nil {
		return err
	}
	// The control socket's path has to fit; gVisor would otherwise put it in /tmp.
	if longest := filepath.Join(parent, "i-12345678", "ffff", "r", "runsc-sandbox.sock"); len(longest) > 107 {
		return fmt.Errorf("%w: %s is too long, by %d bytes, for the sockets in it", ErrPath, parent, len(longest)-107)
	}
	if _, err := Cleanup(parent); err != nil {
		return err
	}
	g.dir, g.lock, err = newInstance(parent)
	if err != nil {
		return err
	}
	if g.config.Image != "" {
		if g.image, err = openImage(g.config.Image, filepath.Join(parent, "images")); err != nil {
			return err
		}
		g.trees, err = imageTrees(g.image.root)
	} else {
		etc := filepath.Join(g.dir, "etc")
		if err := writeEtc(etc); err != nil {
			return err
		}
		g.trees, err = hostTrees(etc)
	}
	if err != nil {
		return err
	}
	g.paths = paths(g.trees)
	if !g.root {
		if err := writeMapHelpers(filepath.Join(g.dir, "bin")); err != nil {
			return err
		}
	} else if !g.config.NoCgroup {
		g.cgroup = findMemoryCgroup()
	}
	if g.program, err = initProgram(); err != nil {
		return err
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			g.cpus = append(g.cpus, cpu)
		}
	}
	g.starts = make(chan struct{}, 2*len(g.cpus))
	return nil
}

// Paths lists what a policy can name as read-only; DefaultPolicy names all of it.
func (g *Gateway) Paths() []string { return slices.Clone(g.paths) }

// Environment is the evidence of what sandboxes are made of: the digest of the
// image's configuration, nothing for the host's own programs.
func (g *Gateway) Environment() string {
	if g.image == nil {
		return ""
	}
	return "docker-image:" + g.image.digest
}

// ImageName is what a sandbox's template names as its image: the digest of the
// image's configuration, nothing for the host's own programs.
func (g *Gateway) ImageName() string {
	if g.image == nil {
		return ""
	}
	return g.image.digest
}

// defaultPolicy is the policy of a sandbox that asks for none: everything that
// can be shown readable, only /tmp writable, no network.
func (g *Gateway) defaultPolicy() *pb.SandboxPolicy {
	return &pb.SandboxPolicy{
		Version:    1,
		Filesystem: &pb.FilesystemPolicy{ReadOnly: g.Paths(), ReadWrite: []string{"/dev/null", "/tmp"}},
		Process:    &pb.ProcessPolicy{RunAsUser: "1500", RunAsGroup: "1500"},
	}
}

// Close ends all sandboxes and removes all that was kept for them.
func (g *Gateway) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	var all []*sandbox
	for _, s := range g.sandboxes {
		all = append(all, s)
	}
	servers := g.servers
	g.mu.Unlock()
	g.close()
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() { s.remove() })
	}
	wg.Wait()
	for _, server := range servers {
		server.Close()
	}
	g.work.Wait()
	g.program.Close()
	err := removeTree(g.dir)
	g.lock.Close()
	return err
}

// Client serves the API to this process alone, over socket pairs, and returns
// what to reach it by.
func (g *Gateway) Client() (baseURL string, client *http.Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe == nil {
		g.pipe = newPipeListener()
		server := newServer(g.Handler())
		g.servers = append(g.servers, server)
		go func() { _ = server.Serve(g.pipe) }()
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	pipe := g.pipe
	return "http://127.0.0.1", &http.Client{Transport: &http.Transport{
		Protocols: protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return pipe.dial(ctx)
		},
	}}
}

// ErrNotLoopback refuses to serve where others than this machine can reach.
var ErrNotLoopback = errors.New("not a loopback address; the gateway has no authentication")

// Serve serves the API on a loopback address until Close.
func (g *Gateway) Serve(listener net.Listener) error {
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		listener.Close()
		return fmt.Errorf("listen on %v: %w", listener.Addr(), ErrNotLoopback)
	}
	server := newServer(onlyLoopbackHosts(g.Handler()))
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		listener.Close()
		return http.ErrServerClosed
	}
	g.servers = append(g.servers, server)
	g.mu.Unlock()
	err := server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// onlyLoopbackHosts refuses requests that name another host: a page in a browser
// of this machine can resolve a name of its own to 127.0.0.1.
func onlyLoopbackHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		ip := net.ParseIP(strings.Trim(host, "[]"))
		if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "not a loopback host", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func newServer(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1024},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
	}
}

// A pipeListener accepts the connections that its own dial makes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "gateway")
		conn, fileErr := net.FileConn(file)
		file.Close()
		err = errors.Join(err, fileErr)
		conns[i] = conn
	}
	if err == nil {
		select {
		case l.conns <- conns[1]:
			return conns[0], nil
		case <-l.done:
			err = net.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for _, conn := range conns {
		if conn != nil {
			conn.Close()
		}
	}
	return nil, err
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "gateway", Net: "unix"} }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// newID is a random UUID.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
