package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/mismatch"
)

// Expected is a caller's own list of calls: request digests or trace IDs, each
// as often as the caller made such a call (docs/bundle-format.md, "The caller's
// list"). Links prove that a bundle is all that was written; only a list proves
// that it is all that was called.
type Expected struct {
	items   map[string]int
	count   int
	digests int // how many of count are digests
}

// The bounds of a list. One item is a digest or a trace ID, with a label.
const (
	maxExpectLine  = 64 << 10
	maxExpectItems = 10_000_000
)

// ParseExpected reads a list: one item a line, followed after a space or tab by
// a label that means nothing; blank lines mean nothing. Spaces and tabs at the
// start of a line and a carriage return at its end are dropped, and no other
// white space: an item is compared byte by byte.
func ParseExpected(r io.Reader) (*Expected, error) {
	e := new(Expected)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxExpectLine)
	for n := 1; lines.Scan(); n++ {
		item := strings.TrimLeft(lines.Text(), " \t") // Scan drops the carriage return
		if label := strings.IndexAny(item, " \t"); label >= 0 {
			item = item[:label]
		}
		if item == "" {
			continue
		}
		if e.count == maxExpectItems {
			return nil, fmt.Errorf("line %d: more than %d items", n, maxExpectItems)
		}
		e.add(item)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("a line is longer than %d bytes", maxExpectLine)
	} else if err != nil {
		return nil, err
	}
	return e, nil
}

// NewExpected returns the list of these items.
func NewExpected(items []string) *Expected {
	e := new(Expected)
	for _, item := range items {
		e.add(item)
	}
	return e
}

func (e *Expected) add(item string) {
	if e.items == nil {
		e.items = make(map[string]int)
	}
	e.items[item]++
	e.count++
	if isDigest(item) {
		e.digests++
	}
}

// Len returns how many calls the list names.
func (e *Expected) Len() int { return e.count }

// Kind says what the list holds: "request digests", "trace IDs" or "no items".
func (e *Expected) Kind() string {
	switch {
	case e.count == 0:
		return "no items"
	case e.digests > 0:
		return "request digests"
	}
	return "trace IDs"
}

// isDigest reports whether an item is 64 lower-case hex digits.
func isDigest(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// A tally compares the calls of a bundle with a list, as multisets.
type tally struct {
	list       *Expected
	left       map[string]int // what is still to come
	unexpected []string       // the first few calls not on the list
	surplus    int            // how many there are of those
}

const maxNamed = 3

func newTally(list *Expected) *tally {
	return &tally{list: list, left: maps.Clone(list.items)}
}

// call counts one call.
func (t *tally) call(line uint64, traceID, requestDigest string) {
	item := traceID
	if t.list.digests > 0 {
		item = requestDigest
	}
	if item != "" && t.left[item] > 0 {
		t.left[item]--
		return
	}
	if t.surplus++; t.surplus <= maxNamed {
		if item == "" {
			item = "a call without a trace ID"
		}
		t.unexpected = append(t.unexpected, fmt.Sprintf("%s (line %d)", mismatch.Show(item), line))
	}
}

// result returns an error wrapping ErrExpect when the calls are not the list.
func (t *tally) result() error {
	if d := t.list.digests; d > 0 && d != t.list.count {
		return mismatch.New(ErrExpect, "the list mixes request digests and trace IDs",
			fmt.Sprintf("%d digests, %d others", d, t.list.count-d), "one kind")
	}
	var missing []string // the first few by name, of what may be millions
	lacking := 0
	for item, n := range t.left {
		if n == 0 {
			continue
		}
		lacking += n
		at, _ := slices.BinarySearch(missing, item)
		missing = slices.Insert(missing, at, item)
		missing = missing[:min(len(missing), maxNamed)]
	}
	for i, item := range missing {
		missing[i] = mismatch.Show(item)
	}
	if lacking == 0 && t.surplus == 0 {
		return nil
	}
	var what []string
	if lacking > 0 {
		what = append(what, fmt.Sprintf("%d listed and not in the bundle: %s", lacking, named(missing, lacking)))
	}
	if t.surplus > 0 {
		what = append(what, fmt.Sprintf("%d in the bundle and not listed: %s", t.surplus, named(t.unexpected, t.surplus)))
	}
	return mismatch.New(ErrExpect, "the calls are not the caller's list: "+strings.Join(what, "; "),
		fmt.Sprintf("%d calls", t.list.count-lacking+t.surplus), fmt.Sprintf("the %d listed", t.list.count))
}

func named(items []string, total int) string {
	s := strings.Join(items, ", ")
	if len(items) < total {
		s += ", …"
	}
	return s
}
