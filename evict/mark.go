package evict

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Marks are the wanted conditions and taints.
type Marks struct {
	// Conditions has every condition that a plugin judges, met or not.
	Conditions []Condition
	// Taints has those that are wanted; others of ours are removed.
	Taints []corev1.Taint
	// CNR are those of the node's CustomNodeResource, if a plugin asks for that.
	// The effects of its taints are "<QoS level>/<effect>"; without a plugin that
	// names one there is only a condition.
	CNR *Marks
	// Refused is what plugins ask for beyond the limits.
	Refused []Refusal
}

// Condition of the Node.
type Condition struct {
	// Type is names.Prefix and the Condition of the plugin's verdict, as is the key of
	// its taint.
	Type   string                 `json:"type"`
	Status corev1.ConditionStatus `json:"status"`
	// Reason is one word in camel case, for machines; Message is for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// metResolution is the resolution of the times at which a level was last met, so a
// mark may end that much sooner. The state is written to a disk, which may be the
// one under pressure, so it must not change each round.
func metResolution(transition time.Duration) time.Duration { return min(15*time.Second, transition/20) }

// Mark returns the wanted conditions and taints of a round, and the state for the
// next. A level that ended keeps its mark for the transition period (hysteresis),
// and a taint that flaps longer. Without a cluster, or in a dry run, nothing is
// wanted.
func Mark(in Input) (Marks, State) {
	m := in.State.clone()
	in.Levels = prefixCNR(in.Levels)
	levels, refused := claims{m.Claims, m.Marks}.conditions(in.Levels)
	in.Levels = levels
	if parts := Split(in); !in.Config.DryRun {
		in = parts[0]
		m.dropDryRunMarks(in, parts[1:])
	}
	if marksNothing(in) != "" { // when it ends, a pressure of before marks nothing
		clear(m.Marks)
		return Marks{Refused: refused}, m
	}
	m.recordMet(in)
	m.updateTaints(in)
	out := wantedMarks(in, m)
	out.Refused = refused
	return out, m
}

// marksNothing is why nothing is marked in this part of the round; empty: what is met is.
func marksNothing(in Input) string {
	switch {
	case in.Cluster == nil:
		return Standalone
	case in.Config.DryRun:
		return "dry run"
	}
	return ""
}

// unmarked is why the Node has no mark of a verdict that is met, after a Mark whose state
// is the input's; empty: it has.
func unmarked(in Input, v plugins.Verdict) string {
	if why := marksNothing(in); why != "" {
		return why
	}
	_, claimed := in.State.Claims[markName(v)]
	switch {
	case v.ReportOnly:
		return "the rule only reports"
	case v.Condition == "":
		return "the rule has no condition"
	case !claimed && !slices.Contains(plugins.Names(), v.Plugin):
		return "outer plugins have as many conditions as they may"
	}
	return in.Cluster.Unmarked
}

// recordMet records when each level was last met.
func (m State) recordMet(in Input) {
	for _, v := range in.Levels.Verdicts {
		if v.Condition == "" || v.Level == plugins.None {
			continue
		}
		seen := m.Marks[v.Condition].recordEffects(v, in)
		seen.Plugin = v.Plugin
		if at := &seen.LastMet[v.Level-plugins.Soft]; in.Time.Sub(*at) >= metResolution(in.Config.Transition) {
			*at = in.Time
		}
		m.Marks[v.Condition] = seen
	}
	for name, seen := range m.Marks { // a clock that was set back
		for i := range seen.LastMet {
			seen.LastMet[i] = earlier(seen.LastMet[i], in.Time)
		}
		m.Marks[name] = seen.dropEffects(in)
	}
	for _, v := range in.Levels.Verdicts {
		seen := m.Marks[v.Condition]
		if v.Partial && seen.level(in.Time, in.Config.Transition) > plugins.None {
			m.Marks[v.Condition] = seen.refresh(in.Time, in.Config.Transition)
		}
	}
}

// updateTaints sets and removes taints, and drops the state of conditions that ended long
// ago.
func (m State) updateTaints(in Input) {
	for name, seen := range m.Marks {
		level := seen.level(in.Time, in.Config.Transition)
		for _, v := range in.Levels.Verdicts {
			if v.Condition == name {
				level = max(level, v.Level)
			}
		}
		seen = seen.updateTaint(level, in.Time, in.Config.Taints)
		if level == plugins.None && seen.TaintLevel == plugins.None {
			seen.Effects = nil
		}
		m.Marks[name] = seen
		if seen.expired(level, in.Time, in.Config.Taints) {
			delete(m.Marks, name)
		}
	}
}

// dropDryRunMarks removes at once the marks that plugins in a dry run set before, and that
// no other plugin judges.
func (m State) dropDryRunMarks(forReal Input, dry []Input) {
	for _, in := range dry {
		for _, v := range in.Levels.Verdicts {
			same := func(o plugins.Verdict) bool { return o.Condition == v.Condition }
			if m.Marks[v.Condition].Plugin == v.Plugin && !slices.ContainsFunc(forReal.Levels.Verdicts, same) {
				delete(m.Marks, v.Condition)
			}
		}
	}
}

func wantedMarks(in Input, m State) Marks {
	var out Marks
	names := map[string]plugins.Verdict{}
	for _, v := range in.Levels.Verdicts {
		if was, there := names[v.Condition]; v.Condition != "" && (!there || moreSevere(v, was)) {
			names[v.Condition] = v
		}
	}
	for name, seen := range m.Marks { // of a plugin that is no longer asked
		if _, judged := names[name]; !judged && seen.TaintLevel > plugins.None {
			names[name] = plugins.Verdict{Reason: unasked(seen.Plugin)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v := names[name]
		seen := m.Marks[name]
		level := max(v.Level, seen.level(in.Time, in.Config.Transition), seen.TaintLevel)
		c := condition(v, level)
		if c.Reason == settling {
			c.Message = "over; the mark stays until " + clock(seen.until(in.Config)) + ": " + c.Message
		}
		out.add(name, c, seen.taintEffects())
	}
	return out
}

// add adds a condition and its taints to the Node's marks, or to those of the
// CustomNodeResource, by the prefix of its name.
func (m *Marks) add(name string, c Condition, effects []corev1.TaintEffect) {
	name, cnr := strings.CutPrefix(name, cnrPrefix)
	if cnr {
		if m.CNR == nil {
			m.CNR = &Marks{}
		}
		m = m.CNR
	}
	c.Type = names.Prefix + name
	m.Conditions = append(m.Conditions, c)
	for _, e := range effects {
		if _, _, ofQoS := strings.Cut(string(e), "/"); ofQoS == cnr {
			m.Taints = append(m.Taints, corev1.Taint{Key: c.Type, Effect: e})
		}
	}
}

// moreSevere reports whether v is shown rather than was, of verdicts with one
// condition: the highest level, and at none the one that lacks a measurement,
// since the condition may not be clear.
func moreSevere(v, was plugins.Verdict) bool {
	return v.Level > was.Level || v.Level == plugins.None && was.Level == plugins.None && was.Absent == "" && v.Absent != ""
}

// settling is the reason of a condition whose level has ended not long ago.
const settling = "Settling"

func condition(v plugins.Verdict, level plugins.Level) Condition {
	c := Condition{Status: corev1.ConditionFalse, Message: v.Reason}
	if level > plugins.None {
		c.Status = corev1.ConditionTrue
	}
	switch {
	case v.Level == plugins.Hard:
		c.Reason = "Hard"
	case v.Level == plugins.Soft:
		c.Reason = "Soft"
	case level > plugins.None:
		c.Reason = settling
	case v.Absent != "":
		c.Status, c.Reason = corev1.ConditionUnknown, "NotSeen"
	default:
		c.Reason = "Clear"
	}
	return c
}

// effectOf is the taint effect of a level: soft prefers other nodes, hard excludes
// new pods. NoExecute is never used: it would let Kubernetes evict beyond our
// limits.
func effectOf(l plugins.Level) corev1.TaintEffect {
	switch l {
	case plugins.Soft:
		return corev1.TaintEffectPreferNoSchedule
	case plugins.Hard:
		return corev1.TaintEffectNoSchedule
	case plugins.None:
	}
	return ""
}

// MarkState is when a condition was last met at soft and at hard, and the history of its
// taint.
type MarkState struct {
	LastMet [2]time.Time `json:"met"`
	// Plugin is the one whose verdict met it last, of several the last of that round.
	Plugin string `json:"by,omitempty"`
	// TaintLevel is the level of the taint that is on. On and Off are when it was last
	// set and removed; Flaps counts how often it came back soon.
	TaintLevel  plugins.Level `json:"worn,omitempty"`
	TaintedAt   time.Time     `json:"on,omitzero"`
	UntaintedAt time.Time     `json:"off,omitzero"`
	Flaps       int           `json:"flaps,omitempty"`
	// Effects has the time at which a plugin last asked for each effect; the empty
	// one is that of the level. nil: only that.
	Effects map[string]time.Time `json:"asked,omitempty"`
}

// refresh refreshes a level while a missing measurement hides whether it has ended.
func (s MarkState) refresh(now time.Time, transition time.Duration) MarkState {
	if i := s.level(now, transition) - plugins.Soft; now.Sub(s.LastMet[i]) >= metResolution(transition) {
		s.LastMet[i] = now
	}
	return s
}

// level is the condition's level, the transition period included.
func (s MarkState) level(now time.Time, transition time.Duration) plugins.Level {
	for _, l := range []plugins.Level{plugins.Hard, plugins.Soft} {
		if now.Sub(s.LastMet[l-plugins.Soft]) < transition {
			return l
		}
	}
	return plugins.None
}

// until is when a mark whose level has ended is removed.
func (s MarkState) until(c Config) time.Time {
	ends := s.TaintedAt.Add(c.Taints.duration(s.Flaps))
	for _, met := range s.LastMet {
		ends = later(ends, met.Add(c.Transition))
	}
	return ends
}

// Adopt takes over the taints of the agent before this one, as recorded on the
// Node or its CustomNodeResource. They count as just met, so that a restart
// removes no mark early, however long it took.
func (m State) Adopt(now time.Time, owned []OwnTaint) State {
	m = m.clone()
	for _, t := range owned {
		name, ours := strings.CutPrefix(t.Key, names.Prefix)
		if !ours || name == "" {
			continue
		}
		_, effect, ofQoS := strings.Cut(string(t.Effect), "/")
		if !ofQoS {
			effect = string(t.Effect)
		} else {
			name = cnrPrefix + name
		}
		level := plugins.Soft
		if effect != string(corev1.TaintEffectPreferNoSchedule) {
			level = plugins.Hard
		}
		seen := m.Marks[name] // it may have another effect already
		seen.LastMet[level-plugins.Soft] = now
		if seen.TaintLevel == plugins.None {
			seen.TaintedAt = t.Since.Time
		}
		seen.TaintLevel = max(seen.TaintLevel, level)
		if _, asked := seen.Effects[string(t.Effect)]; asked || ofQoS {
			seen.Effects = cloned(seen.Effects)
			seen.Effects[string(t.Effect)] = now
		}
		m.Marks[name] = seen
	}
	return m
}
