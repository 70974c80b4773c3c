package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// peerNode is a node of 2 GiB of which every task stalls, from a second on.
func peerNode(seconds int, memory snapshot.Memory, scans bool) []*snapshot.Sample {
	var list []*snapshot.Sample
	for i := range seconds {
		at := time.Duration(i+1) * time.Second
		s := &snapshot.Sample{Time: time.Unix(1000, 0).Add(at), Monotonic: at, Memory: memory}
		s.Memory.TotalBytes = snapshot.Some[uint64](2 << 30)
		s.Pressure.Memory.Full = snapshot.Some(uint64(at.Microseconds()))
		s.Memory.ScansKswapd = snapshot.Some[uint64](0)
		if scans {
			s.Memory.ScansKswapd = snapshot.Some(uint64(i))
		}
		list = append(list, s)
	}
	return list
}

// firstAlarm is the second of the first alarm; -1: none.
func firstAlarm(list []*snapshot.Sample, j judge) float64 {
	for _, s := range list {
		if len(j.judge(s)) > 0 {
			return s.Monotonic.Seconds() - 1
		}
	}
	return -1
}

// The kernel's avg10 of a stall of every task passes 10 % with the first update
// and 60 % with the fifth: 1-e^(-t/10) every two seconds.
func TestPeerRulesAlarmTimes(t *testing.T) {
	plenty := snapshot.Memory{AvailableBytes: snapshot.Some[uint64](1 << 30), FreeBytes: snapshot.Some[uint64](1 << 30)}
	stalls := peerNode(120, plenty, true)
	assert.InDelta(t, 2, firstAlarm(stalls, &naivePSI{}), 0)
	assert.InDelta(t, 40, firstAlarm(stalls, &oomd{}), 0, "30 s above 60 %, which is reached after 10")
	assert.InDelta(t, -1, firstAlarm(peerNode(120, plenty, false), &oomd{}), 0, "nothing is reclaimed")
	assert.InDelta(t, -1, firstAlarm(stalls, &kubelet{}), 0, "there is plenty")
}

func TestPeerRulesKubelet(t *testing.T) {
	mib := func(free, inactive uint64) snapshot.Memory {
		return snapshot.Memory{FreeBytes: snapshot.Some(free << 20), InactiveFileBytes: snapshot.Some(inactive << 20)}
	}
	list := append(peerNode(5, mib(500, 0), false), peerNode(60, mib(40, 40), false)[5:]...)
	assert.InDelta(t, 10, firstAlarm(list, &kubelet{}), 0)
	assert.InDelta(t, -1, firstAlarm(peerNode(60, mib(40, 80), false), &kubelet{}), 0)
}

func TestPeerRulesOomd(t *testing.T) {
	m := snapshot.Memory{
		AvailableBytes: snapshot.Some[uint64](100 << 20), SwapTotalBytes: snapshot.Some[uint64](1000), SwapFreeBytes: snapshot.Some[uint64](99),
	}
	assert.InDelta(t, 0, firstAlarm(peerNode(3, m, false), &oomd{}), 0)
	m.SwapFreeBytes = snapshot.Some[uint64](101)
	assert.InDelta(t, -1, firstAlarm(peerNode(3, m, false), &oomd{}), 0)
	m.SwapFreeBytes, m.AvailableBytes = snapshot.Some[uint64](0), snapshot.Some[uint64](300<<20)
	assert.InDelta(t, -1, firstAlarm(peerNode(3, m, false), &oomd{}), 0, "there is memory left")
}

// spells are what the table is made of.
func TestSpellsAgainstLabel(t *testing.T) {
	of := func(r plugins.Resource, l plugins.Level, from, to float64) spell {
		s := spell{alarm: alarm{r, "", l}}
		s.From, s.To = from, to
		return s
	}
	l := hardLabel(20, 60)
	for _, c := range []struct {
		name                    string
		spells                  []spell
		falseHard, soft, missed int
	}{
		{"as wanted, and what is below it", []spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Memory, plugins.Soft, 15, 95)}, 0, 0, 0},
		{"never", nil, 0, 0, 1},
		{"soft alone", []spell{of(plugins.Memory, plugins.Soft, 25, 90)}, 0, 0, 1},
		{"before the load", []spell{of(plugins.Memory, plugins.Hard, 5, 90)}, 1, 0, 0},
		{"too long", []spell{of(plugins.Memory, plugins.Hard, 25, 101)}, 1, 0, 0},
		{"soft of something else besides", []spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Disk, plugins.Soft, 25, 90)}, 0, 0, 0},
		{"soft of something else before", []spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Disk, plugins.Soft, 5, 90)}, 0, 1, 0},
		{"hard of something else besides", []spell{of(plugins.Memory, plugins.Hard, 25, 90), of(plugins.Disk, plugins.Hard, 25, 90)}, 1, 0, 0},
		{"over before it began", []spell{of(plugins.Memory, plugins.Hard, 12, 18)}, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := held(l, c.spells, plugins.Memory, plugins.Disk)
			assert.Equal(t, []int{c.falseHard, c.soft, c.missed}, []int{len(r.falseHard), len(r.falseSoft), len(r.missed)})
		})
	}
}
