//go:build linux

package local

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// guestUID is the user and group that code runs as.
const guestUID = 1500

// The paths that gVisor always provides: a policy has to name them.
var ownPaths = []string{"/dev/urandom", "/proc"}

// policyFault says in which way a policy is not one that the mount table of a
// sandbox enforces exactly; nothing for one that it does. The readable paths are
// those the gateway can mount.
func policyFault(policy *pb.SandboxPolicy, readable []string) string {
	switch {
	case policy == nil:
		return "policy: missing"
	case policy.Version != 1:
		return fmt.Sprintf("policy.version: have %d, want 1", policy.Version)
	case len(policy.NetworkPolicies) > 0:
		return "policy.network_policies: there is no network, so there can be no rule"
	case len(policy.NetworkMiddlewares) > 0:
		return "policy.network_middlewares: there is no network, so there can be none"
	case policy.Filesystem == nil:
		return "policy.filesystem: missing"
	case policy.Filesystem.IncludeWorkdir:
		return "policy.filesystem.include_workdir: must be false"
	case policy.Landlock.GetCompatibility() != "":
		return fmt.Sprintf("policy.landlock.compatibility: have %q, want none: the mount table enforces the policy, not Landlock", policy.Landlock.GetCompatibility())
	case policy.Process.GetRunAsUser() != "1500":
		return fmt.Sprintf("policy.process.run_as_user: have %q, want 1500", policy.Process.GetRunAsUser())
	case policy.Process.GetRunAsGroup() != "1500":
		return fmt.Sprintf("policy.process.run_as_group: have %q, want 1500", policy.Process.GetRunAsGroup())
	}
	if pb.HasUnknown(policy.ProtoReflect()) {
		return "policy: has fields that this gateway does not know"
	}
	write := slices.Sorted(slices.Values(policy.Filesystem.ReadWrite))
	if !slices.Equal(write, []string{"/dev/null", "/tmp"}) {
		return fmt.Sprintf("policy.filesystem.read_write: have %q, want /dev/null and /tmp", policy.Filesystem.ReadWrite)
	}
	read := slices.Sorted(slices.Values(policy.Filesystem.ReadOnly))
	for i, path := range read {
		switch {
		case i > 0 && read[i-1] == path:
			return fmt.Sprintf("policy.filesystem.read_only: %s twice", path)
		case !slices.Contains(readable, path):
			return fmt.Sprintf("policy.filesystem.read_only: %.200q cannot be mounted here", path)
		}
	}
	for _, path := range ownPaths {
		if !slices.Contains(read, path) {
			return fmt.Sprintf("policy.filesystem.read_only: %s is always readable and has to be named", path)
		}
	}
	return ""
}

// policyHash is the digest by which the API names a policy: SHA-256 over its
// encoding in field order without the two maps, then the maps, empty here. The
// encoding is written out because the protobuf library promises no byte order.
func policyHash(policy *pb.SandboxPolicy) string {
	var p []byte
	tag := func(b []byte, field int, value []byte) []byte {
		b = append(b, byte(field<<3|2))
		b = binary.AppendUvarint(b, uint64(len(value)))
		return append(b, value...)
	}
	text := func(b []byte, field int, value string) []byte {
		if value == "" {
			return b
		}
		return tag(b, field, []byte(value))
	}
	if policy.Version != 0 {
		p = binary.AppendUvarint(append(p, 1<<3), uint64(policy.Version))
	}
	if fs := policy.Filesystem; fs != nil {
		var b []byte
		if fs.IncludeWorkdir {
			b = append(b, 1<<3, 1)
		}
		for _, path := range fs.ReadOnly {
			b = tag(b, 2, []byte(path))
		}
		for _, path := range fs.ReadWrite {
			b = tag(b, 3, []byte(path))
		}
		p = tag(p, 2, b)
	}
	if policy.Landlock != nil {
		p = tag(p, 3, text(nil, 1, policy.Landlock.Compatibility))
	}
	if policy.Process != nil {
		p = tag(p, 4, text(text(nil, 1, policy.Process.RunAsUser), 2, policy.Process.RunAsGroup))
	}
	var b []byte
	b = append(binary.LittleEndian.AppendUint64(b, uint64(len(p))), p...)
	for _, name := range []string{"network_policies", "network_middlewares"} {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(name))), name...)
		b = binary.LittleEndian.AppendUint64(b, 0)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
