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

func TestWhereOuterPluginsAreLookedForIsExamined(t *testing.T) {
	own, open, sticky := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(own, 0o711))
	require.NoError(t, os.Chmod(open, 0o777))
	require.NoError(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	p := Patient{Paths: probes.Paths{Procfs: "/proc"}, PluginDirs: []string{own, open, sticky, own + "/none"}}
	rows := p.plugins()
	require.Len(t, rows, 4)
	assert.Equal(t, []Result{Pass, Warn, Pass, Pass}, []Result{rows[0].Result, rows[1].Result, rows[2].Result, rows[3].Result})
	assert.Contains(t, rows[1].Finding, "chmod go-w")
	assert.Contains(t, rows[3].Finding, "is not there")
}

func TestKatalystsAgentOnTheSameDirectoryFails(t *testing.T) {
	dir, procfs := t.TempDir(), t.TempDir()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir, &st))
	process := filepath.Join(procfs, "4711")
	require.NoError(t, os.MkdirAll(filepath.Join(process, "fdinfo"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(process, "comm"), []byte("katalyst-agent\n"), 0o600))
	watch := fmt.Sprintf("pos:\t0\nflags:\t02004000\ninotify wd:1 ino:%x sdev:800013 mask:800afce ignored_mask:0\n", st.Ino)
	require.NoError(t, os.WriteFile(filepath.Join(process, "fdinfo/7"), []byte(watch), 0o600))
	p := Patient{Paths: probes.Paths{Procfs: procfs}, PluginDirs: []string{dir}}
	rows := p.plugins()
	require.Len(t, rows, 1)
	assert.Equal(t, Fail, rows[0].Result)
	assert.Contains(t, rows[0].Finding, "katalyst-agent (pid 4711) asks the plugins in "+dir)
	p.PluginDirs = []string{t.TempDir()}
	assert.Equal(t, Pass, p.plugins()[0].Result, "it watches elsewhere")
}
