package evict

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// alonePer is how often one pod goes without the controller, where that is
// allowed: enough that a node survives, too little to empty a cluster whose
// controller is away.
const alonePer = 10 * time.Minute

func aloneBucket() bucket { return bucket{1, alonePer} }

// alone says whether a pod that the controller was asked for, and nobody else
// in its place, goes without its answer.
func (in Input) alone(m Memory, asked *Chosen, c *Considered) bool {
	return in.mayAlone(m, asked) && in.forMemory(c)
}

// mayAlone: the controller has not answered for long enough, and a pod may go
// without it.
func (in Input) mayAlone(m Memory, asked *Chosen) bool {
	return in.Config.ViaFallback && !asked.DryRun && in.Time.Sub(asked.Time) >= in.Config.ViaFallbackAfter &&
		aloneBucket().left(m.Budgets.Alone, in.Uptime) > 0
}

// forMemory: it is named by what is hard about memory.
func (in Input) forMemory(c *Considered) bool {
	return slices.ContainsFunc(in.Levels.Verdicts, func(v plugins.Verdict) bool {
		_, named := reliefBy(v, c)
		return named && hard(v) && v.Resource == plugins.Memory
	})
}

// yield puts who may go without the controller before a pod that it was asked
// for in vain for another pressure: that one would else hold up what saves the
// node.
func (r *sitting) yield(list []Considered) {
	if len(list) == 0 || r.Config.DryRun || list[0].Pod == nil || list[0].Pod.UID != r.memory.Pending(r.Time) ||
		r.Config.Via != ViaController || !r.mayAlone(r.memory, r.memory.last()) || r.forMemory(&list[0]) {
		return
	}
	if i := slices.IndexFunc(list, func(c Considered) bool { return c.Code == "" && r.forMemory(&c) }); i > 0 {
		first := list[i]
		copy(list[1:], list[:i])
		list[0] = first
	}
}
