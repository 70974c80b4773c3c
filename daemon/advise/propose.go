package advise

import (
	"fmt"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Proposal is the decision about one threshold.
type Proposal struct {
	// Key of the configuration, such as plugins.memoryStall.soft.stallFull.
	Key  string `json:"key"`
	Unit string `json:"unit"`
	// Now is the value in force, Value the proposed one; both are the same for
	// Keep.
	Now     float64 `json:"now"`
	Value   float64 `json:"value"`
	Outcome Outcome `json:"outcome"`
	// Reason is a sentence with the observations.
	Reason string `json:"reason"`
}

// Outcome of evaluating a threshold.
type Outcome string

// The outcomes.
const (
	Keep      Outcome = "keep"
	Change    Outcome = "change"
	NotEnough Outcome = "not enough data"
)

const (
	// margin is the wanted ratio of a threshold to the highest value of a
	// healthy node.
	margin = 1.4
	// enoughSeconds of observation are needed for a proposal: a day includes
	// nightly work.
	enoughSeconds = 24 * 3600
	// calmQuantile is the quantile of calm minutes that a threshold must exceed;
	// enoughMinutes are needed for it to be meaningful.
	calmQuantile, enoughMinutes = 0.999, 1000
)

// Bounds, above which real pressure would be detected too late or not at all. A
// node that stalls for a fifth of half a minute, or two fifths of five seconds,
// serves no requests; a request of 100 ms, or half a second on a rotational
// disk, is slow on any disk; and TCP that retransmits one segment in twenty is
// very slow.
const (
	mostSoftStall, mostHardStall   = 0.20, 0.40
	mostAwait, mostAwaitRotational = 100 * time.Millisecond, 500 * time.Millisecond
	mostRetransmits                = 0.05
)

func (w *Watcher) propose(c plugins.Config) []Proposal {
	hard := w.stall("hard", c.MemoryStall.Hard, w.memory.hard, mostHardStall)
	soft := w.stall("soft", c.MemoryStall.Soft, w.memory.soft, min(mostSoftStall, hard.Value))
	return []Proposal{
		soft, hard,
		w.await("await", c.DiskContention.Await, false, mostAwait),
		w.await("awaitRotational", c.DiskContention.AwaitRotational, true, mostAwaitRotational),
		w.retransmits(c.NetworkContention.Retransmits),
	}
}

// threshold is one threshold and the values of a healthy node.
type threshold struct {
	key, unit     string
	now, most     float64
	step          float64 // granularity of proposals
	seen          float64 // the highest value of a healthy node
	what          string  // what seen is, in words
	data, missing string  // the amount of data; lacks: why it is not enough
}

// judge decides about a threshold: keep it if the healthy values stay below it
// by the margin, otherwise raise it to that margin, within its bound.
func (l threshold) judge() Proposal {
	p := Proposal{Key: l.key, Unit: l.unit, Now: l.now, Value: l.now, Outcome: Keep}
	text := func(v float64) string { return view.Quantity(v, l.unit) }
	switch wanted := math.Ceil(l.seen*margin/l.step-1e-9) * l.step; {
	case l.missing != "":
		p.Outcome, p.Reason = NotEnough, l.missing
	case l.seen == 0:
		p.Reason = fmt.Sprintf("%s (%s): keep %s", l.what, l.data, text(l.now))
	case l.seen*margin <= l.now:
		p.Reason = fmt.Sprintf("%s was %s (%s): %s leaves a margin of %.1f ×: keep", l.what, text(l.seen), l.data, text(l.now), l.now/l.seen)
	case l.now >= l.most:
		p.Reason = fmt.Sprintf("%s was %s (%s): %s leaves a margin of only %.1f ×, but above %s real pressure would be detected too late: keep",
			l.what, text(l.seen), l.data, text(l.now), l.now/l.seen, text(l.most))
	default:
		p.Value, p.Outcome = roundOff(min(wanted, l.most)), Change
		p.Reason = fmt.Sprintf("%s was %s (%s): %s would leave a margin of only %.1f ×: propose %s", l.what, text(l.seen), l.data, text(l.now), l.now/l.seen, text(p.Value))
		if wanted > l.most {
			p.Reason += ", the highest safe value"
		}
	}
	return p
}

// roundOff removes rounding errors.
func roundOff(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func (w *Watcher) stall(name string, rule plugins.StallRule, h highest, most float64) Proposal {
	l := threshold{key: "plugins.memoryStall." + name + ".stallFull", unit: "ratio", now: rule.StallFull, most: most, step: 0.01, seen: h.value}
	l.missing = missing(w.memory.measured)
	l.data = view.Age(seconds(w.memory.scarce)) + " of scarce memory in " + view.Age(seconds(w.memory.measured))
	l.what = fmt.Sprintf("the highest harmless stall over %s while memory was scarce", rule.Window)
	switch {
	case w.memory.scarce == 0:
		l.what = "memory was never scarce while the node was healthy"
	case h.value == 0:
		l.what = "the healthy node never stalled while memory was scarce"
	default:
		l.data += ", at " + view.Stamp(h.at)
	}
	return l.judge()
}

// missing is why so many seconds of measurements are not enough; empty if they are.
func missing(measured float64) string {
	if measured >= enoughSeconds {
		return ""
	}
	return fmt.Sprintf("not enough data: measured for %s, needs %s", view.Age(seconds(measured)), view.Age(enoughSeconds*time.Second))
}

func (w *Watcher) await(name string, now time.Duration, rotational bool, most time.Duration) Proposal {
	l := threshold{key: "plugins.diskContention." + name, unit: "seconds", now: now.Seconds(), most: most.Seconds(), step: 0.005}
	disks := w.byAwait(rotational)
	if len(disks) == 0 {
		l.missing = "not enough data: no disk of this kind was used in a calm minute"
		return l.judge()
	}
	l.missing = fmt.Sprintf("not enough data: %d calm minutes of %s observed, needs %d", disks[0].minutes, disks[0].name, enoughMinutes)
	for _, d := range disks {
		if d.minutes >= enoughMinutes {
			l.missing, l.seen = missing(w.seconds), d.awaits.quantile(calmQuantile)
			l.what = "p99.9 await of " + d.name + " in calm minutes"
			l.data = fmt.Sprintf("%d minutes", d.minutes)
			break
		}
	}
	return l.judge()
}

func (w *Watcher) retransmits(now float64) Proposal {
	h := &w.network.retransmits
	l := threshold{key: "plugins.networkContention.retransmits", unit: "ratio", now: now, most: mostRetransmits, step: 0.005}
	l.missing, l.seen = missing(w.seconds), h.quantile(calmQuantile)
	l.what, l.data = "the p99.9 of TCP retransmits in calm minutes", fmt.Sprintf("%d minutes", h.n)
	if h.max == 0 {
		l.what = "TCP retransmitted nothing in any calm minute"
	}
	if h.n < enoughMinutes {
		l.missing = fmt.Sprintf("not enough data: %d calm minutes with TCP traffic, needs %d", h.n, enoughMinutes)
	}
	return l.judge()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
