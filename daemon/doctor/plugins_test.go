package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes"
)

func TestDoctorPluginDirectories(t *testing.T) {
	own, open, sticky := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(own, 0o711))
	require.NoError(t, os.Chmod(open, 0o777))
	require.NoError(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	p := Examination{Paths: probes.Paths{Procfs: "/proc"}, PluginDirs: []string{own, open, sticky, own + "/none"}}
	rows := pluginDirs(p.Paths.Procfs, p.PluginDirs)
	require.Len(t, rows, 4)
	assert.Equal(t, []Result{Pass, Warn, Pass, Pass}, []Result{rows[0].Result, rows[1].Result, rows[2].Result, rows[3].Result})
	assert.Contains(t, rows[1].Finding, "chmod go-w")
	assert.Contains(t, rows[3].Finding, "does not exist yet")
}

func TestDoctorRivalOfPlugins(t *testing.T) {
	dir, procfs := t.TempDir(), t.TempDir()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unix.Close(fd)) }()
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE)
	require.NoError(t, err)
	process := filepath.Join(procfs, "4711")
	require.NoError(t, os.MkdirAll(filepath.Join(process, "fdinfo"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(process, "comm"), []byte("katalyst-agent\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(process, "fd"), 0o755))
	require.NoError(t, os.Symlink("anon_inode:inotify", filepath.Join(process, "fd/7")))
	require.NoError(t, os.WriteFile(filepath.Join(process, "cgroup"), []byte("0::/system.slice/k.service\n"), 0o600))
	for of, from := range map[string]string{"mountinfo": "mountinfo", "fdinfo/7": fmt.Sprint("fdinfo/", fd)} {
		text, err := os.ReadFile(filepath.Join("/proc/self", from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(process, of), text, 0o600))
	}
	p := Examination{Paths: probes.Paths{Procfs: procfs}, PluginDirs: []string{dir}}
	rows := pluginDirs(p.Paths.Procfs, p.PluginDirs)
	require.Len(t, rows, 2)
	assert.Equal(t, Warn, rows[0].Result)
	assert.Contains(t, rows[0].Finding, "process 4711 (katalyst-agent, cgroup /system.slice/k.service) watches the plugin directory "+dir)
	p.PluginDirs = []string{t.TempDir()}
	assert.Equal(t, Pass, pluginDirs(p.Paths.Procfs, p.PluginDirs)[0].Result, "it watches elsewhere")
}
