package evict

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// What goes without the controller, where that is allowed.
const (
	// away is how long the controller must have been asked for a pod without an
	// answer: twice what a new leader takes.
	away = 30 * time.Second
	// alonePer is how often one pod goes so: enough that a node survives, too
	// little to empty a cluster whose controller is away.
	alonePer = 10 * time.Minute
)

func aloneBucket() bucket { return bucket{1, alonePer} }

// alone says whether a pod that the controller was asked for, and nobody else
// in its place, goes without its answer.
func (in Input) alone(m Memory, asked *Chosen, c *Considered) bool {
	return in.Config.ViaFallback && !asked.DryRun && in.Time.Sub(asked.Time) >= away &&
		aloneBucket().left(m.Budgets.Alone, in.Uptime) > 0 &&
		slices.ContainsFunc(in.Levels.Verdicts, func(v plugins.Verdict) bool {
			_, named := reliefBy(v, c)
			return named && hard(v) && v.Resource == plugins.Memory
		})
}
