package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// NetworkContention judges whether a link of the node is full and loses packets: in
// one direction it carries nearly its speed, and TCP retransmits. Both, because a
// backup may well fill a link, and a lossy path elsewhere is not the node's. It
// marks the node and names no pod.
//
// Drops of queueing disciplines are not used: the kernel counts them per queue and
// not per device (Linux 6.18: a tbf queue of a veth dropped 19,948 packets, its
// device's transmit drops stayed 0). Dropped segments of the node's own TCP show as
// retransmits. Received drops and time_squeeze rise on healthy nodes.
type NetworkContention struct {
	Enabled     bool          `yaml:"enabled" why:"Whether the rule is on."`
	Utilization float64       `yaml:"utilization" unit:"ratio" why:"Soft if a link carries this share of its speed in one direction. A device of unknown speed is not judged (set it in network.devices)."`
	Retransmits float64       `yaml:"retransmits" unit:"ratio" why:"And TCP retransmits this share of its segments: without loss a full link is only busy."`
	Window      time.Duration `yaml:"window" why:"The window over which both are averaged, so that a burst does not count."`
	ClearFor    time.Duration `yaml:"clearFor" why:"How long the lower threshold must be clear before the level ends (hysteresis); a shorter time lets the taint flap."`
}

// DefaultNetworkContention has the thresholds of a fresh install.
func DefaultNetworkContention() NetworkContention {
	return NetworkContention{Enabled: true, Utilization: 0.90, Retransmits: 0.01, Window: 30 * time.Second, ClearFor: 30 * time.Second}
}

// Validate says which values must not be used.
func (n NetworkContention) Validate(at problems.Section) {
	at.Duration("window", n.Window, minTick, problems.MaxDuration)
	at.Duration("clearFor", n.ClearFor, minTick, problems.MaxDuration)
	at.Must(n.Utilization > 0, alwaysMet, "utilization")
	at.Must(n.Retransmits > 0, alwaysMet, "retransmits")
}

const (
	// lowerUtilization is the lower threshold (hysteresis), as a share of the
	// utilization; that of the retransmits is lowerStall, both over lowerWindow.
	lowerUtilization = 0.9
	// maxBelievableUtilization is the most of its reported speed that a link can carry: with more
	// over half a minute the speed is wrong, as it may be for virtual NICs.
	maxBelievableUtilization = 1.1
	// minSegments is the least number of TCP segments for a retransmit ratio: ten
	// retransmits are then the default's 1 %.
	minSegments = 1000
	// windowTolerance is how much shorter a window may be.
	windowTolerance = 100 * time.Millisecond
)

// Name of the plugin.
func (NetworkContention) Name() string { return "network-contention" }

// Threshold judges each NIC of the leaf layer whose link is up. Without a speed only
// a link that carries next to nothing is judged.
func (n NetworkContention) Threshold(v View) []Verdict {
	var list []Verdict
	for i := range v.NICs {
		nic := &v.NICs[i].NIC
		if up, _ := nic.Carrier.Get(); up && nic.Layer == snapshot.LayerLeaf {
			list = append(list, n.judge(v, nic))
		}
	}
	return list
}

func (n NetworkContention) judge(v View, nic *snapshot.NIC) Verdict {
	out := Verdict{
		Resource: NetworkIO, Scope: nic.Name, Condition: conditionNetworkContention, Unit: "ratio", Operator: ">=",
		Threshold: snapshot.Some(n.Utilization), Partial: v.WarmingUp || v.Monotonic-v.Since < n.Window,
	}
	was := v.Was(out.Scope)
	out.Latched, out.LowerMet = was.Latched, was.LowerMet
	w, _ := v.Over(n.Window)
	l := linkOver(w, nic)
	if nic.SpeedBytesPerSecond.IsZero() {
		return n.withoutSpeed(out, w, nic)
	}
	j := judgement{absent: n.unavailable(v, nic, l)}
	ratio, why := n.retransmitRatio(v.Snapshot, w)
	over := " over " + n.Window.String()
	received := j.compare(Soft, nic.Name+" receive utilization"+over, l.received, ">=", n.Utilization, "ratio", j.absent)
	sent := j.compare(Soft, nic.Name+" transmit utilization"+over, l.sent, ">=", n.Utilization, "ratio", j.absent)
	again := j.compare(Soft, "TCP segments retransmitted"+over, ratio, ">=", n.Retransmits, "ratio", why)
	full := received || sent
	if full && ratio.IsZero() {
		j.absent = cmp.Or(j.absent, nic.Name+": "+why)
	}
	j.met = j.absent == "" && full && again && !v.WarmingUp
	j.held = !v.WarmingUp && n.lowerMet(v, nic)
	out.applyHysteresis(v, Soft, j.met, j.held, n.ClearFor)
	out.Observed = l.max()
	out.Evidence, out.Absent, out.Reason = j.evidence, j.absent, j.reason(out.Level, v.WarmingUp)
	if full {
		out.Reason += culpritsText(v.Snapshot, nic.Name)
	}
	return out
}

// idleLink is what a link may carry, in bytes per second, to be far from full
// whatever its speed: a tenth of the slowest Ethernet.
const idleLink = 125_000

// withoutSpeed is the verdict of a link of unknown speed: how full it is cannot be
// told, unless it carries next to nothing.
func (NetworkContention) withoutSpeed(out Verdict, w snapshot.Window, nic *snapshot.NIC) Verdict {
	r, ok := w.NIC(nic).Get()
	carried := max(r.ReceiveBytesPerSecond, r.TransmitBytesPerSecond)
	out.Latched, out.Threshold, out.Operator, out.Unit = [2]bool{}, snapshot.Opt[float64]{}, "", ""
	if ok && carried < idleLink {
		out.Reason = fmt.Sprintf("%s carries %.1f Mbit/s: its speed is unknown, and no link is full at that", nic.Name, carried*8/1e6)
		return out
	}
	out.Absent = nic.Name + ": its speed is unknown, so that it is not known how full it is (set it in network.devices)"
	out.Reason = "incomplete data: " + out.Absent
	return out
}

// lowerMet is the rule again, easier to meet and over the last seconds.
func (n NetworkContention) lowerMet(v View, nic *snapshot.NIC) bool {
	w, _ := v.Over(lowerWindow)
	used, ok1 := linkOver(w, nic).max().Get()
	ratio, _ := n.retransmitRatio(v.Snapshot, w)
	again, ok2 := ratio.Get()
	return ok1 && ok2 && used >= n.Utilization*lowerUtilization && again >= n.Retransmits*lowerStall
}

// unavailable is why a link cannot be judged; empty if it can.
func (n NetworkContention) unavailable(v View, nic *snapshot.NIC, l link) string {
	used, known := l.max().Get()
	seen := min(l.over, v.Monotonic-v.Since)
	switch {
	case !known || seen < n.Window-windowTolerance:
		return fmt.Sprintf("%s: %s of the last %s seen so far", nic.Name, seen.Round(time.Second), n.Window)
	case used > maxBelievableUtilization:
		return nic.Name + ": it carries more than its reported speed, so that speed is wrong (set it in network.devices)"
	}
	return ""
}

// link is the utilization of a NIC in a window, as shares of its speed.
type link struct {
	received, sent snapshot.Opt[float64]
	over           time.Duration
}

func linkOver(w snapshot.Window, nic *snapshot.NIC) link {
	r, ok := w.NIC(nic).Get()
	if !ok {
		return link{}
	}
	return link{r.ReceiveUtilizationRatio, r.TransmitUtilizationRatio, time.Duration(r.WindowSeconds * float64(time.Second))}
}

// max is the higher utilization of the two directions.
func (l link) max() snapshot.Opt[float64] {
	a, ok1 := l.received.Get()
	b, ok2 := l.sent.Get()
	if !ok1 || !ok2 {
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(max(a, b))
}

// retransmitRatio is the retransmit ratio of TCP in the host's network namespace. Pods
// with a namespace of their own are not included.
func (n NetworkContention) retransmitRatio(s *snapshot.Snapshot, w snapshot.Window) (ratio snapshot.Opt[float64], why string) {
	sent, again := w.TCP()
	all, ok1 := sent.Get()
	repeated, ok2 := again.Get()
	switch {
	case !ok1 || !ok2:
		absent := s.Network.Absent
		return ratio, cmp.Or(absent["tcp"], absent["tcpSegmentsSentTotal"], absent["tcpRetransmitsTotal"], "a ratio needs two samples")
	case float64(all) < minSegments*min(1, w.Seconds()/n.Window.Seconds()):
		return ratio, "too few TCP segments sent in the host's network namespace"
	}
	return snapshot.Some(float64(repeated) / float64(all)), ""
}

// culpritsText names the workloads that fill a link, for people, as far as pods'
// network namespaces count it; empty if not known.
func culpritsText(s *snapshot.Snapshot, nic string) string {
	i := slices.IndexFunc(s.Contention, func(c snapshot.Contention) bool {
		return c.Resource == snapshot.SharedNetwork && (c.Device == nic || c.Device == "")
	})
	if i < 0 || len(s.Contention[i].Culprits) == 0 {
		return ""
	}
	c := &s.Contention[i]
	traffic := "the traffic"
	if c.Device == "" {
		traffic = "the traffic of all links together"
	}
	var text strings.Builder
	for _, u := range c.Culprits[:min(2, len(c.Culprits))] {
		fmt.Fprintf(&text, "; %s accounts for %.0f %% of %s", u.Name, 100*u.Share, traffic)
	}
	if coverage, known := c.Coverage.Get(); known {
		fmt.Fprintf(&text, "; pods account for %.0f %% of it", 100*coverage)
	}
	return text.String()
}

// Top names no workload.
func (NetworkContention) Top(View, Verdict, int) []Candidate { return nil }
