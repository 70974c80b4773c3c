package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// computes is one pod that takes the CPUs, at so many seconds.
func computes(seconds int, level plugins.Level, w Workload) Input {
	return Input{
		Time: at(time.Duration(seconds) * time.Second), Workloads: map[string]Workload{"pod": w},
		Culprits: map[Target]Use{cpu: {Rates: Rates{CPU: 2}}}, CPU: Pressure{Level: level},
	}
}

func TestResizeDecidedOnce(t *testing.T) {
	resizable := Workload{Resizable: true}
	list := Next(nil, computes(0, plugins.Hard, resizable))
	c := list[cpu]
	assert.True(t, c.UndecidedResize(cpu, &resizable))
	assert.False(t, c.UndecidedResize(cpu, &Workload{}), "not configured")
	assert.False(t, c.UndecidedResize(nvme, &resizable), "a disk")
	assert.False(t, c.UndecidedResize(Target{Cgroup: "pod", Memory: true}, &resizable), "memory")
	yes, no := c.DecideResize(""), c.DecideResize("it has no limit")
	assert.True(t, yes.Resized)
	assert.False(t, yes.UndecidedResize(cpu, &resizable))
	assert.Equal(t, "it has no limit", no.NotResized)
	assert.False(t, no.UndecidedResize(cpu, &resizable))
	none := func(string) []string { return []string{"pod"} }
	assert.Empty(t, Limits(map[Target]Throttle{cpu: yes}, nil, none), "its cpu.max is left alone")
	assert.Equal(t, map[Knob]float64{{Cgroup: "pod", Name: CPU}: 0.4}, Limits(map[Target]Throttle{cpu: no}, nil, none))
}

// A resize that is not in effect yet has shown no effect.
func TestResizeNotJudgedBeforeEffect(t *testing.T) {
	in := computes(0, plugins.Hard, Workload{Resizable: true})
	in.CPU.Waited = snapshot.Some(0.2)
	list := Next(nil, in)
	c := list[cpu]
	list[cpu] = c.DecideResize("")
	for s := 1; s < 15; s++ {
		in = computes(s, plugins.Hard, Workload{Resizable: true})
		in.CPU.Waited, in.Resizing = snapshot.Some(0.9), map[Target]Resizing{cpu: {Why: "Deferred", Since: noon}}
		list = Next(list, in)
		require.True(t, list[cpu].Resized)
		require.Zero(t, list[cpu].UselessUntil, "%d s", s)
	}
	in.Time, in.Resizing = at(15*time.Second), nil
	assert.NotZero(t, Next(list, in)[cpu].UselessUntil, "now it harms")
}

func TestResizeNotInEffect(t *testing.T) {
	begin := func() map[Target]Throttle {
		list := Next(nil, computes(0, plugins.Hard, Workload{Resizable: true}))
		c := list[cpu]
		return map[Target]Throttle{cpu: c.DecideResize("")}
	}
	waits := func(since int) Resizing {
		return Resizing{Why: "Deferred", Since: at(time.Duration(since) * time.Second)}
	}
	refused := Resizing{Why: "no right", Since: at(time.Hour), Refused: true}
	for name, c := range map[string]struct {
		rounds []Resizing // one every 5 s
		w      Workload
		want   string // why it is not resized; empty: it is
	}{
		"in effect":               {[]Resizing{{}, {}, {}, {}, {}}, Workload{Resizable: true}, ""},
		"not in time":             {[]Resizing{{}, waits(0), waits(0)}, Workload{Resizable: true}, "Deferred"},
		"just in time":            {[]Resizing{{}, waits(0), {}, {}}, Workload{Resizable: true}, ""},
		"each step in time":       {[]Resizing{{}, waits(0), {}, waits(15), waits(15), {}}, Workload{Resizable: true}, ""},
		"the clock was set":       {[]Resizing{waits(1000)}, Workload{Resizable: true}, ""},
		"refused":                 {[]Resizing{refused}, Workload{Resizable: true}, "no right"},
		"switched off":            {[]Resizing{{}}, Workload{}, "throttle.resize is false, or its QoS class is not Burstable"},
		"its pod is not listed":   {[]Resizing{refused, waits(0), waits(0), waits(0)}, Workload{Unlisted: true}, ""},
		"refused after it worked": {[]Resizing{{}, {}, refused}, Workload{Resizable: true}, "no right"},
	} {
		t.Run(name, func(t *testing.T) {
			list := begin()
			for i, r := range c.rounds {
				in := computes(5*(i+1), plugins.Hard, c.w)
				in.Resizing = map[Target]Resizing{cpu: r}
				list = Next(list, in)
			}
			got := list[cpu]
			assert.Equal(t, []any{c.want == "", c.want}, []any{got.Resized, got.NotResized})
			assert.True(t, got.InForce(), "it is still throttled, by cpu.max")
			now := at(5 * time.Duration(len(c.rounds)) * time.Second)
			if c.want != "" {
				assert.Equal(t, []time.Time{now, now}, []time.Time{got.Began, got.FloorSince}, "cpu.max has as long to show its effect")
				assert.True(t, got.Tries(now.Add(effectAfter-time.Second)))
			}
		})
	}
}

func TestResizeDecidedAnewAfterRelease(t *testing.T) {
	w := Workload{Resizable: true}
	c := Next(nil, computes(0, plugins.Hard, w))[cpu]
	list := map[Target]Throttle{cpu: c.DecideResize("")}
	s := 1
	for ; list[cpu].Began != (time.Time{}); s++ {
		list = Next(list, computes(s, plugins.None, w))
	}
	list = Next(list, computes(s, plugins.Hard, w))
	c = list[cpu]
	assert.True(t, c.UndecidedResize(cpu, &w), "its pod may have changed")
}

// Whatever the API server and the kubelet say, a resize that was not in effect for 15 s has
// ended, nothing else ends one that may be, and none that has ended begins again.
func FuzzResizeNotInEffect(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{0x80, 0x14, 0x94, 0x7f})
	f.Fuzz(func(t *testing.T, history []byte) {
		w := Workload{Resizable: true}
		c := Next(nil, computes(0, plugins.Hard, w))[cpu]
		list, ended, since, now := map[Target]Throttle{cpu: c.DecideResize("")}, false, 0, 0
		for _, b := range history {
			now += int(b & 7)
			in, says := computes(now, plugins.Hard, w), Resizing{}
			if b&8 == 0 {
				since = now
			} else {
				says = Resizing{Why: "waits", Since: at(time.Duration(since) * time.Second), Refused: b&0xf0 == 0xf0}
				ended = ended || says.Refused || now-since >= 15
			}
			in.Resizing = map[Target]Resizing{cpu: says}
			list = Next(list, in)
			require.Equal(t, ended, !list[cpu].Resized)
			require.Equal(t, ended, list[cpu].NotResized != "")
		}
	})
}

func TestResizableWorkloads(t *testing.T) {
	of := func(resize bool, qos string) bool {
		c := DefaultConfig()
		c.Resize, c.Classes = resize, []string{bestEffort, burstable}
		w := c.Of(&pods.Pod{QoS: qos, Throttle: "allow"}, "", nil)
		return w.Resizable
	}
	assert.False(t, DefaultConfig().Resize)
	assert.True(t, of(true, burstable))
	assert.False(t, of(false, burstable))
	assert.False(t, of(true, bestEffort), "a CPU limit would make it Burstable")
	assert.False(t, of(true, guaranteed))
}
