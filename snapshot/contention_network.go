package snapshot

import "fmt"

const (
	// minLinkBytes is the traffic of all links together, in bytes per second,
	// below which there is no contention: 1 Mbit/s.
	minLinkBytes = 125_000
	// uncontendedUtilization is the utilization below which a link is not contended.
	uncontendedUtilization = 0.5

	whyWaitsUnknown  = "the kernel does not measure which workload waits for a link"
	whyManyLinks     = "several links are in use: a pod's traffic cannot be attributed to one of them"
	whyNoPodCounters = "no pod has network counters of its own"
)

// networkContention returns the workloads that use the node's links, in the
// busier direction, unless the links are known to have available bandwidth. It
// is about the only link in use, or about all links together, since the link
// that a pod's traffic takes is unknown. Only pods with a network namespace of
// their own are counted, including what they send to each other, which uses no
// link: a share is rather too large than too small. The kernel does not report
// which workloads wait.
func networkContention(s *Snapshot, w Window, of func(int) Opt[WorkloadRates]) (c Contention, some bool) {
	l := linksIn(s.NICs, w)
	receives := l.received > l.sent
	carried := max(l.received, l.sent)
	if carried < minLinkBytes || l.uncontended {
		return Contention{}, false
	}
	c = Contention{Resource: SharedNetwork}
	uses, all := networkUses(s.Workloads, of, receives)
	switch {
	case l.count > 1:
		c.Absent.Because("coverageRatio", whyManyLinks)
	case len(uses) == 0:
		c.Device = l.name
		c.Coverage = Some(0.0)
	default:
		c.Device = l.name
		c.Coverage = Some(min(1, all/carried))
	}
	for i := range uses {
		uses[i].share = portion(uses[i].bytes, max(all, carried))
	}
	parties(s.Workloads).list(&c, uses, Opt[float64]{})
	c.State = ContentionUnknown
	c.Absent.Because("sufferers", whyWaitsUnknown)
	if len(uses) == 0 {
		c.Absent.Because("culprits", fmt.Sprintf("%s: the traffic is the host's, or of pods with hostNetwork", whyNoPodCounters))
	}
	return c, true
}

// links sums the leaf-layer links that carried traffic in a window.
type links struct {
	count          int
	name           string // of one of them
	received, sent float64
	uncontended    bool // all of them are known to be below uncontendedUtilization
}

func linksIn(nics []NICState, w Window) links {
	l := links{uncontended: true}
	for i := range nics {
		n := &nics[i].NIC
		if n.Layer != LayerLeaf {
			continue
		}
		r, ok := w.NIC(n).Get()
		if !ok || max(r.ReceiveBytesPerSecond, r.TransmitBytesPerSecond) < minLinkBytes {
			continue
		}
		in, ok1 := r.ReceiveUtilizationRatio.Get()
		out, ok2 := r.TransmitUtilizationRatio.Get()
		l.uncontended = l.uncontended && ok1 && ok2 && max(in, out) < uncontendedUtilization
		l.count, l.name = l.count+1, n.Name
		l.received, l.sent = l.received+r.ReceiveBytesPerSecond, l.sent+r.TransmitBytesPerSecond
	}
	return l
}

// networkUses returns the uses of pods in one direction, and their sum.
func networkUses(workloads []WorkloadState, of func(int) Opt[WorkloadRates], receives bool) (uses []use, all float64) {
	uses = make([]use, 0, len(workloads))
	for i := range workloads {
		r, _ := of(i).Get()
		n, ok := r.Network.Get()
		if !ok {
			continue
		}
		bytes := n.TransmitBytesPerSecond
		if receives {
			bytes = n.ReceiveBytesPerSecond
		}
		uses, all = append(uses, use{workload: i, bytes: bytes, stallUnknown: true}), all+bytes
	}
	return uses, all
}
