package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// maxVirtual is how many virtual NICs are shown beside the physical ones: a
// node has one for each pod.
const maxVirtual = 8

// idleNIC is the traffic below which a virtual NIC is idle, in bytes/s.
const idleNIC = 1000

// Disks of a snapshot, leaves first, and separately the idle loop and RAM disks.
func Disks(all []snapshot.DiskState) (shown, idle []snapshot.DiskState) {
	for _, d := range all {
		if isMinorDisk(d.Name) && DiskRequests(d) <= 0 {
			idle = append(idle, d)
		} else {
			shown = append(shown, d)
		}
	}
	leavesFirst(shown, func(d snapshot.DiskState) snapshot.Layer { return d.Layer })
	return shown, idle
}

// leavesFirst sorts by layer: a device that repeats the IO of others comes after
// them.
func leavesFirst[T any](list []T, layer func(T) snapshot.Layer) {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(depth(layer(a)), depth(layer(b))) })
}

// depth of a layer in a list. An unknown layer counts as a leaf.
func depth(l snapshot.Layer) int {
	return slices.Index([]snapshot.Layer{snapshot.LayerLeaf, "", snapshot.LayerPath, snapshot.LayerStacked}, l)
}

// DiskKind is the kind of a disk and what it is stacked on: "lvm on nvme0n1".
func DiskKind(d *snapshot.Disk) string { return kind(d.Kind, d.Slaves, d.Layer) }

// NICKind is the kind of a NIC, what it is stacked on and the master it is a port
// of: "physical, port of bond0".
func NICKind(n *snapshot.NIC) string {
	k := n.Kind
	if k == "" {
		k = "virtual" // of an older recording
		if n.Physical {
			k = "physical"
		}
	}
	text := kind(k, n.Lower, "")
	if n.Master != "" {
		text += ", port of " + Printable(n.Master)
	}
	return text
}

// kind names at most three devices: an array may consist of dozens of disks.
func kind(kind string, on []string, layer snapshot.Layer) string {
	const most = 3
	text := Printable(kind)
	if layer == snapshot.LayerPath {
		text += ", a path"
	}
	if len(on) == 0 {
		return text
	}
	text += " on " + Printable(strings.Join(on[:min(most, len(on))], ", "))
	if more := len(on) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func isMinorDisk(name string) bool {
	return slices.ContainsFunc([]string{"loop", "ram", "zram", "sr", "fd", "nbd"}, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
	})
}

// DiskRequests orders disks by requests per second; -1 when unknown.
func DiskRequests(d snapshot.DiskState) float64 {
	r, ok := d.Rates.Get()
	if !ok {
		return -1
	}
	return r.ReadsPerSecond + r.WritesPerSecond
}

// NICs of a snapshot, leaves first: hardware, then the busiest virtual ones; and
// separately lo and idle ones.
func NICs(all []snapshot.NICState) (shown, rest []snapshot.NICState) {
	var virtual []snapshot.NICState
	for _, n := range all {
		switch {
		case n.Physical, n.Layer == snapshot.LayerLeaf:
			shown = append(shown, n)
		case n.Name == "lo" || NICBytes(n) < idleNIC:
			rest = append(rest, n)
		default:
			virtual = append(virtual, n)
		}
	}
	busy := Busiest(virtual, maxVirtual, NICBytes)
	for _, n := range virtual {
		if !slices.ContainsFunc(busy, func(b snapshot.NICState) bool { return b.Name == n.Name }) {
			rest = append(rest, n)
		}
	}
	shown = append(shown, busy...)
	leavesFirst(shown, func(n snapshot.NICState) snapshot.Layer { return n.Layer })
	return shown, rest
}

// NICBytes orders NICs by bytes per second of both directions; -1 when unknown.
func NICBytes(n snapshot.NICState) float64 {
	r, ok := n.Rates.Get()
	if !ok {
		return -1
	}
	return r.ReceiveBytesPerSecond + r.TransmitBytesPerSecond
}

// BusiestDisks chooses n disks, leaves before stacked ones and busy before idle
// ones, and keeps their order.
func BusiestDisks(list []snapshot.DiskState, n int) []snapshot.DiskState {
	return Busiest(list, n, func(d snapshot.DiskState) float64 { return leafRank(d.Layer, DiskRequests(d)) })
}

// BusiestNICs chooses n NICs as BusiestDisks does.
func BusiestNICs(list []snapshot.NICState, n int) []snapshot.NICState {
	return Busiest(list, n, func(d snapshot.NICState) float64 { return leafRank(d.Layer, NICBytes(d)) })
}

// leafRank ranks each leaf above all stacked devices: no load is near 10¹².
func leafRank(l snapshot.Layer, load float64) float64 {
	if depth(l) > depth("") {
		return load - 1e12
	}
	return load
}

// Busiest is the n devices with the highest load, in their given order, so that
// lines do not move while they are read.
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
