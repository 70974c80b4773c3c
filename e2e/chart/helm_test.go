package chart_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// chart is the directory that is one.
const chart = "../../deploy"

// system is Plimsoll's namespace.
const system = "plimsoll-system"

// helm is the program, with nothing of this user's.
type helm struct {
	t    *testing.T
	path string
	env  []string
}

func newHelm(t *testing.T, kubeconfig string) helm {
	t.Helper()
	path, err := cluster.Program(t.Context(), cluster.Helm)
	require.NoError(t, err)
	home := t.TempDir()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}
	for _, dir := range []string{"CACHE", "CONFIG", "DATA"} {
		env = append(env, "HELM_"+dir+"_HOME="+filepath.Join(home, dir))
	}
	return helm{t, path, env}
}

// try a command in Plimsoll's namespace; the error bears what was said.
func (h helm) try(args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(h.t.Context(), h.path, append([]string{"--namespace", system}, args...)...)
	cmd.Env = h.env
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, said.String(), out)
	}
	return string(out), nil
}

func (h helm) run(args ...string) string {
	h.t.Helper()
	out, err := h.try(args...)
	require.NoError(h.t, err)
	return out
}

// render the chart without a cluster.
func (h helm) render(args ...string) []*unstructured.Unstructured {
	h.t.Helper()
	return objects(h.t, h.run(append([]string{"template", "plimsoll", chart}, args...)...))
}

// objects of a stream of YAML documents.
func objects(t *testing.T, manifest string) (list []*unstructured.Unstructured) {
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

// nameOf an object among all of a cluster.
func nameOf(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName())
}

func named(t *testing.T, list []*unstructured.Unstructured, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range list {
		if nameOf(o) == name {
			return o
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}
