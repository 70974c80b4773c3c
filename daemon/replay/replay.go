// Package replay plays recordings through the agent's chain, with any
// configuration: which levels and decisions would have resulted.
//
// # Usage
//
// A Player is given a configuration and samples in order, and makes a Report;
// Files plays recordings. WriteTable, WriteJSON and WriteSVG write a Report.
//
// # Concurrency
//
// A Player belongs to one goroutine. A Report never changes.
package replay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// Player plays samples and collects the results in bounded memory.
type Player struct {
	Config *config.Agent
	// ConfigFile is the configuration's name in the report.
	ConfigFile string
	// WarmUp judges the first plugins.warmUp as after a start of the agent:
	// only the hard level of memory. Without it only a node that has just
	// booted warms up.
	WarmUp bool
	// Watch is called with each moment that was played, also with what the bounds of the
	// report leave out; may be nil.
	Watch func(Moment)

	report    Report
	queued    []queued // until the tick is known
	tick      time.Duration
	chain     *chain
	last      *snapshot.Sample // that was played
	newest    *snapshot.Sample // that was read
	run       string           // of the agent whose file was read last
	other     bool             // another agent made the next sample
	podsKnown bool             // the API server's pods are in a sample
	oneDir    bool             // all files are segments of one directory
	offset    time.Duration    // of last, from the first sample
	scopes    scopes
	stall     trace[snapshot.Ratios]
}

// Moment is a sample with its verdicts, and what a dry run decided at it.
type Moment struct {
	Snapshot *snapshot.Snapshot
	Levels   *plugins.Levels
	// Offset is the time since the first sample, Step since the previous
	// moment; Gap: nothing was observed in Step.
	Offset, Step time.Duration
	Gap          bool
	// Throttled are those that began to be throttled; Throttles are all that are not
	// forgotten.
	Throttled []Throttling
	Throttles map[throttle.Target]throttle.Throttle
	// Decision, if it changed; nil otherwise.
	Decision *Decision
}

// tickSamples are read before the first sample is played, to find the tick of
// the recording.
const tickSamples = 16

// Add plays the next sample.
func (p *Player) Add(s *snapshot.Sample) {
	next := queued{s, p.other}
	p.other = false
	if p.tick > 0 {
		p.play(next)
		return
	}
	p.queued = append(p.queued, next)
	if len(p.queued) > tickSamples {
		p.startPlaying()
	}
}

// queued is a sample to play; other: by another agent than the one before.
type queued struct {
	sample *snapshot.Sample
	other  bool
}

// startPlaying plays the held samples, now that their tick is known.
func (p *Player) startPlaying() {
	var samples []*snapshot.Sample
	for _, q := range p.queued {
		samples = append(samples, q.sample)
	}
	p.tick = Tick(samples, p.Config)
	for _, q := range p.queued {
		p.play(q)
	}
	p.queued = nil
}

// Tick is the configuration's tick, or the median step of the samples where that would
// make every step a gap.
func Tick(samples []*snapshot.Sample, c *config.Agent) time.Duration {
	var steps []time.Duration
	for i := 1; i < len(samples); i++ {
		steps = append(steps, samples[i].Boottime-samples[i-1].Boottime)
	}
	if len(steps) == 0 {
		return c.Tick
	}
	slices.Sort(steps)
	if usual := steps[len(steps)/2]; usual > c.MaxGap() {
		return usual
	}
	return c.Tick
}

// play puts one sample through the chain.
func (p *Player) play(q queued) {
	s := q.sample
	at := instant{time: s.Time, step: p.step(s)}
	p.offset += at.step
	at.offset = p.offset
	why := ""
	switch {
	case p.last == nil:
		p.chain = p.newChain(p.WarmUp)
	case s.BootID != p.last.BootID:
		why = Rebooted
		p.reboot(at)
	case q.other:
		p.chain.another()
	}
	snapshot, levels := p.chain.judge(s)
	if at.gap = snapshot.WindowSeconds == 0 && p.last != nil; at.gap {
		why = cmp.Or(why, strings.TrimPrefix(snapshot.Absent["rates"], "window dropped: "))
		p.report.gap(Gap{Time: s.Time, OffsetSeconds: at.offset.Seconds(), Seconds: at.step.Seconds(), Reason: why})
	}
	p.report.change(p.scopes.add(at, levels)...)
	p.stall.add(p.offset.Seconds(), at.gap, snapshot.Pressure.Ratios, worstStall)
	m := Moment{Snapshot: snapshot, Levels: levels, Offset: at.offset, Step: at.step, Gap: at.gap}
	p.decide(&m)
	if p.Watch != nil {
		p.Watch(m)
	}
	p.last, p.podsKnown = s, p.podsKnown || s.Cluster != nil && len(s.Cluster.Pods) > 0
	p.report.sample(s, p.offset)
}

// decide adds to a moment what a dry run decides at it.
func (p *Player) decide(m *Moment) {
	throttled, d, changed := p.chain.round(m.Snapshot, m.Levels)
	for i := range throttled {
		throttled[i].OffsetSeconds = m.Offset.Seconds()
		p.report.throttle(throttled[i])
	}
	if changed {
		m.Decision = &Decision{OffsetSeconds: m.Offset.Seconds(), Decision: d}
		p.report.decide(*m.Decision)
	}
	m.Throttled, m.Throttles = throttled, p.chain.throttles
}

// step is the time since the previous sample, on the boot clock; across a
// reboot on the wall clock.
func (p *Player) step(s *snapshot.Sample) time.Duration {
	switch {
	case p.last == nil:
		return 0
	case s.BootID == p.last.BootID:
		return max(0, s.Boottime-p.last.Boottime)
	}
	return max(0, s.Time.Sub(p.last.Time))
}

// Rebooted is the reason of a gap, and of the end of a level, at a reboot.
const Rebooted = "the machine rebooted"

// Restarted is the reason of a gap between the samples of two agents.
const Restarted = "the agent was restarted"

// reboot starts a new chain: the agent restarts with the machine. The learned
// baselines of the disks are kept.
func (p *Player) reboot(at instant) {
	p.chain = p.newChain(false)
	p.report.change(p.scopes.end(at, Rebooted)...)
}

func (p *Player) newChain(warmUp bool) *chain {
	c := *p.Config
	c.Tick = p.tick
	return newChain(&c, warmUp, p.chain)
}

// Report of the samples so far. No sample may be added afterwards.
func (p *Player) Report() *Report {
	if p.tick == 0 {
		p.startPlaying()
	}
	r := &p.report
	r.describe(p)
	r.Scopes = p.scopes.reports()
	r.Stall = append([]Point[snapshot.Ratios]{}, p.stall.points...)
	return r
}
