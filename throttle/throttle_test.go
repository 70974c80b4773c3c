package throttle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

const mib = 1 << 20

var (
	nvme = Target{Cgroup: "pod", Disk: "nvme0n1"}
	cpu  = Target{Cgroup: "pod"}
)

// pressed is one pod on one disk, at so many seconds, with that level.
func pressed(seconds int, level plugins.Level, rates Rates) Input {
	return Input{
		Time: at(time.Duration(seconds) * time.Second), Workloads: map[string]Workload{"pod": {}},
		Culprits: map[Target]Use{nvme: {Rates: rates}}, Disks: map[string]Pressure{"nvme0n1": {Level: level}},
	}
}

func TestThrottleStepsDownToFifth(t *testing.T) {
	list := Next(nil, pressed(0, plugins.None, Rates{Read: 100 * mib}))
	assert.Empty(t, list)
	list = Next(list, pressed(1, plugins.Soft, Rates{Read: 100 * mib, Write: 10 * mib}))
	c := list[nvme]
	assert.Equal(t, Rates{Read: 80 * mib, Write: 8 * mib}, c.Limits())
	var steps []int
	for s := 2; s < 60; s++ {
		list = Next(list, pressed(s, plugins.Soft, Rates{Read: 5 * mib})) // slower, by our own doing
		steps = append(steps, list[nvme].Percent)
	}
	assert.Equal(t, []int{80, 60, 40, 20, 20}, []int{steps[8], steps[9], steps[19], steps[29], steps[57]})
	c = list[nvme]
	assert.Equal(t, Rates{Read: 20 * mib, Write: 2 * mib}, c.Limits(), "what it uses while it is throttled says nothing")
	list = Next(nil, pressed(0, plugins.Hard, Rates{Read: 100 * mib}))
	assert.Equal(t, FloorPercent, list[nvme].Percent, "hard pressure: at once")
}

func TestThrottleReleasedInSteps(t *testing.T) {
	list := Next(nil, pressed(0, plugins.Hard, Rates{Read: 100 * mib}))
	var at30, free, gone int
	for s := 1; len(list) > 0; s++ {
		require.Less(t, s, 1000)
		list = Next(list, pressed(s, plugins.None, Rates{Read: 20 * mib}))
		c := list[nvme]
		if c.Percent == 30 && at30 == 0 {
			at30 = s
		}
		if !c.InForce() && free == 0 {
			free = s
		}
		gone = s
	}
	assert.Equal(t, []int{31, 1 + 8*30}, []int{at30, free}, "30 s after the first moment without pressure")
	assert.Equal(t, free+60, gone)
}

func TestThrottleBaseRemembered(t *testing.T) {
	list := Next(nil, pressed(0, plugins.Hard, Rates{Read: 100 * mib}))
	s := 1
	for c := list[nvme]; c.InForce(); c = list[nvme] {
		require.Less(t, s, 1000)
		list = Next(list, pressed(s, plugins.None, Rates{Read: 20 * mib}))
		s++
	}
	list = Next(list, pressed(s, plugins.Hard, Rates{Read: 90 * mib})) // the window still has the limit in it
	c := list[nvme]
	assert.InDelta(t, 20*mib, c.Limits().Read, 1, "no pod is ground down by one throttle after another")
}

func TestThrottleExpires(t *testing.T) {
	list := Next(nil, pressed(0, plugins.Hard, Rates{Read: 100 * mib}))
	assert.Equal(t, at(Lifetime), list[nvme].Expires)
	none := Rates{}
	assert.NotEmpty(t, Next(list, pressed(299, plugins.Hard, none)))
	assert.Empty(t, Next(list, pressed(300, plugins.Hard, none)), "an agent that starts finds it and takes it away")
	gone := pressed(1, plugins.Hard, none)
	gone.Workloads = nil
	assert.Empty(t, Next(list, gone), "its pod has ended")
}

// One that is throttled on one resource is throttled on another: from what it used before the
// first, or it would have a fifth of a fifth.
func TestThrottleSecondResource(t *testing.T) {
	list := Next(nil, pressed(0, plugins.Hard, Rates{Read: 100 * mib}))
	in := pressed(30, plugins.Hard, Rates{Read: 20 * mib})
	in.CPU.Level = plugins.Hard
	in.Culprits[cpu] = Use{Rates: Rates{CPU: 0.4}}
	list = Next(list, in)
	limits := func(t Target) Rates { c := list[t]; return c.Limits() }
	assert.InDelta(t, 0.4, limits(cpu).CPU, 1e-9, "a fifth of two cores")
	assert.Equal(t, Rates{Read: 20 * mib, Write: 20 * mib}, limits(nvme))

	in = pressed(0, plugins.Hard, Rates{Read: 100 * mib})
	in.CPU.Level = plugins.Hard
	in.Culprits[cpu] = Use{Rates: Rates{CPU: 2}}
	list = Next(nil, in)
	assert.InDelta(t, 0.4, limits(cpu).CPU, 1e-9, "both at once: neither is the other's effect")
	assert.Equal(t, Rates{Read: 20 * mib, Write: 20 * mib}, limits(nvme))

	second := func(first, second Input) float64 {
		first.CPU.Level, second.CPU.Level, second.CPUs = plugins.Hard, plugins.Hard, 4
		second.Culprits[cpu] = Use{Rates: Rates{CPU: 1}}
		list = Next(Next(nil, first), second)
		return limits(cpu).CPU
	}
	small, in := pressed(0, plugins.Hard, Rates{Read: 2 * mib}), pressed(30, plugins.Hard, Rates{Read: 2 * mib})
	assert.InDelta(t, 0.4, second(small, in), 1e-9, "the first limit, its lower bound, is half of what was used: a fifth of two cores")
	small, in = pressed(0, plugins.Hard, Rates{Read: 100 * mib}), pressed(30, plugins.Hard, Rates{Read: 20 * mib})
	assert.InDelta(t, 0.8, second(small, in), 1e-9, "five times one core is more than the node has: a fifth of four")
	for _, in := range []*Input{&small, &in} {
		w := in.Workloads["pod"]
		w.DryRun = true
		in.Workloads["pod"] = w
	}
	assert.InDelta(t, 0.2, second(small, in), 1e-9, "a dry run limits nothing")
	small, in = pressed(0, plugins.Hard, Rates{Read: 100 * mib}), pressed(30, plugins.Hard, Rates{Read: 100 * mib})
	in.Unwritten = map[Target]bool{nvme: true}
	assert.InDelta(t, 0.2, second(small, in), 1e-9, "nor does a limit that is not written")

	list = Next(nil, pressed(0, plugins.Soft, Rates{Read: 100 * mib}))
	list = Next(list, pressed(1, plugins.Hard, Rates{Read: 80 * mib}))
	in = pressed(2, plugins.Hard, Rates{Read: 80 * mib})
	in.CPU.Level, in.Pending = plugins.Hard, map[Target]bool{nvme: true}
	in.Culprits[cpu] = Use{Rates: Rates{CPU: 1}}
	list = Next(list, in)
	assert.InDelta(t, 0.25, limits(cpu).CPU, 1e-9, "the limit in force is the first step")
}

// What uses no more than the least limit is not throttled, and how far another one is limited is
// what its limits are of what it used.
func TestThrottleLeastLimit(t *testing.T) {
	for want, use := range map[string]Rates{
		"it uses 0.6 MB/s, no more than the least limit of 1 MB/s": {Read: 600_000, Write: 300_000},
		"it uses 0.3 MB/s, no more than the least limit of 1 MB/s": {Write: 300_000},
		"it uses 0.05 cores, no more than the least limit of 0.1":  {CPU: 0.05},
		"it uses 0.3 cores, no more than the 0.5 that it requests": {CPU: 0.3},
		"": {Read: 2e6},
	} {
		target := nvme
		if use.CPU > 0 {
			target = cpu
		}
		in := pressed(0, plugins.Hard, use)
		in.CPU.Level = plugins.Hard
		in.Culprits = map[Target]Use{target: {Rates: use}}
		if use.CPU > minCPU {
			in.Workloads["pod"] = Workload{RequestCores: 0.5}
		}
		list := Next(nil, in)
		assert.Equal(t, want == "", len(list) == 1, want)
		if want != "" {
			assert.Equal(t, []NotThrottled{{target, want}}, Exempted(list, in))
		}
	}
	allowed := func(c Throttle) int { return c.Allowed() }
	assert.Equal(t, 52, allowed(Throttle{Base: Rates{Read: 2e6}, Percent: 20}))
	assert.Equal(t, 21, allowed(Throttle{Base: Rates{Read: 2e6, Write: 100e6}, Percent: 20}), "of both together")
	assert.Equal(t, 20, allowed(Throttle{Base: Rates{Write: 100e6}, Percent: 20}))
	assert.Equal(t, 75, allowed(Throttle{Base: Rates{CPU: 2}, Request: 1.5, Percent: 20}))
	assert.Equal(t, 100, allowed(Throttle{Base: Rates{Read: 100}, Percent: 20}), "its disk carries less by now")
	assert.Equal(t, 100, allowed(Throttle{Base: Rates{Memory: 1}, Percent: 100}))
}

// The wall clock is set while a throttle is in force: nothing else changes, also where its
// pod still causes the pressure. By what it uses then, a fifth would be a fifth of a fifth.
func TestThrottleClockSet(t *testing.T) {
	round := func(before map[Target]Throttle, second int, set time.Duration) (map[Target]Throttle, Input) {
		in := pressed(second, plugins.Hard, Rates{Read: 100 * mib})
		if len(before) > 0 {
			in = pressed(second, plugins.Hard, Rates{Read: 20 * mib}) // through the limit
		}
		in.Time, in.Booted = in.Time.Add(set), in.Time.Add(set-time.Duration(second)*time.Second-time.Hour)
		return Next(before, in), in
	}
	for _, set := range []time.Duration{0, time.Millisecond, -time.Hour, time.Hour, 1000 * time.Hour} {
		list, _ := round(nil, 0, 0)
		for s := 1; s < 100; s++ {
			list, _ = round(list, s, 0)
		}
		list, in := round(list, 100, set)
		c := list[nvme]
		assert.Equal(t, Rates{Read: 20 * mib, Write: 20 * mib}, c.Limits(), "%s", set)
		assert.Equal(t, 100*time.Second, in.Time.Sub(c.Began).Round(time.Second), "%s", set)
		assert.Equal(t, in.Time.Add(Lifetime), c.Expires, "%s", set)
	}
}

func TestThrottleOnlyMeasuredAndPressed(t *testing.T) {
	in := pressed(0, plugins.Hard, Rates{})
	assert.Empty(t, Next(nil, in))
	in.Culprits = map[Target]Use{{Cgroup: "pod", Disk: "other"}: {Rates: Rates{Read: 1}}}
	assert.Empty(t, Next(nil, in), "that disk is not pressed")
	in.Culprits = map[Target]Use{cpu: {Rates: Rates{CPU: 2}}}
	in.CPU.Level = plugins.Soft
	list := Next(nil, in)
	c := list[cpu]
	assert.Len(t, list, 1)
	assert.InDelta(t, 1.6, c.Limits().CPU, 1e-9)
	c.Base.CPU = 0.01
	assert.InDelta(t, minCPU, c.Limits().CPU, 1e-9)
	c.Request = 1.5
	assert.InDelta(t, 1.5, c.Limits().CPU, 1e-9, "what it requests it may always use")
	c = Throttle{Base: Rates{Write: 1}, Percent: 20}
	assert.Equal(t, Rates{Read: minBytes, Write: minBytes}, c.Limits())
	c.Base = Rates{Write: 50 * mib}
	assert.Equal(t, Rates{Read: 10 * mib, Write: 10 * mib}, c.Limits(), "it may turn round")
}

// waited is pressure on a disk for which one waits that share of the time.
func waited(seconds int, share float64, w Workload) Input {
	in := pressed(seconds, plugins.Hard, Rates{Read: 100 * mib})
	in.Disks["nvme0n1"] = Pressure{Level: plugins.Hard, Waited: snapshot.Some(share)}
	in.Workloads["pod"] = w
	return in
}

// givenUp throttles for two minutes and says in which second that ended; 0: never.
func givenUp(after float64, w Workload) (list map[Target]Throttle, second int) {
	list = Next(nil, waited(0, 0.5, w))
	for s := 1; s < 120; s++ {
		list = Next(list, waited(s, after, w))
		if c := list[nvme]; !c.InForce() && second == 0 {
			second = s
		}
	}
	return list, second
}

func TestThrottleThatDoesNotHelp(t *testing.T) {
	for name, row := range map[string]struct {
		after  float64 // the waiting that is left of 0.5
		w      Workload
		second int
	}{
		"the waiting is as long":        {0.5, Workload{}, 20},
		"a tenth shorter is no help":    {0.45, Workload{}, 20},
		"a fifth shorter is":            {0.4, Workload{}, 0},
		"half as long again harms":      {0.75, Workload{}, 10},
		"a little longer may be chance": {0.7, Workload{}, 20},
		"a dry run cannot help":         {0.5, Workload{DryRun: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, second := givenUp(row.after, row.w)
			assert.Equal(t, row.second, second)
		})
	}
	list, _ := givenUp(0.5, Workload{})
	assert.Contains(t, Exempted(list, waited(121, 0.5, Workload{}))[0].Why, "it did not help; not tried again before 12:10:20 UTC")
	c := Next(list, waited(620, 0.5, Workload{}))[nvme]
	assert.Equal(t, FloorPercent, c.Percent, "then it is tried again")
}

// A limit that is not written yet has shown no effect, whoever waits: once it is written it
// has all its time, and is judged by who waited then.
func TestThrottleUnwritten(t *testing.T) {
	list := Next(nil, waited(0, 0.2, Workload{}))
	for s := 1; s < 120; s++ {
		in := waited(s, 0.9, Workload{})
		in.Unwritten = map[Target]bool{nvme: s <= 100}
		list = Next(list, in)
		c := list[nvme]
		require.True(t, c.InForce(), "%d s", s)
	}
	c := list[nvme]
	assert.True(t, c.Tries(at(119*time.Second)))
	c = Next(list, waited(120, 0.9, Workload{}))[nvme]
	assert.False(t, c.InForce(), "it does not help")
}

// The second step is not written: it is tried again while the pod is a culprit, and is not judged
// before. The first one is, if it harms, and it ends.
func TestThrottlePending(t *testing.T) {
	in := func(s int, level plugins.Level, share float64) Input {
		in := waited(s, share, Workload{})
		in.Disks["nvme0n1"] = Pressure{Level: level, Waited: snapshot.Some(share)}
		in.Pending = map[Target]bool{nvme: s > 10 && s < 200}
		return in
	}
	var list map[Target]Throttle
	for s := range 100 {
		list = Next(list, in(s, plugins.Soft, 0.5))
		require.Equal(t, map[bool]int{false: 80, true: 60}[s >= 10], list[nvme].Percent, "%d s", s)
	}

	harms := Next(list, in(100, plugins.Soft, 0.9))[nvme]
	assert.False(t, harms.InForce())
	another := in(100, plugins.Soft, 0.5)
	another.Culprits = nil
	assert.Equal(t, 80, Next(list, another)[nvme].Percent, "another pod presses")
	released := list
	for s := 100; s < 161; s++ {
		c := released[nvme]
		require.True(t, c.InForce(), "%d s", s)
		released = Next(released, in(s, plugins.None, 0))
	}
	ended := released[nvme]
	assert.False(t, ended.InForce(), "in two steps from 80 %")

	for s := 100; s < 219; s++ {
		list = Next(list, in(s, plugins.Hard, 0.5))
		require.Equal(t, FloorPercent, list[nvme].Percent, "%d s", s)
	}
	useless := Next(list, in(219, plugins.Hard, 0.5))[nvme]
	assert.False(t, useless.InForce(), "20 s after it was written")
}

// No limit was in force for minutes, and the pod uses ten times as much by now: the first limit is
// the first step, from that. One that causes no pressure then gets none.
func TestThrottleBeginsFromUseNow(t *testing.T) {
	for name, row := range map[string]struct {
		was, now  float64 // what it uses, in MiB/s
		before    Workload
		unwritten int // since that second
		another   bool
		want      float64 // limit, in MiB/s; 0: none
	}{
		"a dry run ends":             {was: 10, now: 100, before: Workload{DryRun: true}, unwritten: 220, want: 80},
		"of what uses less by now":   {was: 100, now: 10, before: Workload{DryRun: true}, unwritten: 220, want: 8},
		"and another pod presses":    {was: 10, now: 100, before: Workload{DryRun: true}, unwritten: 220, another: true},
		"a limit hung":               {was: 10, now: 100, unwritten: 1, want: 80},
		"its limit was in force":     {was: 10, now: 100, unwritten: 2, want: 2},
		"also while another presses": {was: 10, now: 100, unwritten: 2, another: true, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var list map[Target]Throttle
			for s := range 221 {
				uses := map[bool]float64{false: row.was, true: row.now}[s >= 200]
				in := pressed(s, plugins.Soft, Rates{Read: uses * mib})
				if s < 220 {
					in.Workloads["pod"] = row.before
				} else if row.another {
					in.Culprits = nil
				}
				in.Unwritten = map[Target]bool{nvme: s >= row.unwritten}
				list = Next(list, in)
			}
			c := list[nvme]
			limit := 0.0
			if c.InForce() {
				limit = c.Limits().Read / mib
			}
			assert.InDelta(t, row.want, limit, 1e-3)
		})
	}
}

// A limit that cannot be written while its disk hangs begins from no less than the pod used before
// that; what was decided of a resize stays.
func TestThrottleBeginsAnewKeeps(t *testing.T) {
	list := Next(nil, pressed(0, plugins.Soft, Rates{Read: 100 * mib}))
	in := pressed(5, plugins.Soft, Rates{Read: 40 * mib})
	in.Unwritten = map[Target]bool{nvme: true, cpu: true}
	c := Next(list, in)[nvme]
	assert.InDelta(t, 80*mib, c.Limits().Read, 1)

	w := Workload{Resizable: true}
	for _, why := range []string{"", "it has no limit"} {
		c = Next(nil, computes(0, plugins.Soft, w))[cpu]
		in = computes(5, plugins.Soft, w)
		in.Unwritten = map[Target]bool{cpu: true}
		c = Next(map[Target]Throttle{cpu: c.DecideResize(why)}, in)[cpu]
		assert.False(t, c.UndecidedResize(cpu, &w))
		assert.Equal(t, why, c.NotResized)
	}
}

// A mover is throttled also where no other waits.
func TestThrottleWhereNoneWaits(t *testing.T) {
	list := Next(nil, waited(0, 0, Workload{Mover: true}))
	for s := 1; s < 60; s++ {
		list = Next(list, waited(s, 0.09, Workload{Mover: true}))
	}
	c := list[nvme]
	assert.True(t, c.InForce(), "one that begins to wait a little says nothing of the throttle")
	list = Next(list, waited(60, 0.1, Workload{Mover: true}))
	c = list[nvme]
	assert.False(t, c.InForce(), "one that begins to wait for long does")
}

func TestTries(t *testing.T) {
	c := Throttle{Percent: 40, Began: noon, Tightens: true}
	assert.True(t, c.Tries(at(TriesFor-1)))
	assert.False(t, c.Tries(at(TriesFor)), "it was a culprit now and then")
	c.Tightens = false
	assert.False(t, c.Tries(noon), "another one presses")
	c = Throttle{Percent: FloorPercent, Began: noon, FloorSince: noon}
	assert.True(t, c.Tries(at(effectAfter-1)))
	assert.False(t, c.Tries(at(effectAfter)))
	c = Throttle{Base: Rates{Memory: 1}, Percent: unthrottled, Began: noon}
	assert.False(t, c.Tries(noon), "memory is never limited further")
	c = Throttle{Percent: unthrottled}
	assert.False(t, c.Tries(noon))
}

func TestThrottleOfExempt(t *testing.T) {
	in := pressed(0, plugins.Soft, Rates{Read: 100 * mib})
	in.Workloads["pod"] = Workload{Exempt: "because"}
	assert.Empty(t, Next(nil, in))
	assert.Equal(t, []NotThrottled{{nvme, "because"}}, Exempted(nil, in))
	list := Next(nil, pressed(0, plugins.Soft, Rates{Read: 100 * mib}))
	assert.Empty(t, Next(list, in), "a new configuration holds for what is throttled already")
	in.Workloads["pod"] = Workload{ExemptAtSoft: "its owner"}
	assert.Empty(t, Next(nil, in))
	hard := pressed(1, plugins.Hard, Rates{Read: 100 * mib})
	hard.Workloads = in.Workloads
	assert.Len(t, Next(nil, hard), 1)
	assert.Empty(t, Exempted(nil, hard))

	in = Input{Time: noon, Workloads: map[string]Workload{"pod": {RequestCores: 2}}, Culprits: map[Target]Use{cpu: {Rates: Rates{CPU: 2}}}, CPU: Pressure{Level: plugins.Hard}}
	assert.Empty(t, Next(nil, in))
	assert.Equal(t, "it uses 2 cores, no more than the 2 that it requests", Exempted(nil, in)[0].Why)
}

// A pod whose owner forbids it at soft was limited at hard. At soft it is released in steps,
// and what it used before is known when the pressure is hard again.
func TestThrottleExemptAtSoft(t *testing.T) {
	in := func(s int, level plugins.Level, rate float64) Input {
		in := pressed(s, level, Rates{Read: rate})
		in.Workloads["pod"] = Workload{ExemptAtSoft: "its owner"}
		return in
	}
	list := Next(nil, in(0, plugins.Hard, 100*mib))
	var percents []int
	for s := 1; s < 70; s++ {
		list = Next(list, in(s, plugins.Soft, 20*mib))
		percents = append(percents, list[nvme].Percent)
	}
	assert.Equal(t, []int{20, 30, 40}, []int{percents[29], percents[31], percents[61]})
	c := list[nvme]
	assert.False(t, c.Tries(at(69*time.Second)), "it is being released")
	list = Next(list, in(70, plugins.Hard, 30*mib))
	c = list[nvme]
	assert.InDelta(t, 20*mib, c.Limits().Read, 1)
	assert.Empty(t, Exempted(list, in(71, plugins.Soft, 30*mib)), "it is throttled")
	in71 := in(71, plugins.Hard, 0)
	in71.Workloads["pod"] = Workload{Exempt: "an administrator", ExemptAtSoft: "its owner"}
	assert.Empty(t, Next(list, in71))
}

// Another pod causes the pressure: one that was throttled for an earlier one is not
// throttled for it, and one that is throttled no further.
func TestThrottleOfAnothersPressure(t *testing.T) {
	other := func(s int, level plugins.Level) Input {
		in := pressed(s, level, Rates{})
		in.Workloads["other"] = Workload{}
		in.Culprits = map[Target]Use{{Cgroup: "other", Disk: "nvme0n1"}: {Rates: Rates{Read: 100 * mib}, Why: "other reads"}}
		return in
	}
	first := Next(nil, pressed(0, plugins.Soft, Rates{Read: 100 * mib}))
	for _, level := range []plugins.Level{plugins.Soft, plugins.Hard} {
		list := first
		for s := 1; s < 30; s++ {
			list = Next(list, other(s, level))
			c := list[nvme]
			require.Equal(t, 80, c.Percent, "%s at %d s", level, s)
			require.False(t, c.Tries(at(time.Duration(s)*time.Second)), "no eviction waits for it")
		}
		list = Next(list, pressed(30, level, Rates{Read: 80 * mib}))
		assert.Less(t, list[nvme].Percent, 80, "it is a culprit again")
	}

	list, s := Next(first, pressed(1, plugins.None, Rates{})), 2
	for c := list[nvme]; c.InForce(); c = list[nvme] {
		list = Next(list, pressed(s, plugins.None, Rates{}))
		s++
	}
	require.Contains(t, list, nvme, "what it used is remembered")
	for range 59 {
		list = Next(list, other(s, plugins.Hard))
		s++
		c := list[nvme]
		require.False(t, c.InForce())
	}
	list = Next(list, other(s+1, plugins.Hard))
	assert.NotContains(t, list, nvme, "for a minute")
}

// Whether it helps is judged by how long others waited when the limit began, also the
// second time.
func TestThrottleJudgedAnew(t *testing.T) {
	list, s := Next(nil, waited(0, 0.1, Workload{})), 1
	for c := list[nvme]; c.InForce(); c = list[nvme] {
		list = Next(list, pressed(s, plugins.None, Rates{}))
		s++
	}
	again := waited(s, 0.9, Workload{})
	again.Culprits[nvme] = Use{Rates{Read: 100 * mib}, "now another waits"}
	list = Next(list, again)
	for i := 1; i < 60; i++ {
		list = Next(list, waited(s+i, 0.6, Workload{}))
		c := list[nvme]
		require.True(t, c.InForce(), "a third less is help")
	}
	assert.Equal(t, "now another waits", list[nvme].Why)
}

// Two pods press a disk by turns: no limit begins or tightens out of its pod's turn, and none is
// below a fifth of what the pod used.
func TestThrottleByTurns(t *testing.T) {
	turns := []Target{{Cgroup: "a", Disk: "sda"}, {Cgroup: "b", Disk: "sda"}}
	var list map[Target]Throttle
	for s := range 600 {
		culprit := turns[s/15%2]
		in := Input{
			Time: at(time.Duration(s) * time.Second), Workloads: map[string]Workload{"a": {}, "b": {}}, Disks: map[string]Pressure{"sda": {Level: plugins.Level(1 + s/120%2)}},
			Culprits: map[Target]Use{culprit: {Rates: Rates{Read: 100 * mib}}},
		}
		before := list
		list = Next(list, in)
		for _, target := range turns {
			was, now := before[target], list[target]
			if target != culprit {
				require.GreaterOrEqual(t, now.Percent, was.Percent, "%s at %d s", target.Cgroup, s)
				require.Equal(t, was.InForce(), now.InForce())
			}
			require.True(t, !now.InForce() || now.Limits().Read >= 20*mib)
		}
	}
}

func TestThrottleRandom(t *testing.T) {
	for seed := range uint64(300) {
		require.NoError(t, soundThrottles(seed), "seed %d", seed)
	}
}

func FuzzThrottle(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { require.NoError(t, soundThrottles(seed)) })
}

// soundThrottles plays levels, rates and waits at random.
func soundThrottles(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 5))
	var list map[Target]Throttle
	base, level, now, calm := 0.0, plugins.None, 0, 0
	for range 300 {
		if r.IntN(12) == 0 {
			level = plugins.Level(r.IntN(3))
		}
		now += 1 + r.IntN(5)
		if level > plugins.None {
			calm = now
		}
		rate := float64(r.IntN(100)) * mib
		in := pressed(now, level, Rates{Read: rate})
		if r.IntN(3) > 0 {
			in.Disks["nvme0n1"] = Pressure{Level: level, Waited: snapshot.Some(r.Float64())}
		}
		before, was := list[nvme]
		list = Next(list, in)
		if !was {
			base = rate
		}
		if err := list[nvme].soundAfter(before, base, level, now-calm); err != nil {
			return err
		}
	}
	return nil
}

func (c Throttle) soundAfter(before Throttle, base float64, level plugins.Level, calm int) error {
	if c.Percent == 0 || !c.InForce() {
		return nil
	}
	if before.Percent > 0 && level == plugins.None && c.Percent > before.Percent+release {
		return fmt.Errorf("from %d to %d percent at once", before.Percent, c.Percent)
	}
	return c.sound(base, calm)
}

// sound throttle of what used base, so many seconds after the pressure was gone.
func (c *Throttle) sound(base float64, calm int) error {
	switch {
	case c.Percent < FloorPercent || c.Percent >= unthrottled:
		return fmt.Errorf("%d percent", c.Percent)
	case c.Base.Read != base:
		return fmt.Errorf("based on %v, it used %v", c.Base.Read, base)
	case c.Limits().Read < max(minBytes, base/5):
		return fmt.Errorf("%v of %v", c.Limits().Read, base)
	case calm > 8*36+36:
		return fmt.Errorf("throttled %d s after the pressure was gone", calm)
	}
	return nil
}
