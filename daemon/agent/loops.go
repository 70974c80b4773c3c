package agent

import (
	"context"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// sample is one tick: read the kernel, derive the snapshot, evaluate the rules,
// publish, record. It waits for the kernel alone.
func (a *Agent) sample() error {
	start := time.Now()
	a.reconfigure()
	if a.pace.short && !a.hurried {
		a.host.Hurry()
	}
	a.hurried = a.pace.short
	raw, err := a.host.Read()
	if err != nil {
		return err
	}
	raw.Cluster, raw.Rootfs = a.cluster.currentFacts(), a.containerRuntime.Newest()
	raw.MarkThrottled(*a.throttles.cgroups.Load())
	snapshot := a.history.Add(raw)
	levels := a.set.Judge(snapshot)
	a.publish(snapshot, levels, start)
	a.baselines.takeIfDue(a.set, snapshot.Monotonic())
	a.record(raw)
	return nil
}

// round is one pass of the coordinator (a reconcile loop): it throttles data
// movers, asks the outer plugins, observes the cluster, marks the Node,
// decides, evicts, and saves the decision with its reasons. A rule in dry run
// gets a decision of its own.
func (a *Agent) round(ctx context.Context) {
	if !a.hasNewLevels() {
		return
	}
	a.throttle(false)
	a.resize(ctx)
	a.budgetMovers()
	said := a.askPlugins(ctx)
	a.recordVerdicts(said)
	a.reportContention()
	in := a.observe(ctx, said)
	in.Levels, in.State = evict.RecallNamed(in)
	marks, memory := evict.Mark(in)
	in.State = memory
	a.reportRefusals(marks.Refused)
	in = a.writeMarks(ctx, in, marks)
	var decisions []evict.Decision
	for _, part := range evict.Split(in) {
		part.State = memory
		var d evict.Decision
		d, memory = evict.Decide(part)
		memory = a.evict(ctx, part, &d, memory)
		a.logDecision(d)
		decisions = append(decisions, d)
	}
	a.unevictable = evict.Unevictable(decisions)
	memory = a.withdraw(ctx, in, memory)
	a.saveState(in, memory)
	if a.cluster != nil {
		a.cluster.requester.Withdraw()
	}
}

// sampleLoop samples once a tick, and between two ticks when a trigger wakes it or memory has
// become short. Ticks never overlap: one that comes while a sample runs is missed and
// counted.
func (a *Agent) sampleLoop(ctx context.Context) error {
	defer a.host.Close()
	defer a.baselines.end(a.set)
	ticker := time.NewTicker(a.config.Tick)
	defer ticker.Stop()
	for tick := a.config.Tick; ; {
		start := time.Now()
		if err := a.sample(); err != nil {
			return err
		}
		a.miss(time.Since(start), tick)
		if a.config.Tick != tick {
			tick = a.config.Tick
			ticker.Reset(tick)
		}
		if !a.pace.next(ctx, ticker.C, a.config.Triggers.Window, a.shortage()) {
			return nil
		}
	}
}

// miss counts the ticks that were missed because a sample took so long.
func (a *Agent) miss(took, tick time.Duration) {
	if n := took / tick; n > 0 {
		a.missed.Add(uint64(n))
		a.missedAt = time.Now()
	}
}

// fastest is how much memory programs take at most, in bytes per second: the kernel zeroes
// each page, on all CPUs together.
const fastest = 8 << 30

// shortage returns what tells, between two samples, that memory has become short: the pod that
// takes it is held then, and not a tick later, when it has taken the rest. nil: it cannot be
// short before the tick, or none would be held.
func (a *Agent) shortage() func() bool {
	rule := a.config.Plugins.Inner.MemoryStall
	if !rule.Enabled || !a.config.Throttle.Enabled || a.config.Throttle.DryRun || a.cluster == nil || a.throttles.tree.Memory.V1 {
		return nil
	}
	now := a.state.Load()
	spare, known := rule.Spare(now.Snapshot)
	switch {
	case !known || spare > fastest*a.config.Tick.Seconds():
		return nil
	case spare <= 0 && (a.throttles.holdsMemory() || !throttle.RunsOut(now.Snapshot, now.Levels)):
		return nil
	}
	before, _ := now.Snapshot.Memory.AvailableBytes.Get()
	return func() bool {
		available, err := a.host.AvailableMemory()
		return err == nil && float64(before)-float64(available) >= spare
	}
}

// throttleLoop throttles at once when a level rises or memory runs out, and looks after a held
// pod at each sample, however long a round waits for the cluster meanwhile.
func (a *Agent) throttleLoop(ctx context.Context) error {
	defer a.endThrottles()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.throttleDue:
			a.throttle(false)
		}
	}
}

// roundLoop runs a round each eviction.round, or at once when a level rises.
func (a *Agent) roundLoop(ctx context.Context) error {
	defer a.saveLast()
	for {
		round := a.Config.Current().Eviction.Round
		a.roundLiveness.Record(loopRounds, round) // the first is due, and may be stuck too
		a.pauseBetweenRounds(ctx)
		period := time.NewTimer(round - evict.MinRound)
		select {
		case <-ctx.Done():
			period.Stop()
			return nil
		case <-a.levelRose:
			period.Stop()
		case <-period.C:
		}
		a.round(ctx)
	}
}

// pauseBetweenRounds keeps rounds evict.MinRound apart (rate limit). A level that has become
// hard since the last round ends the pause: it was soft just before, and that round must not
// delay this one.
func (a *Agent) pauseBetweenRounds(ctx context.Context) {
	pause := time.NewTimer(evict.MinRound)
	defer pause.Stop()
	for rose := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-a.levelRose:
			rose = true
		case <-pause.C:
			if rose {
				wake(a.levelRose)
			}
			return
		}
		if a.lastJudged != nil && a.state.Load().Levels.Rose(a.lastJudged, plugins.Hard) {
			wake(a.levelRose)
			return
		}
	}
}

// reconfigure applies a changed configuration between two ticks.
func (a *Agent) reconfigure() {
	if c := a.Config.Current(); c != a.config {
		a.applyConfig(c)
	}
}

func (a *Agent) applyConfig(c *config.Agent) {
	if a.config != nil && c.Eviction.Round < a.config.Eviction.Round {
		wake(a.levelRose) // the pause that runs is longer
	}
	a.config = c
	a.history.Window, a.history.Keep, a.history.MaxGap = c.Window, c.History, c.MaxGap()
	a.set.Configure(c.Plugins.Inner)
	a.host.FollowRoots(c.Workloads.Roots)
	a.host.FollowFilesystems(c.Filesystems)
	a.host.FollowNetwork(c.Network)
	a.host.FollowNUMA(c.Plugins.Inner.NUMAMemory.Enabled)
	if a.Level != nil {
		process.SetLevel(a.Level, c.Log)
	}
}

func (a *Agent) publish(snapshot *snapshot.Snapshot, levels *plugins.Levels, start time.Time) {
	before := a.state.Load()
	s := &view.State{Agent: a.About, Snapshot: snapshot, Levels: levels, Sampled: start.Add(snapshot.Time.Sub(start))}
	s.Agent.TickSeconds, s.Agent.TickDurationSeconds, s.Agent.TicksMissed = a.config.Tick.Seconds(), time.Since(start).Seconds(), a.missed.Load()
	s.Agent.MissedAt = a.missedAt
	if ok, err, _ := a.Config.Status(); !ok {
		s.Agent.ConfigError = err.Error()
	}
	var notes []string
	s.Agent.Triggers, notes = a.triggerState(snapshot)
	s.Agent.Restrictions = append(slices.Clip(s.Agent.Restrictions), notes...)
	if s.Agent.Recording = a.recorder.Status(); s.Agent.Recording != nil && s.Agent.Recording.Failed != "" {
		s.Agent.Restrictions = append(s.Agent.Restrictions, "samples are not recorded: "+s.Agent.Recording.Failed)
	}
	if a.pace.woke {
		a.Log.Debug("a PSI trigger woke this sample", "sample", snapshot.Time)
	}
	a.state.Store(s)
	a.sampled()
	wake(a.published)
	a.pageBell.Notify()
	rose := before != nil && levels.Rose(before.Levels, plugins.Soft)
	if rose {
		wake(a.levelRose)
	}
	if rose || throttle.RunsOut(snapshot, levels) || a.throttles.holdsMemory() {
		wake(a.throttleDue)
	}
	if a.cluster != nil && a.cluster.heartbeat != nil {
		a.cluster.heartbeat.report.SetLevels(levels, rose, levelsValid(a.config.Tick))
		a.cluster.heartbeat.report.SetUnjudged(unjudgedResources(s))
	}
}

// wake signals c without blocking; signals that are not yet received merge.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// record hands the sample over to the recorder and waits for nothing.
func (a *Agent) record(s *snapshot.Sample) {
	if a.recorder == nil {
		return
	}
	s, err := a.outerVerdicts.addTo(s)
	if err != nil {
		a.recorder.Lose(err)
		return
	}
	a.recorder.Add(s)
}

// triggerState is the state of the triggers, with notes about those not armed.
// Changes are logged.
func (a *Agent) triggerState(s *snapshot.Snapshot) (t *view.Triggers, notes []string) {
	state := a.triggers.State()
	if state == nil {
		return nil, nil
	}
	t = &view.Triggers{Armed: len(state.Armed), FiredTotal: state.Fired, WokenTotal: a.pace.count, WokenByTrigger: a.pace.woke, Absent: state.Absent}
	if len(state.Armed) > 0 {
		t.WindowSeconds = state.Armed[0].Window.Seconds()
	}
	notes = triggerNotes(state, s.Pressure.Totals.Absent)
	told := append([]string{triggersText(state, a.config.Triggers.Window)}, notes...)
	for _, line := range told {
		if line != "" && !slices.Contains(a.loggedTriggers, line) {
			a.Log.Info("PSI triggers", "state", line)
		}
	}
	a.loggedTriggers = told
	return t, notes
}
