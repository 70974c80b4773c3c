package probes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/psi"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestPSICPUFullAbsentForNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cpu")
	require.NoError(t, os.WriteFile(path, []byte("some avg10=0.44 avg60=0.12 avg300=0.09 total=4222263\nfull avg10=0.00 avg60=0.00 avg300=0.03 total=3358925\n"), 0o600))
	st, why := new(procFiles).readStall(path, false)
	assert.Empty(t, why)
	assert.Equal(t, snapshot.Stall{Some: snapshot.Some[uint64](4222263)}, st)
	st, _ = new(procFiles).readStall(path, true)
	assert.Equal(t, snapshot.Some[uint64](3358925), st.Full)
}

func TestPSIFileMissingOrOdd(t *testing.T) {
	dir := t.TempDir()
	st, why := new(procFiles).readStall(filepath.Join(dir, "memory"), true)
	assert.Equal(t, psi.WhyNone, why)
	assert.Zero(t, st)

	path := filepath.Join(dir, "io")
	require.NoError(t, os.WriteFile(path, []byte("some total=\n"), 0o600))
	st, why = new(procFiles).readStall(path, true)
	assert.Contains(t, why, "not a decimal number")
	assert.Zero(t, st)

	require.NoError(t, os.Symlink("/proc/self/mem", filepath.Join(dir, "eio")))
	st, why = new(procFiles).readStall(filepath.Join(dir, "eio"), true)
	assert.Contains(t, why, "input/output error")
	assert.Zero(t, st)
}
