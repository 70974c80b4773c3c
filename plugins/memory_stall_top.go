package plugins

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// memoryUser is a workload with its memory.
type memoryUser struct {
	*snapshot.WorkloadState
	// held is its working set, swap included, in bytes; above is the part above
	// its request, if requests are known.
	held, aboveRequest uint64
	stall              float64 // share of the last seconds, unless it hit its own limit
}

// before orders takers: more memory above the request first. Of those with about as
// much (within a factor of two) the one that stalls most, since its eviction ends
// most of the stall.
func (t memoryUser) before(o memoryUser) int {
	return cmp.Or(
		cmp.Compare(bits.Len64(o.aboveRequest), bits.Len64(t.aboveRequest)), cmp.Compare(o.stall, t.stall),
		cmp.Compare(o.aboveRequest, t.aboveRequest), cmp.Compare(o.held, t.held),
	)
}

// Top names the workloads with the most memory above their request, swap included:
// the request itself was promised to them. Without known requests the largest
// working sets come first. Relief is all memory of the workload.
func (MemoryStall) Top(v View, _ Verdict, n int) []Candidate {
	_, unknown := v.Pods()
	list := memoryUsers(v, unknown == "")
	if unknown != "" {
		slices.SortStableFunc(list, func(a, b memoryUser) int { return cmp.Compare(b.held, a.held) })
	} else {
		slices.SortStableFunc(list, memoryUser.before)
	}
	out := make([]Candidate, 0, len(list))
	for _, t := range list {
		out = append(out, Candidate{
			Cgroup: t.Cgroup, Name: t.Title(), PodUID: t.PodUID, Relief: float64(t.held), Unit: "bytes", Why: t.why(unknown == ""),
		})
	}
	return out[:min(n, len(out))]
}

func memoryUsers(v View, requests bool) []memoryUser {
	w, _ := v.Over(lowerWindow)
	var list []memoryUser
	for i := range v.Workloads {
		l := &v.Workloads[i]
		set, ok := l.WorkingSetBytes.Get()
		if !ok {
			continue
		}
		swapped, _ := l.SwapBytes.Get()
		t := memoryUser{WorkloadState: l, held: set + swapped}
		if requests {
			t.aboveRequest = t.held - min(t.held, t.request())
			stall, hits := w.MemoryStall(&l.Workload)
			if n, _ := hits.Get(); n == 0 {
				t.stall, _ = stall.Some.Get()
			}
		}
		list = append(list, t)
	}
	return list
}

// request is the memory request of a workload; 0 for what is no pod, or not in the
// API server.
func (t memoryUser) request() uint64 {
	if t.Pod == nil {
		return 0
	}
	return t.Pod.MemoryRequestBytes
}

func (t memoryUser) why(requests bool) string {
	swapped, _ := t.SwapBytes.Get()
	text := fmt.Sprintf("working set %.0f MiB", float64(t.held-swapped)/(1<<20))
	if swapped > 0 {
		text += fmt.Sprintf(", swapped %.0f MiB", float64(swapped)/(1<<20))
	}
	if requests && t.Pod != nil {
		text += fmt.Sprintf(", %.0f MiB above its request of %.0f MiB", float64(t.aboveRequest)/(1<<20), float64(t.request())/(1<<20))
	}
	if t.stall >= shownStall {
		text += fmt.Sprintf(", stalls %.0f %% of the time", 100*t.stall)
	}
	return text
}

// shownStall is the least stall that is shown.
const shownStall = 0.01
