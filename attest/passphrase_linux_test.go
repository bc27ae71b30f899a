package attest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const askEnv = "ATTEST_TEST_ASK"

// TestAskingProgram is no test but, when the tests below start this binary
// again, the program that asks: a terminal belongs to a session, so it takes a
// process of its own.
func TestAskingProgram(t *testing.T) {
	mode := os.Getenv(askEnv)
	if mode == "" {
		return
	}
	p, err := Passphrase("", mode == "twice").read()
	fmt.Printf("%q %v %v\n", p, errors.Is(err, ErrNoPassphrase), err)
	os.Exit(0)
}

func askingProgram(mode string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestAskingProgram$")
	// A program built with -race waits a second before it exits, unless told.
	cmd.Env = append(os.Environ(), askEnv+"="+mode, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// openPTY returns the two ends of a new terminal.
func openPTY(t *testing.T) (user, tty *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { tty.Close() })
	return user, tty
}

// ask runs the asking program on a terminal where the user types each of typed
// after one prompt. It returns the program's answer and what the screen showed.
func ask(t *testing.T, mode string, typed ...string) (answer, screen string) {
	t.Helper()
	user, tty := openPTY(t)
	cmd := askingProgram(mode)
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.ExtraFiles = []*os.File{tty}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	defer kill.Stop()

	shown := make(chan string)
	go func() {
		defer close(shown)
		buf := make([]byte, 256)
		for {
			n, err := user.Read(buf)
			if err != nil {
				return
			}
			shown <- string(buf[:n])
		}
	}()
	for _, line := range typed {
		for s := range shown {
			if screen += s; strings.HasSuffix(screen, ": ") {
				break
			}
		}
		// The prompt is printed just before echo is turned off.
		for range 200 {
			if tio, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err == nil && tio.Lflag&unix.ECHO == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := io.WriteString(user, line); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-shown:
			screen += s
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if tio, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err != nil || tio.Lflag&unix.ECHO == 0 {
				t.Errorf("the terminal is left without echo (%v)", err)
			}
			return out.String(), screen
		}
	}
}

func TestPassphrasePrompt(t *testing.T) {
	for _, tt := range []struct {
		name, mode string
		typed      []string
		want       string
	}{
		{"once", "once", []string{"secret\n"}, `"secret" false <nil>`},
		{"twice", "twice", []string{"secret\n", "secret\n"}, `"secret" false <nil>`},
		{"different", "twice", []string{"secret\n", "secreT\n"}, `"" false the two passphrases differ`},
		{"empty", "once", []string{"\n"}, `"" false the passphrase is empty`},
		{"interrupt", "once", []string{"sec\x03"}, `"" false interrupted at the passphrase`},
		{"interrupt at the second", "twice", []string{"secret\n", "\x03"}, `"" false interrupted at the passphrase`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer, screen := ask(t, tt.mode, tt.typed...)
			if strings.TrimSpace(answer) != tt.want {
				t.Errorf("have %q, want %q", answer, tt.want)
			}
			if strings.Contains(screen, "sec") {
				t.Errorf("the screen shows %q", screen)
			}
			if have := strings.Count(screen, ": "); have != len(tt.typed) {
				t.Errorf("%d prompts in %q, want %d", have, screen, len(tt.typed))
			}
		})
	}
}

func TestPassphraseWithoutTerminal(t *testing.T) {
	cmd := askingProgram("once")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if have, want := string(out), `"" true no passphrase: no terminal to ask on`; !strings.HasPrefix(have, want) {
		t.Errorf("have %q, want %q…", have, want)
	}
}
