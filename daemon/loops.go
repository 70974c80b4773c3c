package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// sample is one tick: it reads, derives, judges, publishes and records. It
// waits for nothing but the kernel.
func (a *Agent) sample() error {
	start := time.Now()
	a.reconfigure()
	raw, err := a.host.Read()
	if err != nil {
		return err
	}
	snapshot := a.history.Add(raw)
	levels := a.set.Judge(snapshot)
	a.publish(snapshot, levels, time.Since(start))
	a.record(raw)
	return nil
}

// round is one decision: it looks, marks the Node, decides, evicts, and keeps
// what was decided with its reasons.
func (a *Agent) round(ctx context.Context) {
	in, some := a.look(ctx)
	if !some {
		return
	}
	marks, memory := evict.Mark(in)
	in.Memory = memory
	in = a.mark(ctx, in, marks)
	decision, memory := evict.Decide(in)
	memory = a.evict(ctx, in, &decision, memory)
	a.keep(in, decision, memory)
}

// sampleLoop samples once per tick; a tick that comes while one is still
// running is missed and counted, so ticks never overlap.
func (a *Agent) sampleLoop(ctx context.Context) error {
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
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// minRound is how close rounds may follow one another.
const minRound = time.Second

// roundLoop runs a round when its period is over, or at once when a level
// rises.
func (a *Agent) roundLoop(ctx context.Context) error {
	for {
		pause := time.NewTimer(minRound)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
		period := time.NewTimer(a.Config.Current().Eviction.Round - minRound)
		select {
		case <-ctx.Done():
			period.Stop()
			return nil
		case <-a.risen:
			period.Stop()
		case <-period.C:
		}
		a.round(ctx)
	}
}

// reconfigure puts a changed configuration in force, between two ticks.
func (a *Agent) reconfigure() {
	if c := a.Config.Current(); c != a.config {
		a.follow(c)
	}
}

// gapTicks is how many ticks may pass without a sample before the window is
// dropped.
const gapTicks = 3

func (a *Agent) follow(c *config.Agent) {
	a.config = c
	a.history.Window, a.history.Keep, a.history.MaxGap = c.Window, c.History, gapTicks*c.Tick
	a.set.Configure(c.Plugins)
	a.host.Follow(c.Workloads.Roots)
	if a.Level != nil {
		setLevel(a.Level, c)
	}
}

func (a *Agent) publish(snapshot *probes.Snapshot, levels *plugins.Levels, took time.Duration) {
	before := a.state.Load()
	s := &view.State{Agent: a.about, Snapshot: snapshot, Levels: levels}
	s.Agent.TickSeconds, s.Agent.TickDurationSeconds, s.Agent.TicksMissed = a.config.Tick.Seconds(), took.Seconds(), a.missed.Load()
	if ok, err, _ := a.Config.Status(); !ok {
		s.Agent.ConfigError = err.Error()
	}
	a.state.Store(s)
	a.beat.Store(time.Now().UnixNano())
	poke(a.tick)
	if before != nil && rose(before.Levels, levels) {
		poke(a.risen)
	}
}

// rose says whether some verdict is at a higher level than before.
func rose(before, now *plugins.Levels) bool {
	for _, v := range now.Verdicts {
		for _, was := range before.Verdicts {
			if was.Plugin == v.Plugin && was.Scope == v.Scope && v.Level > was.Level {
				return true
			}
		}
	}
	return false
}

// poke wakes whoever waits on c; who was poked already need not be again.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// record keeps the sample; a recording that is full or broken ends, and that
// is said once.
func (a *Agent) record(s *probes.Sample) {
	if a.recorder == nil {
		return
	}
	err := a.recorder.Add(s)
	if err == nil {
		return
	}
	a.Log.Warn("recording ends", "error", errors.Join(err, a.recorder.Close()))
	a.recorder = nil
}
