package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	const chart = "version: 1.2.3\nappVersion: v1.2.3\n"
	for name, c := range map[string]struct {
		tags        []string
		chart       string
		want, fails string
	}{
		"the tag":                     {[]string{"v1.2.3"}, chart, "v1.2.3", ""},
		"that of the chart":           {[]string{"v1.2.2", "v1.2.3", "stable"}, chart, "v1.2.3", ""},
		"a candidate":                 {[]string{"v1.2.3-rc.1"}, "version: 1.2.3-rc.1\nappVersion: v1.2.3-rc.1\n", "v1.2.3-rc.1", ""},
		"no tag":                      {nil, chart, "", "no tag on HEAD; deploy/Chart.yaml has v1.2.3: git tag -s v1.2.3 -m v1.2.3"},
		"no version":                  {[]string{"stable", "1.2.3"}, chart, "", "is no version: stable, 1.2.3: want one such as v1.2.3"},
		"a part is missing":           {[]string{"v1.2"}, chart, "", "is no version"},
		"a zero before":               {[]string{"v1.02.3"}, chart, "", "is no version"},
		"what Debian orders after":    {[]string{"v1.2.3-next.1"}, chart, "", "is no version"},
		"build metadata":              {[]string{"v1.2.3+1"}, chart, "", "is no version"},
		"another than the chart":      {[]string{"v1.2.4"}, chart, "", `HEAD is tagged v1.2.4, and deploy/Chart.yaml has version "1.2.3" and appVersion "v1.2.3": set them`},
		"a chart that has two":        {[]string{"v1.2.3"}, "version: 1.2.2\nappVersion: v1.2.3\n", "", "set them"},
		"a chart without the v":       {[]string{"v1.2.3"}, "version: 1.2.3\nappVersion: 1.2.3\n", "", "set them"},
		"a chart that cannot be read": {[]string{"v1.2.3"}, "version: [", "", "deploy/Chart.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			have, err := version(c.tags, []byte(c.chart))
			assert.Equal(t, c.want, have)
			if c.fails == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.fails)
			}
		})
	}
}

func TestSection(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- later\n\n## 1.2.3 - 2026-12-01\n\n### Added\n- this\n\n## 1.2.30 - 2026-11-01\n\n- before\n\n## 1.1.0 - 2026-10-01\n\n## 1.0.0 - 2026-09-01\n- first\n"
	for number, want := range map[string]string{
		"1.2.3": "2026-12-01 ### Added\n- this", "1.2.30": "2026-11-01 - before", "1.0.0": "2026-09-01 - first",
	} {
		date, text, err := section(changelog, number)
		require.NoError(t, err, number)
		assert.Equal(t, want, date+" "+text)
	}
	for number, want := range map[string]string{
		"1.2.3-rc.1": `no heading "## 1.2.3-rc.1 - YYYY-MM-DD"`, "1x2.3": "no heading", "1.1.0": `nothing below "## 1.1.0"`,
	} {
		_, _, err := section(changelog, number)
		assert.ErrorContains(t, err, want, number)
	}
}

func TestRepository(t *testing.T) {
	two := func(one, other string) []byte {
		return []byte("containers:\n  - name: a\n    image: \"" + one + "\"\n  - image: " + other + "\n")
	}
	have, err := repository(two("host:5000/p:v1.2.3", "host:5000/p:v1.2.3"), "v1.2.3")
	require.NoError(t, err)
	assert.Equal(t, "host:5000/p", have)
	for _, manifest := range [][]byte{two("p:v1.2.3", "p:v1.2.2"), two("p:v1.2.2", "p:v1.2.2"), two("p:v1.2.3", "q:v1.2.3"), []byte("image: p\n")} {
		_, err := repository(manifest, "v1.2.3")
		assert.Error(t, err, "%s", manifest)
	}
	t.Run("that of this repository", func(t *testing.T) {
		chart, err := os.ReadFile("../../deploy/Chart.yaml")
		require.NoError(t, err)
		_, of, _ := strings.Cut(string(chart), "\nappVersion: ")
		tag, _, _ := strings.Cut(of, "\n")
		have, err := version([]string{tag}, chart)
		require.NoError(t, err)
		manifest, err := os.ReadFile("../../deploy/plimsoll.yaml")
		require.NoError(t, err)
		have, err = repository(manifest, have)
		require.NoError(t, err)
		assert.Equal(t, "ghcr.io/plimsoll-dev/plimsoll", have)
	})
}

func TestNotes(t *testing.T) {
	from := source{tag: "v1.2.3-rc.1", image: "ghcr.io/p", date: "2026-12-01", changes: "- this ([a page](docs/a.md#b), [another](https://example.com/x), [below](#c))"}
	text, err := notes(from, "sha256:ab")
	require.NoError(t, err)
	for _, want := range []string{
		"Plimsoll v1.2.3-rc.1, 2026-12-01.", "`plimsoll-1.2.3-rc.1.tgz`", "`ghcr.io/p:v1.2.3-rc.1@sha256:ab`",
		"[a page](https://github.com/plimsoll-dev/plimsoll/blob/v1.2.3-rc.1/docs/a.md#b), [another](https://example.com/x), [below](#c))",
		"/releases/download/v1.2.3-rc.1/plimsoll.yaml\n",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "<no value>")
}

func TestEnvironment(t *testing.T) {
	b := build{source: source{created: 7}, work: "/w"}
	have := b.environment([]string{"HOME=/h", "GOFLAGS=-tags=x", "GOENV=/h/env", "GOARCH=mips", "GOEXPERIMENT=y", "SOURCE_DATE_EPOCH=1", "PACKAGE_VERSION=9", "MAKEFLAGS=VERSION=8", "GOPROXY=p", "TZ=Asia/Tokyo"})
	assert.Equal(t, []string{
		"HOME=/h", "GOPROXY=p", "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "GOENV=off", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off",
		"SOURCE_DATE_EPOCH=7", "HELM_CONFIG_HOME=/w", "HELM_CACHE_HOME=/w", "HELM_DATA_HOME=/w", "TZ=UTC",
	}, have)
}

// What a file's owner, time and mode are here does not show.
func TestArchive(t *testing.T) {
	packs := func(mode os.FileMode) string {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(file, []byte("text"), mode))
		out := filepath.Join(dir, "a.tar.gz")
		require.NoError(t, archive(out, 1760000000, []packed{{"kubectl-plimsoll", file, 0o755}, {"LICENSE", file, 0o644}}))
		of, err := sum(out)
		require.NoError(t, err)
		return of
	}
	assert.Equal(t, packs(0o600), packs(0o755))
	assert.Error(t, archive(filepath.Join(t.TempDir(), "a.tar.gz"), 0, []packed{{"a", "not/there", 0}}))
}
