//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

var library = regexp.MustCompile(`(/\S+) \(0x`)

// writeImage makes an image layout of some of the host's programs, with the
// libraries they need, and returns the digest of its configuration.
func writeImage(t *testing.T, dir string, programs map[string]string) string {
	t.Helper()
	files := make(map[string]string) // in the image, by their place on the host
	for place, name := range programs {
		found, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		files[place] = found
		out, err := exec.CommandContext(t.Context(), "ldd", found).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", found, err)
		}
		for _, m := range library.FindAllStringSubmatch(string(out), -1) {
			files[m[1]] = m[1]
		}
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	folders := map[string]bool{"/": true}
	var folder func(string)
	folder = func(path string) {
		if folders[path] {
			return
		}
		folder(filepath.Dir(path))
		folders[path] = true
		if err := w.WriteHeader(&tar.Header{Name: path[1:] + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	for place, source := range files {
		folder(filepath.Dir(place))
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteHeader(&tar.Header{Name: place[1:], Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = runtime.GOOS, runtime.GOARCH
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendImage(image)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// TestImage: records state the image, and what it lacks is named and runs nowhere.
func TestImage(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := filepath.Join(t.TempDir(), "image")
	digest := writeImage(t, dir, map[string]string{
		"/bin/sh": "sh", "/usr/bin/env": "env", "/usr/bin/mkdir": "mkdir", "/usr/bin/cat": "cat", "/usr/bin/sleep": "sleep",
	})
	in := calls(with(steps("cat a"), "files", []object{{"path": "a", "content": "b"}}), jsCall("1"), steps("cat a; node x"))
	f := h.run(in, "session", "--image", dir).must(exitRefused)
	if f.out(1) != "b" || f.result(1).Record.Environment != "docker-image:"+digest {
		t.Errorf("have %q, %+v", f.out(1), f.result(1).Record)
	}
	if r := f.refused(2); !strings.Contains(r.Detail, "no node") || r.Code != "failed_precondition" || r.Reason != "environment" {
		t.Errorf("have %+v", r)
	}
	// A step that misses a program fails by itself.
	if s := f.result(3).Project.Steps[0]; s.ExitCode != 127 || string(s.Stdout) != "b" || f.result(3).Record.Sequence != 2 {
		t.Errorf("have %+v", s)
	}
	if r := h.run("", "exec", "--image", dir, "-e", "1").must(exitRefused).refused(1); !strings.Contains(r.Detail, "no node") {
		t.Errorf("have %+v", r)
	}
	bare := filepath.Join(t.TempDir(), "bare")
	writeImage(t, bare, map[string]string{"/usr/bin/sleep": "sleep", "/usr/bin/env": "env"})
	if r := h.run("", "exec", "--image", bare, "-e", "1").must(exitRefused).refused(1); !strings.Contains(r.Detail, "/bin/sh") {
		t.Errorf("have %+v", r)
	}
}
