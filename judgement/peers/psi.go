package peers

import (
	"fmt"
	"time"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	lacksMemoryPSI = "full of /proc/pressure/memory"
	lacksIOPSI     = "full of /proc/pressure/io"
	namesNone      = "it names no workload"
)

// node is the Alarm of a whole node.
func node(r plugins.Resource, l plugins.Level) judgement.Answer {
	return judgement.Answer{Alarm: judgement.Alarm{Resource: r, Level: l}}
}

// naivePSI alarms while avg10 of full is above 10 % in /proc/pressure/memory or
// in /proc/pressure/io: the simplest alert on PSI of the kernel's
// Documentation/accounting/psi.rst. It is the default of no product.
type naivePSI struct{ memory, io averages }

const naivePercent = 10

func naive() judgement.Rule {
	return judgement.Rule{
		Name:      "PSI > 10 %",
		Source:    "avg10 of full in /proc/pressure/memory or /proc/pressure/io above 10: the simplest alert on PSI (https://docs.kernel.org/accounting/psi.html), and the default of no product",
		Resources: []plugins.Resource{plugins.Memory, plugins.Disk}, Highest: plugins.Soft, Unnamed: namesNone,
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge { return &naivePSI{} },
	}
}

func (n *naivePSI) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	if !n.memory.add(s.Monotonic, s.Pressure.Memory.Full) {
		return nil, lacksMemoryPSI
	}
	if !n.io.add(s.Monotonic, s.Pressure.IO.Full) {
		return nil, lacksIOPSI
	}
	if n.memory.avg10 > naivePercent {
		list = append(list, node(plugins.Memory, plugins.Soft))
	}
	if n.io.avg10 > naivePercent {
		list = append(list, node(plugins.Disk, plugins.Soft))
	}
	return list, ""
}

// Line is the line of a PSI file.
type Line string

// The lines.
const (
	Some Line = "some"
	Full Line = "full"
)

// kep5394 is KEP-5394, PSI based node conditions: a condition is set when avg60 is
// at or above the threshold and avg10 is too, and cleared when avg60 falls below it.
// The KEP leaves open whether it is of the system, of kubepods or of the node; the
// System… conditions of its prototype are of the node's PSI in the kubelet's summary.
// It means NoSchedule, which is our soft. The kubelet writes conditions with its
// node status, every 10 s (nodeStatusUpdateFrequency).
type kep5394 struct {
	threshold float64 // %
	line      Line
	memory    condition
	io        condition
	looked    time.Duration
}

// condition of one resource.
type condition struct {
	averages
	set bool
}

const (
	// nodeStatusEvery is the default of nodeStatusUpdateFrequency.
	nodeStatusEvery = 10 * time.Second
	// kepPercent is the default of a prototype (kubernetes/kubernetes#137357, closed);
	// the KEP leaves it to experiments.
	kepPercent = 90
)

// KEP5394 is the rule of KEP-5394 with a threshold in percent, over one line of the
// node's PSI.
func KEP5394(threshold float64, line Line) judgement.Rule {
	return judgement.Rule{
		Name:      fmt.Sprintf("KEP-5394 %s ≥ %g %%", line, threshold),
		Source:    "KEP-5394, alpha, commit 15c3c95 (https://www.kubernetes.dev/resources/keps/5394/): set at avg60 and avg10 ≥ threshold, cleared at avg60 below it; its threshold is open, a prototype has 90 % of full; the System… conditions alone, which the prototype takes of the node's PSI, since a recording has no PSI of the kubepods cgroup",
		Resources: []plugins.Resource{plugins.Memory, plugins.Disk}, Highest: plugins.Soft, Unnamed: namesNone,
		New: func(judgement.Label, []*snapshot.Sample) judgement.Judge {
			return &kep5394{threshold: threshold, line: line}
		},
	}
}

func (k *kep5394) Judge(s *snapshot.Sample) (list []judgement.Answer, lacks string) {
	memory, io := s.Pressure.Memory.Full, s.Pressure.IO.Full
	if k.line == Some {
		memory, io = s.Pressure.Memory.Some, s.Pressure.IO.Some
	}
	if !k.memory.add(s.Monotonic, memory) || !k.io.add(s.Monotonic, io) {
		return nil, string(k.line) + " of /proc/pressure/memory and /proc/pressure/io"
	}
	if k.looked == 0 || s.Monotonic-k.looked >= nodeStatusEvery {
		k.looked = s.Monotonic
		k.memory.update(k.threshold)
		k.io.update(k.threshold)
	}
	if k.memory.set {
		list = append(list, node(plugins.Memory, plugins.Soft))
	}
	if k.io.set {
		list = append(list, node(plugins.Disk, plugins.Soft))
	}
	return list, ""
}

func (c *condition) update(threshold float64) {
	switch {
	case c.avg60 < threshold:
		c.set = false
	case c.avg10 >= threshold:
		c.set = true
	}
}
