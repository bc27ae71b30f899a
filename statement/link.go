package statement

import (
	"strconv"

	"github.com/plimsoll-attest/plimsoll/internal/strictjson"
)

// A Link is the bundle-link statement: it fixes a line's place in its bundle.
// An entry link names the entry's digest; a checkpoint link says how many lines
// stand before it.
type Link struct {
	Index          uint64 `json:"index"`           // the line's number, from 1
	PreviousSHA256 string `json:"previous_sha256"` // the whole line before; empty on line 1
	EntrySHA256    string `json:"entry_sha256"`    // this line without its link
	Checkpoint     bool   `json:"checkpoint"`
	Lines          uint64 `json:"lines"`
}

// ParseLink reads a bundle-link payload. Errors wrap ErrStatement. That the
// link is right for its line, and has the members its sort of line has, is
// the chain's to check.
func ParseLink(payload []byte) (Link, error) {
	var l Link
	if !named(payload, bundleLinkSubject) {
		return Link{}, unknown(payload, BundleLinkType)
	}
	write := func(dst []byte) []byte { return AppendLink(dst, l) }
	var ok bool
	if l, ok = scanLink(payload); ok && exact(payload, write) == nil {
		return l, nil
	}
	if err := decode(payload, BundleLinkType, &l); err != nil {
		return Link{}, err
	}
	if err := exact(payload, write); err != nil {
		return Link{}, err
	}
	return l, nil
}

// AppendLink appends the bundle-link statement of l. Its subject is the entry,
// of a checkpoint the line before.
func AppendLink(dst []byte, l Link) []byte {
	about := l.EntrySHA256
	if l.Checkpoint {
		about = l.PreviousSHA256
	}
	dst = appendStart(dst, bundleLinkSubject, about, BundleLinkType)
	dst = append(dst, `"index":`...)
	dst = strconv.AppendUint(dst, l.Index, 10)
	dst = append(dst, `,"previous_sha256":`...)
	dst = strictjson.AppendString(dst, l.PreviousSHA256)
	if l.EntrySHA256 != "" {
		dst = append(dst, `,"entry_sha256":`...)
		dst = strictjson.AppendString(dst, l.EntrySHA256)
	}
	if l.Checkpoint {
		dst = append(dst, `,"checkpoint":true`...)
	}
	if l.Lines != 0 {
		dst = append(dst, `,"lines":`...)
		dst = strconv.AppendUint(dst, l.Lines, 10)
	}
	return appendEnd(dst)
}
