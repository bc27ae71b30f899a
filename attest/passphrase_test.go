package attest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPassphraseFile(t *testing.T) {
	for name, tt := range map[string]struct{ data, want string }{
		"plain":             {"secret", "secret"},
		"newline":           {"secret\n", "secret"},
		"CR LF":             {"secret\r\n", "secret"},
		"one newline":       {"secret\n\n", "secret\n"},
		"spaces":            {" se cret \n", " se cret "},
		"not text":          {"\x00\xff\n", "\x00\xff"},
		"CR":                {"secret\r", "secret\r"},
		"at the limit":      {strings.Repeat("x", maxPassphrase) + "\r\n", strings.Repeat("x", maxPassphrase)},
		"over the limit":    {strings.Repeat("x", maxPassphrase+1), ""},
		"far over":          {strings.Repeat("x", 1<<16), ""},
		"empty":             {"", ""},
		"a newline alone":   {"\n", ""},
		"a CR LF pair":      {"\r\n", ""},
		"limit and newline": {strings.Repeat("x", maxPassphrase) + "\n\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := Passphrase(writeFile(t, []byte(tt.data), 0o600), false).read()
			if (err != nil) != (tt.want == "") || string(have) != tt.want {
				t.Errorf("have %.20q, %v, want %.20q", have, err, tt.want)
			}
			if errors.Is(err, ErrNoPassphrase) {
				t.Errorf("have %v, want an error about the file", err)
			}
		})
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o601} {
		if _, err := Passphrase(writeFile(t, []byte("secret"), mode), false)(); hasModes && err == nil {
			t.Errorf("mode %04o: no error", mode)
		}
	}
	if _, err := Passphrase(filepath.Join(t.TempDir(), "none"), false)(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: have %v, want ErrNotExist", err)
	}
}

func TestPassphraseEnv(t *testing.T) {
	t.Setenv(PassphraseEnv, "secret")
	p := Passphrase("", false)
	if v, set := os.LookupEnv(PassphraseEnv); set {
		t.Errorf("still set, to %q", v)
	}
	for range 2 { // a caller overwrites what it got
		have, err := p.read()
		if err != nil || string(have) != "secret" {
			t.Fatalf("have %q, %v", have, err)
		}
		clear(have)
	}

	t.Setenv(PassphraseEnv, "")
	if _, err := Passphrase("", false).read(); err == nil || errors.Is(err, ErrNoPassphrase) {
		t.Errorf("empty: have %v, want an error of its own", err)
	}

	t.Setenv(PassphraseEnv, "secret")
	if have, err := Passphrase(writeFile(t, []byte("from the file"), 0o600), false).read(); err != nil || string(have) != "from the file" {
		t.Errorf("file and variable: have %q, %v", have, err)
	}
	if slices.ContainsFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, PassphraseEnv) }) {
		t.Error("the variable is left to child processes")
	}
}
