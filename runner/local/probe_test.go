//go:build linux

package local_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/plimsoll-attest/plimsoll/runner/local"
)

func TestProbe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, f := range local.Probe(ctx, config(t)) {
		t.Logf("%-26s %v %s %s", f.Name, f.OK, f.Detail, f.Fix)
		if !f.OK {
			t.Errorf("%s: %s", f.Name, f.Detail)
		}
	}
}

// A node outside the system's folders is shown by its programs and libraries
// alone.
func TestNodeElsewhere(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node")
	}
	prefix := filepath.Join(t.TempDir(), "node-v20")
	for _, dir := range []string{"bin", "lib", "etc"} {
		if err := os.MkdirAll(filepath.Join(prefix, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-L", node, filepath.Join(prefix, "bin", "node")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(prefix, "etc", "npmrc"), []byte("token"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(prefix, "bin")+":"+os.Getenv("PATH"))
	c := newClient(t, config(t))
	name := c.box(createRequest(c))
	c.want(name, "ls /opt/node /opt; node -e 'console.log(1+1)'; which node", "/opt:\nnode\n\n/opt/node:\nbin\nlib\n2\n/opt/node/bin/node", 0)
	// With anything else in it, the folder is not an installation.
	if err := os.WriteFile(filepath.Join(prefix, ".ssh"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again := newClient(t, config(t))
	if slices.Contains(again.gate.Paths(), "/opt/node") {
		t.Error("a folder with other things is shown")
	}
}

func TestServeOnlyLoopback(t *testing.T) {
	c := newClient(t, config(t))
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.gate.Serve(listener); !errors.Is(err, local.ErrNotLoopback) {
		t.Errorf("have %v", err)
	}
}

// layer makes an image layer of tar headers; contents are the names.
func layer(t *testing.T, headers ...tar.Header) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		data := []byte{}
		if h.Typeflag == tar.TypeReg && h.PAXRecords == nil {
			if h.Linkname != "" {
				var err error
				if data, err = os.ReadFile(h.Linkname); err != nil {
					t.Fatal(err)
				}
				h.Linkname = ""
			} else {
				data = []byte(h.Name)
			}
		}
		h.Size = int64(len(data))
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func writeLayout(t *testing.T, layers ...v1.Layer) string {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	return dir
}

// libraries lists a program and what it loads, as tar entries at the same paths.
func programs(t *testing.T, names ...string) []tar.Header {
	t.Helper()
	seen := map[string]bool{}
	var list []tar.Header
	take := func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tar.Header{Name: name[1:], Typeflag: tar.TypeReg, Linkname: real})
	}
	for _, name := range names {
		take(name)
		out, _ := exec.Command("ldd", name).Output()
		for _, field := range strings.Fields(string(out)) {
			if strings.HasPrefix(field, "/") {
				take(field)
			}
		}
	}
	return list
}

func TestImage(t *testing.T) {
	base := layer(t, programs(t, "/bin/sh", "/usr/bin/env", "/usr/bin/sleep", "/usr/bin/cat", "/usr/bin/id", "/bin/ls")...)
	files := layer(t,
		tar.Header{Name: "etc/os-release", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "app", Typeflag: tar.TypeDir, Mode: 0o555},
		tar.Header{Name: "app/file", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "app/gone", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "app/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/os-release"},
		tar.Header{Name: "app/hard", Typeflag: tar.TypeLink, Linkname: "app/file"},
		tar.Header{Name: "app/suid", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "app/dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
	)
	whiteout := layer(t, tar.Header{Name: "app/.wh.gone", Typeflag: tar.TypeReg})
	conf := config(t)
	conf.Image = writeLayout(t, base, files, whiteout)
	c := newClient(t, conf)
	if !strings.HasPrefix(c.gate.Environment(), "docker-image:sha256:") {
		t.Errorf("environment %q", c.gate.Environment())
	}
	name := c.box(createRequest(c))
	c.want(name, "cat /etc/os-release; cat /app/link /app/hard; ls /app; ls -d /app/suid; id -u; ls /; echo x 2>/dev/null >/app/y; echo $?",
		"etc/os-releaseetc/os-releaseapp/filefile\nhard\nlink\nsuid\n/app/suid\n1500\napp\nbin\ndev\netc\nlib\nlib64\nproc\nsys\ntmp\nusr\n2", 0)
	c.delete(name)
	// Another gateway finds the image unpacked.
	begin := time.Now()
	again, err := local.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("second gateway on the image: %v", time.Since(begin))
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// An image cannot write outside its folder, and a layer that is not the one the
// configuration names is refused.
func TestHostileImage(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		headers []tar.Header
	}{
		{"dots", []tar.Header{{Name: "../../../../../../../../" + outside + "/a", Typeflag: tar.TypeReg}}},
		{"absolute", []tar.Header{{Name: outside + "/a", Typeflag: tar.TypeReg}}},
		{"through a link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/a", Typeflag: tar.TypeReg}}},
		{"over a link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside + "/a"}, {Name: "l", Typeflag: tar.TypeReg}}},
		{"hard link out", []tar.Header{{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../../../../../../etc/passwd"}}},
		{"hard link through a link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "p", Typeflag: tar.TypeLink, Linkname: "l/passwd"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conf := config(t)
			conf.Image = writeLayout(t, layer(t, tc.headers...))
			gate, err := local.New(conf)
			t.Logf("error: %v", err)
			if err == nil {
				gate.Close()
			}
			if entries, _ := os.ReadDir(outside); len(entries) > 0 {
				t.Errorf("written outside: %v", entries)
			}
			_ = filepath.WalkDir(filepath.Join(conf.Dir, "images"), func(path string, d os.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					data, _ := os.ReadFile(path)
					if bytes.Contains(data, []byte("root:")) {
						t.Errorf("the host's file is in the image: %s", path)
					}
				}
				return nil
			})
		})
	}
	t.Run("another layer", func(t *testing.T) {
		conf := config(t)
		conf.Image = writeLayout(t, layer(t, tar.Header{Name: "a", Typeflag: tar.TypeReg}))
		blobs, _ := filepath.Glob(filepath.Join(conf.Image, "blobs", "sha256", "*"))
		other := writeLayout(t, layer(t, tar.Header{Name: "b", Typeflag: tar.TypeReg}))
		others, _ := filepath.Glob(filepath.Join(other, "blobs", "sha256", "*"))
		gzip := func(list []string) string {
			for _, name := range list {
				if data, _ := os.ReadFile(name); bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
					return name
				}
			}
			t.Fatal("no layer")
			return ""
		}
		data, err := os.ReadFile(gzip(others))
		if err == nil {
			err = os.WriteFile(gzip(blobs), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := local.New(conf); !errors.Is(err, local.ErrImage) {
			t.Errorf("have %v", err)
		}
	})
}
