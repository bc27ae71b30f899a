package main

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/internal/filelock"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
)

var update = flag.Bool("update", false, "rewrite what the scripts expect")

func TestMain(m *testing.M) {
	attest.HandOver() // wrap's launcher is this program started anew
	testscript.Main(m, map[string]func(){program: main, badRunner: badRunnerMain})
}

func TestScripts(t *testing.T) {
	data, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DATA", data)
			env.Setenv("SEED", filepath.Join(data, "seed-session", "bundle.jsonl"))
			env.Setenv("PUB", filepath.Join(data, "seed-session", "harness.pub"))
			env.Setenv("FIELD", filepath.Join(data, "field"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    cmdExits,
			"lock":     cmdLock,
			"runlog":   cmdRunLog,
			"bundle":   cmdBundle,
			"sshagent": cmdSSHAgent,
			"escape":   cmdEscape,
		},
	})
}

// cmdExits is "exits N command args…": the command must end with status N.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N command args…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	have := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		have = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if have != want {
		ts.Fatalf("%s exited with %d, want %d", args[1], have, want)
	}
}

// cmdLock is "lock FILE": an exclusive lock until the script's end.
func cmdLock(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	ts.Check(filelock.Lock(context.Background(), f, 0))
	ts.Defer(func() { f.Close() })
}

// cmdRunLog is "runlog FILE SESSION CALLS…": the run log of one session. The
// word "cut" for a call leaves the end out, "refused" adds a refused call.
func cmdRunLog(ts *testscript.TestScript, _ bool, args []string) {
	var entries []bundletest.Entry
	var refused []bundletest.Refused
	cut := false
	s := bundletest.NewSession(args[1])
	for _, id := range args[2:] {
		switch id {
		case "cut":
			cut = true
		case "refused":
			refused = append(refused, bundletest.Refused{Line: 9, TraceID: id, Code: "invalid_argument", Reason: "request", Detail: "no"})
		case "unanswered":
			entries = append(entries, s.Add(bundletest.JavaScript(id, "for(;;){}", "").Unanswered("deadline_exceeded")).Entry())
		default:
			entries = append(entries, s.Add(bundletest.JavaScript(id, "console.log(1+1)", "2\n")).Entry())
		}
	}
	entries = append(entries, s.Close())
	log := bundletest.RunLog(entries, refused...)
	if cut {
		lines := strings.SplitAfter(string(log), "\n")
		log = []byte(strings.Join(lines[:len(lines)-2], ""))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), log, 0o600))
}

// cmdBundle is "bundle KIND FILE": a bundle made for one test, signed by
// bundletest.Harness, whose public key is written to FILE.pub.
func cmdBundle(ts *testscript.TestScript, _ bool, args []string) {
	made, ok := madeBundles[args[0]]
	if !ok {
		ts.Fatalf("no bundle %q", args[0])
	}
	path := ts.MkAbs(args[1])
	ts.Check(os.WriteFile(path, made(), 0o600))
	ts.Check(os.WriteFile(path+".pub", bundletest.Harness.Public.MarshalPEM(), 0o600))
}

// hostile holds what must not reach a terminal: an escape sequence, a C1
// control, a bidi override, a zero-width space, a Hangul filler, a bad byte.
const hostile = "red\x1b[31m\u009b2J\r\u202elive\u200b\u3164\ttab\x07⟨"

var madeBundles = map[string]func() []byte{
	"empty": func() []byte { return bundletest.Linked(bundletest.Harness) },
	// A call with hostile text wherever text can be.
	"hostile": func() []byte {
		c := bundletest.Project(hostile)
		p := c.Request.Project
		p.Files[0].Path, p.Files[0].Content = hostile, hostile+"\nline 1: call-1 (project)\n"
		c.Response.Project.Steps[0].Stdout = []byte(hostile + "\xff\xfe\n\n")
		c.Response.Project.OutcomeDetail = hostile
		c.Record.Provider, c.Record.Policy, c.Record.Environment = hostile, hostile, hostile
		c.Record.Isolation = hostile
		c.Request.MinimumIsolation = ""
		return bundletest.Linked(bundletest.Harness, c.Seal().Entry())
	},
	// The same with text that a page would act on.
	"markup": func() []byte {
		const markup = `</pre></dd></h3></title><script>alert(1)</script><img src=x onerror=alert(1)>"'` + "`{{.}}"
		c := bundletest.Project(markup)
		p := c.Request.Project
		p.Files[0].Path, p.Files[0].Content = markup, markup
		c.Response.Project.Steps[0].Stdout = []byte(markup)
		c.Response.Project.OutcomeDetail = markup
		c.Record.Provider, c.Record.Policy, c.Record.Environment, c.Record.Isolation = markup, markup, markup, markup
		c.Request.MinimumIsolation = ""
		return bundletest.Linked(bundletest.Harness, c.Seal().Entry())
	},
	// Times that no calendar has.
	"times": func() []byte {
		c := bundletest.JavaScript("far", "1", "")
		c.Record.StartedUnixMS, c.Record.EndedUnixMS = -1<<63, 1<<63-1
		return bundletest.Linked(bundletest.Harness, c.Seal().Entry())
	},
	"long": func() []byte {
		c := bundletest.JavaScript("long", strings.Repeat("// line\n", 200), strings.Repeat("x", 1<<20))
		return bundletest.Linked(bundletest.Harness, c.Entry())
	},
	"kinds": func() []byte {
		s := bundletest.NewSession("kinds")
		return bundletest.Linked(bundletest.Harness,
			bundletest.Module("m").Entry(), bundletest.Project("p").Entry(),
			s.Add(bundletest.Cell("c")).Entry(),
			s.Add(bundletest.JavaScript("u", "for(;;){}", "").Unanswered("deadline_exceeded")).Entry(), s.Close())
	},
	// One session, left open: what a killed writer can leave.
	"open": func() []byte {
		s := bundletest.NewSession("open")
		first := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("a", "1", "").Entry())
		return bundletest.Extend(bundletest.Harness, first, s.Add(bundletest.JavaScript("b", "1", "")).Entry())
	},
	"unsealed": func() []byte {
		return bundletest.Extend(bundletest.Harness, nil, bundletest.JavaScript("a", "1", "").Entry())
	},
}

// cmdEscape is "escape stdout|stderr": no character that a terminal would act
// on may be in it.
func cmdEscape(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	for i, r := range text {
		if r != '\n' && r != '\t' && r != '⟨' && visible.Text(string(r)) != string(r) || r == '\uFFFD' {
			ts.Fatalf("%s has %U at byte %d: %q", args[0], r, i, text[max(0, i-30):min(len(text), i+30)])
		}
	}
}

// cmdSSHAgent is "sshagent NAME": serves an agent that holds one Ed25519 key,
// sets SSH_AUTH_SOCK and FINGERPRINT, and writes NAME and NAME.pub, the key as
// ssh-keygen would.
func cmdSSHAgent(ts *testscript.TestScript, _ bool, args []string) {
	key := ed25519.NewKeyFromSeed([]byte("a seed for tests, 32 bytes long."))
	ring := agent.NewKeyring()
	ts.Check(ring.Add(agent.AddedKey{PrivateKey: key}))
	public, err := ssh.NewPublicKey(key.Public())
	ts.Check(err)
	private, err := ssh.MarshalPrivateKey(key, "")
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(private), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".pub"), ssh.MarshalAuthorizedKey(public), 0o600))
	// The path of a socket is short, that of a script's folder need not be.
	dir, err := os.MkdirTemp("", "agent")
	ts.Check(err)
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	ts.Check(err)
	ts.Defer(func() {
		listener.Close()
		os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if err := agent.ServeAgent(ring, conn); err != nil && err != io.EOF {
					fmt.Fprintln(os.Stderr, "agent:", err)
				}
			}()
		}
	}()
	ts.Setenv("SSH_AUTH_SOCK", listener.Addr().String())
	ts.Setenv("FINGERPRINT", ssh.FingerprintSHA256(public))
}
