//go:build unix

// Package cigate tests the gate for CI.
package cigate

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const seed = "../../testdata/seed-session/"

func write(t *testing.T, name string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, text, mode); err != nil {
		t.Fatal(err)
	}
}

// scene returns a folder of good and bad files, and the program.
func scene(t *testing.T) (dir, attest string) {
	t.Helper()
	attest = filepath.Join(t.TempDir(), "plimsoll-attest")
	build := exec.Command("go", "build", "-trimpath", "-o", attest, "../../cmd/plimsoll-attest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir = t.TempDir()
	bundle, err := os.ReadFile(seed + "bundle.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	pub, err := os.ReadFile(seed + "harness.pub")
	if err != nil {
		t.Fatal(err)
	}
	const list = "call-1\ncall-2\ncall-3\ncall-4\ncall-5\n"
	lines := bytes.SplitAfter(bundle, []byte("\n"))
	for name, text := range map[string]string{
		"bundle": string(bundle), "pub": string(pub), "list": list,
		"a bundle": string(bundle), "-pub": string(pub), "--list": list, "-": string(bundle),
		"empty": "", "blank": " \n\t\n\n", "text": "no such thing\n",
		"cut":    string(bytes.Join(append(lines[:1:1], lines[2:]...), nil)),
		"short":  strings.TrimSuffix(list, "call-5\n"),
		"longer": list + "call-6\n",
	} {
		write(t, filepath.Join(dir, name), []byte(text), 0o600)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "unreadable"), []byte(list), 0)
	for name, body := range map[string]string{"-killed": "kill -9 $$", "says 125": "exit 125"} {
		write(t, filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700)
	}
	return dir, attest
}

func TestGate(t *testing.T) {
	dir, attest := scene(t)
	gate, err := filepath.Abs("gate.sh")
	if err != nil {
		t.Fatal(err)
	}
	// The files are named by arguments, and then by the environment.
	good := [3]string{"bundle", "pub", "list"}
	variables := [3]string{"PLIMSOLL_BUNDLE", "PLIMSOLL_PUB", "PLIMSOLL_EXPECT"}
	type testCase struct {
		name, attest string
		files        [3]string
		status       int
		last         string // of standard error
	}
	cases := []testCase{
		{name: "good", files: good},
		{name: "spaces and dashes", files: [3]string{"a bundle", "-pub", "--list"}},
		{name: "a file of the name -", files: [3]string{"-", "pub", "list"}},
		{name: "absolute", files: [3]string{filepath.Join(dir, "bundle"), filepath.Join(dir, "pub"), filepath.Join(dir, "list")}},
		{"tampered", attest, [3]string{"cut", "pub", "list"}, 1, "./cut: refused"},
		{"a call that is not listed", attest, [3]string{"bundle", "pub", "short"}, 1, "./bundle: refused"},
		{"a call that is not there", attest, [3]string{"bundle", "pub", "longer"}, 1, "./bundle: refused"},
		{"no bundle at all", attest, [3]string{"text", "pub", "list"}, 1, "./text: refused"},
		{"no key at all", attest, [3]string{"bundle", "text", "list"}, 2, "./bundle: no verdict: verify has exit status 2"},
		{"a list without a call", attest, [3]string{"bundle", "pub", "blank"}, 2, "list of calls: ./blank: no call in it"},
		{"no program", filepath.Join(dir, "none"), good, 2, "plimsoll-attest: " + filepath.Join(dir, "none") + ": not found, or not executable"},
		{"program that is a folder", "./folder", good, 2, ""},
		{"program that is killed", "-killed", good, 2, "./bundle: no verdict: verify has exit status 137"},
		{"program with another status", "./says 125", good, 2, "./bundle: no verdict: verify has exit status 125"},
	}
	for i, what := range []string{"bundle", "public key", "list of calls"} {
		for _, c := range [][2]string{{"", "no " + what + " given"}, {"none", ": no such file"}, {"folder", ": not a regular file"}, {"empty", ": empty"}, {"unreadable", ": not readable"}} {
			if c[0] == "unreadable" && os.Geteuid() == 0 {
				continue // root reads it
			}
			files, last := good, c[1]
			if files[i] = c[0]; c[0] != "" {
				last = what + ": " + c[0] + c[1]
			}
			cases = append(cases, testCase{what + " " + c[0], attest, files, 2, last})
		}
	}
	cases = append(cases, testCase{"another program", "true", good, 2, ""})
	for _, c := range cases {
		for _, by := range []string{"arguments", "environment"} {
			t.Run(c.name+" by "+by, func(t *testing.T) {
				cmd := exec.Command("/bin/sh", gate)
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "PLIMSOLL_ATTEST=" + c.attest}
				if c.attest == "" { // that of PATH
					cmd.Env = []string{"PATH=" + filepath.Dir(attest) + string(filepath.ListSeparator) + os.Getenv("PATH")}
				}
				for i, file := range c.files {
					if by == "arguments" {
						cmd.Args = append(cmd.Args, file)
					} else if file != "" {
						cmd.Env = append(cmd.Env, variables[i]+"="+file)
					}
				}
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				_ = cmd.Run() // its status is looked at
				if have := cmd.ProcessState.ExitCode(); have != c.status {
					t.Errorf("have exit status %d, want %d\n%s%s", have, c.status, &stdout, &stderr)
				}
				if verified := strings.Contains(stdout.String(), `"verdict":"verified"`); verified != (c.status == 0) {
					t.Errorf("have %s", &stdout)
				}
				if have := stderr.String(); c.status != 0 && !strings.HasSuffix(have, "\n") || !strings.Contains(have, "gate: FAILED: "+c.last) && c.status != 0 {
					t.Errorf("have %q, want %q", have, c.last)
				}
			})
		}
	}
}
