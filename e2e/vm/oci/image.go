// Package oci writes container images that hold one static program and nothing
// else, for a node that reaches no registry.
//
// The same program and name give the same bytes.
//
// # Usage
//
//	err := oci.Write(file, "plimsoll.test/hog:test", "/somewhere/hog")
//
// The result is an OCI image layout in a tar, as `ctr images import` takes it.
package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// blob is a part of an image with what others call it by, see
// https://github.com/opencontainers/image-spec/blob/v1.1.1/descriptor.md.
type blob struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"` // bytes
	Annotations map[string]string `json:"annotations,omitempty"`
	content     []byte
}

func blobOf(mediaType string, content []byte) blob {
	return blob{
		MediaType: "application/vnd.oci.image." + mediaType,
		Digest:    fmt.Sprintf("sha256:%x", sha256.Sum256(content)),
		Size:      len(content),
		content:   content,
	}
}

func (b blob) file() string { return path.Join("blobs/sha256", b.Digest[len("sha256:"):]) }

// Write writes the image of that name whose only file, and what it runs, is the
// static amd64 program of that path, at the same base name below /.
func Write(w io.Writer, name, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	parts, err := parts(name, "/"+filepath.Base(program), content)
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	if err := archive(w, parts); err != nil {
		return fmt.Errorf("image %s: write: %w", name, err)
	}
	return nil
}

// entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// parts are the files of the image's layout.
func parts(name, program string, content []byte) ([]entry, error) {
	var tree bytes.Buffer
	if err := archive(&tree, []entry{{program[1:], 0o755, content}}); err != nil {
		return nil, err
	}
	layer := blobOf("layer.v1.tar", tree.Bytes())
	config, err := document("config.v1+json", map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": []string{program}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := document("manifest.v1+json", map[string]any{
		"schemaVersion": 2, "config": config, "layers": []blob{layer},
	})
	if err != nil {
		return nil, err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	index, err := document("index.v1+json", map[string]any{"schemaVersion": 2, "manifests": []blob{manifest}})
	if err != nil {
		return nil, err
	}
	files := []entry{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", 0o644, index.content},
	}
	for _, b := range []blob{manifest, config, layer} {
		files = append(files, entry{b.file(), 0o644, b.content})
	}
	return files, nil
}

func document(mediaType string, fields map[string]any) (blob, error) {
	content, err := json.Marshal(fields)
	return blobOf(mediaType, content), err
}

// archive writes a tar of the files, all of them of one moment.
func archive(w io.Writer, files []entry) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}
