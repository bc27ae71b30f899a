package attest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/term"
)

var (
	// ErrNoPassphrase says that a key needs a passphrase and that there is
	// nowhere to get it from: no terminal, no file, no environment variable.
	ErrNoPassphrase = errors.New("no passphrase")
	// ErrWrongPassphrase says that a passphrase does not open its key.
	ErrWrongPassphrase = errors.New("wrong passphrase")
)

const (
	// PassphraseEnv names the environment variable that may hold a passphrase.
	PassphraseEnv = "PLIMSOLL_KEY_PASSPHRASE"

	maxPassphrase = 4096 // bytes
)

// A PassphraseFunc returns a passphrase in a slice of its own, which its caller
// overwrites after use. Its errors never hold any part of a passphrase.
type PassphraseFunc func() ([]byte, error)

// read calls f and refuses what is no passphrase.
func (f PassphraseFunc) read() ([]byte, error) {
	if f == nil {
		return nil, ErrNoPassphrase
	}
	p, err := f()
	switch {
	case err != nil:
		return nil, err
	case len(p) == 0:
		return nil, errors.New("the passphrase is empty")
	case len(p) > maxPassphrase:
		clear(p)
		return nil, fmt.Errorf("the passphrase has more than %d bytes", maxPassphrase)
	}
	return p, nil
}

// Passphrase returns where a program gets a key's passphrase from: the file, if
// one is named, else the environment variable PLIMSOLL_KEY_PASSPHRASE, if it is
// set, else the terminal, which asks twice if twice is true. What was chosen
// counts: an empty file or variable is an error, and no reason to ask elsewhere.
//
// The variable is read and removed when Passphrase is called, even if a file is
// named, so that no child process inherits it. File and terminal are opened when
// the passphrase is needed.
func Passphrase(file string, twice bool) PassphraseFunc {
	value, set := os.LookupEnv(PassphraseEnv)
	os.Unsetenv(PassphraseEnv)
	switch {
	case file != "":
		return filePassphrase(file)
	case set:
		return func() ([]byte, error) {
			if value == "" {
				return nil, fmt.Errorf("%s is empty", PassphraseEnv)
			}
			return []byte(value), nil
		}
	default:
		return terminalPassphrase(twice)
	}
}

// filePassphrase reads a file that is guarded like a key, less one newline at
// its end, which editors add.
func filePassphrase(path string) PassphraseFunc {
	return func() ([]byte, error) {
		data, err := readSecret(path, maxPassphrase+len("\r\n"))
		if err != nil {
			return nil, err
		}
		if rest, ok := bytes.CutSuffix(data, []byte("\n")); ok {
			data = bytes.TrimSuffix(rest, []byte("\r"))
		}
		return data, nil
	}
}

// terminalPassphrase asks on the terminal of the process, not on its standard
// streams, which carry calls and run logs.
func terminalPassphrase(twice bool) PassphraseFunc {
	return func() ([]byte, error) {
		tty, err := openTerminal()
		if err != nil {
			return nil, fmt.Errorf("%w: no terminal to ask on, no --passphrase-file and %s not set", ErrNoPassphrase, PassphraseEnv)
		}
		defer tty.Close()
		first, err := tty.ask("Passphrase of the key: ")
		if err != nil || !twice {
			return first, err
		}
		second, err := tty.ask("The same passphrase again: ")
		defer clear(second)
		if err == nil && !bytes.Equal(first, second) {
			err = errors.New("the two passphrases differ")
		}
		if err != nil {
			clear(first)
			return nil, err
		}
		return first, nil
	}
}

// A terminal is the process's own. An abandoned one still has a read going on.
type terminal struct {
	in, out   *os.File
	abandoned bool
}

func openTerminal() (*terminal, error) {
	in, out := "/dev/tty", "/dev/tty"
	if runtime.GOOS == "windows" {
		in, out = "CONIN$", "CONOUT$"
	}
	i, err := os.OpenFile(in, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	o, err := os.OpenFile(out, os.O_WRONLY, 0)
	if err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return &terminal{in: i, out: o}, nil
}

func (t *terminal) Close() error {
	// The abandoned read would go on with whatever file gets the number next.
	if t.abandoned {
		return nil
	}
	return errors.Join(t.in.Close(), t.out.Close())
}

// ask prints the prompt and reads a line without echo.
func (t *terminal) ask(prompt string) ([]byte, error) {
	fd := int(t.in.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPassphrase, err)
	}
	// A program that handles interrupts would go on waiting for the line here,
	// and one that does not would die and leave the terminal without echo.
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(interrupt)

	if _, err := t.out.WriteString(prompt); err != nil {
		return nil, err
	}
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := term.ReadPassword(fd)
		runtime.KeepAlive(t) // and with it its files open
		read <- result{line, err}
	}()
	select {
	case r := <-read:
		t.out.WriteString("\n")
		if r.err != nil {
			return nil, fmt.Errorf("no passphrase was typed: %w", r.err)
		}
		return r.line, nil
	case <-interrupt:
		t.abandoned = true
		t.out.WriteString("\n")
		return nil, errors.Join(errors.New("interrupted at the passphrase"), term.Restore(fd, state))
	}
}
