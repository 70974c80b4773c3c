package agents

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// A Brake slows evictions down over a zone or the cluster, a circuit breaker: with
// pressure on many nodes at once the judgement may be wrong everywhere, or evicted
// pods would find no node. Memory at hard is limited and never stopped: otherwise
// pressure on a few nodes could block help for all others for any time.
type Brake string

// The brakes, as an Answer records which one an eviction passed.
const (
	BrakeCommon Brake = "common" // a common cause: one pod of the cluster each brakedInterval
	BrakeZone   Brake = "zone"   // too many tainted nodes in the zone: one pod of the zone each brakedInterval
	BrakeUrgent Brake = "urgent" // either, with memory below its floor: one pod of the zone each urgentInterval
)

// CommonLeast is the number of nodes with a pressure from which on it may be a
// common cause: in a small cluster no pod could be evicted otherwise.
const CommonLeast = 3

// maxRetryDelay is the longest retry delay of a braked request, since the brake may end
// long before; and the retry delay of a pod whose volumes or namespace are not resolved.
const maxRetryDelay = 30 * time.Second

// brake refuses a request because too many nodes have pressure, or returns which
// brake it passes.
func (g *Evaluation) brake(a PendingRequest) Decision {
	common, lies := g.commonCause(a.Request)
	full := g.full(a.zone())
	r := Decision{Code: CodeCommon, Why: common, RetryAfter: maxRetryDelay, PastBrake: BrakeCommon}
	switch {
	case common == "" && full == "":
		return Decision{}
	case common == "":
		r.Code, r.Why, r.PastBrake = CodeZone, full, BrakeZone
	}
	if lies || a.Resource != "memory" || a.Level != lease.LevelHard {
		r.PastBrake = ""
		return r
	}
	if a.Urgent {
		r.PastBrake = BrakeUrgent
	}
	wait := g.nextSlot(a, r.PastBrake)
	if full != "" && r.PastBrake == BrakeCommon {
		wait = max(wait, g.nextSlot(a, BrakeZone))
	}
	if wait == 0 {
		return Decision{PastBrake: r.PastBrake}
	}
	r.Why += fmt.Sprintf("; next eviction for memory at hard in %s", wait.Round(time.Second))
	r.RetryAfter, r.PastBrake = min(wait, maxRetryDelay), ""
	return r
}

// fairnessPeriods is for how many periods an earlier eviction past a brake delays the same
// node.
const fairnessPeriods = 12

// nextSlot is the time until a pod of this node may be evicted past a brake; 0: now.
// For fairness a node that had such an eviction comes after those that had none or
// an earlier one: it waits up to a period longer, less the longer ago it was.
func (g *Evaluation) nextSlot(a PendingRequest, past Brake) time.Duration {
	period := g.Settings.Evictions.past(past)
	list := g.within(fairnessPeriods*period, func(w PastEviction) bool { return w.UID != a.UID && w.counts(past, a.zone()) })
	if len(list) == 0 {
		return 0
	}
	wait := period - g.Time.Sub(list[len(list)-1].Time)
	for _, w := range slices.Backward(list) {
		if w.Node == a.Judged.Name {
			wait += period - g.Time.Sub(w.Time)/fairnessPeriods
			break
		}
	}
	return max(0, wait)
}

// counts tells whether the eviction passed that brake, in that zone where the
// brake is a zone's.
func (w *PastEviction) counts(past Brake, zone string) bool {
	switch past {
	case BrakeCommon:
		return w.PastBrake == BrakeCommon
	case BrakeZone:
		return (w.PastBrake == BrakeZone || w.PastBrake == BrakeCommon) && w.Zone == zone
	case BrakeUrgent:
		return w.PastBrake == BrakeUrgent && w.Zone == zone
	}
	return false
}

// Common are the resources whose pressure has a common cause, sorted. One that
// only counts at soft has the suffix " at soft".
func (g *Evaluation) Common() []string {
	return both(g.common(g.Hard.Resources), g.common(g.Pressed.Resources))
}

// CommonPlugins are the outer plugins whose pressure has a common cause. A plugin
// may be wrong everywhere, so its own eviction requests are refused.
func (g *Evaluation) CommonPlugins() []string {
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

func (g *Evaluation) common(pressed map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(pressed)) {
		if n := pressed[name]; n >= CommonLeast && float64(n) > g.Settings.Evictions.CommonCause*float64(g.Agents) {
			list = append(list, name)
		}
	}
	return list
}

// commonCause is why the pressure of a request has a common cause; empty: it has
// none. A request at hard is braked by nodes at hard alone, and one with a resource
// by nodes with that resource; one that names neither is braked by all of them.
// lies: it is the pressure reported by the requesting plugin.
func (g *Evaluation) commonCause(r lease.Request) (why string, lies bool) {
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

// Full are the zones with too many tainted nodes, each as a sentence with the
// numbers, sorted. Evictions there are braked.
func (g *Evaluation) Full() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(g.Zones)) {
		if why := g.full(name); why != "" {
			list = append(list, why)
		}
	}
	return list
}

func (g *Evaluation) full(name string) string {
	zone := g.Zones[name]
	most := max(1, int(g.Settings.Evictions.ZoneTainted*float64(zone.Nodes)))
	if zone.Tainted <= most {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes of zone %q are tainted or not ready (limit %d)", zone.Tainted, zone.Nodes, name, most)
}
