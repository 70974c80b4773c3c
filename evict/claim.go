package evict

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Limits on the conditions of outer plugins and on the taint effects of each: all
// annotations of a Node together may have 256 KiB. A plugin names two conditions
// in a round; with four a new version may rename both while the old ones end.
const (
	conditionsPerPlugin      = 4
	conditionsOfOuterPlugins = 32
	effectsPerCondition      = 8
	// effectsByOtherPlugins is the number of effects from which only the plugin that
	// owns the condition adds more: another plugin takes half at most.
	effectsByOtherPlugins = 4
)

// Refusal is why a condition or taint effect that a plugin asks for is not
// written.
type Refusal struct{ Plugin, Why string }

// claims are the conditions of outer plugins: each one's owner, and the marks.
type claims struct {
	owners map[string]string
	marks  map[string]MarkState
}

// conditions makes the outer plugin that first names a condition its owner, and
// removes from the levels what is beyond the limits. A plugin keeps a condition
// as long as it names it, met or not. A condition that is neither named nor in the
// state has no owner again.
func (c claims) conditions(levels *plugins.Levels) (*plugins.Levels, []Refusal) {
	l := &plugins.Levels{Time: levels.Time, Verdicts: slices.Clone(levels.Verdicts)}
	own := plugins.Names()
	named := map[string]bool{}
	for _, v := range l.Verdicts {
		named[v.Condition] = true
	}
	for name := range c.owners {
		if _, remembered := c.marks[name]; !remembered && !named[name] {
			delete(c.owners, name)
		}
	}
	var refused []Refusal
	asked := map[string][]string{}
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if v.Condition == "" || slices.Contains(own, v.Plugin) {
			continue
		}
		why := c.claim(v)
		if why == "" {
			why = c.limitEffects(v, asked)
		}
		if why != "" {
			refused = append(refused, Refusal{v.Plugin, why})
		}
	}
	return l, refused
}

// claim makes the verdict's plugin own its condition, or removes the condition
// from the verdict and returns why.
func (c claims) claim(v *plugins.Verdict) (refused string) {
	if _, taken := c.owners[v.Condition]; taken {
		return ""
	}
	has := 0
	for _, of := range c.owners {
		if of == v.Plugin {
			has++
		}
	}
	switch {
	case has >= conditionsPerPlugin:
		v.Condition, v.Effects = "", nil
		return fmt.Sprintf("condition not written: the plugin already has %d, which is the limit; each is released some time after it ended", has)
	case len(c.owners) >= conditionsOfOuterPlugins:
		v.Condition, v.Effects = "", nil
		return fmt.Sprintf("condition not written: outer plugins already have %d, which is the limit", len(c.owners))
	}
	c.owners[v.Condition] = v.Plugin
	return ""
}

// limitEffects removes a verdict's effects beyond the limit of its condition. Effects in
// the state, and those of earlier verdicts, count.
func (c claims) limitEffects(v *plugins.Verdict, asked map[string][]string) (refused string) {
	list, known := asked[v.Condition]
	if !known {
		for e := range c.marks[v.Condition].Effects {
			if e != ownEffect && e != plugins.NoEffect {
				list = append(list, e)
			}
		}
	}
	room, whose := effectsPerCondition, ""
	if c.owners[v.Condition] != v.Plugin {
		room, whose = effectsByOtherPlugins, "; more are reserved for the plugin that named it first"
	}
	var fitting []string
	for _, e := range v.Effects {
		if e != plugins.NoEffect && !slices.Contains(list, e) {
			if len(list) >= room {
				refused = fmt.Sprintf("taint effect not written: condition %s already has %d%s", v.Condition, len(list), whose)
				continue
			}
			list = append(list, e)
		}
		fitting = append(fitting, e)
	}
	v.Effects, asked[v.Condition] = fitting, list
	return refused
}
