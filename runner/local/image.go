//go:build linux

package local

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"
)

// ErrImage says that an image cannot be used.
var ErrImage = errors.New("image")

// Bounds of an unpacked image.
const (
	maxImageBytes   = 32 << 30
	maxImageEntries = 2_000_000
)

// An image is an unpacked OCI image: where it is, and the digest of its
// configuration, which names its contents (sha256:…).
type image struct{ root, digest string }

// openImage unpacks an image of an OCI layout below dir, once for each digest.
func openImage(name, dir string) (*image, error) {
	img, err := findImage(name)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrImage, name, err)
	}
	digest, err := img.ConfigName()
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrImage, name, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPath, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPath, err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("%w: lock: %w", ErrPath, err)
	}
	root := filepath.Join(dir, digest.Algorithm+"-"+digest.Hex)
	if _, err := os.Stat(root); err == nil {
		return &image{root, digest.String()}, nil
	}
	if err := checkLayers(img); err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrImage, name, err)
	}
	partial := root + ".partial"
	if err := removeTree(partial); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPath, err)
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPath, err)
	}
	flat := mutate.Extract(img)
	err = unpack(tar.NewReader(flat), partial, maxImageBytes, maxImageEntries)
	flat.Close()
	if err == nil {
		err = os.Rename(partial, root)
	}
	if err != nil {
		_ = removeTree(partial)
		return nil, fmt.Errorf("%w %s: unpack: %w", ErrImage, name, err)
	}
	return &image{root, digest.String()}, nil
}

// findImage returns the one image for this machine.
func findImage(name string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(name)
	if err != nil {
		return nil, fmt.Errorf("not an OCI image layout: %w", err)
	}
	return pickImage(index, 0)
}

func pickImage(index v1.ImageIndex, depth int) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	if depth > 3 {
		return nil, errors.New("indexes are nested too deeply")
	}
	var found []v1.Image
	for _, entry := range manifest.Manifests {
		if p := entry.Platform; p != nil && (p.OS != "linux" || p.Architecture != runtime.GOARCH) {
			continue
		}
		switch {
		case entry.MediaType.IsImage():
			img, err := index.Image(entry.Digest)
			if err != nil {
				return nil, err
			}
			found = append(found, img)
		case entry.MediaType.IsIndex():
			inner, err := index.ImageIndex(entry.Digest)
			if err != nil {
				return nil, err
			}
			img, err := pickImage(inner, depth+1)
			if err != nil {
				return nil, err
			}
			found = append(found, img)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("holds %d images for linux/%s, want 1", len(found), runtime.GOARCH)
	}
	config, err := found[0].ConfigFile()
	if err != nil {
		return nil, err
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		return nil, fmt.Errorf("is for %s/%s, want linux/%s", config.OS, config.Architecture, runtime.GOARCH)
	}
	return found[0], nil
}

// checkLayers makes sure that the layers are those that the configuration, whose
// digest is the evidence, names.
func checkLayers(img v1.Image) error {
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	if len(layers) != len(config.RootFS.DiffIDs) {
		return fmt.Errorf("has %d layers, its configuration names %d", len(layers), len(config.RootFS.DiffIDs))
	}
	for i, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
		have, size, err := v1.SHA256(io.LimitReader(content, maxImageBytes+1))
		content.Close()
		switch {
		case err != nil:
			return fmt.Errorf("layer %d: %w", i+1, err)
		case size > maxImageBytes:
			return fmt.Errorf("layer %d: larger than an image may be", i+1)
		case have != config.RootFS.DiffIDs[i]:
			return fmt.Errorf("layer %d: have %v, want %v", i+1, have, config.RootFS.DiffIDs[i])
		}
	}
	return nil
}

// unpack writes a flattened file system below dir and nowhere else, whatever
// names and links it holds. Devices and sockets are left out; owners are kept
// where we are root.
func unpack(files *tar.Reader, dir string, maxBytes int64, maxEntries int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	folders := map[string]fs.FileMode{} // given their modes at the end: they are still written to
	for entries := 0; ; entries++ {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if entries >= maxEntries {
			return fmt.Errorf("more than %d files", maxEntries)
		}
		name := path.Clean("/" + header.Name)[1:]
		if name == "" {
			continue
		}
		if maxBytes -= max(header.Size, 0); maxBytes < 0 {
			return errors.New("larger than an image may be")
		}
		if err := unpackFile(root, files, header, name, folders); err != nil {
			return fmt.Errorf("%.200q: %w", header.Name, err)
		}
	}
	names := make([]string, 0, len(folders))
	for name := range folders {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) }) // the inner ones first
	for _, name := range names {
		if err := root.Chmod(name, folders[name]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%.200q: %w", name, err)
		}
	}
	return nil
}

func unpackFile(root *os.Root, content io.Reader, header *tar.Header, name string, folders map[string]fs.FileMode) error {
	mode := fs.FileMode(header.Mode).Perm() // without setuid: nothing gains rights in a sandbox
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	if header.Typeflag != tar.TypeDir {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if folders[name] = mode; !isRoot() {
			folders[name] |= 0o700 // or we could not remove it; sandboxes have it read-only anyway
		}
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		err = errors.Join(err, file.Chmod(mode), file.Close())
		if err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := root.Symlink(header.Linkname, name); err != nil {
			return err
		}
	case tar.TypeLink:
		// A link to a name of the image; Link follows no symbolic link out of it.
		return root.Link(path.Clean("/" + header.Linkname)[1:], name)
	default:
		return nil
	}
	if isRoot() {
		return root.Lchown(name, header.Uid, header.Gid)
	}
	return nil
}
