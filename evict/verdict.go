package evict

import (
	"cmp"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// VerdictRef is the verdict that a candidate is evicted for: of those that allow its
// eviction now the one that weighs most. The controller is told it, so it must
// never be a verdict that allows no eviction: memory below its floor passes a
// brake.
type VerdictRef struct {
	Plugin   string
	Level    plugins.Level
	Resource plugins.Resource
	Urgent   bool
}

// String is the key of Memory.Refusals: a refusal by the controller that does not
// depend on the pod holds for this verdict.
func (a VerdictRef) String() string {
	text := a.Plugin + " at " + a.Level.String()
	if a.Urgent {
		text += ", below the floor"
	}
	return text
}

// hardMemory reports whether it is a hard verdict about memory.
func (a VerdictRef) hardMemory() bool { return a.Level == plugins.Hard && a.Resource == plugins.Memory }

// before is a total order of the verdicts that one pod may be evicted for. Hard
// memory comes first, because the controller approves it where others wait.
func (a VerdictRef) before(b VerdictRef) int {
	return cmp.Or(
		trueFirst(a.Urgent, b.Urgent), cmp.Compare(b.Level, a.Level), trueFirst(a.Resource == plugins.Memory, b.Resource == plugins.Memory),
		trueFirst(a.Resource != "", b.Resource != ""), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Resource, b.Resource),
	)
}
