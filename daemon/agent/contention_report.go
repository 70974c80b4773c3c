package agent

import (
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// contentionReport is the contention of a state as the Lease carries it.
func contentionReport(s *view.State) lease.NodeContention {
	n := lease.NodeContention{Version: process.Version()}
	for _, c := range view.Contention(s) {
		switch c.State {
		case snapshot.ContentionPresent:
			n.Resources = append(n.Resources, resourceContention(&c, s.Cluster))
		case snapshot.ContentionUnknown:
			n.Unknown = append(n.Unknown, view.ContentionTitle(&c))
		case snapshot.ContentionBusy: // no workload waits because of others
		}
	}
	return n
}

func resourceContention(c *snapshot.Contention, of *view.Cluster) lease.ResourceContention {
	r := lease.ResourceContention{Resource: string(c.Resource), Device: c.Device, MoreCulprits: c.MoreCulprits, MoreSufferers: c.MoreSufferers}
	if covered, known := c.Coverage.Get(); known {
		r.Coverage = new(twoDigits(covered))
	}
	for _, p := range c.Culprits {
		w := workload(p.Party, p.Share, of)
		if of != nil {
			w.Throttled = of.Throttles.Percent(p.Cgroup, c.Device, c.Resource == snapshot.SharedMemory)
		}
		r.Culprits = append(r.Culprits, w)
	}
	for _, p := range c.Sufferers {
		if !p.LowestClass { // its waiting is no contention
			r.Sufferers = append(r.Sufferers, workload(p.Party, p.Waited, of))
		}
	}
	return r
}

func workload(p snapshot.Party, ratio float64, of *view.Cluster) lease.Workload {
	return lease.Workload{Kind: string(p.Kind), Name: p.Name, Owner: owner(p, of), Ratio: twoDigits(ratio)}
}

// owner of a pod that has a controller.
func owner(p snapshot.Party, of *view.Cluster) string {
	if of == nil || of.PodOf == nil || p.PodUID == "" {
		return ""
	}
	pod, known := of.PodOf(p.PodUID)
	if !known || pod.Owner.Kind == "" {
		return ""
	}
	return evict.Owner(pod.Namespace, pod.Owner.Kind, pod.Owner.Name)
}

func twoDigits(ratio float64) float64 { return math.Round(100*min(1, max(0, ratio))) / 100 }

// reportValid is how long what a round tells is in the heartbeat, with so much time between two
// rounds: rounds that are stuck must not tell for ever what once was.
func reportValid(round time.Duration) time.Duration { return max(time.Minute, 3*round) }

// levelsValid is how long the levels of a sample are current in the heartbeat, with so much time
// between two samples.
func levelsValid(tick time.Duration) time.Duration { return max(15*time.Second, 3*tick) }

// reported is an encoded report and until when it is one, by the heartbeat's clock.
type reported struct {
	text  string
	until time.Duration
}

// setContention passes the contention on. It waits for the next renewal.
func (h *heartbeat) setContention(n lease.NodeContention, valid time.Duration) {
	h.contention.Store(&reported{n.Encode(), h.beat.Uptime() + valid})
}

// current is empty, which removes the annotation, once the report is old.
func (r *reported) current(now time.Duration) string {
	if now > r.until {
		return ""
	}
	return r.text
}
