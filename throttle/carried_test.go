package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestCarried(t *testing.T) {
	target := Target{Cgroup: "/a", Disk: "vda"}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := Input{
		Workloads: map[string]Workload{"/a": {}}, Disks: map[string]Pressure{"vda": {Level: plugins.Soft, Named: true}},
		Culprits: map[Target]Use{target: {Rates: Rates{Read: 300e6, Write: 10e6}}},
	}
	falls := 0
	round := func(list map[Target]Throttle, seconds int, read float64) map[Target]Throttle {
		in.Time = now.Add(time.Duration(seconds) * time.Second)
		in.Carried = carried(&snapshot.Snapshot{}, &plugins.Levels{Disks: []plugins.DiskCapacity{{Device: "vda", Knee: plugins.Knee{Falls: falls}, ReadBytesPerSecond: read}}})
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
	t.Run("and follows it when it falls, not up", func(t *testing.T) {
		list := round(nil, 0, 100e6)
		falls++
		list = round(list, 1, 0)
		assert.InDelta(t, 80e6, limit(list).Read, 1, "what it carries is not known yet")
		list = round(list, 2, 20e6)
		assert.InDelta(t, 16e6, limit(list).Read, 1)
		list = round(list, 3, 100e6)
		assert.InDelta(t, 16e6, limit(list).Read, 1)
	})
	t.Run("in each direction, once it is known", func(t *testing.T) {
		list := round(nil, 0, 100e6)
		falls++
		list = round(list, 1, 20e6)
		assert.Equal(t, Rates{Read: 20e6, Write: 10e6}, list[target].Base, "of writes it is not known")
		for _, write := range []float64{2e6, 1e6} {
			in.Carried = map[string]Carried{"vda": {Rates{Read: 20e6, Write: write}, falls}}
			list = Next(list, in)
			assert.Equal(t, Rates{Read: 20e6, Write: 2e6}, list[target].Base, "one fall lowers it once")
		}
	})
	t.Run("what the disk does under the limit is no fall", func(t *testing.T) {
		list := round(round(nil, 0, 300e6), 10, 268e6)
		assert.InDelta(t, 300e6, list[target].Base.Read, 1)
		falls = 0
		list = round(list, 11, 268e6)
		falls++
		assert.InDelta(t, 20e6, round(list, 12, 20e6)[target].Base.Read, 1, "also where falls were counted anew")
	})
	t.Run("no less than the disk does while the use is measured", func(t *testing.T) {
		s := &snapshot.Snapshot{Disks: []snapshot.DiskState{{Disk: snapshot.Disk{Name: "vda"}, Rates: snapshot.Some(snapshot.DiskRates{ReadBytesPerSecond: 9e6, WrittenBytesPerSecond: 60e6})}}}
		l := &plugins.Levels{Disks: []plugins.DiskCapacity{{Device: "vda", ReadBytesPerSecond: 100e6, WrittenBytesPerSecond: 200e3}}} // journals alone
		assert.Equal(t, Rates{Read: 100e6, Write: 60e6}, carried(s, l)["vda"].Rates)
		assert.Equal(t, carried(s, l), NewInput(s, l, nil, nil).Carried)
		l.Disks[0].WrittenBytesPerSecond = 0
		assert.Zero(t, carried(s, l)["vda"].Write, "what is not known stays so")
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
		falls++
		in.Disks["vda"] = Pressure{Unknown: true}
		assert.Equal(t, 100e6, round(list, 1, 20e6)[target].Base.Read)
	})
}
