package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes/filesystemtest"
)

// judging is an agent whose filesystem rule waits for a second, and judges the
// small mounts of a test.
func judging(t *testing.T, s *filesystemtest.Space, more string, mounts ...string) *agent {
	t.Helper()
	return startAgent(t, "--path.procfs", s.Proc, "--config", configFile(t, fmt.Sprintf(`tick: 200ms
window: 2s
workloads: {roots: [/plimsoll-none]}
filesystems: {mounts: [%s], every: 1s%s}
plugins: {warmUp: 0s, filesystem: {minSize: 0, for: 1s, clearFor: 1s}}
`, strings.Join(mounts, ", "), more)))
}

// room is the verdict about a mount; false when there is none.
func (a *agent) room(point string) (plugins.Verdict, bool) {
	a.t.Helper()
	list := a.ticked(1).pressure().Verdicts
	i := slices.IndexFunc(list, func(v plugins.Verdict) bool { return v.Plugin == "filesystem" && v.Scope == point })
	if i < 0 {
		return plugins.Verdict{}, false
	}
	return list[i], true
}

// judges waits until the mount is at a level, with nothing absent.
func (a *agent) judges(point string, level plugins.Level) (v plugins.Verdict) {
	a.t.Helper()
	took := within(a.t, patience, point+" is "+level.String(), func() error {
		if v, _ = a.room(point); v.Level != level || v.Absent != "" || v.Plugin == "" {
			return errors.New(v.Reason)
		}
		return nil
	})
	a.t.Logf("%s after %s: %s", level, took, v.Reason)
	return v
}

func TestFilesystemFillsAndClears(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	full, calm := s.Mount("tmpfs", "full", "full", "size=4m,nr_inodes=1000"), s.Mount("tmpfs", "calm", "calm", "size=4m")
	a := judging(t, s, "", full, calm)
	a.judges(full, plugins.None)
	assert.NotContains(t, a.mustGet("/metrics"), "plimsoll_threshold_met{plugin=\"filesystem\",scope=\""+full+"\"} 1")

	write(t, s.Enter(full)+"/file", strings.Repeat("x", 15<<18)) // 15/16 of it
	v := a.judges(full, plugins.Soft)
	assert.Equal(t, "FilesystemPressure", v.Condition)
	assert.Contains(t, v.Reason, "available on "+full+" 6.2 % (< 10 %)")
	assert.Empty(t, v.Candidates, "nobody is named")
	assert.Equal(t, "soft", a.pressure().Levels["filesystem"])
	other, judged := a.room(calm)
	assert.True(t, judged)
	assert.Equal(t, plugins.None, other.Level)
	assert.Contains(t, a.mustGet("/metrics"), "plimsoll_threshold_met{plugin=\"filesystem\",scope=\""+full+"\"} 1")
	assert.Contains(t, a.mustGet("/"), "Filesystem "+full+": soft")
	within(t, patience, "the round records it, and that nobody goes", func() error {
		var kept struct{ Decisions []evict.Decision }
		decode(t, a.mustGet("/api/v1/decisions"), &kept)
		if len(kept.Decisions) == 0 {
			return errors.New("none yet")
		}
		d := kept.Decisions[0]
		assert.Equal(t, "filesystem", d.Causes[0].Plugin)
		assert.Equal(t, full, d.Causes[0].Scope)
		assert.Equal(t, evict.CodeStandalone, d.Code)
		assert.Empty(t, d.Candidates)
		return nil
	})

	require.NoError(t, os.Remove(s.Enter(full)+"/file"))
	a.judges(full, plugins.None)
	for i := range 960 { // beside the root directory there are 999
		write(t, fmt.Sprintf("%s/%d", s.Enter(full), i), "")
	}
	assert.Contains(t, a.judges(full, plugins.Soft).Reason, "inodes available on "+full+" 3.9 % (< 5 %)")
}

func TestFilesystemOfKubeletNotJudged(t *testing.T) {
	t.Parallel()
	s := filesystemtest.New(t)
	kubelet, data := s.Mount("tmpfs", "kubelet", "kubelet", "size=1m"), s.Mount("tmpfs", "data", "data", "size=1m")
	require.NoError(t, os.MkdirAll(s.Enter(kubelet)+"/pods/1/volumes/db", 0o755))
	volume := s.Mount("tmpfs", "db", "kubelet/pods/1/volumes/db", "size=1m")
	for _, point := range []string{kubelet, data, volume} {
		write(t, filepath.Join(s.Enter(point), "file"), strings.Repeat("x", 1<<20-8192))
	}
	a := judging(t, s, ", kubelet: "+kubelet, kubelet, data, volume)
	a.judges(data, plugins.Soft)
	for _, point := range []string{kubelet, volume} {
		v, judged := a.room(point)
		assert.False(t, judged, v.Reason)
		assert.NotEmpty(t, filesystem(a.snapshot(), point).Use)
	}
	alone := judging(t, s, "", kubelet, volume)
	alone.judges(kubelet, plugins.Soft)
	alone.judges(volume, plugins.Soft)
}
