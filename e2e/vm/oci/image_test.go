package oci_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/vm/oci"
)

const name = "plimsoll.test/greet:test"

// program is a file of that name and content.
func program(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "greet")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// untar is the content and the mode of each file, by name.
func untar(t *testing.T, r io.Reader) (content map[string][]byte, mode map[string]int64) {
	t.Helper()
	content, mode = map[string][]byte{}, map[string]int64{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return content, mode
		}
		require.NoError(t, err)
		b, err := io.ReadAll(archive)
		require.NoError(t, err)
		content[h.Name], mode[h.Name] = b, h.Mode
	}
}

// reference is what one part of an image knows of another.
type reference struct {
	MediaType, Digest string
	Size              int
	Annotations       map[string]string
}

// follow reads the part that r means and checks that it is that one.
func follow(t *testing.T, files map[string][]byte, r reference, mediaType string) []byte {
	t.Helper()
	assert.Equal(t, mediaType, r.MediaType)
	b, ok := files["blobs/sha256/"+r.Digest[len("sha256:"):]]
	require.True(t, ok, "no %s", r.Digest)
	assert.Equal(t, r.Digest, fmt.Sprintf("sha256:%x", sha256.Sum256(b)))
	assert.Len(t, b, r.Size)
	return b
}

func TestOCIImageLayout(t *testing.T) {
	var image bytes.Buffer
	require.NoError(t, oci.Write(&image, name, program(t, "a program")))
	files, _ := untar(t, &image)
	assert.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(files["oci-layout"]))

	var index struct {
		SchemaVersion int
		Manifests     []reference
	}
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	require.Len(t, index.Manifests, 1)
	assert.Equal(t, 2, index.SchemaVersion)
	assert.Equal(t, map[string]string{"io.containerd.image.name": name}, index.Manifests[0].Annotations)

	var manifest struct {
		SchemaVersion int
		Config        reference
		Layers        []reference
	}
	b := follow(t, files, index.Manifests[0], "application/vnd.oci.image.manifest.v1+json")
	require.NoError(t, json.Unmarshal(b, &manifest))
	assert.Equal(t, 2, manifest.SchemaVersion)
	require.Len(t, manifest.Layers, 1)
	layer := follow(t, files, manifest.Layers[0], "application/vnd.oci.image.layer.v1.tar")

	var config map[string]any
	require.NoError(t, json.Unmarshal(follow(t, files, manifest.Config, "application/vnd.oci.image.config.v1+json"), &config))
	assert.Empty(t, cmp.Diff(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": []any{"/greet"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{manifest.Layers[0].Digest}},
	}, config))

	inside, mode := untar(t, bytes.NewReader(layer))
	assert.Empty(t, cmp.Diff(map[string][]byte{"greet": []byte("a program")}, inside))
	assert.Equal(t, map[string]int64{"greet": 0o755}, mode, "whatever the mode of the file was")
	assert.Len(t, files, 5, "and there is nothing else in it")
}

func TestOCIImageReproducible(t *testing.T) {
	write := func(name, content string) string {
		var image bytes.Buffer
		require.NoError(t, oci.Write(&image, name, program(t, content)))
		return image.String()
	}
	first := write(name, "a program")
	assert.Equal(t, first, write(name, "a program"))
	assert.NotEqual(t, first, write(name, "a Program"))
	assert.NotEqual(t, first, write("plimsoll.test/greet:2", "a program"))
}

func TestOCIErrorsNamed(t *testing.T) {
	err := oci.Write(io.Discard, name, filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, name)

	r, w := io.Pipe()
	require.NoError(t, r.Close())
	err = oci.Write(w, name, program(t, "a program"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorContains(t, err, name)
}
