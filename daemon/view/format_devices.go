package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// maxVirtual is how many virtual NICs are shown beside the physical ones: a
// node has one for each pod.
const maxVirtual = 8

// idleNIC is the traffic below which a virtual NIC is idle, in bytes/s.
const idleNIC = 1000

// Disks of the state: those worth a line, and the loop and RAM disks that do
// nothing.
func (s *State) Disks() (shown, idle []probes.DiskState) {
	for _, d := range s.Snapshot.Disks {
		if minor(d.Name) && DiskLoad(d) <= 0 {
			idle = append(idle, d)
		} else {
			shown = append(shown, d)
		}
	}
	return shown, idle
}

func minor(name string) bool {
	return slices.ContainsFunc([]string{"loop", "ram", "zram", "sr", "fd", "nbd"}, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
	})
}

// DiskLoad orders disks by what they do: requests per second, -1 when unknown.
func DiskLoad(d probes.DiskState) float64 {
	r, ok := d.Rates.Get()
	if !ok {
		return -1
	}
	return r.ReadsPerSecond + r.WritesPerSecond
}

// NICs of the state: the physical ones and then the busiest virtual ones, and
// apart from them lo and what is idle.
func (s *State) NICs() (shown, rest []probes.NICState) {
	var virtual []probes.NICState
	for _, n := range s.Snapshot.NICs {
		switch {
		case n.Physical:
			shown = append(shown, n)
		case n.Name == "lo" || NICLoad(n) < idleNIC:
			rest = append(rest, n)
		default:
			virtual = append(virtual, n)
		}
	}
	busy := Busiest(virtual, maxVirtual, NICLoad)
	for _, n := range virtual {
		if !slices.ContainsFunc(busy, func(b probes.NICState) bool { return b.Name == n.Name }) {
			rest = append(rest, n)
		}
	}
	return append(shown, busy...), rest
}

// NICLoad orders NICs by what they do: bytes per second of both directions, -1
// when unknown.
func NICLoad(n probes.NICState) float64 {
	r, ok := n.Rates.Get()
	if !ok {
		return -1
	}
	return r.ReceiveBytesPerSecond + r.TransmitBytesPerSecond
}

// Busiest is the n devices with the highest load, in the order they came in:
// a line should not jump about while it is read.
func Busiest[T any](list []T, n int, load func(T) float64) []T {
	if len(list) <= n {
		return list
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(load(list[b]), load(list[a])) })
	order = order[:max(0, n)]
	slices.Sort(order)
	out := make([]T, len(order))
	for i, at := range order {
		out[i] = list[at]
	}
	return out
}
