package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

func TestOpenFilesLatched(t *testing.T) {
	o := host(t)
	for _, step := range []struct {
		open  int
		want  kit.Level
		limit float64
	}{
		{2121, kit.None, 0.8},
		{79_000, kit.None, 0.8},
		{80_000, kit.Soft, 0.8},
		{94_000, kit.Soft, 0.8},
		{95_000, kit.Hard, 0.95},
		{86_000, kit.Hard, 0.95},
		{85_000, kit.Soft, 0.8},
		{73_000, kit.Soft, 0.8},
		{71_000, kit.None, 0.8},
	} {
		o.open(t, fmt.Sprintf("%d\t0\t100000\n", step.open))
		said, err := o.Threshold(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, step.want, said.Level, step.open)
		assert.InDelta(t, float64(step.open)/1e5, said.Observed, 1e-9)
		assert.InDelta(t, step.limit, said.Limit, 0)
		assert.Equal(t, "OpenFilesPressure", said.Condition.Name)
	}
}

// Kernels of before counted what was allocated and free beside.
func TestOpenFilesAllocatedButFree(t *testing.T) {
	o := host(t)
	o.open(t, "90000\t50000\t100000\n")
	said, err := o.Threshold(t.Context(), nil)
	require.NoError(t, err)
	assert.InDelta(t, 0.4, said.Observed, 1e-9)
}

func TestOpenFilesNamesPods(t *testing.T) {
	o := host(t)
	o.open(t, "100\t0\t105\n")
	o.process(t, 10, "0::/kubepods.slice/kubepods-podaaaaaaaa_1111_1111_1111_111111111111.slice/cri-containerd-x.scope", 30)
	o.process(t, 11, "0::/kubepods/burstable/podbbbbbbbb-1111-1111-1111-111111111111/x", 20)
	o.process(t, 12, "0::/kubepods/burstable/podbbbbbbbb-1111-1111-1111-111111111111/y/podcccccccc-1111-1111-1111-111111111111", 15) // of its own making
	o.process(t, 13, "0::/kubepods/podcccccccc-1111-1111-1111-111111111111/x", 19)                                                   // less than a fifth
	o.process(t, 14, "0::/system.slice/sshd.service", 90)
	o.process(t, 15, "0::/kubepods/poddddddddd-1111-1111-1111-111111111111/x", 90) // not shown
	require.NoError(t, os.MkdirAll(filepath.Join(o.procfs, "16"), 0o755))          // it ended
	shown := []*corev1.Pod{pod("cccccccc"), pod("bbbbbbbb"), pod("aaaaaaaa"), pod("eeeeeeee")}
	for n, want := range [][]string{nil, {"bbbbbbbb"}, {"bbbbbbbb", "aaaaaaaa"}, {"bbbbbbbb", "aaaaaaaa"}} {
		named, err := o.Top(t.Context(), kit.Ask{Pods: shown, N: n})
		require.NoError(t, err)
		assert.Equal(t, want, names(named))
	}
}

func TestOpenFilesWithoutFile(t *testing.T) {
	o := host(t)
	_, err := o.Threshold(t.Context(), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = o.Top(t.Context(), kit.Ask{N: 1})
	require.ErrorIs(t, err, os.ErrNotExist)
	for said, want := range map[string]string{"1 2\n": "want three numbers", "1 x 3\n": "file-nr: ", "1\t0\t0\n": "the limit is 0"} {
		o.open(t, said)
		_, err := o.Threshold(t.Context(), nil)
		assert.ErrorContains(t, err, want)
	}
}

func TestOpenFilesWalkCancelled(t *testing.T) {
	o := host(t)
	o.open(t, "100\t0\t105\n")
	o.process(t, 10, "0::/", 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.Top(ended, kit.Ask{N: 1})
	require.ErrorIs(t, err, context.Canceled)
}

// The test's own processes hold files of the running kernel.
func TestOnRunningKernel(t *testing.T) {
	o := openFiles{procfs: "/proc", soft: 0.8, hard: 0.95}
	said, err := o.Threshold(t.Context(), nil)
	require.NoError(t, err)
	assert.Positive(t, said.Observed)
	assert.Less(t, said.Observed, 1.0)
	group, err := os.ReadFile("/proc/self/cgroup")
	require.NoError(t, err)
	if os.Geteuid() == 0 {
		held, err := o.held(t.Context(), []*corev1.Pod{pod("aaaaaaaa")})
		require.NoError(t, err)
		assert.Empty(t, held, string(group))
	}
}

func host(t *testing.T) *openFiles {
	t.Helper()
	return &openFiles{procfs: t.TempDir(), soft: 0.8, hard: 0.95}
}

func (o *openFiles) open(t *testing.T, said string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(o.procfs, "sys/fs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(o.procfs, "sys/fs/file-nr"), []byte(said), 0o644))
}

func (o *openFiles) process(t *testing.T, pid int, cgroup string, files int) {
	t.Helper()
	dir := filepath.Join(o.procfs, fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "fd"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup+"\n"), 0o644))
	for i := range files {
		require.NoError(t, os.Symlink("socket:[1]", filepath.Join(dir, "fd", fmt.Sprint(i))))
	}
}

func pod(begin string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: begin, UID: types.UID(begin + "-1111-1111-1111-111111111111")}}
}

func names(n kit.Named) (list []string) {
	for _, p := range n.Pods {
		list = append(list, p.Name)
	}
	return list
}
