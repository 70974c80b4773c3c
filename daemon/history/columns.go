package history

import (
	"math"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// kind of a series.
type kind uint8

// The kinds, as they are in the file.
const (
	kindNode kind = iota + 1
	kindDisk
	kindNIC
	kindRule
	kindWorkload
	kindEnd // after the last
)

// The columns of each kind, as they are in the file.
const (
	nodeCPUBusy = iota
	nodeCPUSome
	nodeMemorySome
	nodeMemoryFull
	nodeIOSome
	nodeIOFull
	nodeAvailable
	nodeColumns
)

const (
	diskBusy = iota
	diskReadAwait
	diskWriteAwait
	diskRead
	diskWritten
	diskColumns
)

const (
	nicReceived = iota
	nicSent
	nicDrops
	nicColumns
)

const (
	ruleLevel = iota
	ruleThreshold
	ruleColumns
)

const (
	workloadCores = iota
	workloadMemory
	workloadDisk
	workloadIOStall
	workloadMemoryStall
	workloadColumns
)

const maxColumns = nodeColumns

func (k kind) columns() int {
	return [kindEnd]int{kindNode: nodeColumns, kindDisk: diskColumns, kindNIC: nicColumns, kindRule: ruleColumns, kindWorkload: workloadColumns}[k]
}

// columnNames are the keys of the API, which are those of a snapshot where it has the
// value.
func (k kind) columnNames() []string {
	switch k {
	case kindNode:
		return []string{"cpuBusyRatio", "cpuSomeRatio", "memorySomeRatio", "memoryFullRatio", "ioSomeRatio", "ioFullRatio", "availableRatio"}
	case kindDisk:
		return []string{"busyRatio", "readAwaitSeconds", "writeAwaitSeconds", "readBytesPerSecond", "writtenBytesPerSecond"}
	case kindNIC:
		return []string{"receiveBytesPerSecond", "transmitBytesPerSecond", "dropsPerSecond"}
	case kindRule:
		return []string{"level", "threshold"}
	case kindWorkload:
		return []string{"cpuCores", "workingSetBytes", "diskBytesPerSecond", "ioSomeRatio", "memorySomeRatio"}
	case kindEnd:
	}
	return nil
}

// values of one step, by column; NaN is unknown.
type values [maxColumns]float64

// absent is NaN, which stands for unknown in values alone.
func absent() float64 { return math.NaN() }

func orAbsent(o snapshot.Opt[float64]) float64 {
	if v, ok := o.Get(); ok {
		return v
	}
	return absent()
}

func nodeValues(s *snapshot.Snapshot) values {
	p := s.Pressure.Ratios
	return values{
		nodeCPUBusy: orAbsent(s.CPU.BusyRatio), nodeCPUSome: orAbsent(p.CPU.Some),
		nodeMemorySome: orAbsent(p.Memory.Some), nodeMemoryFull: orAbsent(p.Memory.Full),
		nodeIOSome: orAbsent(p.IO.Some), nodeIOFull: orAbsent(p.IO.Full),
		nodeAvailable: orAbsent(s.Memory.AvailableRatio),
	}
}

func allAbsent() (v values) {
	for i := range v {
		v[i] = absent()
	}
	return v
}

func diskValues(d *snapshot.DiskState) values {
	r, ok := d.Rates.Get()
	if !ok {
		return allAbsent()
	}
	return values{
		diskBusy: r.BusyRatio, diskReadAwait: orAbsent(r.ReadAwaitSeconds), diskWriteAwait: orAbsent(r.WriteAwaitSeconds),
		diskRead: r.ReadBytesPerSecond, diskWritten: r.WrittenBytesPerSecond,
	}
}

func nicValues(n *snapshot.NICState) values {
	r, ok := n.Rates.Get()
	if !ok {
		return allAbsent()
	}
	return values{nicReceived: r.ReceiveBytesPerSecond, nicSent: r.TransmitBytesPerSecond, nicDrops: r.DropsPerSecond}
}

// keepsNIC leaves out the device that each pod has on the host: the traffic of a pod is
// the workload's.
func keepsNIC(n *snapshot.NICState) bool {
	return n.Kind != "veth" && n.Kind != "loopback" && n.Name != "lo"
}

func workloadValues(w *snapshot.WorkloadState, leaves []string) values {
	v := allAbsent()
	if set, ok := w.WorkingSetBytes.Get(); ok {
		v[workloadMemory] = float64(set)
	}
	r, ok := w.Rates.Get()
	if !ok {
		return v
	}
	v[workloadCores] = orAbsent(r.CPUCores)
	v[workloadIOStall], v[workloadMemoryStall] = orAbsent(r.Pressure.IO.Some), orAbsent(r.Pressure.Memory.Some)
	if w.Absent["io"] == "" {
		v[workloadDisk] = leafBytes(r.IO, leaves)
	}
	return v
}

// leafBytes is what a workload reads and writes per second on the disks of the leaf
// layer: those above repeat it.
func leafBytes(io []snapshot.WorkloadIORates, leaves []string) float64 {
	sum := 0.0
	for i := range io {
		if slices.Contains(leaves, io[i].Number) {
			sum += io[i].ReadBytesPerSecond + io[i].WrittenBytesPerSecond
		}
	}
	return sum
}

// ruleValues are those of a verdict; peak is its highest level since the last step. A
// level of which it is not known whether it is none is unknown.
func ruleValues(v *plugins.Verdict, peak plugins.Level) values {
	level := float64(max(v.Level, peak))
	if level == 0 && (v.Absent != "" || v.Partial) {
		level = absent()
	}
	return values{ruleLevel: level, ruleThreshold: orAbsent(v.Threshold)}
}

// ruleName is the name of the series of a plugin and a scope.
func ruleName(plugin, scope string) string { return bounded(plugin) + "\x00" + bounded(scope) }

func ruleParts(name string) (plugin, scope string) {
	plugin, scope, _ = strings.Cut(name, "\x00")
	return plugin, scope
}

// nodeName is the name of the only series of its kind, and the scope of a rule about
// the node.
const nodeName = "node"
