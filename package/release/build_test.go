package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// steps of a release in the place of whose tools a file is written with a text of
// the program. What the tools themselves make: e2e TestMakeRelease.
func steps(t *testing.T, image, packages string) (dir string, err error) {
	t.Helper()
	top := t.TempDir()
	b := build{
		source: source{tag: "v1.2.3-rc.1", created: 1760000000, image: "ghcr.io/p", date: "2026-12-01", changes: "- this"},
		arches: []string{"amd64", "arm64"}, work: filepath.Join(top, "work"), out: filepath.Join(top, "out"),
	}
	require.NoError(t, os.Mkdir(b.out, 0o755))
	put := func(name, text string) {
		path := filepath.Join(b.work, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	b.run = func(name string, args ...string) error {
		switch command := name + " " + strings.Join(args, " "); {
		case strings.Contains(command, " image "):
			assert.Contains(t, command, "IMAGE=ghcr.io/p VERSION=v1.2.3-rc.1 CREATED=1760000000 ARCHES=amd64 arm64")
			put("image/image.tar", "layout")
			put("image/image/index.json", `{"manifests":[{"digest":"sha256:ab"}]}`)
			for _, arch := range b.arches {
				put("image/linux-"+arch+"/plimsoll", image+arch)
				put("image/sbom-"+arch+".cdx.json", "{}")
			}
		case strings.Contains(command, " package PACKAGES="):
			_, arch, _ := strings.Cut(command, "GOARCH=")
			arch, _, _ = strings.Cut(arch, " ")
			put("packages/plimsoll-"+arch, packages+arch)
			put("packages/plimsoll_1.2.3~rc.1_"+arch+".deb", "deb")
			put("packages/plimsoll-1.2.3~rc.1-1."+arch+".rpm", "rpm")
		case strings.Contains(command, " helm package "):
			put("../out/plimsoll-1.2.3-rc.1.tgz", "chart")
		}
		return nil
	}
	return b.out, b.steps()
}

func TestSteps(t *testing.T) {
	t.Chdir("../..")
	one, err := steps(t, "program ", "program ")
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(string(sums)) {
		fields := strings.Fields(line)
		of, err := sum(filepath.Join(one, fields[1]))
		require.NoError(t, err)
		assert.Equal(t, of, fields[0])
		names = append(names, fields[1])
	}
	assert.Equal(t, []string{
		"gate-mutating-v1beta1.yaml", "gate-mutating.yaml", "krew.yaml", "kubectl-plimsoll_v1.2.3-rc.1_linux_amd64.tar.gz", "kubectl-plimsoll_v1.2.3-rc.1_linux_arm64.tar.gz",
		"plimsoll-1.2.3-rc.1-1.amd64.rpm", "plimsoll-1.2.3-rc.1-1.arm64.rpm", "plimsoll-1.2.3-rc.1.tgz", "plimsoll.yaml",
		"plimsoll_1.2.3-rc.1_amd64.deb", "plimsoll_1.2.3-rc.1_arm64.deb", "plimsoll_v1.2.3-rc.1_image.tar",
		"plimsoll_v1.2.3-rc.1_linux_amd64.cdx.json", "plimsoll_v1.2.3-rc.1_linux_arm64.cdx.json", "release-hidden.yaml", "release-notes.md",
	}, names)
	t.Run("krew's sums are those of the archives", func(t *testing.T) {
		manifest, err := os.ReadFile(filepath.Join(one, "krew.yaml"))
		require.NoError(t, err)
		require.NoError(t, lintKrew(string(manifest)))
		for _, line := range strings.Split(string(sums), "\n")[3:5] {
			assert.Contains(t, string(manifest), strings.Fields(line)[0])
		}
	})
	t.Run("once more they are the same bytes", func(t *testing.T) {
		other, err := steps(t, "program ", "program ")
		require.NoError(t, err)
		again, err := os.ReadFile(filepath.Join(other, "SHA256SUMS"))
		require.NoError(t, err)
		assert.Equal(t, string(sums), string(again))
	})
	t.Run("two builds that differ are none", func(t *testing.T) {
		_, err := steps(t, "program ", "another ")
		require.ErrorContains(t, err, "packages: two builds of one commit differ: ")
	})
}
