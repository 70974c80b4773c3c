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
	return in.Config.ViaFallback && !asked.DryRun && in.Time.Sub(asked.Time) >= in.Config.ViaFallbackAfter &&
		aloneBucket().left(m.Budgets.Alone, in.Uptime) > 0 &&
		slices.ContainsFunc(in.Levels.Verdicts, func(v plugins.Verdict) bool {
			_, named := reliefBy(v, c)
			return named && hard(v) && v.Resource == plugins.Memory
		})
}
