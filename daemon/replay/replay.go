// Package replay plays recordings through the chain of the agent, against any
// configuration: what would have been said of the node, and decided.
//
// # Usage
//
// A Player is given a configuration and samples in order, and gives a Report;
// Files feeds it recordings. Table, JSON and SVG write a Report.
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
	"github.com/plimsoll-dev/plimsoll/probes"
)

// Player plays samples and keeps what was said of them, in bounded memory
// however many there are.
type Player struct {
	Config *config.Agent
	// ConfigFile is what the report calls the configuration.
	ConfigFile string
	// WarmUp judges the first plugins.warmUp of the first sample as an agent
	// does that has just started: hard levels of memory alone. Without it only
	// a node that has just booted is taken to be warming up.
	WarmUp bool
	// Watch is handed each moment as it is played, before the next one; nil:
	// nobody watches.
	Watch func(Moment)

	report Report
	held   []*probes.Sample // until the rhythm is known
	tick   time.Duration
	chain  *chain
	last   *probes.Sample // that was played
	newest *probes.Sample // that was read
	offset time.Duration  // of last, from the first sample
	scopes scopes
	stall  trace[probes.Ratios]
}

// Moment is one sample as it was judged.
type Moment struct {
	Snapshot *probes.Snapshot
	Levels   *plugins.Levels
	// Offset is the time since the first sample, Step that since the moment
	// before; Gap: nothing was seen in it.
	Offset, Step time.Duration
	Gap          bool
}

// rhythmSteps are looked at before the first sample is played, to know how far
// apart samples are.
const rhythmSteps = 16

// Add takes the next sample.
func (p *Player) Add(s *probes.Sample) {
	if p.tick == 0 {
		p.held = append(p.held, s)
		if len(p.held) > rhythmSteps {
			p.begin()
		}
		return
	}
	p.play(s)
}

// begin plays what was held, now that its rhythm is known.
func (p *Player) begin() {
	p.tick = rhythm(p.held, p.Config)
	for _, s := range p.held {
		p.play(s)
	}
	p.held = nil
}

// rhythm is the configuration's tick, unless the recording was made at one that
// is so much slower that each of its steps would be a gap.
func rhythm(samples []*probes.Sample, c *config.Agent) time.Duration {
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

// play is one sample through the chain.
func (p *Player) play(s *probes.Sample) {
	at := moment{time: s.Time, step: p.step(s)}
	p.offset += at.step
	at.offset = p.offset
	why := ""
	switch {
	case p.last == nil:
		p.chain = p.newChain(p.WarmUp)
	case s.BootID != p.last.BootID:
		why = Booted
		p.reboot(at)
	}
	snapshot, levels := p.chain.judge(s)
	if at.gap = snapshot.WindowSeconds == 0 && p.last != nil; at.gap {
		why = cmp.Or(why, strings.TrimPrefix(snapshot.Absent["rates"], "window dropped: "))
		p.report.gap(Gap{Time: s.Time, OffsetSeconds: at.offset.Seconds(), Seconds: at.step.Seconds(), Why: why})
	}
	p.report.change(p.scopes.add(at, levels)...)
	if p.Watch != nil {
		p.Watch(Moment{snapshot, levels, at.offset, at.step, at.gap})
	}
	p.stall.add(p.offset.Seconds(), at.gap, snapshot.Pressure.Ratios, worstStall)
	if d, some := p.chain.round(snapshot, levels); some {
		p.report.decide(Decision{OffsetSeconds: p.offset.Seconds(), Decision: d})
	}
	p.last = s
	p.report.sample(s, p.offset)
}

// step is the time since the sample before, on the clock that runs through
// suspend, and over a reboot on the wall's.
func (p *Player) step(s *probes.Sample) time.Duration {
	switch {
	case p.last == nil:
		return 0
	case s.BootID == p.last.BootID:
		return max(0, s.Boottime-p.last.Boottime)
	}
	return max(0, s.Time.Sub(p.last.Time))
}

// Booted is why there is a gap, and why a level ended that was on before it.
const Booted = "the machine rebooted"

// reboot begins the chain anew: no agent lives through it. What it has learned
// of the disks it keeps.
func (p *Player) reboot(at moment) {
	p.chain = p.newChain(false)
	p.report.change(p.scopes.end(at, Booted)...)
}

func (p *Player) newChain(warmUp bool) *chain {
	c := *p.Config
	c.Tick = p.tick
	return newChain(&c, warmUp, p.chain)
}

// Report is what the samples so far gave. None may be added afterwards.
func (p *Player) Report() *Report {
	if p.tick == 0 {
		p.begin()
	}
	r := &p.report
	r.about(p)
	r.Scopes = p.scopes.reports()
	r.Stall = append([]Point[probes.Ratios]{}, p.stall.points...)
	return r
}
