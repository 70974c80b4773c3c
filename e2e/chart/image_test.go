package chart_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// version of the images that are built here.
const version = "v0.0.0-test"

// built is the image of these tests, in a directory that [TestMain] removes.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	status := cluster.Main(m)
	_ = os.RemoveAll(built.dir)
	os.Exit(status)
}

// arches of the image: both in the long form.
func arches() string {
	if live.IsLong() {
		return "ARCHES=amd64 arm64"
	}
	return "ARCHES=amd64"
}

// image is where make has built it, once for all tests.
func image(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "plimsoll-image-") //nolint:usetesting // it outlives the test that asks first
		if built.err == nil {
			built.err = chart.MakeImage("../..", built.dir, version, arches())
		}
	})
	require.NoError(t, built.err)
	return built.dir
}

// What is read of a layout (github.com/opencontainers/image-spec).
type (
	descriptor struct {
		MediaType, Digest string
		Size              int64
		Annotations       map[string]string
		Platform          struct{ OS, Architecture string }
	}
	imageIndex    struct{ Manifests []descriptor }
	imageManifest struct {
		Config descriptor
		Layers []descriptor
	}
	imageConfig struct {
		Architecture string
		Config       struct{ Entrypoint []string }
	}
)

// blob of a layout: its name is what it holds.
func blob(t *testing.T, layout string, of descriptor, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(layout, "blobs", "sha256", hexOf(of)))
	require.NoError(t, err)
	assert.Equal(t, hexOf(of), fmt.Sprintf("%x", sha256.Sum256(content)))
	assert.Len(t, content, int(of.Size))
	require.NoError(t, json.Unmarshal(content, into))
}

func hexOf(d descriptor) string { return strings.TrimPrefix(d.Digest, "sha256:") }

// index of the images.
func index(t *testing.T, layout string) (top descriptor, images []descriptor) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(layout, "index.json"))
	require.NoError(t, err)
	var outer, inner imageIndex
	require.NoError(t, json.Unmarshal(content, &outer))
	require.Len(t, outer.Manifests, 1)
	blob(t, layout, outer.Manifests[0], &inner)
	return outer.Manifests[0], inner.Manifests
}

func TestImageIndex(t *testing.T) {
	live.Long(t, "the program is compiled for another processor")
	layout := filepath.Join(image(t), "image")
	top, images := index(t, layout)
	assert.Equal(t, "application/vnd.oci.image.index.v1+json", top.MediaType)
	assert.Equal(t, version, top.Annotations["org.opencontainers.image.ref.name"])
	assert.Equal(t, "ghcr.io/plimsoll-dev/plimsoll:"+version, top.Annotations["io.containerd.image.name"])
	var architectures []string
	for _, i := range images {
		architectures = append(architectures, i.Platform.OS+"/"+i.Platform.Architecture)
		var manifest imageManifest
		var config imageConfig
		blob(t, layout, i, &manifest)
		blob(t, layout, manifest.Config, &config)
		assert.Equal(t, []string{"/plimsoll"}, config.Config.Entrypoint)
		assert.Equal(t, i.Platform.Architecture, config.Architecture)
		require.Len(t, manifest.Layers, 1)
		root := t.TempDir()
		assert.Equal(t, []string{"plimsoll"}, unpack(t, layout, manifest.Layers[0], root))
		info, err := buildinfo.ReadFile(filepath.Join(root, "plimsoll"))
		require.NoError(t, err)
		assert.Equal(t, i.Platform.Architecture, goarch(info))
	}
	assert.Equal(t, []string{"linux/amd64", "linux/arm64"}, architectures)
}

func goarch(info *buildinfo.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "GOARCH" {
			return s.Value
		}
	}
	return ""
}

// unpack a layer and list its files.
func unpack(t *testing.T, layout string, layer descriptor, root string) (names []string) {
	t.Helper()
	f, err := os.Open(filepath.Join(layout, "blobs", "sha256", hexOf(layer)))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	for r := tar.NewReader(z); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		names = append(names, head.Name)
		require.EqualValues(t, tar.TypeReg, head.Typeflag)
		file, err := os.OpenFile(filepath.Join(root, head.Name), os.O_CREATE|os.O_WRONLY, head.FileInfo().Mode())
		require.NoError(t, err)
		_, err = io.Copy(file, r)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
}

// unpacked is the root of a container of this machine's architecture.
func unpacked(t *testing.T) string {
	t.Helper()
	return unpackedFor(t, runtime.GOARCH)
}

// unpackedFor an architecture. Its one file is unpacked once, and linked from then
// on.
func unpackedFor(t *testing.T, architecture string) string {
	t.Helper()
	layout := filepath.Join(image(t), "image")
	once := filepath.Join(image(t), "root-"+architecture)
	if _, err := os.Stat(once); err != nil {
		_, images := index(t, layout)
		at := slices.IndexFunc(images, func(i descriptor) bool { return i.Platform.Architecture == architecture })
		require.GreaterOrEqual(t, at, 0, "no image for %s", architecture)
		var manifest imageManifest
		blob(t, layout, images[at], &manifest)
		require.NoError(t, os.Mkdir(once, 0o755))
		unpack(t, layout, manifest.Layers[0], once)
	}
	root := t.TempDir()
	require.NoError(t, os.Link(filepath.Join(once, "plimsoll"), filepath.Join(root, "plimsoll")))
	return root
}

func TestImageProgramRunsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it is run in a root of its own")
	}
	out, err := exec.CommandContext(t.Context(), "chroot", unpacked(t), "/plimsoll", "version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), version)
}

// On another processor that QEMU emulates. What it does there is shown by that of
// the package, e2e: TestPackageOnARM64.
func TestImageRunsOnARM64(t *testing.T) {
	live.Long(t, "an emulated processor, and a program that is compiled for it")
	command := []string{filepath.Join(unpackedFor(t, "arm64"), "plimsoll"), "version"}
	if runtime.GOARCH != "arm64" {
		qemu, err := exec.LookPath("qemu-aarch64")
		if err != nil {
			t.Skip("not installed (make deps-e2e): qemu-user")
		}
		command = append([]string{qemu}, command...)
	}
	out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), version)
}

// Built from a copy of the source in another place, and linked anew: for one of
// the architectures, and in the long form for both.
func TestImageReproducible(t *testing.T) {
	first := image(t)
	tree, second := t.TempDir(), t.TempDir()
	require.NoError(t, copyTree(tree, "../.."))
	names := []string{"linux-amd64/plimsoll", "sbom-amd64.cdx.json", "image.tar", "image/index.json"}
	if live.IsLong() {
		names = append(names, "sbom-arm64.cdx.json")
	}
	require.NoError(t, chart.MakeImage(tree, second, version, arches()))
	_, all := index(t, filepath.Join(first, "image"))
	_, again := index(t, filepath.Join(second, "image"))
	require.NotEmpty(t, again)
	assert.Equal(t, all, again)
	for _, name := range names {
		a, err := os.ReadFile(filepath.Join(first, name))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(second, name))
		require.NoError(t, err)
		assert.Equal(t, sha256.Sum256(a), sha256.Sum256(b), name)
	}
}

// copyTree leaves out what is not needed to build.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == "bin" || d.Name() == ".git" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o644)
	})
}

func TestSBOMNamesLinkedModules(t *testing.T) {
	program := filepath.Join(image(t), "linux-"+runtime.GOARCH, "plimsoll")
	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(image(t), "sbom-"+runtime.GOARCH+".cdx.json"))
	require.NoError(t, err)
	var bom struct {
		BOMFormat   string
		SpecVersion string
		Metadata    struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, PURL string }
	}
	require.NoError(t, json.Unmarshal(content, &bom))
	assert.Equal(t, "CycloneDX", bom.BOMFormat)
	assert.Equal(t, info.Main.Path, bom.Metadata.Component.Name)
	assert.Equal(t, version, bom.Metadata.Component.Version)
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range info.Deps {
		want = append(want, "pkg:golang/"+module.Path+"@"+module.Version)
	}
	var have []string
	for _, c := range bom.Components {
		have = append(have, c.PURL)
	}
	assert.Equal(t, want, have)
}
