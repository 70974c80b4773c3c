package evict

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// forcedTTL is how long a forced eviction stays wanted that the plugin does not
// repeat: short, so that an old wish is not carried out after an outage.
const forcedTTL = 5 * time.Minute

// Forced is a pod whose eviction a plugin forces whatever the levels. Some plugins
// name it only once, so it stays forced until it has terminated, or the wish
// expired or was withdrawn.
type Forced struct {
	Plugin string `json:"plugin"`
	UID    string `json:"uid"`
	Name   string `json:"name"`
	Why    string `json:"why"`
	// GraceSeconds that the plugin asks for, if it does.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	// At is when it was named last, to a minute.
	At time.Time `json:"at"`
	// Repeats: the plugin repeats its wishes, so leaving one out withdraws it.
	Repeats bool `json:"again,omitempty"`
	// WithThreshold: the plugin's threshold or condition was met, so its end withdraws
	// the wish.
	WithThreshold bool `json:"pressed,omitempty"`
}

// RecallForced adds the evictions that plugins forced in earlier rounds to those of this
// one, and returns the state with both.
func RecallForced(in Input) (*plugins.Levels, State) {
	m := in.State.clone()
	m.Forced = slices.DeleteFunc(slices.Clone(m.Forced), func(f Forced) bool { return in.forcedExpired(f) })
	for _, v := range in.Levels.Verdicts {
		if v.Scope != plugins.ScopeNamed || v.Absent != "" {
			continue
		}
		pressed := in.thresholdMet(v.Plugin)
		m.Forced = slices.DeleteFunc(m.Forced, func(f Forced) bool {
			return f.Plugin == v.Plugin && !forces(v, f.UID) && (f.Repeats || f.WithThreshold && !pressed)
		})
		for _, c := range v.Candidates {
			if c.Forced && c.Refused == "" {
				m.Forced = in.force(m.Forced, v.Plugin, c, pressed)
			}
		}
	}
	if len(m.Forced) == 0 {
		return in.Levels, m
	}
	return in.forced(m.Forced), m
}

// forcedExpired reports whether the pod no longer exists, or the wish has expired.
func (in Input) forcedExpired(f Forced) bool {
	if in.Time.Sub(f.At) >= forcedTTL || f.At.After(in.Time.Add(forcedTTL)) {
		return true
	}
	if !in.clusterKnown() {
		return false
	}
	_, there := byUID(in.Cluster.Pods, f.UID)
	return !there
}

// thresholdMet reports whether a threshold or condition of the plugin is met, beside
// what it forces.
func (in Input) thresholdMet(plugin string) bool {
	return slices.ContainsFunc(in.Levels.Verdicts, func(v plugins.Verdict) bool {
		return v.Plugin == plugin && v.Level > plugins.None && (v.Scope != plugins.ScopeNamed || v.Condition != "")
	})
}

func forces(v plugins.Verdict, uid string) bool {
	return slices.ContainsFunc(v.Candidates, func(c plugins.Candidate) bool { return c.Forced && c.PodUID == uid })
}

// force records that a plugin forces a pod's eviction, again or for the first time.
func (in Input) force(list []Forced, plugin string, c plugins.Candidate, pressed bool) []Forced {
	i := slices.IndexFunc(list, func(f Forced) bool { return f.Plugin == plugin && f.UID == c.PodUID })
	if i < 0 {
		f := Forced{Plugin: plugin, UID: c.PodUID, Name: c.Name, Why: c.Why, At: in.Time, WithThreshold: pressed}
		if grace, asked := c.GraceSeconds.Get(); asked {
			f.GraceSeconds = &grace
		}
		return append(list, f)
	}
	f := &list[i]
	f.Repeats, f.WithThreshold = true, f.WithThreshold || pressed
	if in.Time.Sub(f.At) >= time.Minute || in.Time.Before(f.At) {
		f.At = in.Time
	}
	return list
}

// forced returns the levels of the round with all forced pods.
func (in Input) forced(list []Forced) *plugins.Levels {
	l := &plugins.Levels{Time: in.Levels.Time, Verdicts: slices.Clone(in.Levels.Verdicts)}
	for _, f := range list {
		i := slices.IndexFunc(l.Verdicts, func(v plugins.Verdict) bool { return v.Plugin == f.Plugin && v.Scope == plugins.ScopeNamed })
		if i < 0 {
			l.Verdicts = append(l.Verdicts, plugins.Verdict{Plugin: f.Plugin, Scope: plugins.ScopeNamed, Since: f.At})
			i = len(l.Verdicts) - 1
		}
		v := &l.Verdicts[i]
		if forces(*v, f.UID) {
			continue
		}
		if v.Level < plugins.Hard {
			v.Reason = fmt.Sprintf("the plugin forced the eviction of %s at %s, and the pod still exists", f.Name, clock(f.At))
		}
		if v.Level == plugins.None {
			v.Condition = "" // it is not met
		}
		v.Level, v.MetLevel, v.Named = plugins.Hard, plugins.Hard, true
		v.Candidates = append(slices.Clip(v.Candidates), f.candidate())
	}
	return l
}

func (f *Forced) candidate() plugins.Candidate {
	c := plugins.Candidate{PodUID: f.UID, Name: f.Name, Why: f.Why, Forced: true}
	if f.GraceSeconds != nil {
		c.GraceSeconds = snapshot.Some(*f.GraceSeconds)
	}
	return c
}
