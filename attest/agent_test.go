package attest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/plimsoll-attest/plimsoll/envelope"
)

// serveSocket answers every connection on a new socket with handle, and points
// SSH_AUTH_SOCK at it.
func serveSocket(t *testing.T, handle func(net.Conn)) (socket string) {
	t.Helper()
	// Not t.TempDir: a socket's path has at most some hundred bytes.
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { l.Close() })
	t.Setenv(agentSockEnv, socket)
	return socket
}

func serveAgent(t *testing.T, a agent.Agent) (socket string) {
	return serveSocket(t, func(conn net.Conn) { agent.ServeAgent(a, conn) })
}

func keyring(t *testing.T, keys ...any) agent.Agent {
	t.Helper()
	a := agent.NewKeyring()
	for _, k := range keys {
		if err := a.Add(agent.AddedKey{PrivateKey: k}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func fingerprint(key any) string {
	return ssh.FingerprintSHA256(must(ssh.NewPublicKey(key)))
}

func TestAgent(t *testing.T) {
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	ec := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	serveAgent(t, keyring(t, ec, other, testKey))
	public := testKey.Public().(ed25519.PublicKey)
	id := must(envelope.NewPublicKey(public)).ID()

	for _, spec := range []string{fingerprint(public), id} {
		s, err := OpenSigner("agent:"+spec, unasked(t))
		if err != nil {
			t.Fatal(err)
		}
		checkSigner(t, s, public)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { checkSigner(t, s, public) })
		}
		wg.Wait()
	}
}

func TestAgentRefusals(t *testing.T) {
	public := testKey.Public().(ed25519.PublicKey)
	id := must(envelope.NewPublicKey(public)).ID()
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	ec := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	full := keyring(t, other, ec)
	locked := keyring(t, testKey)
	if err := locked.Lock([]byte("x")); err != nil {
		t.Fatal(err)
	}
	cert := keyring(t)
	c := &ssh.Certificate{Key: must(ssh.NewPublicKey(public)), CertType: ssh.UserCert, ValidPrincipals: []string{"x"}}
	if err := c.SignCert(rand.Reader, must(ssh.NewSignerFromKey(other))); err != nil {
		t.Fatal(err)
	}
	if err := cert.Add(agent.AddedKey{PrivateKey: testKey, Certificate: c}); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name  string
		agent agent.Agent
		spec  string
		want  string
	}{
		{"no agent", nil, fingerprint(public), "SSH_AUTH_SOCK is not set"},
		{"empty", keyring(t), fingerprint(public), "no keys in the agent, or it is locked"},
		{"locked", locked, fingerprint(public), "no keys in the agent, or it is locked"},
		{"absent", full, fingerprint(public), "not among the agent's 2 keys"},
		{"absent by ID", full, id, "not among the agent's 2 keys"},
		{"a certificate alone", cert, fingerprint(public), "not among"},
		{"the certificate by name", cert, ssh.FingerprintSHA256(c), "ssh-ed25519-cert"},
		{"another type", full, fingerprint(ec.Public()), "ecdsa-sha2-nistp256"},
		{"no fingerprint", full, "", "want SHA256:"},
		{"path", full, "/home/x/.ssh/id", "want SHA256:"},
		{"MD5", full, "MD5:" + strings.Repeat("ab:", 15) + "ab", "want SHA256:"},
		{"padded", full, fingerprint(public) + "=", "want SHA256:"},
		{"short", full, fingerprint(public)[:40], "want SHA256:"},
		{"short ID", full, id[:62], "want SHA256:"},
		{"two lines", full, fingerprint(public) + "\n", "want SHA256:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(agentSockEnv, "")
			if tt.agent != nil {
				serveAgent(t, tt.agent)
			}
			s, err := OpenSigner("agent:"+tt.spec, unasked(t))
			if !errors.Is(err, ErrAgent) || s != nil {
				t.Fatalf("have %v, %v, want ErrAgent", s, err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("have %q, want it to say %q", err, tt.want)
			}
		})
	}
}

// A key ID in capitals is another text, as everywhere in the format.
func TestAgentKeyIDCase(t *testing.T) {
	serveAgent(t, keyring(t, testKey))
	id := must(envelope.NewPublicKey(testKey.Public().(ed25519.PublicKey))).ID()
	if _, err := OpenSigner("agent:"+strings.ToUpper(id), nil); !errors.Is(err, ErrAgent) {
		t.Errorf("have %v, want ErrAgent", err)
	}
}

func TestAgentUnreachable(t *testing.T) {
	for name, socket := range map[string]string{
		"absent":     filepath.Join(t.TempDir(), "none"),
		"no socket":  writeFile(t, nil, 0o600),
		"a long one": "/" + strings.Repeat("x", 300),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(agentSockEnv, socket)
			_, err := OpenSigner("agent:"+fingerprint(testKey.Public()), nil)
			if !errors.Is(err, ErrAgent) || !strings.Contains(err.Error(), "cannot be reached (SSH_AUTH_SOCK)") {
				t.Errorf("have %v, want ErrAgent", err)
			}
		})
	}
}

// An agent that takes a request and says nothing, or a byte now and then, or
// does not even accept, is given up in time.
func TestAgentHangs(t *testing.T) {
	for name, handle := range map[string]func(net.Conn){
		"silent": func(conn net.Conn) { io.Copy(io.Discard, conn) },
		"slow": func(conn net.Conn) {
			conn.Write([]byte{0, 0, 1, 0, 12})
			for range 255 {
				if _, err := conn.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(30 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := serveSocket(t, handle)
			start := time.Now()
			_, err := findAgentKey(socket, 100*time.Millisecond, fingerprint(testKey.Public()))
			if !errors.Is(err, ErrAgent) {
				t.Errorf("have %v, want ErrAgent", err)
			}
			if !strings.Contains(err.Error(), "no answer in 100ms") {
				t.Errorf("have %q, want it to say no answer", err)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestAgentAnswersBadly(t *testing.T) {
	frame := func(body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for name, answer := range map[string][]byte{
		"nothing":       nil,
		"failure":       frame(5),
		"success":       frame(6),
		"empty":         frame(),
		"unknown":       frame(200),
		"cut off":       frame(12, 0, 0, 0, 1)[:7],
		"too few keys":  frame(12, 0, 0, 0, 1),
		"4 GiB of them": {0xff, 0xff, 0xff, 0xff, 12},
		"many keys":     frame(12, 0xff, 0xff, 0xff, 0xff),
		"signature":     frame(14, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			serveSocket(t, func(conn net.Conn) {
				conn.Read(make([]byte, 64))
				conn.Write(answer)
			})
			if _, err := OpenSigner("agent:"+fingerprint(testKey.Public()), nil); !errors.Is(err, ErrAgent) {
				t.Errorf("have %v, want ErrAgent", err)
			}
		})
	}
}

// A lyingAgent lists a key and signs as it is told to.
type lyingAgent struct {
	agent.Agent
	sign func(data []byte) (*ssh.Signature, error)
}

func (a lyingAgent) Sign(_ ssh.PublicKey, data []byte) (*ssh.Signature, error) { return a.sign(data) }

func (a lyingAgent) SignWithFlags(_ ssh.PublicKey, data []byte, _ agent.SignatureFlags) (*ssh.Signature, error) {
	return a.sign(data)
}

func TestAgentSignsBadly(t *testing.T) {
	signature := func(format string, blob []byte, rest ...byte) func([]byte) (*ssh.Signature, error) {
		return func([]byte) (*ssh.Signature, error) {
			return &ssh.Signature{Format: format, Blob: blob, Rest: rest}, nil
		}
	}
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	for name, tt := range map[string]struct {
		sign func([]byte) (*ssh.Signature, error)
		want string
	}{
		"refuses":      {func([]byte) (*ssh.Signature, error) { return nil, errors.New("no") }, "refused"},
		"zeros":        {signature("ssh-ed25519", make([]byte, 64)), "does not verify"},
		"empty":        {signature("ssh-ed25519", nil), "does not verify"},
		"long":         {signature("ssh-ed25519", make([]byte, 65)), "does not verify"},
		"other format": {signature("ssh-rsa", make([]byte, 64)), `type "ssh-rsa"`},
		"other key": {func(data []byte) (*ssh.Signature, error) {
			return &ssh.Signature{Format: "ssh-ed25519", Blob: ed25519.Sign(other, data)}, nil
		}, "does not verify"},
		"other bytes": {func(data []byte) (*ssh.Signature, error) {
			return &ssh.Signature{Format: "ssh-ed25519", Blob: ed25519.Sign(testKey, data[1:])}, nil
		}, "does not verify"},
	} {
		t.Run(name, func(t *testing.T) {
			serveAgent(t, lyingAgent{keyring(t, testKey), tt.sign})
			s, err := OpenSigner("agent:"+fingerprint(testKey.Public()), nil)
			if err != nil {
				t.Fatal(err)
			}
			sig, err := s.Sign([]byte("DSSEv1 1 a 1 b"))
			if !errors.Is(err, ErrSigner) || sig != nil {
				t.Fatalf("have %x, %v, want ErrSigner", sig, err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("have %q, want it to say %q", err, tt.want)
			}
		})
	}
}

// What happens to the agent after the key was found is said at the signature,
// and an agent that comes back is used again.
func TestAgentLockedLater(t *testing.T) {
	a := keyring(t, testKey)
	serveAgent(t, a)
	s, err := OpenSigner("agent:"+fingerprint(testKey.Public()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Lock([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign([]byte("m")); !errors.Is(err, ErrAgent) || !errors.Is(err, ErrSigner) {
		t.Errorf("locked: have %v, want ErrAgent", err)
	}
	if err := a.Unlock([]byte("x")); err != nil {
		t.Fatal(err)
	}
	checkSigner(t, s, testKey.Public().(ed25519.PublicKey))
}

// OpenSSH's own agent, where it is installed.
func TestOpenSSHAgent(t *testing.T) {
	program, err := exec.LookPath("ssh-agent")
	if err != nil {
		t.Log("no ssh-agent here: the other tests speak the same protocol")
		return
	}
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(program, "-D", "-a", socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var conn net.Conn
	for range 100 {
		if conn, err = net.Dial("unix", socket); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := agent.NewClient(conn)
	if err := client.Add(agent.AddedKey{PrivateKey: testKey}); err != nil {
		t.Fatal(err)
	}
	t.Setenv(agentSockEnv, socket)
	spec := "agent:" + fingerprint(testKey.Public())
	s, err := OpenSigner(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkSigner(t, s, testKey.Public().(ed25519.PublicKey))

	if err := client.Lock([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign([]byte("m")); !errors.Is(err, ErrAgent) {
		t.Errorf("locked: have %v, want ErrAgent", err)
	}
	if _, err := OpenSigner(spec, nil); err == nil || !regexp.MustCompile(`no keys .* locked`).MatchString(err.Error()) {
		t.Errorf("locked: have %v, want it said", err)
	}
}

func BenchmarkAgentSign(b *testing.B) {
	dir := b.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	a := agent.NewKeyring()
	if err := a.Add(agent.AddedKey{PrivateKey: testKey}); err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				agent.ServeAgent(a, conn)
			}()
		}
	}()
	b.Setenv(agentSockEnv, filepath.Join(dir, "s"))
	s, err := OpenSigner("agent:"+fingerprint(testKey.Public()), nil)
	if err != nil {
		b.Fatal(err)
	}
	pae := make([]byte, 600)
	for b.Loop() {
		must(s.Sign(pae))
	}
}
