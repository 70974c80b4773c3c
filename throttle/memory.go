package throttle

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Memory is limited at hard pressure alone, or when it runs out, by memory.high at what the workload holds: it
// then sleeps when it allocates, and the others go on. A limit below what it holds makes it
// sleep with locks of the kernel (ADR 91), so it is written once and never lowered. It ends
// before a liveness probe, which waits as long, fails.
const (
	// longestHold is what was measured to harm nothing but the workload (ADR 91: 40 s).
	longestHold = 30 * time.Second
	// After it the limit is raised by widenBy of the available memory each widenEach, until
	// the workload is evicted, or for widenFor. Four steps take what is available from the
	// 10 % of soft to less than the 4 % of hard; after all there is nothing left to take.
	widenBy   = 0.25
	widenEach = 5 * time.Second
	widenFor  = 2 * time.Minute
	// shortestHold: in less the pressure does not pass.
	shortestHold = 2 * time.Second
	// takerShare is the least share of the growth by which workloads are limited, if they took
	// at least what is missing now. It is that of a long time: in a short one also those
	// grow that read back what reclaim took from them.
	takerShare = 0.5
	takerOver  = time.Minute
	// takenWithin is the time in which each would take its part of what is available, as fast
	// as it grew lately.
	takenWithin = 30 * time.Second
	lately      = 5 * time.Second
	// Less than what ends the pressure is available, and at the pace of justNow it is gone
	// within runsOutWithin: the rule takes as long to see it.
	runsOutWithin = 5 * time.Second
	justNow       = 2 * time.Second
	// calmFor there is no pressure before a limit of memory ends: as long as memory would
	// last that is taken again at once.
	calmFor = runsOutWithin
)

// RunsOut reports whether memory runs out before a rule can judge it: it is the time to hold
// those that take it.
func RunsOut(s *snapshot.Snapshot, l *plugins.Levels) bool {
	if missingMemory(l) == 0 {
		return false
	}
	w, _ := s.Over(justNow)
	lost, known := w.AvailableLost().Get()
	available, _ := s.Memory.AvailableBytes.Get()
	return known && lost*runsOutWithin.Seconds() > float64(available)
}

// missingMemory must be released to end the pressure, in bytes. Of the node it needs no window,
// so it is known also where the rule itself judges no level yet, in the first half minute. A
// NUMA node that is full is no pressure while nothing stalls for it.
func missingMemory(l *plugins.Levels) (most float64) {
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if v.Resource == plugins.Memory && !v.PerWorkload && !v.ReportOnly && (v.Scope == "node" || v.Level > plugins.None) {
			missing, _ := v.Target.Get()
			most = max(most, missing)
		}
	}
	return most
}

// setMemory takes the pressure on memory, for the limits on it: that of the rules, hard as
// soon as memory runs out, and soft as long as any is missing.
func (in *Input) setMemory(s *snapshot.Snapshot, l *plugins.Levels) {
	in.missing = missingMemory(l)
	available, _ := s.Memory.AvailableBytes.Get()
	in.available = float64(available)
	switch {
	case RunsOut(s, l):
		in.Memory.Level, in.Memory.Named = plugins.Hard, true
	case in.missing > 0:
		in.Memory.Level = max(in.Memory.Level, plugins.Soft)
	}
}

// holdFor is how long memory may be limited to what a workload holds.
func (w *Workload) holdFor() time.Duration {
	if w.Liveness == 0 {
		return longestHold
	}
	return min(longestHold, w.Liveness*4/5)
}

// memoryExemption is why the memory of a culprit is not limited; empty: it is.
func (in *Input) memoryExemption(t Target, w *Workload) string {
	held := in.Culprits[t].Memory
	switch {
	case in.MemoryUnlimited != "":
		return in.MemoryUnlimited
	case held <= w.RequestBytes:
		return fmt.Sprintf("it holds %.0f MiB, no more than the %.0f that it requests", held/(1<<20), w.RequestBytes/(1<<20))
	case w.holdFor() < shortestHold && !w.Terminating:
		return fmt.Sprintf("its liveness or startup probe would end a container within %s, too soon to hold its memory", w.Liveness)
	}
	return ""
}

// addTakers takes the workloads that take the memory that is left, if they are known.
func (in *Input) addTakers(s *snapshot.Snapshot) {
	available, known := s.Memory.AvailableBytes.Get()
	if in.Memory.Level < plugins.Hard || !in.Memory.Named || !known {
		return
	}
	long, _ := s.Over(takerOver)
	short, _ := s.Over(lately)
	took := map[string]float64{} // bytes per second
	for _, g := range short.MemoryGrowth(s.Workloads) {
		took[g.Workload.Cgroup] = g.BytesPerSecond
	}
	takers := takersOf(long.MemoryGrowth(s.Workloads), in.missing)
	for _, g := range takers {
		w, now := g.Workload, took[g.Workload.Cgroup]
		_, pod := in.Workloads[w.Cgroup]
		held, measured := w.MemoryBytes.Get()
		if pod && measured && now*takenWithin.Seconds()*float64(len(takers)) >= float64(available) {
			why := fmt.Sprintf("%s took %.0f MiB in %.0f s, and %.0f %% of the memory growth of a minute; %d MiB are available", w.Title(), now*short.Seconds()/(1<<20), short.Seconds(), g.Share*100, available>>20)
			in.Culprits[Target{Cgroup: w.Cgroup, Memory: true}] = Use{Rates{Memory: float64(held)}, why}
		}
	}
}

// takersOf are the first of a list, those that grew most: as few as grew by takerShare of all
// and by what is missing, each by minShare; none where it takes smaller ones.
func takersOf(grew []snapshot.MemoryGrowth, missing float64) []snapshot.MemoryGrowth {
	share, bytes := 0.0, 0.0
	for i, g := range grew {
		if g.Share < minShare {
			break
		}
		share, bytes = share+g.Share, bytes+g.Bytes
		if share >= takerShare && bytes >= missing {
			return grew[:i+1]
		}
	}
	return nil
}

// hold limits memory at hard pressure, until there is none, or its time is over. It is then
// not tried again for a while. That the others wait longer does not end it, unlike on a
// disk: memory stays as short as it was until the one that took it is gone. A pod that its
// kubelet ends has no probes any more (SyncTerminatingPod in kubernetes/pkg/kubelet): it is
// limited until it is gone, or it would take the rest in its termination grace period.
func (c Throttle) hold(in *Input, p Pressure, w *Workload, culprit bool) Throttle {
	now, may := in.Time, in.Time.Before(c.HeldUntil.Add(widenFor)) || w.Terminating
	c.Expires = now.Add(Lifetime)
	if p.Unknown || p.Level > plugins.None {
		c.CalmSince = time.Time{}
	}
	switch {
	case now.Before(c.UselessUntil) && !w.Terminating:
	case c.InForce() && !may:
		c.Began, c.Changed, c.UselessUntil = time.Time{}, now, now.Add(retryAfter)
	case c.InForce() && !p.Unknown && p.Level == plugins.None:
		c.calm(now)
	case !c.InForce() && p.Level == plugins.Hard && may && (culprit || w.Terminating):
		c.Began, c.Changed, c.UselessUntil = now, now, time.Time{}
		c.Base.Memory = max(c.Base.Memory, w.holds)
	case c.widens(now) && !w.Terminating:
		c.Base.Memory, c.Changed = max(c.Base.Memory, w.holds+widenBy*in.available), now
	}
	return c
}

// calm ends a limit of memory that no pressure has asked for since calmFor: another workload
// may free a little for a moment.
func (c *Throttle) calm(now time.Time) {
	switch {
	case c.CalmSince.IsZero():
		c.CalmSince = now
	case now.Sub(c.CalmSince) >= calmFor:
		c.Began, c.Changed, c.CalmSince = time.Time{}, now, time.Time{}
	}
}

// waitForRaise keeps the time to raise a limit of memory while a raise is not written: if the limit
// were removed before, the workload would take the rest at once (ADR 103).
func (c Throttle) waitForRaise(pending bool, now time.Time) Throttle {
	if pending && c.Changed.After(c.Began) {
		c.HeldUntil, c.Changed = c.HeldUntil.Add(now.Sub(c.Changed)), now
	}
	return c
}

// Until is when a limit of memory ends at the latest; zero for others, and for a pod that is
// limited until it is gone.
func (c *Throttle) Until(w *Workload) time.Time {
	if c.Base.Memory == 0 || w.Terminating {
		return time.Time{}
	}
	return c.HeldUntil.Add(widenFor)
}

// widens tells whether a limit of memory is to be raised by a step.
func (c *Throttle) widens(now time.Time) bool {
	widened := c.Changed.After(c.Began)
	return c.InForce() && !now.Before(c.HeldUntil) && (!widened || now.Sub(c.Changed) >= widenEach)
}
