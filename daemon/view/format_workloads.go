package view

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// thrashingStall is the memory stall from which a workload counts as under pressure
// of its own memory limit: a file reader hits its limit all the time at almost
// no cost.
const thrashingStall = 0.05

// OwnLimitText describes a workload for which AtOwnLimit holds.
const OwnLimitText = "at its cgroup's memory limit: it waits for that, not for the node's memory"

// AtOwnLimit reports whether a workload thrashes at its own memory limit.
func AtOwnLimit(w *snapshot.WorkloadState) bool {
	r, ok := w.Rates.Get()
	if !ok {
		return false
	}
	hits, _ := r.LimitHits.Get() // absent counts as none
	return hits > 0 && Stall(r.Pressure.Memory) >= thrashingStall
}

// Stall is a workload's PSI for sorting and highlighting: full, or some where the
// kernel has no full; -1 without both.
func Stall(r snapshot.StallRatio) float64 {
	if full, ok := r.Full.Get(); ok {
		return full
	}
	if some, ok := r.Some.Get(); ok {
		return some
	}
	return -1
}

// ByPressure sorts workloads by their memory stall, io stall, CPU and memory.
// Stalls are compared in tenths of a percent, so that noise does not change the
// order.
func ByPressure(all []snapshot.WorkloadState) []*snapshot.WorkloadState {
	type ranked struct {
		w   *snapshot.WorkloadState
		key [4]float64
	}
	list := make([]ranked, len(all))
	for i := range all {
		w := &all[i]
		list[i] = ranked{w, pressureKey(w)}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(slices.Compare(b.key[:], a.key[:]), strings.Compare(a.w.Cgroup, b.w.Cgroup))
	})
	out := make([]*snapshot.WorkloadState, len(list))
	for i := range list {
		out[i] = list[i].w
	}
	return out
}

// pressureKey sorts a workload; what is absent comes after 0.
func pressureKey(w *snapshot.WorkloadState) [4]float64 {
	key := [4]float64{-1, -1, -1, -1}
	if r, ok := w.Rates.Get(); ok {
		key[0] = math.Floor(Stall(r.Pressure.Memory) * 1000)
		key[1] = math.Floor(Stall(r.Pressure.IO) * 1000)
		if cores, ok := r.CPUCores.Get(); ok {
			key[2] = math.Floor(cores * 100)
		}
	}
	if set, ok := w.WorkingSetBytes.Get(); ok {
		key[3] = float64(set)
	}
	return key
}
