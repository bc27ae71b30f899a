//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/record"
	"github.com/plimsoll-attest/plimsoll/verify"
)

func TestMain(m *testing.M) {
	attest.HandOver() // Wrap starts this program anew
	if len(os.Args) == 2 && os.Args[1] == "session" {
		dyingRunner()
	}
	os.Exit(m.Run())
}

// dyingRunner states the first call truthfully and dies of the second.
func dyingRunner() {
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	c, refused := call.Parse(in.Bytes())
	if refused != nil {
		panic(refused)
	}
	answered := bundletest.JavaScript("", "", "2\n")
	answered.Request = c.Request
	os.Stdout.Write(bundletest.RunLogLine(bundletest.NewSession("dying").Add(answered).Entry()))
	in.Scan()
	os.Exit(137)
}

// An evidence is a key, and the bundle that it signs.
type evidence struct {
	key, bundle string
	public      *envelope.PublicKey
}

func newEvidence(t *testing.T) *evidence {
	t.Helper()
	keys := t.TempDir()
	e := &evidence{key: filepath.Join(keys, "harness.key"), bundle: filepath.Join(t.TempDir(), "bundle.jsonl")}
	var err error
	if e.public, err = attest.CreateKey(e.key, filepath.Join(keys, "harness.pub"), nil); err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs the harness and returns what it printed.
func (e *evidence) run(runner, calls string) (string, error) {
	var stdout, stderr bytes.Buffer
	args := []string{"--key", e.key, "--bundle", e.bundle, "--runner", runner}
	err := run(context.Background(), args, strings.NewReader(calls), &stdout, &stderr)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	return stdout.String(), err
}

// verify verifies the bundle against the list of calls, request by request.
func (e *evidence) verify(t *testing.T, calls ...string) {
	t.Helper()
	var digests []string
	for _, text := range calls {
		c, refused := call.Parse([]byte(text))
		if refused != nil {
			t.Fatal(refused)
		}
		digests = append(digests, c.Request.Digest())
	}
	bundle, err := os.ReadFile(e.bundle)
	if err != nil {
		t.Fatal(err)
	}
	_, err = verify.Bundle(context.Background(), bytes.NewReader(bundle), verify.Options{
		Keys: []*envelope.PublicKey{e.public}, Expect: verify.NewExpected(digests), MinIsolation: record.TierKernel,
	})
	if err != nil {
		t.Error(err)
	}
}

// buildRunner builds plimsoll-run, as make build does.
func buildRunner(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plimsoll-run")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "../../cmd/plimsoll-run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

const (
	fails    = `{"trace_id":"fails","minimum_isolation":"kernel","project":{"files":[{"path":"a.txt","content":"a"}],"steps":["cat a.txt","exit 7"]}}`
	isNoCall = `{"trace_id":"no-call","javascript":{"code":""}}`
	works    = `{"trace_id":"works","minimum_isolation":"kernel","javascript":{"code":"console.log(1+1)"}}`
)

// TestHarness makes calls in a sandbox; then a runner dies with one under way.
func TestHarness(t *testing.T) {
	runner := buildRunner(t)
	e := newEvidence(t)
	calls := strings.Join([]string{fails, "", isNoCall, works}, "\n")
	have, err := e.run(runner, calls)
	want := "1 fails: exit 7; line 1 of the bundle\n" +
		`3 no-call: refused: invalid_argument: "code: empty"` + "\n" +
		"4 works: exit 0; line 2 of the bundle\n"
	if have != want || !errors.Is(err, errUnanswered) {
		t.Errorf("have %v\n%swant %v\n%s", err, have, errUnanswered, want)
	}
	e.verify(t, fails, works)

	before, err := os.ReadFile(e.bundle)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	low := strings.ReplaceAll(works, "kernel", "container") // as the dying one states
	have, err = e.run(self, low+"\n"+low+"\n"+low)
	if want := "1 works: exit 0; line 5 of the bundle\n2 works: open\n1 signed calls are in "; !strings.HasPrefix(have, want) ||
		!errors.Is(err, errUnsigned) || !errors.Is(err, attest.ErrRunLog) {
		t.Errorf("have %v\n%swant %v\n%s", err, have, errUnsigned, want)
	}
	after, err := os.ReadFile(e.bundle)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(after, before) {
		t.Error("a runner that died has changed the bundle")
	}
	e.verify(t, fails, works)
}

// TestNothingRan has a harness that cannot even start its runner.
func TestNothingRan(t *testing.T) {
	e := newEvidence(t)
	if have, err := e.run(filepath.Join(t.TempDir(), "missing"), works); have != "" || !errors.Is(err, attest.ErrRunner) {
		t.Errorf("have %q, %v, want %v", have, err, attest.ErrRunner)
	}
	if err := os.Chmod(e.key, 0o644); err != nil {
		t.Fatal(err)
	}
	if have, err := e.run(os.Args[0], works); have != "" || !errors.Is(err, attest.ErrKey) {
		t.Errorf("have %q, %v, want %v", have, err, attest.ErrKey)
	}
	if _, err := os.Stat(e.bundle); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
