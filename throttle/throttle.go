package throttle

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// The bounds of a Throttle.
const (
	// FloorPercent of what a workload used before: enough to finish in time.
	FloorPercent = 20
	// unthrottled percent: no limit is in force.
	unthrottled = 100
	// tighten and release are the steps in percent, with the cooldown after each.
	tighten         = 20
	release         = 10
	tightenCooldown = 10 * time.Second
	releaseCooldown = 30 * time.Second
	// remembered is for how long the base stays known after a throttle: the rates measured
	// meanwhile are in part the effect of the limit.
	remembered = time.Minute
	// A throttle that has been at the floor for effectAfter and has not made the waiting
	// shorter by helps is removed, and not tried again for retryAfter.
	effectAfter = 20 * time.Second
	helps       = 0.2
	retryAfter  = 10 * time.Minute
	// One after harmAfter of which the longest wait is half as long again is removed at
	// once: a limit on bytes written can hold up the journal of a filesystem, and with it
	// all others (ADR 91).
	harmAfter = 10 * time.Second
	// TriesFor is how long it takes at soft to the end of effectAfter, all steps one after
	// the other.
	TriesFor = (unthrottled-FloorPercent)/tighten*tightenCooldown + effectAfter
	harms    = 0.5
	minHarm  = 0.1 // of the time
	// Lifetime is how long a throttle lasts without renewal: after a restart an older one
	// is removed.
	Lifetime = 5 * time.Minute
	// resizedWithin is how long a resize may take to be in effect: some rounds.
	resizedWithin = 15 * time.Second
	// minClockSet is how far the wall clock moves when it counts as set.
	minClockSet = time.Second
	// Lower bounds of a limit, in bytes per second and cores: what a workload used during a
	// pause does not tell what it needs.
	minBytes = 1 << 20
	minCPU   = 0.1
)

// Target of a throttle: a workload's cgroup and what it uses: a disk, memory, or without
// either the CPU.
type Target struct {
	Cgroup string `json:"cgroup"`
	Disk   string `json:"disk,omitempty"`
	Memory bool   `json:"memory,omitempty"`
}

// Compare orders targets by cgroup and what it uses.
func (t Target) Compare(o Target) int {
	return cmp.Or(cmp.Compare(t.Cgroup, o.Cgroup), cmp.Compare(t.Disk, o.Disk), cmp.Compare(t.Resource(), o.Resource()))
}

// Resource that it uses.
func (t Target) Resource() snapshot.SharedResource {
	switch {
	case t.Memory:
		return snapshot.SharedMemory
	case t.Disk != "":
		return snapshot.SharedDisk
	}
	return snapshot.SharedCPU
}

// Rates of what a workload uses: bytes per second of a disk, cores, or bytes of memory.
type Rates struct {
	Read   float64 `json:"readBytesPerSecond,omitempty"`
	Write  float64 `json:"writeBytesPerSecond,omitempty"`
	CPU    float64 `json:"cores,omitempty"`
	Memory float64 `json:"memoryBytes,omitempty"`
}

// times so many. Memory is no rate: a workload holds what it holds.
func (r Rates) times(n float64) Rates {
	return Rates{Read: r.Read * n, Write: r.Write * n, CPU: r.CPU * n, Memory: r.Memory}
}

// atLeast are these rates, each no less than those.
func (r Rates) atLeast(o Rates) Rates {
	return Rates{Read: max(r.Read, o.Read), Write: max(r.Write, o.Write), CPU: max(r.CPU, o.CPU), Memory: max(r.Memory, o.Memory)}
}

// over is how many times a limit these rates are, at most. Memory is held, not divided.
func (r Rates) over(limit Rates) (times float64) {
	for _, of := range [][2]float64{{r.Read, limit.Read}, {r.Write, limit.Write}, {r.CPU, limit.CPU}} {
		if of[1] > 0 {
			times = max(times, of[0]/of[1])
		}
	}
	return times
}

// Throttle limits a workload's use of one disk, of the CPU, or of memory.
type Throttle struct {
	// Base is what it used before it was throttled. It is not measured again while a limit is in
	// force: that would be the effect of the limit.
	Base Rates `json:"base"`
	// Falls is how often its disk had fallen when Base was measured: see plugins.Knee.
	Falls int `json:"falls,omitempty"`
	// Request is what it may always use, in cores.
	Request float64 `json:"requestCores,omitempty"`
	// Percent of Base that it may use; of memory always 100.
	Percent int `json:"percent"`
	// Began is since when a limit is in force; zero: none is.
	Began time.Time `json:"began,omitzero"`
	// HeldUntil is when a limit of memory begins to be raised.
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// CalmSince is since when no pressure asks for a limit of memory; zero: one does.
	CalmSince time.Time `json:"calmSince,omitzero"`
	// Changed is when Percent changed, or pressure was last seen.
	Changed time.Time `json:"changed"`
	// FloorSince is when Percent reached the floor.
	FloorSince time.Time `json:"floorSince,omitzero"`
	// UnderPressure: there was pressure at the last update, and Tightens: its workload was a
	// culprit of it.
	UnderPressure bool      `json:"pressed"`
	Tightens      bool      `json:"tightens,omitempty"`
	Expires       time.Time `json:"expires"`
	// DiskKey identifies the disk: another one may get its name.
	DiskKey string `json:"diskKey,omitempty"`
	// Booted is when the machine booted, by the wall clock that these times are of. It moves
	// when that clock is set.
	Booted time.Time `json:"booted,omitzero"`
	// WaitedBefore is how long the one that waits most waited when it began, as a share of
	// the window; absent where that was not known.
	WaitedBefore snapshot.Opt[float64] `json:"waitedBeforeRatio,omitzero"`
	// UselessUntil: it did not help, and is not tried again before.
	UselessUntil time.Time `json:"uselessUntil,omitzero"`
	// Written: its limit on a disk or the CPU has been in force since it began, and WrittenPercent
	// of Base is what the limit in force allows while a newer one is not written.
	Written        bool `json:"written,omitempty"`
	WrittenPercent int  `json:"writtenPercent,omitempty"`
	// Resized: the CPU limits of its containers are resized, and cpu.max of its cgroup is
	// not written. NotResized is why it is the other way round although that is
	// configured. Neither: it is not decided yet.
	Resized    bool   `json:"resized,omitempty"`
	NotResized string `json:"notResized,omitempty"`
	// Why the pod is throttled: which workload waits, and for which other.
	Why string `json:"why,omitempty"`
}

// InForce tells whether it limits anything.
func (c *Throttle) InForce() bool { return !c.Began.IsZero() }

// Limits in force, as io.max, cpu.max and memory.high take them; 0: none. A direction that the
// workload did not use gets the limit of the other: it may change direction.
func (c *Throttle) Limits() Rates {
	of := func(base, least float64) float64 { return max(least, base*float64(c.Percent)/100) }
	switch {
	case c.Base.Memory > 0:
		return Rates{Memory: c.Base.Memory}
	case c.Base.CPU > 0:
		return Rates{CPU: of(c.Base.CPU, max(minCPU, c.Request))}
	}
	return Rates{
		Read:  of(cmp.Or(c.Base.Read, c.Base.Write), minBytes),
		Write: of(cmp.Or(c.Base.Write, c.Base.Read), minBytes),
	}
}

// Allowed is the percentage of what it used before that its limits allow: more than Percent
// where a lower bound is.
func (c *Throttle) Allowed() int {
	used, limits := c.Base.Read+c.Base.Write+c.Base.CPU, c.Limits()
	if used == 0 { // memory is held
		return c.Percent
	}
	may := min(limits.Read, c.Base.Read) + min(limits.Write, c.Base.Write) + min(limits.CPU, c.Base.CPU)
	return int(math.Round(may / used * 100))
}

// NotAgain is why it is not tried again for a while.
func (c *Throttle) NotAgain() string {
	why := "it did not help"
	if c.Base.Memory > 0 {
		why = "it lasted as long as it may"
	}
	return why + "; not tried again before " + c.UselessUntil.UTC().Format("15:04:05") + " UTC"
}

// Tries tells whether it is becoming tighter, or has been at its floor for too short a time
// to show its effect. It is bounded: evictions wait for it, and a workload must not protect
// others by being a culprit now and then.
func (c *Throttle) Tries(now time.Time) bool {
	switch {
	case !c.InForce() || c.Base.Memory > 0:
		return false
	case c.Percent > FloorPercent:
		return c.Tightens && now.Sub(c.Began) < TriesFor
	}
	return now.Sub(c.FloorSince) < effectAfter
}

// Next computes the next throttles from the current ones. Soft pressure tightens those of
// culprits step by step, hard pressure at once to the floor; without pressure they are
// released slowly. What does not help is removed. One whose limit has not been in force yet begins
// anew, with the first step, if its workload still is a culprit.
func Next(before map[Target]Throttle, in Input) map[Target]Throttle {
	after, anew := map[Target]Throttle{}, map[Target]Throttle{}
	for t, c := range before {
		c = c.clockSet(in.Booted)
		if c.ended(t, &in) {
			continue
		}
		w := in.Workloads[t.Cgroup]
		p := in.pressureFor(t, &w)
		c = c.resized(t, in)
		if in.Unwritten[t] && !c.Written && !t.Memory && !p.Unknown {
			anew[t] = in.followFall(t, c)
			continue
		}
		c = c.next(t, &in, p, &w)
		if c.InForce() || in.Time.Sub(c.Changed) < remembered || in.Time.Before(c.UselessUntil) {
			after[t] = c
		}
	}
	for t, use := range in.Culprits {
		w, p := in.Workloads[t.Cgroup], in.pressureOn(t)
		if _, there := after[t]; there || p.Level == plugins.None || in.exemption(t) != "" || use.Rates == (Rates{}) {
			continue
		}
		base := in.within(t, use.Rates.times(in.through(before, t.Cgroup))).atLeast(anew[t].Base)
		c := Throttle{Base: base, Falls: in.Carried[t.Disk].Falls, Request: w.RequestCores, Percent: unthrottled, HeldUntil: in.Time.Add(w.holdFor()), Booted: in.Booted, DiskKey: in.DiskKeys[t.Disk]}
		c.Resized, c.NotResized = anew[t].Resized, anew[t].NotResized
		after[t] = c.next(t, &in, p, &w)
	}
	return after
}

// ended tells whether it has: its workload is gone or may not be throttled any more, it was not
// renewed, or another disk has the name of its own.
func (c *Throttle) ended(t Target, in *Input) bool {
	w, alive := in.Workloads[t.Cgroup]
	key := in.DiskKeys[t.Disk]
	return !alive || w.Exempt != "" || !in.Time.Before(c.Expires) || key != "" && c.DiskKey != "" && key != c.DiskKey
}

// Unexpired are those of an earlier agent that have not expired.
func Unexpired(list map[Target]Throttle, now, booted time.Time) map[Target]Throttle {
	left := map[Target]Throttle{}
	for t, c := range list {
		if c = c.clockSet(booted); now.Before(c.Expires) {
			left[t] = c
		}
	}
	return left
}

// clockSet moves all its times with the wall clock, if that was set: a throttle that ended
// early would begin again, from what its workload uses while it is limited.
func (c Throttle) clockSet(booted time.Time) Throttle {
	by := ClockSet(&c.Booted, booted)
	for _, at := range []*time.Time{&c.Began, &c.HeldUntil, &c.CalmSince, &c.Changed, &c.FloorSince, &c.Expires, &c.UselessUntil} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	return c
}

// ClockSet returns by how much the wall clock was set since before was when the machine
// booted, and updates that. It is 0 for less than a second, and while either is unknown.
func ClockSet(before *time.Time, booted time.Time) (by time.Duration) {
	was := *before
	if by = booted.Sub(was); booted.IsZero() || by.Abs() < minClockSet {
		return 0
	}
	if *before = booted; was.IsZero() {
		return 0
	}
	return by
}

// NotThrottled is a culprit that is not throttled, and why.
type NotThrottled struct {
	Target
	Why string
}

// Exempted are the culprits that are not throttled.
func Exempted(list map[Target]Throttle, in Input) (exempted []NotThrottled) {
	for _, t := range slices.SortedFunc(maps.Keys(in.Culprits), Target.Compare) {
		why, c := in.exemption(t), list[t]
		if in.Time.Before(c.UselessUntil) {
			why = c.NotAgain()
		}
		if why != "" && !c.InForce() {
			exempted = append(exempted, NotThrottled{t, why})
		}
	}
	return exempted
}

func (c Throttle) next(t Target, in *Input, p Pressure, w *Workload) Throttle {
	use, culprit := in.Culprits[t]
	limited := c.InForce() && !in.Unwritten[t]
	switch {
	case t.Memory:
		c = c.waitForRaise(in.Pending[t], in.Time).hold(in, p, w, culprit)
	case p.Unknown:
		return c
	default:
		c = in.followFall(t, c)
		c.Written = c.InForce() && !w.DryRun && (c.Written || !in.Unwritten[t])
		if in.Unwritten[t] {
			c = c.beginAgain(in.Time)
		}
		c = c.takeBack(in.Pending[t], in.Time)
		if w.DryRun && culprit && in.exemption(t) == "" {
			c.Base = in.within(t, use.Rates)
		}
		c = c.step(in.Time, p, culprit, w.DryRun || in.Resizing[t].Why != "")
	}
	if c.InForce() && !limited { // it is judged by what is so now, also the second time
		c.WaitedBefore, c.Why = p.Waited, cmp.Or(use.Why, c.Why)
	}
	return c
}

// beginAgain gives one whose limit is not in force yet the whole time to show its effect. No
// eviction waits meanwhile. Memory keeps its time: a write that has not ended may be in force,
// and a probe must not fail by it.
func (c Throttle) beginAgain(now time.Time) Throttle {
	if c.InForce() {
		c.Began = now
	}
	if !c.FloorSince.IsZero() {
		c.FloorSince = now
	}
	return c
}

// takeBack takes back a step that made the limit tighter and is not written: it is due again at
// once, while its workload is a culprit. The time to show its effect at the floor begins when it is
// written. Wider steps go on, so that the throttle ends, for which nothing need be saved.
func (c Throttle) takeBack(pending bool, now time.Time) Throttle {
	if !pending {
		c.WrittenPercent = c.Percent
		return c
	}
	if c.Percent < c.WrittenPercent {
		c.Percent, c.Changed = c.WrittenPercent, now.Add(-tightenCooldown)
	}
	c.FloorSince = time.Time{}
	return c
}

// AsWritten is a throttle whose newest limit is not written, with that in force. limits are its own.
func (c Throttle) AsWritten(limits []Limit) Throttle {
	if c.WrittenPercent > 0 && c.WrittenPercent < unthrottled {
		c.Percent = c.WrittenPercent
	}
	for _, l := range limits {
		if l.Name == Memory {
			c.Base.Memory = float64(l.current())
		}
	}
	return c
}

// step makes a limit on a disk or the CPU tighter or wider: tighter only while the workload
// is a culprit. Whether it helps is judged in any case, unless it has no effect yet.
func (c Throttle) step(now time.Time, p Pressure, culprit, noEffect bool) Throttle {
	since, level := now.Sub(c.Changed), p.Level
	c.Expires = now.Add(Lifetime)
	switch {
	case now.Before(c.UselessUntil):
		return c
	case !noEffect && c.useless(now, p):
		c.Percent, c.Changed, c.UselessUntil, c.Began, c.FloorSince = unthrottled, now, now.Add(retryAfter), time.Time{}, time.Time{}
		return c
	case !culprit && !c.InForce():
		return c
	case level == plugins.Hard && culprit:
		c.Percent, c.Changed = FloorPercent, now
	case level == plugins.Soft && culprit && since >= tightenCooldown:
		c.Percent, c.Changed = max(FloorPercent, c.Percent-tighten), now
	case level == plugins.None && c.UnderPressure:
		c.Changed = now // the clear time begins
	case level == plugins.None && since >= releaseCooldown && c.Percent < unthrottled:
		c.Percent, c.Changed = c.Percent+release, now
	}
	c.UnderPressure = level > plugins.None
	c.Tightens = culprit && c.UnderPressure
	if c.Percent >= unthrottled {
		c.Began = time.Time{}
	} else if c.Began.IsZero() {
		c.Began = now
	}
	if c.Percent > FloorPercent {
		c.FloorSince = time.Time{}
	} else if c.FloorSince.IsZero() {
		c.FloorSince = now
	}
	return c
}

// useless: at its floor it has not made the waiting shorter, or it has made it longer.
func (c *Throttle) useless(now time.Time, p Pressure) bool {
	before, waited, known := c.waits(p)
	tried := !c.FloorSince.IsZero() && now.Sub(c.FloorSince) >= effectAfter
	return known && tried && before > 0 && waited > before*(1-helps) || c.harmed(now, p)
}

// harmed: the waiting is longer than before.
func (c *Throttle) harmed(now time.Time, p Pressure) bool {
	before, waited, known := c.waits(p)
	return known && c.InForce() && now.Sub(c.Began) >= harmAfter && waited >= max(before*(1+harms), before+minHarm)
}

// waits returns how long the one that waits most waited before the throttle, and now.
func (c *Throttle) waits(p Pressure) (before, now float64, known bool) {
	before, ok1 := c.WaitedBefore.Get()
	now, ok2 := p.Waited.Get()
	return before, now, ok1 && ok2 && p.Level > plugins.None && !p.Unknown
}
