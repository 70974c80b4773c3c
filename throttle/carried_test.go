package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

func TestCarried(t *testing.T) {
	target := Target{Cgroup: "/a", Disk: "vda"}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := Input{
		Workloads: map[string]Workload{"/a": {}}, Disks: map[string]Pressure{"vda": {Level: plugins.Soft, Named: true}},
		Culprits: map[Target]Use{target: {Rates: Rates{Read: 300e6, Write: 10e6}}},
	}
	round := func(list map[Target]Throttle, seconds int, read float64) map[Target]Throttle {
		in.Time = now.Add(time.Duration(seconds) * time.Second)
		in.Carried = carried(&plugins.Levels{Disks: []plugins.DiskCapacity{{Device: "vda", ReadBytesPerSecond: read}}})
		return Next(list, in)
	}
	limit := func(list map[Target]Throttle) Rates {
		c := list[target]
		return c.Limits()
	}
	t.Run("a throttle starts from what the disk carries", func(t *testing.T) {
		list := round(nil, 0, 100e6)
		assert.Equal(t, Rates{Read: 100e6, Write: 10e6}, list[target].Base, "of writes it is not known")
		assert.Equal(t, Rates{Read: 80e6, Write: 8e6}, limit(list))
	})
	t.Run("and follows it down, not up", func(t *testing.T) {
		list := round(nil, 0, 100e6)
		list = round(list, 1, 20e6)
		assert.InDelta(t, 16e6, limit(list).Read, 1)
		list = round(list, 2, 100e6)
		assert.InDelta(t, 16e6, limit(list).Read, 1)
	})
	t.Run("what is not known bounds nothing", func(t *testing.T) {
		assert.Equal(t, Rates{Read: 300e6, Write: 10e6}, round(nil, 0, 0)[target].Base)
		in.Carried = nil
		assert.Equal(t, Rates{Read: 300e6, Write: 10e6}, Next(nil, in)[target].Base)
	})
	t.Run("a CPU is no disk", func(t *testing.T) {
		assert.Equal(t, Rates{CPU: 4, Memory: 5}, in.within(Target{Cgroup: "/a"}, Rates{CPU: 4, Memory: 5}))
	})
	t.Run("while the pressure cannot be measured it stays", func(t *testing.T) {
		list := round(nil, 0, 100e6)
		in.Disks["vda"] = Pressure{Unknown: true}
		assert.Equal(t, 100e6, round(list, 1, 20e6)[target].Base.Read)
	})
}
