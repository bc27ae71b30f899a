package main

import (
	"fmt"
	"io"
	"os"

	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/cli"
)

// maxKeyFileBytes is one more than envelope.ParsePublicKeys takes.
const maxKeyFileBytes = 1<<20 + 1

// readPublicKeys reads the keys of all files, each key once.
func readPublicKeys(names []string) ([]*envelope.PublicKey, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("no public key given (--pub): a key that comes with a bundle proves nothing")
	}
	var keys []*envelope.PublicKey
	seen := make(map[string]bool)
	for _, name := range names {
		data, err := readBounded(name, maxKeyFileBytes)
		if err != nil {
			return nil, fmt.Errorf("--pub %s: %w", name, err)
		}
		inFile, err := envelope.ParsePublicKeys(data)
		if err != nil {
			return nil, fmt.Errorf("--pub %s: %w", name, err)
		}
		for _, key := range inFile {
			if id := key.ID(); !seen[id] {
				seen[id] = true
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// readBounded reads up to limit bytes of a file.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, cli.FileError(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, cli.FileError(err)
	}
	return data, nil
}
