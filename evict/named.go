package evict

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	// namedTTL is how long a pod stays named for a threshold that the plugin still
	// reports as met: each answer confirms the threshold, so that only the choice of
	// the pod ages. It outlasts eviction.reportOnly, and the cooldowns of plugins
	// that name a pod once and are silent for some minutes.
	namedTTL = 15 * time.Minute
	// maxNamedOfPlugin is more than the pods of a full node.
	maxNamedOfPlugin = 300
	maxNamed         = 1000
)

// NamedPod is a pod that an outer plugin named for eviction, in an answer of
// GetEvictPods (forced) or of GetTopEvictionPods (for a threshold). Some plugins
// name a pod once only, so it stays named while its eviction is blocked: until it
// has terminated, its eviction was accepted or refused, its threshold is not met
// any more, or the name was withdrawn or expired. It is worth what the plugin is worth
// now (Standing), not what it was when it named the pod.
type NamedPod struct {
	Plugin string `json:"plugin"`
	// Scope of the threshold that it was named for; plugins.ScopeNamed: its eviction
	// is forced, whatever the levels.
	Scope string `json:"scope"`
	UID   string `json:"uid"`
	Name  string `json:"name"`
	Why   string `json:"why"`
	// GraceSeconds that the plugin asks for, if it does.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	// Beside of the verdict that named it last, where the plugin's Standing is not known.
	Beside plugins.Beside `json:"beside,omitempty"`
	// At is when it was named last, to a minute.
	At time.Time `json:"at"`
	// Repeats: the plugin named it in two answers in a row, so an answer without it
	// withdraws it. LeftOut: the last answer left it out.
	Repeats bool `json:"again,omitempty"`
	LeftOut bool `json:"leftOut,omitempty"`
	// WithThreshold: the plugin's threshold or condition was met when it forced the
	// eviction, so its end withdraws the wish.
	WithThreshold bool `json:"pressed,omitempty"`
}

// RecallNamed adds the pods that outer plugins named in earlier rounds to those of
// this one, and returns the state with both.
func RecallNamed(in Input) (*plugins.Levels, State) {
	m := in.State.clone()
	m.Named = slices.DeleteFunc(slices.Clone(m.Named), func(n NamedPod) bool { return n.expired(in) })
	for _, v := range in.Levels.Verdicts {
		if slices.Contains(plugins.Names(), v.Plugin) || v.Absent != "" {
			continue // an inner plugin names its pods at each tick; no answer withdraws nothing
		}
		m.Named = withAnswer(m.Named, in, v)
	}
	m.Named = newestOf(m.Named)
	if len(m.Named) == 0 {
		return in.Levels, m
	}
	return recalled(in, m.Named), m
}

// newestOf bounds the names that are kept, also of plugins that register under ever
// new names: the newest of each plugin, and of all.
func newestOf(list []NamedPod) []NamedPod {
	byPlugin := map[string]int{}
	var kept []NamedPod
	for _, n := range slices.Backward(list) {
		if byPlugin[n.Plugin]++; byPlugin[n.Plugin] <= maxNamedOfPlugin && len(kept) < maxNamed {
			kept = append(kept, n)
		}
	}
	slices.Reverse(kept)
	return kept
}

// expired reports whether the pod no longer exists, or the name is too old.
func (n *NamedPod) expired(in Input) bool {
	ttl := namedTTL
	if n.forced() {
		ttl = plugins.ForcedTTL
	}
	if in.Time.Sub(n.At) >= ttl || n.At.After(in.Time.Add(ttl)) {
		return true
	}
	if !in.clusterKnown() {
		return false
	}
	_, there := byUID(in.Cluster.Pods, n.UID)
	return !there
}

func (n *NamedPod) forced() bool { return n.Scope == plugins.ScopeNamed }

// withAnswer returns the names after a plugin's answer: without those that it
// withdraws, with those that it adds or repeats.
func withAnswer(list []NamedPod, in Input, v plugins.Verdict) []NamedPod {
	met := thresholdMet(in.Levels, v.Plugin)
	names := slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool { return keeps(v, c) })
	list = slices.DeleteFunc(list, func(n NamedPod) bool {
		switch {
		case n.Plugin != v.Plugin || n.forced() != (v.Scope == plugins.ScopeNamed) || namesPod(v, n.UID):
			return false
		case n.forced():
			return n.Repeats || n.WithThreshold && !met
		case n.Scope != v.Scope || v.MetLevel < plugins.Hard: // a plugin reports one threshold at a time
			return true
		}
		return names || n.Repeats && !in.Time.Before(v.GraceEnds) // before, it was not asked for pods
	})
	for i := range list {
		if n := &list[i]; n.Plugin == v.Plugin && n.Scope == v.Scope && !namesPod(v, n.UID) {
			n.LeftOut = true
		}
	}
	for _, c := range v.Candidates {
		if keeps(v, c) {
			list = withName(list, in.Time, v, c, met)
		}
	}
	return list
}

// keeps reports whether a candidate stays named after this round: one that is
// forced, or is named for a hard threshold.
func keeps(v plugins.Verdict, c plugins.Candidate) bool {
	return c.Refused == "" && (v.Scope == plugins.ScopeNamed && c.Forced || v.Scope != plugins.ScopeNamed && v.MetLevel == plugins.Hard)
}

func namesPod(v plugins.Verdict, uid string) bool {
	return slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool { return c.PodUID == uid && keeps(v, c) })
}

// thresholdMet reports whether a threshold or condition of the plugin is met, beside
// what it forces.
func thresholdMet(levels *plugins.Levels, plugin string) bool {
	return slices.ContainsFunc(levels.Verdicts, func(v plugins.Verdict) bool {
		return v.Plugin == plugin && v.Level > plugins.None && (v.Scope != plugins.ScopeNamed || v.Condition != "")
	})
}

// withName records that a plugin names a pod, again or for the first time.
func withName(list []NamedPod, now time.Time, v plugins.Verdict, c plugins.Candidate, met bool) []NamedPod {
	i := slices.IndexFunc(list, func(n NamedPod) bool { return n.Plugin == v.Plugin && n.Scope == v.Scope && n.UID == c.PodUID })
	if i < 0 {
		n := NamedPod{Plugin: v.Plugin, Scope: v.Scope, UID: c.PodUID, Name: c.Name, Why: c.Why, At: now, Beside: v.Beside}
		n.WithThreshold = n.forced() && met
		if grace, asked := c.GraceSeconds.Get(); asked {
			n.GraceSeconds = &grace
		}
		return append(list, n)
	}
	n := &list[i]
	n.Repeats, n.LeftOut, n.Beside = !n.LeftOut, false, v.Beside
	n.WithThreshold = n.WithThreshold || n.forced() && met
	if now.Sub(n.At) >= time.Minute || now.Before(n.At) {
		n.At = now
	}
	return list
}

// recalled returns the levels of a round with all named pods. One that is named
// for a threshold is added where the plugin has just reported it as met.
func recalled(in Input, list []NamedPod) *plugins.Levels {
	l := &plugins.Levels{Time: in.Levels.Time, Verdicts: slices.Clone(in.Levels.Verdicts)}
	for _, n := range list {
		i := slices.IndexFunc(l.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == n.Plugin && v.Scope == n.Scope })
		if i < 0 {
			if !n.forced() {
				continue
			}
			l.Verdicts = append(l.Verdicts, plugins.Verdict{Plugin: n.Plugin, Scope: plugins.ScopeNamed, Since: n.At, Beside: n.beside(in)})
			i = len(l.Verdicts) - 1
		}
		v := &l.Verdicts[i]
		if namesPod(*v, n.UID) || !n.forced() && (v.MetLevel < plugins.Hard || v.Absent != "") {
			continue
		}
		if n.forced() {
			n.force(v)
		}
		v.Candidates = append(slices.Clip(v.Candidates), n.candidate())
	}
	return l
}

// beside is the limit of a verdict that is only recalled.
func (n *NamedPod) beside(in Input) plugins.Beside {
	if s, known := in.Standings[n.Plugin]; known {
		return s.Beside
	}
	return n.Beside
}

// force raises a verdict of GetEvictPods that names fewer pods than are forced.
func (n *NamedPod) force(v *plugins.Verdict) {
	if v.Level < plugins.Hard {
		v.Reason = fmt.Sprintf("the plugin forced the eviction of %s at %s, and the pod still exists", n.Name, clock(n.At))
	}
	if v.Level == plugins.None {
		v.Condition = "" // it is not met
	}
	v.Level, v.MetLevel, v.Named = plugins.Hard, plugins.Hard, true
}

func (n *NamedPod) candidate() plugins.Candidate {
	c := plugins.Candidate{PodUID: n.UID, Name: n.Name, Why: n.Why, Forced: n.forced(), NamedAt: n.At}
	if n.GraceSeconds != nil {
		c.GraceSeconds = snapshot.Some(*n.GraceSeconds)
	}
	return c
}

// withoutPod removes a pod whose eviction was refused.
func withoutPod(list []NamedPod, uid string) []NamedPod {
	return slices.DeleteFunc(slices.Clone(list), func(n NamedPod) bool { return n.UID == uid })
}

// withoutNames removes the names that an accepted eviction answers: all those for the
// thresholds that it relieves. A plugin that still wants another pod names it again.
func withoutNames(list []NamedPod, l *Chosen) []NamedPod {
	return slices.DeleteFunc(slices.Clone(list), func(n NamedPod) bool {
		_, relieved := l.Relief[keyOf(n.Plugin, n.Scope)]
		return relieved && !n.forced()
	})
}
