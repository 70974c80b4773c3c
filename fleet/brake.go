package fleet

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// A Brake holds back what is asked for while many nodes are pressed at once: then
// the judgement may be wrong everywhere, or there is nowhere to go. Memory at hard
// it slows down and does not stop: whoever can press a few nodes would else keep
// all others from help for as long as he likes.
type Brake string

// The brakes, as an Answer says which one a pod went past.
const (
	BrakeCommon Brake = "common" // a common cause: one pod of the cluster in brakedPer
	BrakeZone   Brake = "zone"   // a zone without room: one pod of the zone in brakedPer
	BrakeUrgent Brake = "urgent" // either, and memory is below its floor: one of the zone in urgentPer
)

// CommonLeast is the number of nodes below which there is never a common cause, or
// no pod could go in a small cluster.
const CommonLeast = 3

// askAgain bounds how long an agent waits that a brake holds back: the brake may
// be gone long before its turn comes. So long waits a pod whose volumes are not known.
const askAgain = 30 * time.Second

// brake says whether a request is held back because many nodes are pressed, or
// which brake it goes past.
func (g *Grounds) brake(a Ask) Ruling {
	common, lies := g.commonCause(a.Request)
	full := g.full(a.zone())
	r := Ruling{Code: CodeCommon, Why: common, After: askAgain, Past: BrakeCommon}
	switch {
	case common == "" && full == "":
		return Ruling{}
	case common == "":
		r.Code, r.Why, r.Past = CodeZone, full, BrakeZone
	}
	if lies || a.Resource != "memory" || a.Level != lease.LevelHard {
		r.Past = ""
		return r
	}
	if a.Urgent {
		r.Past = BrakeUrgent
	}
	wait := g.slot(a, r.Past)
	if full != "" && r.Past == BrakeCommon {
		wait = max(wait, g.slot(a, BrakeZone))
	}
	if wait == 0 {
		return Ruling{Past: r.Past}
	}
	r.Why += fmt.Sprintf("; next eviction for memory at hard in %s", wait.Round(time.Second))
	r.After, r.Past = min(wait, askAgain), ""
	return r
}

// turns are for how many periods a node comes after others that went past a brake.
const turns = 12

// slot is in how long another pod of the node may go past a brake; 0: now. Whoever
// had one comes after those that had none, and after those that had theirs before:
// up to a period later, less as it is longer ago.
func (g *Grounds) slot(a Ask, past Brake) time.Duration {
	period := g.Settings.Evictions.past(past)
	list := g.within(turns*period, func(w Went) bool { return w.UID != a.UID && w.counts(past, a.zone()) })
	if len(list) == 0 {
		return 0
	}
	wait := period - g.Time.Sub(list[len(list)-1].Time)
	for _, w := range slices.Backward(list) {
		if w.Node == a.Judged.Name {
			wait += period - g.Time.Sub(w.Time)/turns
			break
		}
	}
	return max(0, wait)
}

// counts: it went past that brake, in that zone where the brake is a zone's.
func (w *Went) counts(past Brake, zone string) bool {
	switch past {
	case BrakeCommon:
		return w.Past == BrakeCommon
	case BrakeZone:
		return (w.Past == BrakeZone || w.Past == BrakeCommon) && w.Zone == zone
	case BrakeUrgent:
		return w.Past == BrakeUrgent && w.Zone == zone
	}
	return false
}

// Common are the resources of which the pressure has a common cause, in order: the
// brake stands for it. One that only counts where it is soft says so.
func (g *Grounds) Common() []string {
	return both(g.common(g.Hard.Resources), g.common(g.Pressed.Resources))
}

// CommonPlugins are the outer plugins whose pressure has one. A plugin may be
// wrong everywhere: nothing is granted that it asks for itself.
func (g *Grounds) CommonPlugins() []string {
	return both(g.common(g.Hard.Plugins), g.common(g.Pressed.Plugins))
}

func both(hard, all []string) []string {
	list := []string{}
	for _, name := range all {
		if !slices.Contains(hard, name) {
			name += " at soft"
		}
		list = append(list, name)
	}
	return list
}

func (g *Grounds) common(pressed map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(pressed)) {
		if n := pressed[name]; n >= CommonLeast && float64(n) > g.Settings.Evictions.CommonCause*float64(g.Agents) {
			list = append(list, name)
		}
	}
	return list
}

// commonCause of the pressure that a request names, in a sentence; empty: none.
// One at hard is held up by nodes at hard alone, and by those of its resource; one
// that says neither by all of them. lies: it is a plugin that says so.
func (g *Grounds) commonCause(r lease.Request) (why string, lies bool) {
	of, word := g.Pressed, ""
	if r.Level == lease.LevelHard {
		of, word = g.Hard, "hard "
	}
	if slices.Contains(g.common(of.Plugins), r.Plugin) {
		return fmt.Sprintf("common cause: %d of %d nodes have %spressure reported by plugin %s; evictions would not end it", of.Plugins[r.Plugin], g.Agents, word, r.Plugin), true
	}
	for _, resource := range g.common(of.Resources) {
		if r.Resource == "" || r.Resource == resource {
			return fmt.Sprintf("common cause: %d of %d nodes have %spressure on %s; evictions would not end it", of.Resources[resource], g.Agents, word, resource), false
		}
	}
	return "", false
}

// Full are the zones of which too many nodes keep pods away, each with the numbers,
// in order: the brake stands there.
func (g *Grounds) Full() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(g.Zones)) {
		if why := g.full(name); why != "" {
			list = append(list, why)
		}
	}
	return list
}

func (g *Grounds) full(name string) string {
	zone := g.Zones[name]
	most := max(1, int(g.Settings.Evictions.ZoneTainted*float64(zone.Nodes)))
	if zone.Tainted <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes of zone %q are tainted or not ready (limit %d)", zone.Tainted, zone.Nodes, name, most)
}
