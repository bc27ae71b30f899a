// Sessions runs the five calls of testdata/seed-session in one sandbox, with the
// signing key out of the runner's reach, and leaves evidence that verifies:
//
//	go run ./examples/sessions -o FOLDER
//
// FOLDER has bundle.jsonl, the public key harness.pub, the caller's own list
// calls.txt, and report.html, a page about it, then; what was there before stays
// when anything is not as it should be. The private key is gone in any case.
//
// Without settings in the environment the sandbox is one of the embedded gateway.
// Run it in the repository's folder.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

const session = "testdata/seed-session/"

// exitCodes are how the calls end: the first is a test that fails, which the
// second repairs.
var exitCodes = []int{1, 0, 0, 0, 0}

func main() {
	out := flag.String("o", "bin/demo", "`folder` for what is made")
	bin := flag.String("bin", "", "`folder` that has plimsoll-attest and plimsoll-run; they are built when empty")
	tier := flag.String("min-isolation", "kernel", "`tier` that every call must have run at; the embedded gateway's is kernel")
	flag.Parse()
	// The commands have an interrupt too and end; then so do we, and clean up.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	if err := run(*out, *bin, *tier, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sessions:", err)
		os.Exit(1)
	}
}

func run(out, bin, tier string, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("no arguments are taken: %q", rest)
	}
	secret, err := os.MkdirTemp("", "plimsoll-sessions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(secret)
	out = filepath.Clean(out)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	// Beside the folder, so that what is made there can be renamed into it.
	made, err := os.MkdirTemp(filepath.Dir(out), ".sessions-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(made)
	if bin == "" {
		bin = secret
		if err := command([]string{"CGO_ENABLED=0"}, os.Stdout, "go", "build", "-trimpath", "-o", bin, "./cmd/plimsoll-attest", "./cmd/plimsoll-run"); err != nil {
			return err
		}
	}
	attest, runner := filepath.Join(bin, "plimsoll-attest"), filepath.Join(bin, "plimsoll-run")
	key, pub, bundle := filepath.Join(secret, "harness.key"), filepath.Join(made, "harness.pub"), filepath.Join(made, "bundle.jsonl")
	list, page := filepath.Join(made, "calls.txt"), filepath.Join(made, "report.html")

	// The list is the caller's: it is there before anything runs.
	ids, err := os.ReadFile(session + "calls.txt")
	if err == nil {
		err = os.WriteFile(list, ids, 0o644)
	}
	if err != nil {
		return err
	}
	if err := command(nil, os.Stdout, attest, "keygen", "--key", key, "--pub", pub, "--no-passphrase"); err != nil {
		return err
	}
	var outcomes bytes.Buffer
	if err := command(nil, &outcomes, attest, "wrap", "--key", key, "--bundle", bundle, "--calls", session+"calls.jsonl", "--", runner, "session", "--show"); err != nil {
		return err
	}
	if err := check(&outcomes); err != nil {
		return err
	}
	questions := []string{"--pub", pub, "--expect", list, "--min-isolation", tier, bundle}
	if err := command(nil, os.Stdout, attest, append([]string{"verify"}, questions...)...); err != nil {
		return err
	}
	if err := command(nil, os.Stdout, attest, append([]string{"report", "-o", page}, questions...)...); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, file := range []string{bundle, pub, list, page} {
		if err := os.Rename(file, filepath.Join(out, filepath.Base(file))); err != nil {
			return err
		}
	}
	fmt.Printf("\nin %s: bundle.jsonl harness.pub calls.txt report.html\n", out)
	return nil
}

// command prints a command and runs it.
func command(env []string, stdout io.Writer, name string, args ...string) error {
	fmt.Print("\n$")
	for _, word := range slices.Concat(env, []string{name}, args) {
		if strings.ContainsAny(word, " '\"") {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		fmt.Print(" ", word)
	}
	fmt.Println()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

// check looks at what wrap says of each call. A verdict says that the evidence is
// whole: of programs that failed, too.
func check(outcomes io.Reader) error {
	var have []int
	for lines := json.NewDecoder(outcomes); ; {
		var line struct {
			Call *struct {
				Steps []struct {
					ExitCode int `json:"exit_code"`
				}
			}
		}
		if err := lines.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("plimsoll-attest wrap: %w", err)
		}
		if line.Call != nil {
			for _, step := range line.Call.Steps {
				have = append(have, step.ExitCode)
			}
		}
	}
	if !slices.Equal(have, exitCodes) {
		return fmt.Errorf("the calls exited with %d, want %d", have, exitCodes)
	}
	return nil
}
