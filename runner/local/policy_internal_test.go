//go:build linux

package local

import (
	"testing"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// The published vector of a policy's digest.
func TestPolicyHash(t *testing.T) {
	policy := &pb.SandboxPolicy{
		Version: 1,
		Filesystem: &pb.FilesystemPolicy{
			ReadOnly:  []string{"/bin", "/dev/urandom", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/usr"},
			ReadWrite: []string{"/dev/null", "/tmp"},
		},
		Landlock: &pb.LandlockPolicy{Compatibility: "hard_requirement"},
		Process:  &pb.ProcessPolicy{RunAsUser: "sandbox", RunAsGroup: "sandbox"},
	}
	const want = "5d1a2f7158f737ab55bb80af2c5d6233d838ef4ab8633fd900fe57fca58a4a30"
	if have := policyHash(policy); have != want {
		t.Errorf("have %s, want %s", have, want)
	}
}

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"256Mi": 256 << 20, "1G": 1e9, "64000000": 64e6, "1Gi": 1 << 30,
		"": 0, "Mi": 0, "-1Mi": 0, "1.5Gi": 0, "256MB": 0, "1i": 0, "9999999999999Ti": 0, "0": 0, "1 Mi": 0,
	} {
		if have, ok := parseMemory(text); have != want || ok != (want > 0) {
			t.Errorf("%q: have %d %v, want %d", text, have, ok, want)
		}
	}
}
