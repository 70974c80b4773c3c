package evict

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Prefix of the types of our conditions and of the keys of our taints.
const Prefix = "plimsoll.dev/"

// Marks are the conditions and taints that the Node should carry.
type Marks struct {
	// Conditions has every condition that a plugin judges, met or not.
	Conditions []Condition
	// Taints has those that are wanted; no other of ours should be there.
	Taints []corev1.Taint
}

// Condition of the Node.
type Condition struct {
	// Type has the Prefix.
	Type   string                 `json:"type"`
	Status corev1.ConditionStatus `json:"status"`
	// Reason is one word in camel case, for machines; Message is for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// remembered is how exactly it is remembered when a level was last met, so a
// mark may end that much sooner: it is written to disk, which may be the one
// under pressure.
func remembered(transition time.Duration) time.Duration { return min(15*time.Second, transition/20) }

// Mark says which conditions and taints a round calls for, and what the next
// round must remember of it. A level that ended keeps its mark for the
// transition period. With no cluster, or in a dry run, nothing is wanted.
func Mark(in Input) (Marks, Memory) {
	m := in.Memory.clone()
	for _, v := range in.Levels.Verdicts {
		if v.Condition == "" || v.Level == plugins.None {
			continue
		}
		seen := m.Marks[v.Condition]
		if at := &seen.Met[v.Level-plugins.Soft]; in.Time.Sub(*at) >= remembered(in.Config.Transition) {
			*at = in.Time
		}
		m.Marks[v.Condition] = seen
	}
	for name, seen := range m.Marks { // a clock that was set back
		for i := range seen.Met {
			seen.Met[i] = earlier(seen.Met[i], in.Time)
		}
		m.Marks[name] = seen
	}
	maps.DeleteFunc(m.Marks, func(_ string, seen Seen) bool {
		return seen.level(in.Time, in.Config.Transition) == plugins.None
	})
	for _, v := range in.Levels.Verdicts {
		if seen, marked := m.Marks[v.Condition]; marked && v.Partial {
			m.Marks[v.Condition] = seen.kept(in.Time, in.Config.Transition)
		}
	}
	if in.Cluster == nil || in.Config.DryRun {
		return Marks{}, m
	}
	return marks(in, m), m
}

func marks(in Input, m Memory) Marks {
	var out Marks
	names := map[string]plugins.Verdict{}
	for _, v := range in.Levels.Verdicts {
		if was, there := names[v.Condition]; v.Condition != "" && (!there || v.Level > was.Level) {
			names[v.Condition] = v
		}
	}
	for name := range m.Marks { // of a plugin that judges no more
		if _, judged := names[name]; !judged {
			names[name] = plugins.Verdict{Reason: SwitchedOff}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v := names[name]
		level := max(v.Level, m.Marks[name].level(in.Time, in.Config.Transition))
		out.Conditions = append(out.Conditions, condition(name, v, level))
		if effect := effectOf(level); effect != "" {
			out.Taints = append(out.Taints, corev1.Taint{Key: Prefix + name, Effect: effect})
		}
	}
	return out
}

func condition(name string, v plugins.Verdict, level plugins.Level) Condition {
	c := Condition{Type: Prefix + name, Status: corev1.ConditionFalse, Message: v.Reason}
	if level > plugins.None {
		c.Status = corev1.ConditionTrue
	}
	switch {
	case v.Level == plugins.Hard:
		c.Reason = "Hard"
	case v.Level == plugins.Soft:
		c.Reason = "Soft"
	case level > plugins.None:
		c.Reason = "Settling"
	case v.Absent != "":
		c.Status, c.Reason = corev1.ConditionUnknown, "NotSeen"
	default:
		c.Reason = "Clear"
	}
	return c
}

// effectOf a level: soft steers new pods away, hard keeps them away. Nothing
// here ever asks for NoExecute, which would hand eviction to others, past
// every limit of ours.
func effectOf(l plugins.Level) corev1.TaintEffect {
	switch l {
	case plugins.Soft:
		return corev1.TaintEffectPreferNoSchedule
	case plugins.Hard:
		return corev1.TaintEffectNoSchedule
	}
	return ""
}

// Seen is when a condition was last met at soft and at hard.
type Seen struct {
	Met [2]time.Time `json:"met"`
}

// kept does not grow older while nobody can say whether it is over.
func (s Seen) kept(now time.Time, transition time.Duration) Seen {
	if i := s.level(now, transition) - plugins.Soft; now.Sub(s.Met[i]) >= remembered(transition) {
		s.Met[i] = now
	}
	return s
}

// level that the condition still has, the transition period included.
func (s Seen) level(now time.Time, transition time.Duration) plugins.Level {
	for _, l := range []plugins.Level{plugins.Hard, plugins.Soft} {
		if now.Sub(s.Met[l-plugins.Soft]) < transition {
			return l
		}
	}
	return plugins.None
}

// Adopt takes over what an agent before this one marked, as its record on the
// Node says: as if it had just been met, so that a restart lifts nothing early,
// however long it took.
func (m Memory) Adopt(now time.Time, owned []OwnTaint) Memory {
	m = m.clone()
	for _, t := range owned {
		name, ours := strings.CutPrefix(t.Key, Prefix)
		if !ours || name == "" {
			continue
		}
		level := plugins.Soft
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			level = plugins.Hard
		}
		seen := m.Marks[name] // of its other effect
		seen.Met[level-plugins.Soft] = now
		m.Marks[name] = seen
	}
	return m
}
