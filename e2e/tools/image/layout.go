package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// writeLayout writes an index of the programs' images and reads it back; digest
// is the index's.
func writeLayout(dir string, programs []program, ref, tag string, created time.Time) (digest v1.Hash, err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		image, err := imageOf(p, tag, created)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("image of %s: %w", p.path, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
	}
	if err := os.RemoveAll(dir); err != nil {
		return v1.Hash{}, err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	// containerd goes by the second when it imports, others by the first.
	names := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": ref})
	if err := path.AppendIndex(index, names); err != nil {
		return v1.Hash{}, err
	}
	written, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := validate.Index(written); err != nil {
		return v1.Hash{}, fmt.Errorf("%s: %w", dir, err)
	}
	return index.Digest()
}

// imageOf a program: one layer with one file.
func imageOf(p program, tag string, created time.Time) (v1.Image, error) {
	content, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	head := &tar.Header{Name: "plimsoll", Mode: 0o755, Size: int64(len(content)), ModTime: created, Format: tar.FormatPAX}
	if err := w.WriteHeader(head); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	// The types first: whoever changes them later starts from an empty config.
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: p.arch, Created: v1.Time{Time: created}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/plimsoll"},
			Labels: map[string]string{
				"org.opencontainers.image.title": "plimsoll", "org.opencontainers.image.version": tag,
				"org.opencontainers.image.source": "https://" + p.info.Main.Path,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}

// writeTar packs a directory, in the order of its names and without times.
func writeTar(path, dir string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
