// Package deptest is a test helper for the rule that arrows between packages
// point one way: it fails a test when a package imports or reaches one it must
// not.
//
// It sees what a static build for Linux compiles, whatever the platform of the
// test, and leaves test files out: a test may import anything.
package deptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	module = "github.com/plimsoll-attest/plimsoll"

	// listTimeout bounds go list, which may have to fetch modules first.
	listTimeout = 5 * time.Minute
)

// MustNotReach fails t when pkg imports a package of forbidden, directly or
// through others. A value of forbidden is the reason, and is printed.
//
// Packages of this module are named by their folder ("runner/local"), all
// others by import path. A forbidden name covers the packages below it too. A
// pkg whose folder holds no Go file is a package to come and breaks no rule.
func MustNotReach(t testing.TB, pkg string, forbidden map[string]string) {
	t.Helper()
	g, err := load()
	if err != nil {
		t.Fatalf("package graph: %v", err)
	}
	for _, f := range g.mustNotReach(pkg, forbidden) {
		t.Errorf("%s", f)
	}
}

// MustImportOnly fails t when a package of this module imports another one of
// ours that its row of table does not name, or when it has no row at all. The
// names in everywhere may be imported by all. A row whose folder holds no Go
// file is a package to come.
func MustImportOnly(t testing.TB, table map[string][]string, everywhere ...string) {
	t.Helper()
	g, err := load()
	if err != nil {
		t.Fatalf("package graph: %v", err)
	}
	for _, f := range g.mustImportOnly(table, everywhere) {
		t.Errorf("%s", f)
	}
}

// A graph maps each package to the packages it imports, with those of this
// module named by their folder.
type graph struct {
	imports map[string][]string
	ours    []string // the folders of this module that hold Go files, sorted
}

var load = sync.OnceValues(func() (graph, error) {
	root, err := moduleRoot()
	if err != nil {
		return graph{}, err
	}
	// Reading the folders also tells go test what this result depends on: the
	// files that go list reads are not seen, and a pass would stay cached.
	ours, err := goFolders(root)
	if err != nil {
		return graph{}, err
	}
	imports, err := listImports(root)
	if err != nil {
		return graph{}, err
	}
	for _, pkg := range ours {
		if _, ok := imports[pkg]; !ok {
			return graph{}, fmt.Errorf("%s holds Go files that no Linux build compiles", pkg)
		}
	}
	return graph{imports, ours}, nil
})

func (g graph) mustNotReach(pkg string, forbidden map[string]string) []string {
	if _, ok := g.imports[pkg]; !ok {
		return nil
	}
	var found []string
	from := g.reach(pkg)
	for _, name := range slices.Sorted(maps.Keys(forbidden)) {
		for _, reached := range slices.Sorted(maps.Keys(from)) {
			if reached == pkg || reached != name && !strings.HasPrefix(reached, name+"/") {
				continue
			}
			found = append(found, fmt.Sprintf("%s reaches %s: %s (%s)",
				pkg, reached, forbidden[name], strings.Join(path(from, reached), " -> ")))
			break // the packages below add nothing
		}
	}
	return found
}

func (g graph) mustImportOnly(table map[string][]string, everywhere []string) []string {
	var found []string
	for _, pkg := range g.ours {
		allowed, ok := table[pkg]
		if !ok {
			found = append(found, fmt.Sprintf("%s has no row in the import table", pkg))
			continue
		}
		for _, imported := range g.imports[pkg] {
			if !slices.Contains(g.ours, imported) ||
				slices.Contains(allowed, imported) || slices.Contains(everywhere, imported) {
				continue
			}
			found = append(found, fmt.Sprintf("%s imports %s, which its row in the import table does not name", pkg, imported))
		}
	}
	return found
}

// reach maps every package that pkg reaches, and pkg, to the one that leads to
// it on a shortest way.
func (g graph) reach(pkg string) map[string]string {
	from := map[string]string{pkg: ""}
	for queue := []string{pkg}; len(queue) > 0; queue = queue[1:] {
		for _, imported := range g.imports[queue[0]] {
			if _, seen := from[imported]; !seen {
				from[imported] = queue[0]
				queue = append(queue, imported)
			}
		}
	}
	return from
}

func path(from map[string]string, to string) []string {
	var way []string
	for ; to != ""; to = from[to] {
		way = append(way, to)
	}
	slices.Reverse(way)
	return way
}

// listImports returns the imports of every package that a build of this module
// needs.
func listImports(root string) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-deps",
		"-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"/...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	imports := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		for i, name := range names {
			if name == module {
				name = "."
			}
			names[i] = strings.TrimPrefix(name, module+"/")
		}
		imports[names[0]] = names[1:]
	}
	return imports, nil
}

// goFolders returns the folders below root that hold Go files other than tests,
// relative to root, with slashes, sorted.
func goFolders(root string) ([]string, error) {
	var folders []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || name == root:
			return err
		case d.IsDir():
			if d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir // another module
			}
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			rel, err := filepath.Rel(root, filepath.Dir(name))
			if err != nil {
				return err
			}
			folders = append(folders, filepath.ToSlash(rel))
		}
		return nil
	})
	slices.Sort(folders)
	return slices.Compact(folders), err
}

// moduleRoot returns the nearest folder above the test's own with a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir || !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("module root: %w", err)
		}
		dir = parent
	}
}
