package plugins

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// below is a node whose disk has a ceiling, past its warm-up.
func below(t *testing.T, ceiling DiskCeiling) *diskNode {
	t.Helper()
	n := newDiskNode(t)
	c := diskConfig()
	c.DiskContention.Ceilings = []DiskCeiling{{Device: "sdz", IOPS: 1}, ceiling}
	n.set = NewSet(c, nil)
	n.seconds(310, calm())
	return n
}

// busier is fast for the disk, and somebody waits.
func busier() diskSecond {
	return diskSecond{requests: 400, size: 1 << 20, await: 0.001, busy: 0.4, backup: 0.9, waits: 0.7}
}

func TestDiskCeilingJudgedThoughFast(t *testing.T) {
	for unit, row := range map[string]struct {
		ceiling DiskCeiling
		says    string
	}{
		"requests/s": {DiskCeiling{Device: "sda", IOPS: 400}, "throughput 400 requests/s (needs ≥ 400, its ceiling)"},
		"bytes/s":    {DiskCeiling{Device: "sda", BytesPerSecond: 300 << 20}, "throughput 400.0 MiB/s (needs ≥ 300.0 MiB/s, its ceiling)"},
	} {
		t.Run(unit, func(t *testing.T) {
			n := below(t, row.ceiling)
			v := n.seconds(90, busier())
			require.Equal(t, Soft, v.Level, v.Reason)
			assert.Contains(t, v.Reason, row.says)
			assert.Contains(t, v.Reason, "database waits 14")
			assert.Equal(t, unit, v.Unit)
			assert.Empty(t, v.Absent)
			require.Len(t, v.Candidates, 1)
			assert.Equal(t, "backup", v.Candidates[0].Name)
			assert.Equal(t, None, n.seconds(60, calm()).Level)
		})
	}
}

func TestDiskCeilingMostExceededShown(t *testing.T) {
	n := below(t, DiskCeiling{Device: "sda", IOPS: 1000, BytesPerSecond: 200 << 20})
	assert.Equal(t, "bytes/s", n.seconds(90, busier()).Unit)
	n = below(t, DiskCeiling{Device: "sda", IOPS: 100, BytesPerSecond: 200 << 20})
	assert.Equal(t, "requests/s", n.seconds(90, busier()).Unit)
}

func TestDiskCeilingWithoutSufferers(t *testing.T) {
	alone := busier()
	alone.backup, alone.waits = 1, 0
	n := below(t, DiskCeiling{Device: "sda", IOPS: 400})
	n.never(200, alone)
	assert.Contains(t, n.levels.Verdicts[0].Reason, "busy, but no workload waits because of others")
	n = below(t, DiskCeiling{Device: "sda", IOPS: 401})
	n.never(200, busier())
}

// The times count for nothing then: what the ceiling says is what was meant.
func TestDiskCeilingReplacesAwait(t *testing.T) {
	n := below(t, DiskCeiling{Device: "sda", IOPS: 5000})
	n.never(200, pressedHard())
}
