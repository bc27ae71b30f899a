package verify

import (
	"fmt"
	"strconv"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
)

// A State remembers the verified end of a bundle. A bundle that is cut back to
// an earlier checkpoint is whole in itself; one that must extend its remembered
// end cannot be cut.
type State struct {
	Lines  uint64 // lines of the bundle
	Digest string // of the last line, 64 lower-case hex digits
	KeyID  string
}

const stateSchema = "plimsoll.verify-state/v1"

type stateJSON struct {
	Schema string `json:"schema"`
	Lines  uint64 `json:"lines"`
	Digest string `json:"digest"`
	KeyID  string `json:"key_id"`
}

// MaxStateBytes bounds a state file.
const MaxStateBytes = 4096

// ParseState reads what FormatState wrote.
func ParseState(data []byte) (*State, error) {
	if len(data) > MaxStateBytes {
		return nil, fmt.Errorf("state: longer than %d bytes", MaxStateBytes)
	}
	var s stateJSON
	if err := strictjson.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	switch {
	case s.Schema != stateSchema:
		return nil, fmt.Errorf("state: schema: have %s, want %s", mismatch.Show(s.Schema), stateSchema)
	case s.Lines == 0 || !isDigest(s.Digest) || !isDigest(s.KeyID):
		return nil, fmt.Errorf("state: lines, digest or key_id is not one")
	}
	return &State{Lines: s.Lines, Digest: s.Digest, KeyID: s.KeyID}, nil
}

// FormatState returns the text of a state file.
func FormatState(s *State) []byte {
	return fmt.Appendf(nil, `{"schema":%q,"lines":%d,"digest":%q,"key_id":%q}`+"\n", stateSchema, s.Lines, s.Digest, s.KeyID)
}

// check compares the remembered end with a bundle of the given length and key.
// found is the digest of the line at s.Lines.
func (s *State) check(lines uint64, keyID, found string) error {
	switch {
	case keyID != s.KeyID:
		return mismatch.New(ErrState, "signed by another key than before", keyID, s.KeyID)
	case lines < s.Lines:
		return mismatch.New(ErrState, "shorter than when last verified",
			strconv.FormatUint(lines, 10)+" lines", strconv.FormatUint(s.Lines, 10)+" or more")
	case found != s.Digest:
		return mismatch.New(ErrState, "not the line that was last verified", found, s.Digest)
	}
	return nil
}
