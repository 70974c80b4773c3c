package chart_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// What is pushed to a registry is, byte for byte, what is in the layout.
func TestImagePush(t *testing.T) {
	live.Long(t, "crane takes a minute of a processor to build")
	crane := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(craneDir(t), "crane"), args...)
		cmd.Dir = "../.."
		return cmd
	}
	registry := crane("registry", "serve", "--address", "127.0.0.1:0", "--disk", t.TempDir())
	said, err := registry.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, registry.Start())
	t.Cleanup(func() { _ = registry.Process.Kill(); _ = registry.Wait() })
	var port string
	for lines := bufio.NewScanner(said); port == "" && lines.Scan(); {
		if m := regexp.MustCompile(`serving on port (\d+)`).FindStringSubmatch(lines.Text()); m != nil {
			port = m[1]
		}
	}
	require.NotEmpty(t, port)

	name, out := "127.0.0.1:"+port+"/team/plimsoll", t.TempDir()
	t.Run("it wants a registry", func(t *testing.T) {
		told, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "push").CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(told), "push: to which registry? make push IMAGE=REGISTRY/plimsoll")
	})
	t.Run("it is there by the digest that is printed", func(t *testing.T) {
		told, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "push", "IMAGE="+name, "OUT="+out, "VERSION="+version, "CREATED=1760000000", arches()).CombinedOutput()
		require.NoError(t, err, "%s", told)
		top, _ := index(t, filepath.Join(out, "image"))
		assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(name+"@"+top.Digest)+`$`, string(told))
		manifest, err := crane("manifest", name+":"+version).Output()
		require.NoError(t, err)
		content, err := os.ReadFile(filepath.Join(out, "image/blobs/sha256", hexOf(top)))
		require.NoError(t, err)
		assert.Equal(t, string(content), string(manifest))
		pulled, err := crane("validate", "--remote", name+"@"+top.Digest).CombinedOutput()
		require.NoError(t, err, "%s", pulled)
	})
}

// craneDir has the program that make push uses.
func craneDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../tools/image", "-o", dir+"/", "github.com/google/go-containerregistry/cmd/crane").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}
