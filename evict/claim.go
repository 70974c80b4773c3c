package evict

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// How many conditions plugins in processes of their own may have at a time, and
// how many effects each: a Node's record has room for no more than 256 KiB. A
// plugin names two in a round; with four a new version of it may call both
// otherwise while the old ones settle.
const (
	conditionsPerPlugin = 4
	conditionsOfPlugins = 32
	effectsPerCondition = 8
	// effectsOfOthers is how many a condition has at which only the plugin that
	// holds it adds another: who names it too takes no more than half.
	effectsOfOthers = 4
)

// Refusal is why something that a plugin asks for is not marked.
type Refusal struct{ Plugin, Why string }

// claim gives each condition that a plugin of another process names to the one
// that named it first, and takes out of the levels what is beyond the limits. A
// plugin that goes on naming its condition, met or not, keeps it; one that is
// neither named nor remembered is nobody's again.
func (m Memory) claim(in Input) (*plugins.Levels, []Refusal) {
	l := &plugins.Levels{Time: in.Levels.Time, Verdicts: slices.Clone(in.Levels.Verdicts)}
	own := plugins.Names()
	named := map[string]bool{}
	for _, v := range l.Verdicts {
		named[v.Condition] = true
	}
	for name := range m.Claims {
		if _, remembered := m.Marks[name]; !remembered && !named[name] {
			delete(m.Claims, name)
		}
	}
	var refused []Refusal
	asked := map[string][]string{}
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if v.Condition == "" || slices.Contains(own, v.Plugin) {
			continue
		}
		why := m.take(v)
		if why == "" {
			why = m.fit(v, asked)
		}
		if why != "" {
			refused = append(refused, Refusal{v.Plugin, why})
		}
	}
	return l, refused
}

// take a verdict's condition, or leave it without one and say why.
func (m Memory) take(v *plugins.Verdict) (refused string) {
	if _, taken := m.Claims[v.Condition]; taken {
		return ""
	}
	has := 0
	for _, of := range m.Claims {
		if of == v.Plugin {
			has++
		}
	}
	switch {
	case has >= conditionsPerPlugin:
		v.Condition, v.Effects = "", nil
		return fmt.Sprintf("condition not written: the plugin already has %d, which is the limit; each is released some time after it ended", has)
	case len(m.Claims) >= conditionsOfPlugins:
		v.Condition, v.Effects = "", nil
		return fmt.Sprintf("condition not written: outer plugins already have %d, which is the limit", len(m.Claims))
	}
	m.Claims[v.Condition] = v.Plugin
	return ""
}

// fit leaves out effects of a verdict for which its condition has no room beside
// those that are remembered and those of the verdicts before.
func (m Memory) fit(v *plugins.Verdict, asked map[string][]string) (refused string) {
	list, known := asked[v.Condition]
	if !known {
		for e := range m.Marks[v.Condition].Asked {
			if e != ownEffect {
				list = append(list, e)
			}
		}
	}
	room, whose := effectsPerCondition, ""
	if m.Claims[v.Condition] != v.Plugin {
		room, whose = effectsOfOthers, "; more are reserved for the plugin that named it first"
	}
	var fitting []string
	for _, e := range v.Effects {
		if !slices.Contains(list, e) {
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
