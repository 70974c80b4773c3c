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

// onCNR is the prefix of conditions of the CustomNodeResource in the state. A
// condition's own name has no slash.
const onCNR = "cnr/"

// byPlace prefixes the conditions that belong on the CustomNodeResource, so that
// they differ from conditions of the Node with the same name.
func byPlace(l *plugins.Levels) *plugins.Levels {
	if !slices.ContainsFunc(l.Verdicts, func(v plugins.Verdict) bool { return v.CNR }) {
		return l
	}
	list := slices.Clone(l.Verdicts)
	for i, v := range list {
		if v.CNR && v.Condition != "" {
			list[i].Condition = onCNR + v.Condition
		}
	}
	return &plugins.Levels{Time: l.Time, Verdicts: list}
}

// ask records the effects that a met verdict asks for. As long as no plugin asks
// for any, Asked stays nil.
func (s Seen) ask(v plugins.Verdict, in Input) Seen {
	if s.Asked == nil && len(v.Effects) == 0 {
		return s
	}
	first := s.Asked == nil
	s.Asked = cloned(s.Asked)
	if last := later(s.Met[0], s.Met[1]); first && in.Time.Sub(last) < in.Config.Transition {
		s.Asked[ownEffect] = last // by a plugin that names no effects
	}
	effects := v.Effects
	if len(effects) == 0 {
		effects = []string{ownEffect}
	}
	for _, e := range effects {
		if in.Time.Sub(s.Asked[e]) >= remembered(in.Config.Transition) {
			s.Asked[e] = in.Time
		}
	}
	return s
}

// forget drops effects that no plugin has asked for within the transition period,
// while the condition itself lasts.
func (s Seen) forget(in Input) Seen {
	if s.Asked == nil {
		return s
	}
	s.Asked = maps.Clone(s.Asked)
	for e, at := range s.Asked {
		s.Asked[e] = earlier(at, in.Time)
	}
	if s.level(in.Time, in.Config.Transition) > plugins.None {
		maps.DeleteFunc(s.Asked, func(_ string, at time.Time) bool { return in.Time.Sub(at) >= in.Config.Transition })
	}
	return s
}

// effects returns the effects of the taints that are on.
func (s Seen) effects() []corev1.TaintEffect {
	own := effectOf(s.Worn)
	if own == "" {
		return nil
	}
	if len(s.Asked) == 0 {
		return []corev1.TaintEffect{own}
	}
	var list []corev1.TaintEffect
	for e := range s.Asked {
		effect := corev1.TaintEffect(e)
		if e == ownEffect {
			effect = own
		}
		if !slices.Contains(list, effect) {
			list = append(list, effect)
		}
	}
	slices.Sort(list)
	return list
}
