// Command genpack writes the conformance pack, testdata/bundles, and the run log
// of the demo, testdata/runlog/demo.jsonl. From the root of the repository:
//
//	go run ./internal/genpack
//
// It uses fixed seeds and times, and overwrites what is there with the same
// bytes. A bundle of the pack that was published is never changed: what is new
// gets a new vector. The verdicts are written by hand, from the format; genpack
// does not ask the verifier.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() { os.Exit(run()) }

func run() int {
	dir := flag.String("dir", "testdata", "the folder to write bundles/ and runlog/ into")
	flag.Parse()
	if err := write(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "genpack:", err)
		return 1
	}
	return 0
}

// write writes all files below dir. It leaves other files alone.
func write(dir string) error {
	files, err := generate()
	if err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the content of every file by its path below testdata.
func generate() (map[string][]byte, error) {
	p := newPack()
	for _, group := range []func(*pack){
		accepted, chains, envelopes, files, links, lines, keys, stored, unlinked, lists,
		fileBytes, base64s, signatures, json, moved, numbers, options, version4, messages,
	} {
		group(p)
	}
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	files["runlog/demo.jsonl"] = demo()
	return files, nil
}
