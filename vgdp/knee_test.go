package vgdp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// A budget that pressure has shrunk does not grow while its movers have all that the disk
// carries; it shrinks for nothing but pressure.
func TestBudgetAtKnee(t *testing.T) {
	next := func(b Budget, second int, knee string) Budget {
		return b.Next(NodePressure{Time: at(time.Duration(second) * time.Second), Configured: 4, Running: 2, AtKnee: knee})
	}
	b := live(Budget{}, 0, 1, plugins.Soft, 2)
	for s := 1; s < 600; s++ {
		b = next(b, s, "vda")
	}
	assert.Equal(t, 2, b.Limit)
	assert.Equal(t, "vda is busy with all that it carries; the budget does not grow meanwhile", b.Why)
	for s := 600; s < 660; s++ {
		b = next(b, s, "")
	}
	assert.Equal(t, 3, b.Limit)
	free := next(Budget{}, 0, "vda")
	assert.Zero(t, free.Limit, "without pressure before, a disk may be busy")
	assert.Empty(t, free.Why)
}

func TestAtKnee(t *testing.T) {
	const mover, other = "/kubepods/mover", "/kubepods/other"
	s := &snapshot.Snapshot{}
	of := func(device string, share float64) snapshot.Contention {
		return snapshot.Contention{Resource: snapshot.SharedDisk, Device: device, Culprits: []snapshot.Culprit{
			{Party: snapshot.Party{Cgroup: other}, Share: 1 - share}, {Party: snapshot.Party{Cgroup: mover}, Share: share},
		}}
	}
	l := &plugins.Levels{Disks: []plugins.DiskCapacity{{Device: "vda", AtKnee: true}, {Device: "vdb"}}}
	for name, c := range map[string]struct {
		device string
		share  float64
		want   string
	}{
		"a mover's disk":                  {"vda", 0.2, "vda"},
		"one that others use":             {"vda", 0.1, ""},
		"one that could carry more":       {"vdb", 0.9, ""},
		"one of which nothing is learned": {"vdc", 0.9, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.Contention = []snapshot.Contention{{Resource: snapshot.SharedMemory}, of(c.device, c.share)}
			assert.Equal(t, c.want, AtKnee(s, l, map[string]bool{mover: true}))
		})
	}
}
