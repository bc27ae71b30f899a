package main

import (
	"bufio"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
)

func testStreams() *streams {
	return &streams{in: strings.NewReader(""), out: bufio.NewWriter(io.Discard), err: io.Discard}
}

func TestNormalise(t *testing.T) {
	for _, c := range []struct{ have, want string }{
		{"", ""},
		{"verify", "verify"},
		{"verify -pub p b", "verify --pub p b"},
		{"verify --pub p b", "verify --pub p b"},
		{"verify -pub=p -expect-ids=a,b b", "verify --pub=p --expect-ids=a,b b"},
		{"verify b -pub p", "verify b --pub p"},
		{"verify -unlinked b", "verify --unlinked b"},
		{"verify -unlinked -pub p", "verify --unlinked --pub p"},
		{"verify -help", "verify --help"},
		{"verify -h", "verify -h"},
		{"-help", "--help"},
		// A value is nobody's flag, however it looks.
		{"verify --pub -pub b", "verify --pub -pub b"},
		{"verify -pub -pub -pub p", "verify --pub -pub --pub p"},
		{"sign --key k --bundle -x", "sign --key k --bundle -x"},
		{"sign -bundle -key -key k", "sign --bundle -key --key k"},
		{"verify -pub -- -unlinked", "verify --pub -- --unlinked"},
		// After "--" nothing is a flag.
		{"verify -pub p -- -pub", "verify --pub p -- -pub"},
		{"verify -- -pub", "verify -- -pub"},
		// Unknown flags, other commands' flags and standard input stay.
		{"verify -nosuch -pub p", "verify -nosuch --pub p"},
		{"verify -bundle b", "verify -bundle b"},
		{"verify -pub p -", "verify --pub p -"},
		{"verify ---pub p", "verify ---pub p"},
		{"nosuch -pub p", "nosuch -pub p"},
		{"__complete verify -pub", "__complete verify -pub"},
		{"verify -pub", "verify --pub"},
	} {
		have := strings.Join(cli.Normalise(newRoot(testStreams()), strings.Fields(c.have)), " ")
		if have != c.want {
			t.Errorf("%s: have %s, want %s", c.have, have, c.want)
		}
	}
}

// FuzzNormalise: arguments are neither lost nor added, and change by one dash
// at most, in front of a known flag.
func FuzzNormalise(f *testing.F) {
	f.Add("verify\x00-pub\x00p\x00--\x00-pub")
	f.Add("sign\x00-bundle\x00-key\x00-key=k")
	f.Add("-\x00-")
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		have := cli.Normalise(newRoot(testStreams()), slices.Clone(args))
		if len(have) != len(args) {
			t.Fatalf("%q became %q", args, have)
		}
		ended := false
		for i := range args {
			if ended && have[i] != args[i] || have[i] != args[i] && have[i] != "-"+args[i] {
				t.Fatalf("%q became %q", args, have)
			}
			// A "--" may also be the value of the flag before it.
			ended = ended || args[i] == "--" && (i == 0 || !strings.HasPrefix(args[i-1], "-"))
		}
		if again := cli.Normalise(newRoot(testStreams()), slices.Clone(have)); !slices.Equal(again, have) {
			t.Fatalf("%q became %q and then %q", args, have, again)
		}
	})
}
