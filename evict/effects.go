package evict

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// ownEffect is the key of the level's own effect among those that plugins ask for.
const ownEffect = ""

// cnrPrefix is the prefix of conditions of the CustomNodeResource in the state. A
// condition's own name has no slash.
const cnrPrefix = "cnr/"

// prefixCNR prefixes the conditions that belong on the CustomNodeResource, so that
// they differ from conditions of the Node with the same name.
func prefixCNR(l *plugins.Levels) *plugins.Levels {
	if !slices.ContainsFunc(l.Verdicts, func(v plugins.Verdict) bool { return v.CNR }) {
		return l
	}
	list := slices.Clone(l.Verdicts)
	for i, v := range list {
		list[i].Condition = markName(v)
	}
	return &plugins.Levels{Time: l.Time, Verdicts: list}
}

// markName is the name of a verdict's condition in the state.
func markName(v plugins.Verdict) string {
	if v.CNR && v.Condition != "" {
		return cnrPrefix + v.Condition
	}
	return v.Condition
}

// recordEffects records the effects that a met verdict asks for. As long as no plugin asks
// for any, Effects stays nil.
func (s MarkState) recordEffects(v plugins.Verdict, in Input) MarkState {
	if s.Effects == nil && len(v.Effects) == 0 {
		return s
	}
	first := s.Effects == nil
	s.Effects = cloned(s.Effects)
	if last := later(s.LastMet[0], s.LastMet[1]); first && in.Time.Sub(last) < in.Config.Transition {
		s.Effects[ownEffect] = last // by a plugin that names no effects
	}
	effects := v.Effects
	if len(effects) == 0 {
		effects = []string{ownEffect}
	}
	for _, e := range effects {
		if in.Time.Sub(s.Effects[e]) >= metResolution(in.Config.Transition) {
			s.Effects[e] = in.Time
		}
	}
	return s
}

// dropEffects drops effects that no plugin has asked for within the transition period,
// while the condition itself lasts.
func (s MarkState) dropEffects(in Input) MarkState {
	if s.Effects == nil {
		return s
	}
	s.Effects = maps.Clone(s.Effects)
	for e, at := range s.Effects {
		s.Effects[e] = earlier(at, in.Time)
	}
	if s.level(in.Time, in.Config.Transition) > plugins.None {
		maps.DeleteFunc(s.Effects, func(_ string, at time.Time) bool { return in.Time.Sub(at) >= in.Config.Transition })
	}
	return s
}

// taintEffects returns the effects of the taints that are on.
func (s MarkState) taintEffects() []corev1.TaintEffect {
	own := effectOf(s.TaintLevel)
	if own == "" {
		return nil
	}
	if len(s.Effects) == 0 {
		return []corev1.TaintEffect{own}
	}
	var list []corev1.TaintEffect
	for e := range s.Effects {
		effect := corev1.TaintEffect(e)
		switch e {
		case ownEffect:
			effect = own
		case plugins.NoEffect:
			continue
		}
		if !slices.Contains(list, effect) {
			list = append(list, effect)
		}
	}
	slices.Sort(list)
	return list
}
