package attest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/internal/filelock"
	"github.com/plimsoll-attest/plimsoll/statement"
)

// childEnv names the bundle that a child process is to sign its input into.
const childEnv = "PLIMSOLL_TEST_CHILD_BUNDLE"

// TestChild is no test: it is what child processes of the tests run. It signs
// standard input with a real disk and prints what it is told as recorded.
func TestChild(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		t.Skip("only for child processes")
	}
	atChildStart(t)
	fmt.Println("ready")
	o := options(t, path)
	o.LockTimeout, o.disk = time.Minute, nil
	o.Progress = func(r Recorded) {
		ids := identities{}
		ids.record(r)
		for id := range ids {
			fmt.Println("recorded", id)
		}
	}
	res, err := Sign(t.Context(), os.Stdin, o)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(3)
	}
	fmt.Println("signed", res.Calls)
}

// startChild runs TestChild. Its output is read to the end by the caller before
// Wait.
func startChild(t testing.TB, path string, log io.Reader, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestChild$")
	cmd.Env = append(append(os.Environ(), childEnv+"="+path), env...)
	cmd.Stdin, cmd.Stderr = log, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// killCount is how often TestKill kills.
func killCount(t *testing.T) int {
	if s := os.Getenv("PLIMSOLL_TEST_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch {
	case thorough():
		return 500
	case testing.Short():
		return 10
	}
	return 60
}

// TestKill kills a signing process at random moments, without warning. What is
// left can always be sealed or recovered, nothing that was reported is lost, and
// the same log can be given again.
func TestKill(t *testing.T) {
	before := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("before", "0", "0\n").Entry())
	log := bundletest.RunLog(testCalls())
	ways := map[string]int{}
	for i := range killCount(t) {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "bundle.jsonl")
		if i%2 == 0 {
			if err := os.WriteFile(path, before, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stdin, err := os.CreateTemp(dir, "log")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stdin.WriteAt(log, 0); err != nil {
			t.Fatal(err)
		}
		cmd, out := startChild(t, path, stdin)
		reported := identities{}
		after := rand.IntN(len(testCalls()) + 1) // lines of output, "ready" the first
		for n := 0; out.Scan(); n++ {
			if id, ok := strings.CutPrefix(out.Text(), "recorded "); ok {
				reported[id] = true
			}
			if n == after {
				time.Sleep(rand.N(2 * time.Millisecond))
				if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
			}
		}
		killed := cmd.Wait() != nil
		stdin.Close()
		os.Remove(stdin.Name())
		way := settle(t, path, reported)
		if killed {
			ways[way]++
		} else {
			ways["was done"]++
		}
		resume(t, path, log)
	}
	t.Log(ways)
}

// TestEightAtOnce: all logs are in the bundle, each whole and in one piece.
func TestEightAtOnce(t *testing.T) {
	rounds := 2
	if thorough() {
		rounds = 20
	}
	for round := range rounds {
		path := newPath(t)
		logs := make([][]bundletest.Entry, 8)
		var children []*exec.Cmd
		var outputs []*bufio.Scanner
		for i := range logs {
			name := fmt.Sprint("r", round, "-", i)
			s := bundletest.NewSession(name)
			for range 5 {
				logs[i] = append(logs[i], s.Add(bundletest.JavaScript(name, name, "")).Entry())
			}
			logs[i] = append(logs[i], s.Close(), bundletest.JavaScript(name, "alone "+name, "").Entry())
			cmd, out := startChild(t, path, bytes.NewReader(bundletest.RunLog(logs[i])))
			children, outputs = append(children, cmd), append(outputs, out)
		}
		for i, cmd := range children {
			var last string
			for outputs[i].Scan() {
				if !strings.HasPrefix(outputs[i].Text(), "PASS") {
					last = outputs[i].Text()
				}
			}
			if err := cmd.Wait(); err != nil || last != "signed 6" {
				t.Errorf("child %d: %v, %s", i, err, last)
			}
		}
		report := mustVerify(t, path)
		if report.Lines != 8*8 || report.Checkpoints != 8 || report.Calls != 8*6 || report.Sessions != 8 {
			t.Errorf("%+v", report)
		}
		payloads := payloadsOf(t, path)
		for i, log := range logs {
			at := slices.Index(payloads, string(log[0].Payload))
			for k, e := range log {
				if at < 0 || payloads[at+k] != string(e.Payload) {
					t.Fatalf("log %d is not in one piece", i)
				}
			}
		}
		if names := folder(t, path); len(names) != 1 {
			t.Errorf("left %v", names)
		}
	}
}

// payloadsOf returns the statements of a bundle, "" for a checkpoint.
func payloadsOf(t testing.TB, path string) []string {
	t.Helper()
	var list []string
	for _, raw := range bundletest.Lines(content(t, path)) {
		line, err := chain.ParseLine(raw)
		if err != nil {
			t.Fatal(err)
		}
		payload := []byte(nil)
		if line.Envelope != nil {
			if payload, err = base64.StdEncoding.DecodeString(line.Envelope.Payload); err != nil {
				t.Fatal(err)
			}
			if _, err := statement.ParseEntry(payload); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, string(payload))
	}
	return list
}

// hold locks a bundle as another process would, until the test ends or release
// is called.
func hold(t *testing.T, path string, exclusive bool) (release func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	take := filelock.RLock
	if exclusive {
		take = filelock.Lock
	}
	if err := take(t.Context(), f, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func() { f.Close() }
}

func TestLocked(t *testing.T) {
	for _, exclusive := range []bool{true, false} {
		for _, size := range []string{"empty", "sealed"} {
			path := newPath(t)
			if size == "sealed" {
				signLog(t, path, bundletest.RunLog(testCalls()))
			}
			hold(t, path, exclusive)
			before := content(t, path)
			for _, timeout := range []time.Duration{-1, 50 * time.Millisecond} {
				o := options(t, path)
				o.LockTimeout = timeout
				start := time.Now()
				if _, err := Sign(t.Context(), unread{t}, o); !errors.Is(err, ErrLocked) || errors.Is(err, ErrBundle) {
					t.Errorf("Sign: %v", err)
				}
				if _, err := Seal(t.Context(), o); !errors.Is(err, ErrLocked) {
					t.Errorf("Seal: %v", err)
				}
				if _, err := Recover(t.Context(), RecoverOptions{Bundle: path, Keys: verifyOptions().Keys, LockTimeout: timeout, Cut: true}); !errors.Is(err, ErrLocked) {
					t.Errorf("Recover: %v", err)
				}
				// To look is to share.
				_, err := Recover(t.Context(), RecoverOptions{Bundle: path, Keys: verifyOptions().Keys, LockTimeout: timeout})
				if exclusive != errors.Is(err, ErrLocked) {
					t.Errorf("Recover without a cut: %v", err)
				}
				if took := time.Since(start); took < 3*timeout || took > 5*time.Second {
					t.Errorf("timeout %v: took %v", timeout, took)
				}
			}
			if !bytes.Equal(before, content(t, path)) {
				t.Error("the locked bundle was changed")
			}
		}
	}
}

// waiting starts a Sign that has to wait for the lock.
func waiting(t *testing.T, ctx context.Context, path string) (done chan error) {
	t.Helper()
	done = make(chan error, 1)
	o := options(t, path)
	o.LockTimeout = time.Minute
	go func() {
		_, err := Sign(ctx, bytes.NewReader(bundletest.RunLog(testCalls())), o)
		done <- err
	}()
	time.Sleep(30 * time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	default:
	}
	return done
}

// TestBundleReplacedWhileWaiting: the lock was waited for on a file that has
// another name, or none, when it is free. The file at the path is the bundle.
func TestBundleReplacedWhileWaiting(t *testing.T) {
	first := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("first", "1", "").Entry())
	second := bundletest.Linked(bundletest.Harness, bundletest.JavaScript("second", "2", "").Entry())
	for _, c := range []struct {
		name string
		with []byte // nil: removed
	}{{"replaced", second}, {"removed", nil}} {
		path := newPath(t)
		if err := os.WriteFile(path, first, 0o600); err != nil {
			t.Fatal(err)
		}
		release := hold(t, path, true)
		done := waiting(t, t.Context(), path)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		if c.with != nil {
			if err := os.WriteFile(path, c.with, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		release()
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		want := bundletest.Extend(bundletest.Harness, c.with, append(testCalls(), bundletest.Checkpoint)...)
		if got := content(t, path); !bytes.Equal(got, want) {
			t.Errorf("%s: have\n%s", c.name, got)
		}
		if got := content(t, path+".away"); !bytes.Equal(got, first) {
			t.Errorf("%s: the file that was moved away was written to", c.name)
		}
	}
}

// TestCancelledWhileWaiting gives up the wait at once.
func TestCancelledWhileWaiting(t *testing.T) {
	path := newPath(t)
	hold(t, path, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := waiting(t, ctx, path)
	reason := errors.New("enough")
	cancel(reason)
	select {
	case err := <-done:
		if !errors.Is(err, reason) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still waiting")
	}
}

// TestBundleMovedWhileWriting: what was signed is in a file, but not in the one
// that the caller will look for.
func TestBundleMovedWhileWriting(t *testing.T) {
	path := newPath(t)
	o := options(t, path)
	o.Progress = func(r Recorded) {
		if r.Line == 2 {
			if err := os.Rename(path, path+".away"); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := Sign(t.Context(), bytes.NewReader(bundletest.RunLog(testCalls())), o); !errors.Is(err, errMoved) {
		t.Error(err)
	}
	mustVerify(t, path+".away")
}
