package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/conformance"
)

// conformanceOf runs plimsoll plugins test, and returns its report and exit status.
func conformanceOf(t *testing.T, args ...string) (conformance.Report, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"plugins", "test", "-o", "json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	var r conformance.Report
	if status := cmd.ProcessState.ExitCode(); status == 2 {
		t.Logf("%s", errs.String())
		return r, status
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), "%s%s", out.String(), errs.String())
	return r, cmd.ProcessState.ExitCode()
}

// failedOf returns the required checks that failed.
func failedOf(r conformance.Report) (names []string) {
	for _, c := range r.Checks {
		if c.Required && c.Result == conformance.Failed {
			names = append(names, c.Name+": "+c.Observation)
		}
	}
	return names
}

func assertPassed(t *testing.T, r conformance.Report, checks ...string) {
	t.Helper()
	for _, name := range checks {
		c := r.Find(name)
		assert.Equal(t, conformance.Passed, c.Result, "%s: %s", name, c.Observation)
	}
}

// lives are the checks that only a program that is started here can pass.
var lives = []string{"stopped", "host-restart", "ends", "socket-removed", "restart", "restart-after-kill"}

// fairPods is a file with pods that a rogue names.
func fairPods(t *testing.T) string {
	t.Helper()
	var list corev1.PodList
	for _, name := range []string{"fair-1", "fair-2", "fair-3", "other-1"} {
		p := corev1.Pod{}
		p.Namespace, p.Name, p.UID = "default", name, types.UID("uid-of-"+name)
		list.Items = append(list.Items, p)
	}
	b, err := json.Marshal(list)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "pods.json")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func TestConformance(t *testing.T) {
	t.Parallel()
	const examples = "../plugins/outer/examples/"
	for name, program := range map[string]func(*testing.T) string{
		"conntrack": buildOnce("conntrack", examples+"conntrack"), "openfiles": openFiles, "membandwidth": buildOnce("membandwidth", examples+"membandwidth"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, status := conformanceOf(t, "--", program(t), "--plugins.dir", "{dir}")
			assert.Empty(t, failedOf(r))
			assert.Zero(t, status)
			assertPassed(t, r, lives...)
		})
	}
	t.Run("where it cannot measure", func(t *testing.T) {
		t.Parallel()
		r, status := conformanceOf(t, "--unmeasurable", "--path.procfs=/nonexistent", "--", openFiles(t), "--plugins.dir", "{dir}")
		assert.Zero(t, status, failedOf(r))
		assertPassed(t, r, "error-not-zero")
		assert.Contains(t, r.Find("error-not-zero").Observation, "/nonexistent")
	})
	t.Run("the wire by hand", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		serveRaw(t, dir)
		r, status := conformanceOf(t, filepath.Join(dir, "raw.sock"))
		assert.Zero(t, status, failedOf(r))
		assertPassed(t, r, "shown-pods", "top-n", "named-again", "host-restart", "huge", "4-MiB", "unknown-method")
		assert.Equal(t, conformance.NotApplicable, r.Find("restart").Result, "it was not started here")
	})
	t.Run("not a plugin", func(t *testing.T) {
		t.Parallel()
		_, status := conformanceOf(t, "--start-timeout", "1s", "--", "sh", "-c", "echo no >&2; exit 3", "{dir}")
		assert.Equal(t, 2, status)
	})
}

// Each flaw of a rogue is found by the check that is about it.
func TestConformanceRogues(t *testing.T) {
	t.Parallel()
	program, pods := rogue(t), fairPods(t)
	for _, c := range []struct {
		mode string
		find []string // required
		also []string // advisory
	}{
		{"honest", nil, []string{"socket-removed"}}, // it does not heed SIGTERM
		{"hang", []string{"answers", "call-time"}, nil},
		{"mute", []string{"registration"}, nil},
		{"garbage", []string{"registration"}, nil},
		{"crash", []string{"connection"}, nil},
		{"again", []string{"connection"}, nil},
		{"lie", []string{"shown-pods", "level"}, []string{"top-n", "numbers", "condition", "texts", "deletion-grace"}},
		{"flood", []string{"shown-pods", "level", "answer-size"}, nil},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			timeout := "10s"
			if c.mode == "hang" {
				timeout = "1s" // it never answers
			}
			r, status := conformanceOf(t, "--timeout", timeout, "--pods", pods, "--", program, "-mode", c.mode, "-dir", "{dir}")
			failed := strings.Join(failedOf(r), "\n")
			if c.find == nil {
				assert.Empty(t, failed)
				assert.Zero(t, status)
				assertPassed(t, r, "shown-pods", "top-n")
			} else {
				assert.Equal(t, 1, status)
			}
			for _, name := range append(c.find, c.also...) {
				assert.Equal(t, conformance.Failed, r.Find(name).Result, "%s: %s\n%s", name, r.Find(name).Observation, failed)
			}
		})
	}
}

// Another implementation of gRPC: Python's, of which Debian has a package.
func TestConformancePython(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3"
	if err := exec.CommandContext(t.Context(), python, "-c", "import grpc").Run(); err != nil {
		t.Skip("not installed (make deps): python3-grpcio")
	}
	file := filepath.Join(t.TempDir(), "queue")
	require.NoError(t, os.WriteFile(file, make([]byte, 1000), 0o600))
	r, status := conformanceOf(t, "--unmeasurable=--file=/nonexistent", "--",
		python, "pyplugin/plugin.py", "--plugins.dir", "{dir}", "--file", file, "--soft", "10", "--hard", "100")
	assert.Zero(t, status, failedOf(r))
	assertPassed(t, r, lives...)
	assertPassed(t, r, "shown-pods", "top-n", "error-not-zero", "huge", "4-MiB", "unknown-fields", "stateless")
}
