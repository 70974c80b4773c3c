package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// Dir is the directory that is the chart, as packages of e2e see it.
const Dir = "../../deploy"

// Namespace is Plimsoll's.
const Namespace = "plimsoll-system"

// Helm is the program, with nothing of this user's.
type Helm struct {
	t    testing.TB
	path string
	env  []string
}

// NewHelm is a helm of the cluster of that kubeconfig; empty: of none. The first
// time it is built, for some minutes.
func NewHelm(t testing.TB, kubeconfig string) Helm {
	t.Helper()
	path, err := cluster.Program(t.Context(), cluster.Helm)
	require.NoError(t, err)
	home := t.TempDir()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}
	for _, dir := range []string{"CACHE", "CONFIG", "DATA"} {
		env = append(env, "HELM_"+dir+"_HOME="+filepath.Join(home, dir))
	}
	return Helm{t, path, env}
}

// Try a command in Plimsoll's namespace; the error bears what was said.
func (h Helm) Try(args ...string) (stdout string, err error) { return h.try(h.t.Context(), args...) }

// Wait is Run of a command that waits for the cluster: for so long on an idle machine,
// longer on a slow one, which Helm's own timeout does not know.
func (h Helm) Wait(d time.Duration, args ...string) {
	h.t.Helper()
	ctx, cancel := deadline.Context(h.t.Context(), d)
	defer cancel()
	_, err := h.try(ctx, append(args, "--timeout", "2h")...)
	require.NoError(h.t, err)
}

func (h Helm) try(ctx context.Context, args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, h.path, append([]string{"--namespace", Namespace}, args...)...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second // it tells what is not ready
	cmd.Env = h.env
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, said.String(), out)
	}
	return string(out), nil
}

// Run a command that must succeed.
func (h Helm) Run(args ...string) string {
	h.t.Helper()
	out, err := h.Try(args...)
	require.NoError(h.t, err)
	return out
}

// Render the chart without a cluster.
func (h Helm) Render(args ...string) []*unstructured.Unstructured {
	h.t.Helper()
	return Objects(h.t, h.Run(append([]string{"template", "plimsoll", Dir}, args...)...))
}

// Objects of a stream of YAML documents.
func Objects(t testing.TB, manifest string) (list []*unstructured.Unstructured) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := documents.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		if len(o.Object) > 0 {
			list = append(list, o)
		}
	}
}
