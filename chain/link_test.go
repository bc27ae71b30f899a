package chain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/plimsoll-attest/plimsoll/chain"
	"github.com/plimsoll-attest/plimsoll/statement"
)

func TestPositionCheck(t *testing.T) {
	before, entry := strings.Repeat("1", 64), strings.Repeat("2", 64)
	at := chain.Position{Lines: 4, Digest: before}
	call := &chain.ParsedLine{Line: chain.Line{Request: []byte{1}}, EntryDigest: entry}
	bare := &chain.ParsedLine{EntryDigest: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}
	for name, c := range map[string]struct {
		at   chain.Position
		link statement.Link
		line *chain.ParsedLine
		ok   bool
	}{
		"entry":                        {at, statement.Link{Index: 5, PreviousSHA256: before, EntrySHA256: entry}, call, true},
		"checkpoint":                   {at, statement.Link{Index: 5, PreviousSHA256: before, Checkpoint: true, Lines: 4}, bare, true},
		"first entry":                  {chain.Position{}, statement.Link{Index: 1, EntrySHA256: entry}, call, true},
		"first checkpoint":             {chain.Position{}, statement.Link{Index: 1, Checkpoint: true}, bare, true},
		"index one less":               {at, statement.Link{Index: 4, PreviousSHA256: before, EntrySHA256: entry}, call, false},
		"index one more":               {at, statement.Link{Index: 6, PreviousSHA256: before, EntrySHA256: entry}, call, false},
		"index 0":                      {at, statement.Link{PreviousSHA256: before, EntrySHA256: entry}, call, false},
		"another line before":          {at, statement.Link{Index: 5, PreviousSHA256: entry, EntrySHA256: entry}, call, false},
		"no line before":               {at, statement.Link{Index: 5, EntrySHA256: entry}, call, false},
		"a line before the first":      {chain.Position{}, statement.Link{Index: 1, PreviousSHA256: before, EntrySHA256: entry}, call, false},
		"another entry":                {at, statement.Link{Index: 5, PreviousSHA256: before, EntrySHA256: before}, call, false},
		"entry in capitals":            {at, statement.Link{Index: 5, PreviousSHA256: strings.ToUpper(before), EntrySHA256: "A"}, call, false},
		"no entry digest":              {at, statement.Link{Index: 5, PreviousSHA256: before}, call, false},
		"lines on an entry":            {at, statement.Link{Index: 5, PreviousSHA256: before, EntrySHA256: entry, Lines: 4}, call, false},
		"checkpoint counting less":     {at, statement.Link{Index: 5, PreviousSHA256: before, Checkpoint: true, Lines: 3}, bare, false},
		"checkpoint counting itself":   {at, statement.Link{Index: 5, PreviousSHA256: before, Checkpoint: true, Lines: 5}, bare, false},
		"checkpoint counting nothing":  {at, statement.Link{Index: 5, PreviousSHA256: before, Checkpoint: true}, bare, false},
		"checkpoint naming an entry":   {at, statement.Link{Index: 5, PreviousSHA256: before, EntrySHA256: entry, Checkpoint: true, Lines: 4}, bare, false},
		"checkpoint beside a request":  {at, statement.Link{Index: 5, PreviousSHA256: before, Checkpoint: true, Lines: 4}, call, false},
		"first checkpoint counts more": {chain.Position{}, statement.Link{Index: 1, Checkpoint: true, Lines: 1}, bare, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.at.Check(c.link, c.line); (err == nil) != c.ok || err != nil && !errors.Is(err, chain.ErrLink) {
				t.Fatalf("have %v, want accepted %v", err, c.ok)
			}
		})
	}
}
