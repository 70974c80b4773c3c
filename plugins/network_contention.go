package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// NetworkContention judges whether a link of the node is full and hurts: in
// one direction it carries nearly its speed, and TCP has to send again. Both,
// because a full link is what a backup is for, and a lossy path far away is
// not the node's. It marks the node and names nobody.
//
// What queues drop is not counted here: the kernel keeps that with the queues
// alone and not with the device (Linux 6.18: a tbf queue of a veth dropped 19,948
// packets, its device's transmit drops stayed 0). What a link's queue drops of
// the node's own TCP is sent again, and seen so. Received drops and time_squeeze
// rise on healthy nodes.
type NetworkContention struct {
	Enabled     bool          `yaml:"enabled" why:"Whether the rule is on."`
	Utilization float64       `yaml:"utilization" unit:"ratio" why:"Soft if a link carries this share of its speed in one direction. A device of unknown speed is not judged (set it in network.devices)."`
	Retransmits float64       `yaml:"retransmits" unit:"ratio" why:"And TCP retransmits this share of its segments: without loss a full link is only busy."`
	Over        time.Duration `yaml:"over" why:"The window over which both are averaged, so that a burst does not count."`
	Cleared     time.Duration `yaml:"cleared" why:"How long the lower threshold must be clear before the level ends (hysteresis); a shorter time lets the taint flap."`
}

// DefaultNetworkContention has the thresholds of a fresh install.
func DefaultNetworkContention() NetworkContention {
	return NetworkContention{Enabled: true, Utilization: 0.90, Retransmits: 0.01, Over: 30 * time.Second, Cleared: 30 * time.Second}
}

const (
	// A level is kept while this part of its utilization, and of its
	// retransmits (heldStall), is seen over the last heldOver.
	heldUtilization = 0.9
	// believed is how much of its stated speed a link can carry: of more, over
	// half a minute, it is the speed that is wrong, as virtual NICs' may be.
	believed = 1.1
	// fewSegments is how many TCP must have sent for a share of them to say
	// something: ten of them sent again are the 1 % of the default.
	fewSegments = 1000
	// tickLate is by how much a window may be short.
	tickLate = 100 * time.Millisecond
)

// Name of the plugin.
func (NetworkContention) Name() string { return "network-contention" }

// Threshold judges each NIC of the leaf layer whose link is up and of which the
// speed is known. Of another nobody can say when it is full: the rule does not
// apply to it, and the doctor says so.
func (n NetworkContention) Threshold(v View) []Verdict {
	var list []Verdict
	for i := range v.NICs {
		nic := &v.NICs[i].NIC
		if up, _ := nic.Carrier.Get(); up && nic.Layer == probes.LayerLeaf && !nic.SpeedBytesPerSecond.IsZero() {
			list = append(list, n.judge(v, nic))
		}
	}
	return list
}

func (n NetworkContention) judge(v View, nic *probes.NIC) Verdict {
	out := Verdict{
		Resource: NetworkIO, Scope: nic.Name, Condition: "NetworkContention", Unit: "ratio", Operator: ">=",
		Threshold: probes.Some(n.Utilization), Partial: v.WarmingUp || v.Monotonic-v.Since < n.Over,
	}
	was := v.Was(out.Scope)
	out.Met, out.Held = was.Met, was.Held
	w, _ := v.Over(n.Over)
	l := linkOver(w, nic)
	j := judgement{absent: n.unseen(v, nic, l)}
	ratio, why := sentAgain(v.Snapshot, w)
	over := " over " + n.Over.String()
	received := j.compare(Soft, nic.Name+" receive utilization"+over, l.received, ">=", n.Utilization, "ratio", j.absent)
	sent := j.compare(Soft, nic.Name+" transmit utilization"+over, l.sent, ">=", n.Utilization, "ratio", j.absent)
	again := j.compare(Soft, "TCP segments retransmitted"+over, ratio, ">=", n.Retransmits, "ratio", why)
	full := received || sent
	if full && ratio.IsZero() {
		j.absent = cmp.Or(j.absent, nic.Name+": "+why)
	}
	j.met = j.absent == "" && full && again && !v.WarmingUp
	j.held = !v.WarmingUp && n.worthKeeping(v, nic)
	out.latch(v, Soft, j.met, j.held, n.Cleared)
	out.Observed = l.most()
	out.Evidence, out.Absent, out.Reason = j.evidence, j.absent, j.say(out.Level, v.WarmingUp)
	if full {
		out.Reason += whoseTraffic(v.Snapshot, nic.Name)
	}
	return out
}

// worthKeeping is the rule again, easier to meet and over the last seconds.
func (n NetworkContention) worthKeeping(v View, nic *probes.NIC) bool {
	w, _ := v.Over(heldOver)
	used, ok1 := linkOver(w, nic).most().Get()
	ratio, _ := sentAgain(v.Snapshot, w)
	again, ok2 := ratio.Get()
	return ok1 && ok2 && used >= n.Utilization*heldUtilization && again >= n.Retransmits*heldStall
}

// unseen is why a link cannot be judged; empty when it can.
func (n NetworkContention) unseen(v View, nic *probes.NIC, l link) string {
	used, known := l.most().Get()
	seen := min(l.over, v.Monotonic-v.Since)
	switch {
	case !known || seen < n.Over-tickLate:
		return fmt.Sprintf("%s: %s of the last %s seen so far", nic.Name, seen.Round(time.Second), n.Over)
	case used > believed:
		return nic.Name + ": it carries more than its reported speed, so that speed is wrong (set it in network.devices)"
	}
	return ""
}

// link is the shares of its speed that a NIC carried in a window.
type link struct {
	received, sent probes.Opt[float64]
	over           time.Duration
}

func linkOver(w probes.Window, nic *probes.NIC) link {
	r, ok := w.NIC(nic).Get()
	if !ok {
		return link{}
	}
	return link{r.ReceiveUtilizationRatio, r.TransmitUtilizationRatio, time.Duration(r.WindowSeconds * float64(time.Second))}
}

// most of the two directions.
func (l link) most() probes.Opt[float64] {
	a, ok1 := l.received.Get()
	b, ok2 := l.sent.Get()
	if !ok1 || !ok2 {
		return probes.Opt[float64]{}
	}
	return probes.Some(max(a, b))
}

// sentAgain is the share of its segments that TCP sent again, of the host's
// own network namespace: pods that have one of their own count there.
func sentAgain(s *probes.Snapshot, w probes.Window) (ratio probes.Opt[float64], why string) {
	sent, again := w.TCP()
	all, ok1 := sent.Get()
	n, ok2 := again.Get()
	switch {
	case !ok1 || !ok2:
		absent := s.Network.Absent
		return ratio, cmp.Or(absent["tcp"], absent["tcpSegmentsSentTotal"], absent["tcpRetransmitsTotal"], "a ratio needs two samples")
	case all < fewSegments:
		return ratio, "too few TCP segments sent in the host's network namespace"
	}
	return probes.Some(float64(n) / float64(all)), ""
}

// whoseTraffic tells for people who fills a link, as far as pods' own namespaces
// count it; empty where that is not known.
func whoseTraffic(s *probes.Snapshot, nic string) string {
	i := slices.IndexFunc(s.Contention, func(c probes.Contention) bool {
		return c.Resource == probes.SharedNetwork && (c.Device == nic || c.Device == "")
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

// Top names nobody.
func (NetworkContention) Top(View, Verdict, int) []Candidate { return nil }
