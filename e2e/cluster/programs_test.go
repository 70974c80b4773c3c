package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// moduleFiles is a module that looks like that of the programs and builds at once.
func moduleFiles() map[string]string {
	program := "package main\n\nimport v \"k8s.io/component-base/version\"\n\nfunc main() { println(v.Say()) }\n"
	return map[string]string{
		"go.mod": "module example/kube\ngo 1.26\ntool (\n" +
			"k8s.io/kubernetes/cmd/kube-apiserver\nk8s.io/kubernetes/cmd/kube-controller-manager\nk8s.io/kubernetes/cmd/kube-scheduler\n" +
			"go.etcd.io/etcd/server/v3\n)\n" +
			"require (\nk8s.io/kubernetes v1.99.7\nk8s.io/component-base v0.0.0\ngo.etcd.io/etcd/server/v3 v3.0.0\n)\n" +
			"replace (\nk8s.io/kubernetes => ./kubernetes\nk8s.io/component-base => ./base\ngo.etcd.io/etcd/server/v3 => ./etcd\n)\n",
		"go.sum":                                "",
		"kubernetes/go.mod":                     "module k8s.io/kubernetes\ngo 1.26\n",
		"kubernetes/cmd/kube-apiserver/main.go": program, "kubernetes/cmd/kube-controller-manager/main.go": program,
		"kubernetes/cmd/kube-scheduler/main.go": program,
		"base/go.mod":                           "module k8s.io/component-base\ngo 1.26\n",
		"base/version/version.go": "package version\n\nvar gitVersion, gitMajor, gitMinor string\n\n" +
			"func Say() string { return gitVersion + \" \" + gitMajor + \" \" + gitMinor }\n",
		"etcd/go.mod":  "module go.etcd.io/etcd/server/v3\ngo 1.26\n",
		"etcd/main.go": "package main\n\nfunc main() {}\n",
	}
}

// moduleIn makes such a module and gives the test an empty cache.
func moduleIn(t *testing.T, change map[string]string) string {
	t.Helper()
	builds, err := exec.Command("go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	t.Setenv("GOCACHE", strings.TrimSpace(string(builds))) // go's own stays where it is
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := t.TempDir()
	module := filepath.Join(root, kubePrograms().dir)
	for _, files := range []map[string]string{moduleFiles(), change} {
		for name, text := range files {
			path := filepath.Join(module, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
	return module
}

func TestProgramsHavePinnedVersion(t *testing.T) {
	dir, err := kubePrograms().cached(t.Context(), moduleIn(t, nil))
	require.NoError(t, err)
	said, err := exec.Command(filepath.Join(dir, APIServer)).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "v1.99.7 1 99\n", string(said))
	assert.FileExists(t, filepath.Join(dir, Etcd), "etcd has its usual name")
}

func TestProgramsBuiltOnce(t *testing.T) {
	module := moduleIn(t, nil)
	var wanting sync.WaitGroup
	var dirs [4]string
	for i := range dirs {
		wanting.Go(func() {
			dir, err := kubePrograms().cached(t.Context(), module)
			assert.NoError(t, err)
			assert.FileExists(t, filepath.Join(dir, APIServer))
			dirs[i] = dir
		})
	}
	wanting.Wait()
	assert.Equal(t, [4]string{dirs[0], dirs[0], dirs[0], dirs[0]}, dirs)

	// A mark shows that it is not built again.
	mark := filepath.Join(dirs[0], "mark")
	require.NoError(t, os.WriteFile(mark, nil, 0o600))
	_, err := kubePrograms().cached(t.Context(), module)
	require.NoError(t, err)
	assert.FileExists(t, mark)

	other := strings.Replace(moduleFiles()["go.mod"], "v1.99.7", "v1.99.8", 1)
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte(other), 0o644))
	dir, err := kubePrograms().cached(t.Context(), module)
	require.NoError(t, err)
	assert.NotEqual(t, dirs[0], dir, "another version is another directory")
}

func TestProgramsBuildFails(t *testing.T) {
	module := moduleIn(t, map[string]string{"etcd/main.go": "package main\n\nfunc main() { broken() }\n"})
	_, key, err := kubePrograms().recipe(module)
	require.NoError(t, err)
	half := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "plimsoll", "kube-"+key+".half")
	require.NoError(t, os.MkdirAll(filepath.Join(half, "of-a-build-that-was-cut"), 0o755))
	_, err = kubePrograms().cached(t.Context(), module)
	require.ErrorContains(t, err, "exit status 1")
	require.NoError(t, os.WriteFile(filepath.Join(module, "etcd/main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644))
	dir, err := kubePrograms().cached(t.Context(), module)
	require.NoError(t, err, "nothing of the first is in the way")
	assert.FileExists(t, filepath.Join(dir, APIServer))
	assert.NoDirExists(t, filepath.Join(dir, "of-a-build-that-was-cut"))
}

func TestProgramsModuleWithoutVersion(t *testing.T) {
	module := moduleIn(t, map[string]string{"go.mod": "module example/kube\ngo 1.26\n"})
	_, err := kubePrograms().cached(t.Context(), module)
	require.ErrorContains(t, err, "names no version: ")
}

func TestProgramsModuleFound(t *testing.T) {
	module := moduleIn(t, nil)
	root := strings.TrimSuffix(module, kubePrograms().dir)
	below := filepath.Join(root, "a", "b")
	require.NoError(t, os.MkdirAll(below, 0o755))
	found, err := kubePrograms().find(below)
	require.NoError(t, err)
	assert.Equal(t, module, found)
	_, err = kubePrograms().find(filepath.Dir(filepath.Clean(root)))
	require.Error(t, err)
	_, err = Program(t.Context(), "kube-proxy")
	require.ErrorContains(t, err, "there is no such")
}

func TestProgramsLockCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := lock(t.Context(), path)
	require.NoError(t, err)
	defer held.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = lock(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestProgramsBuildCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := deadline.Start()
	err := goCommand(ctx, []string{"tool", "test2json", "sleep", "60"}, func() {})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, start.Elapsed(), 30*time.Second)
}
