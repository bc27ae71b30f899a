//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
)

// TestSignOutlastsSignals interrupts sign in the middle of a run log, as ^C does
// to a whole pipeline: the runner's last lines are still signed.
func TestSignOutlastsSignals(t *testing.T) {
	dir := t.TempDir()
	key, pub, bundle := filepath.Join(dir, "k"), filepath.Join(dir, "p"), filepath.Join(dir, "b.jsonl")
	if code, _, stderr := runCommand("", "keygen", "--key", key, "--pub", pub, "--no-passphrase"); code != 0 {
		t.Fatal(stderr)
	}
	s := bundletest.NewSession("signals")
	log := bundletest.RunLog([]bundletest.Entry{
		s.Add(bundletest.JavaScript("a", "1", "")).Entry(), s.Add(bundletest.JavaScript("b", "2", "")).Entry(), s.Close(),
	})
	first, rest, _ := bytes.Cut(log, []byte("\n"))

	cmd := exec.Command(program, "sign", "--key", key, "--bundle", bundle)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	stdin.Write(append(first, '\n'))
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if data, _ := os.ReadFile(bundle); bytes.Count(data, []byte("\n")) == 1 {
			break
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal("the first call is not in the bundle")
		}
	}
	told := bufio.NewReader(stderr)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if line, err := told.ReadString('\n'); err != nil || !strings.Contains(line, "signing what is left of the run log first") {
		t.Fatalf("have %q, %v", line, err)
	}
	stdin.Write(rest)
	stdin.Close()
	if text, _ := io.ReadAll(told); len(text) > 0 {
		t.Errorf("stderr: %s", text)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runCommand("", "verify", "--pub", pub, "--expect-ids", "a,b", bundle); code != 0 {
		t.Error(stderr)
	}
}

// TestInterruptedVerify: a command that writes nothing ends at once.
func TestInterruptedVerify(t *testing.T) {
	cmd := exec.Command(program, "verify", "--pub", "../../testdata/seed-session/harness.pub", "-")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("exit status 0")
		}
	case <-time.After(10 * time.Second):
		cmd.Process.Kill()
		t.Error("still running")
	}
}
