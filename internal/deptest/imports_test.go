package deptest_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/plimsoll-attest/plimsoll/internal/deptest"
)

// importTable says which packages of ours each package may import. Arrows point
// from the later rows to the earlier ones only.
var importTable = map[string][]string{
	"record":    nil,
	"call":      {"record"},
	"statement": {"record"},
	"envelope":  nil,
	"runlog":    {"record", "statement"},
	"chain":     {"statement", "envelope"},
	"verify":    {"chain", "statement", "envelope", "record"},
	"attest":    {"verify", "chain", "statement", "envelope", "record", "runlog", "call", "internal/filelock", "internal/confine", "internal/hostnode"},

	"runner/openshell/openshellb": nil,
	"runner/openshell":            {"runner/openshell/openshellb"},
	"runner/local":                {"runner/openshell", "runner/openshell/openshellb", "internal/hostnode"},
	"runner":                      {"runlog", "call", "record", "statement", "runner/openshell"},

	"cmd/plimsoll-attest": {"attest", "verify", "chain", "statement", "envelope", "record", "runlog", "call", "internal/filelock", "internal/cli"},
	"cmd/plimsoll-run":    {"runner", "runner/local", "runner/openshell", "runlog", "call", "record", "statement", "internal/cli"},

	// Examples of what others write. Nobody imports them.
	"examples/harness":  {"attest"},
	"examples/sessions": nil,

	"internal/cli":        nil,
	"internal/deptest":    nil,
	"internal/filelock":   nil,
	"internal/lines":      nil,
	"internal/mismatch":   nil,
	"internal/strictjson": nil,
	"internal/visible":    nil,
	"internal/confine":    nil,
	"internal/hostnode":   nil,

	// For tests only, as no row above names them: one signs with a published key.
	"internal/bundletest": {"chain", "statement", "envelope", "record"},
	"internal/genpack":    {"internal/bundletest", "chain", "statement", "envelope", "record"},

	// A gateway that tests script, and the generator of wire messages.
	"internal/gatewaytest": {"runner/openshell", "runner/openshell/openshellb"},
	"internal/genproto":    nil,
	"internal/asuser":      nil,
}

// forAll names the packages that every other may import; they import none of ours.
var forAll = []string{"internal/lines", "internal/mismatch", "internal/strictjson", "internal/visible"}

// holdsKeys names the packages that may touch a private key. A harness holds its
// own.
var holdsKeys = []string{"attest", "cmd/plimsoll-attest", "examples/harness"}

func TestImportTable(t *testing.T) {
	deptest.MustImportOnly(t, importTable, forAll...)
}

// TestSigningIsOutOfReach repeats what the table implies, so that an edit of
// one row cannot give the key away.
func TestSigningIsOutOfReach(t *testing.T) {
	for pkg, reason := range map[string]string{
		"runner":           "the runner carries hostile output through its memory and must never meet a key",
		"cmd/plimsoll-run": "the runner's process must never meet a key",
		"verify":           "a verdict needs public keys only",
	} {
		deptest.MustNotReach(t, pkg, map[string]string{"attest": reason})
	}
}

// TestKeyLibraries keeps what loads or uses private keys out of every package
// but attest. (golang.org/x/crypto/ssh itself comes with the DSSE types.)
func TestKeyLibraries(t *testing.T) {
	for _, pkg := range slices.Sorted(maps.Keys(importTable)) {
		if slices.Contains(holdsKeys, pkg) {
			continue
		}
		deptest.MustNotReach(t, pkg, map[string]string{
			"github.com/sigstore":                                         "signers and key files belong to attest",
			"golang.org/x/crypto/ssh/agent":                               "agents belong to attest",
			"github.com/youmark/pkcs8":                                    "private key files belong to attest",
			"github.com/secure-systems-lab/go-securesystemslib/encrypted": "encrypted keys belong to attest",
		})
	}
}
