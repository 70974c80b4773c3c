package cluster

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// olderIn adds modules of older versions beside that of the newest.
func olderIn(t *testing.T, newest string, versions ...string) {
	t.Helper()
	for _, version := range versions {
		minor := version[1:strings.LastIndex(version, ".")]
		files := moduleFiles()
		files["go.mod"] = strings.Replace(files["go.mod"], "v1.99.7", version, 1)
		for name, text := range files {
			path := filepath.Join(newest+minor, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
}

func TestVersions(t *testing.T) {
	newest := moduleIn(t, nil)
	olderIn(t, newest, "v1.98.3", "v1.9.1", "v1.97.0")
	t.Chdir(strings.TrimSuffix(newest, kubePrograms().dir))
	t.Setenv("PLIMSOLL_K8S", "")

	all, err := Versions(Scheduler)
	require.NoError(t, err)
	assert.Equal(t, []string{"1.99", "1.98", "1.97", "1.9"}, all)
	_, err = Versions(Helm)
	require.ErrorContains(t, err, "one version of it is pinned")

	said := func(name string) string {
		path, err := Program(t.Context(), name)
		require.NoError(t, err)
		out, err := exec.Command(path).CombinedOutput()
		require.NoError(t, err)
		return string(out)
	}
	assert.Equal(t, "v1.99.7 1 99\n", said(APIServer))
	assert.Equal(t, "v1.99.7 1 99\n", said(APIServer+"@1.99"))
	assert.Equal(t, "v1.98.3 1 98\n", said(APIServer+"@1.98"))
	t.Setenv("PLIMSOLL_K8S", "1.98")
	assert.Equal(t, "v1.98.3 1 98\n", said(APIServer), "the environment asks for it")
	assert.Equal(t, "v1.97.0 1 97\n", said(APIServer+"@1.97"), "the name goes first")
	whole, err := Pinned(APIServer)
	require.NoError(t, err)
	assert.Equal(t, "v1.98.3", whole)

	etcd, err := Program(t.Context(), Etcd)
	require.NoError(t, err)
	t.Setenv("PLIMSOLL_K8S", "")
	same, err := Program(t.Context(), Etcd)
	require.NoError(t, err)
	assert.Equal(t, same, etcd, "there is one for all")
	_, err = Program(t.Context(), APIServer+"@1.50")
	require.ErrorContains(t, err, `version "1.50" is not pinned; those are: 1.99, 1.98, 1.97, 1.9`)
}

// What is pinned is built from modules of its own minor version.
func TestVersionsPinned(t *testing.T) {
	for _, program := range []string{APIServer, Velero} {
		t.Run(program, func(t *testing.T) {
			minors, err := Versions(program)
			require.NoError(t, err)
			assert.Greater(t, len(minors), 2)
			for _, minor := range minors {
				whole, err := Pinned(program + "@" + minor)
				require.NoError(t, err)
				assert.True(t, strings.HasPrefix(whole, "v"+minor+"."), "%s pins %s", minor, whole)
				s, module, err := locate(program, minor)
				require.NoError(t, err)
				mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
				require.NoError(t, err)
				for _, made := range slices.Sorted(maps.Values(s.programs)) {
					assert.Contains(t, string(mod), made)
				}
			}
		})
	}
}
