package probes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/probes/internal/kerneltest"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// withoutCgroups is a Host of this machine that reads no cgroup.
func withoutCgroups(t *testing.T) *Host {
	t.Helper()
	h, err := NewHost(Paths{Procfs: "/proc", Sysfs: "/sys", Cgroupfs: t.TempDir()}, nil)
	require.NoError(t, err)
	return h
}

func TestLoopDeviceComesAndGoes(t *testing.T) {
	l := kerneltest.NewLoop(t)
	h := withoutCgroups(t)
	assert.Nil(t, diskOf(mustSample(t, h), l.Name), "it is not used yet")
	var sequence snapshot.Opt[uint64]
	l.Use(3, func() {
		d := diskOf(mustSample(t, h), l.Name)
		require.NotNil(t, d)
		assert.GreaterOrEqual(t, d.Reads, uint64(3))
		assert.Equal(t, graphNode{"loop", nil, snapshot.LayerStacked}, graphNode{d.Kind, d.Slaves, d.Layer})
		assert.Equal(t, u64(1<<20), d.SizeBytes)
		sequence = d.Sequence
	})
	// The same device, another file: it is not the same medium.
	l.Use(3, func() {
		d := diskOf(mustSample(t, h), l.Name)
		require.NotNil(t, d)
		assert.NotEqual(t, sequence, d.Sequence, "read at once and not when its turn comes")
	})
	l.Remove()
	s := mustSample(t, h)
	assert.Nil(t, diskOf(s, l.Name))
	assert.NotContains(t, h.disks.devices, l.Name)
	assert.Empty(t, probeError(t, s, "disks"))
	l.Add()
}

// On the real kernel, between two reads: the device is removed, made anew under
// its name and number, and did more than the old one.
func TestLoopDeviceRecreatedOnKernel(t *testing.T) {
	l := kerneltest.NewLoop(t)
	h, history := withoutCgroups(t), testHistory()
	find := func(s *snapshot.Snapshot) *snapshot.DiskState {
		for i := range s.Disks {
			if s.Disks[i].Name == l.Name {
				return &s.Disks[i]
			}
		}
		return nil
	}
	var old snapshot.DiskState
	l.Use(2, func() {
		history.Add(mustSample(t, h))
		d := find(history.Add(mustSample(t, h)))
		require.NotNil(t, d)
		old = *d
		require.False(t, old.Rates.IsZero())
	})
	l.Remove()
	l.Add()
	l.Use(100, func() {
		d := find(history.Add(mustSample(t, h)))
		require.NotNil(t, d)
		assert.Greater(t, d.Reads, old.Reads, "else this test shows nothing")
		assert.Equal(t, old.Number, d.Number)
		assert.True(t, d.Rates.IsZero(), "a rate across two devices: %+v", d.Rates)
		d = find(history.Add(mustSample(t, h)))
		assert.False(t, d.Rates.IsZero(), "it goes on as itself")
	})
}

// This machine's disks: a disk that some other stands on is never a second
// leaf beside it.
func TestDiskLayersOnThisMachine(t *testing.T) {
	s := mustSample(t, withoutCgroups(t))
	leaves := 0
	for _, d := range s.Disks {
		assert.NotEmpty(t, d.Kind, d.Name)
		assert.NotEmpty(t, d.Layer, d.Name)
		if d.Layer == snapshot.LayerLeaf {
			leaves++
		}
	}
	if len(s.Disks) > 0 {
		assert.Positive(t, leaves)
	}
}
