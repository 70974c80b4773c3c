package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// sample is one tick: read the kernel, derive the snapshot, evaluate the rules,
// publish, record. It waits for the kernel alone.
func (a *Agent) sample() error {
	start := time.Now()
	a.reconfigure()
	raw, err := a.host.Read()
	if err != nil {
		return err
	}
	raw.Cluster = a.cluster.facts()
	raw.Curb(*a.movers.curbed.Load())
	snapshot := a.history.Add(raw)
	levels := a.set.Judge(snapshot)
	a.publish(snapshot, levels, time.Since(start))
	a.usual.take(a.set, snapshot.Monotonic())
	a.record(raw)
	return nil
}

// round is one pass of the coordinator (a reconcile loop): it throttles data
// movers, asks the outer plugins, observes the cluster, marks the Node,
// decides, evicts, and saves the decision with its reasons. A rule in dry run
// gets a decision of its own.
func (a *Agent) round(ctx context.Context) {
	if !a.measured() {
		return
	}
	a.soothe()
	said := a.ask(ctx)
	a.hear(said)
	in := a.look(ctx, said)
	in.Levels, in.Memory = evict.Recall(in)
	marks, memory := evict.Mark(in)
	in.Memory = memory
	a.answer(marks.Refused)
	in = a.mark(ctx, in, marks)
	for _, part := range evict.Split(in) {
		part.Memory = memory
		var d evict.Decision
		d, memory = evict.Decide(part)
		memory = a.evict(ctx, part, &d, memory)
		a.note(d)
	}
	a.keep(in, memory)
	if a.cluster != nil {
		a.cluster.granter.withdraw()
	}
}

// sampleLoop samples once a tick, and between two ticks when a trigger wakes
// it. Ticks never overlap: one that comes while a sample runs is missed and
// counted.
func (a *Agent) sampleLoop(ctx context.Context) error {
	defer a.usual.end(a.set)
	ticker := time.NewTicker(a.config.Tick)
	defer ticker.Stop()
	for tick := a.config.Tick; ; {
		start := time.Now()
		if err := a.sample(); err != nil {
			return err
		}
		a.missed.Add(uint64(time.Since(start) / tick))
		if a.config.Tick != tick {
			tick = a.config.Tick
			ticker.Reset(tick)
		}
		if !a.pace.next(ctx, ticker.C, a.config.Triggers.Window) {
			return nil
		}
	}
}

// roundLoop runs a round each eviction.round, or at once when a level rises.
func (a *Agent) roundLoop(ctx context.Context) error {
	defer a.movers.lift()
	for {
		a.rest(ctx)
		period := time.NewTimer(a.Config.Current().Eviction.Round - evict.MinRound)
		select {
		case <-ctx.Done():
			period.Stop()
			return nil
		case <-a.risen:
			period.Stop()
		case <-period.C:
		}
		a.round(ctx)
		a.rounds.Record(loopRounds)
	}
}

// rest keeps rounds evict.MinRound apart (rate limit). A level that has become
// hard since the last round ends the pause: it was soft just before, and that
// round must not delay this one.
func (a *Agent) rest(ctx context.Context) {
	pause := time.NewTimer(evict.MinRound)
	defer pause.Stop()
	for rose := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-a.risen:
			rose = true
		case <-pause.C:
			if rose {
				poke(a.risen)
			}
			return
		}
		if a.judged != nil && a.state.Load().Levels.Rose(a.judged, plugins.Hard) {
			poke(a.risen)
			return
		}
	}
}

// reconfigure applies a changed configuration between two ticks.
func (a *Agent) reconfigure() {
	if c := a.Config.Current(); c != a.config {
		a.follow(c)
	}
}

func (a *Agent) follow(c *config.Agent) {
	a.config = c
	a.history.Window, a.history.Keep, a.history.MaxGap = c.Window, c.History, c.MaxGap()
	a.set.Configure(c.Plugins.Inner)
	a.host.Follow(c.Workloads.Roots)
	a.host.FollowFilesystems(c.Filesystems)
	a.host.FollowNetwork(c.Network)
	if a.Level != nil {
		process.SetLevel(a.Level, c.Log)
	}
}

func (a *Agent) publish(snapshot *snapshot.Snapshot, levels *plugins.Levels, took time.Duration) {
	before := a.state.Load()
	s := &view.State{Agent: a.About, Snapshot: snapshot, Levels: levels}
	s.Agent.TickSeconds, s.Agent.TickDurationSeconds, s.Agent.TicksMissed = a.config.Tick.Seconds(), took.Seconds(), a.missed.Load()
	if ok, err, _ := a.Config.Status(); !ok {
		s.Agent.ConfigError = err.Error()
	}
	var notes []string
	s.Agent.Triggers, notes = a.triggersNow(snapshot)
	s.Agent.Notes = append(slices.Clip(s.Agent.Notes), notes...)
	if a.pace.now {
		a.Log.Debug("a PSI trigger woke this sample", "sample", snapshot.Time)
	}
	a.state.Store(s)
	a.beat.Store(time.Now().UnixNano())
	poke(a.tick)
	a.bell.Ring()
	rose := before != nil && levels.Rose(before.Levels, plugins.Soft)
	if rose {
		poke(a.risen)
	}
	if a.cluster != nil && a.cluster.heart != nil {
		a.cluster.heart.tell(levels, rose)
	}
}

// poke signals c without blocking; signals that are not yet received merge.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// record writes the sample; a recording that is full or fails ends, which is
// logged once.
func (a *Agent) record(s *snapshot.Sample) {
	if a.recorder == nil {
		return
	}
	s, err := a.said.with(s)
	if err == nil {
		err = a.recorder.Add(s)
	}
	if err == nil {
		return
	}
	a.Log.Warn("recording stopped", "error", errors.Join(err, a.recorder.Close()))
	a.recorder = nil
}
