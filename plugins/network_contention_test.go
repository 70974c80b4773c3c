package plugins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// gigabit is what a link of 1 Gbit/s carries in a second.
const gigabit = 125_000_000

// traffic of a second: shares of the link's speed, segments that the host's
// TCP sends, and the share of them that it sends again.
type traffic struct {
	received, sent float64
	segments       uint64
	again          float64
}

// wired is a made-up node with one NIC.
type wired struct {
	*life
	nic      snapshot.NIC
	network  snapshot.Network
	segments uint64
	again    float64
}

func newWired(t *testing.T) *wired {
	t.Helper()
	return &wired{life: newLife(t, Config{NetworkContention: DefaultNetworkContention()}), nic: snapshot.NIC{
		Name: "eth0", Index: snapshot.Some(2), Physical: true, Kind: "physical", Layer: snapshot.LayerLeaf,
		Carrier: snapshot.Some(true), SpeedBytesPerSecond: snapshot.Some[uint64](gigabit),
	}}
}

func (w *wired) carry(s *snapshot.Sample, of traffic) {
	w.nic.ReceiveBytes += uint64(of.received * gigabit)
	w.nic.TransmitBytes += uint64(of.sent * gigabit)
	w.segments += of.segments
	w.again += of.again * float64(of.segments)
	s.NICs = []snapshot.NIC{w.nic}
	s.Network = w.network
	if s.Network.Absent == nil {
		s.Network.TCPSegmentsSent, s.Network.TCPRetransmits = snapshot.Some(w.segments), snapshot.Some(uint64(w.again))
	}
}

// seconds pass; the last verdict, which is the only one.
func (w *wired) seconds(n int, of traffic) (v Verdict) {
	w.t.Helper()
	for range n {
		list := w.second(func(s *snapshot.Sample) { w.carry(s, of) })
		require.Len(w.t, list, 1)
		v = list[0]
	}
	return v
}

func (w *wired) until(l Level, of traffic) int {
	w.t.Helper()
	for i := 1; i <= 200; i++ {
		if w.seconds(1, of).Level == l {
			return i
		}
	}
	w.t.Fatalf("never %s: %s", l, w.levels.Verdicts[0].Reason)
	return 0
}

// quiet is an ordinary second, full one of a link that is full and hurts.
func quiet() traffic { return traffic{received: 0.2, sent: 0.3, segments: 20_000, again: 0.0005} }
func full() traffic  { return traffic{received: 0.1, sent: 0.97, segments: 60_000, again: 0.03} }

func TestNetworkContention(t *testing.T) {
	t.Run("either direction", networkContentionEitherDirection)
	t.Run("healthy node", networkContentionHealthyNode)
	t.Run("burst", networkContentionBurst)
	t.Run("speed exceeded", networkContentionSpeedExceeded)
	t.Run("leaves that are up", networkContentionLeavesThatAreUp)
	t.Run("TCP unknown", networkContentionTCPUnknown)
	t.Run("needs whole window", networkContentionNeedsWholeWindow)
	t.Run("clears", networkContentionClears)
	t.Run("few segments hold", networkContentionFewSegmentsHold)
	t.Run("warm up", networkContentionWarmUp)
	t.Run("changed rule", networkContentionChangedRule)
	t.Run("names traffic", networkContentionNamesTraffic)
}

func networkContentionEitherDirection(t *testing.T) {
	for what, change := range map[string]func(*traffic){
		"eth0 transmit utilization over 30s 97.0 % (≥ 90 %)": func(*traffic) {},
		"eth0 receive utilization over 30s 97.0 % (≥ 90 %)":  func(f *traffic) { f.received, f.sent = f.sent, f.received },
	} {
		t.Run(what, func(t *testing.T) {
			w, of := newWired(t), full()
			change(&of)
			w.seconds(60, quiet())
			assert.InDelta(t, 27, w.until(Soft, of), 1, "0.3 and 0.97 are 0.9 on average after 27 s of 30; 0.2 and 0.97 after 27 s as well")
			v := w.seconds(60, of)
			assert.Equal(t, Soft, v.Level)
			assert.Equal(t, Soft, v.MetLevel)
			assert.Contains(t, v.Reason, what)
			assert.Contains(t, v.Reason, "TCP segments retransmitted over 30s 3.0 % (≥ 1 %)")
			assert.Equal(t, "network-contention", v.Plugin)
			assert.Equal(t, "eth0", v.Scope)
			assert.Equal(t, "NetworkContention", v.Condition)
			observed, _ := v.Observed.Get()
			assert.InDelta(t, 0.97, observed, 1e-9)
			assert.Empty(t, v.Candidates, "nobody is named")
			assert.Empty(t, v.Absent)
			assert.Equal(t, NetworkIO, v.Resource)
		})
	}
}

func networkContentionHealthyNode(t *testing.T) {
	for what, row := range map[string]struct {
		of     traffic
		change func(*snapshot.NIC)
	}{
		"idle":                              {traffic{}, func(*snapshot.NIC) {}},
		"a backup fills the link":           {traffic{sent: 0.99, segments: 80_000, again: 0.005}, func(*snapshot.NIC) {}},
		"both directions full without loss": {traffic{received: 0.98, sent: 0.98, segments: 80_000}, func(*snapshot.NIC) {}},
		"a lossy path far away":             {traffic{sent: 0.5, segments: 40_000, again: 0.2}, func(*snapshot.NIC) {}},
		"almost full":                       {traffic{received: 0.89, sent: 0.89, segments: 40_000, again: 0.2}, func(*snapshot.NIC) {}},
		"received packets are dropped": {
			traffic{received: 0.99, segments: 40_000, again: 0.005},
			func(n *snapshot.NIC) { n.ReceiveDrops += 5000 },
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWired(t)
			for range 120 {
				row.change(&w.nic)
				v := w.seconds(1, row.of)
				require.Equal(t, None, v.Level, v.Reason)
			}
			assert.Empty(t, w.levels.Verdicts[0].Absent)
		})
	}
}

func networkContentionBurst(t *testing.T) {
	w := newWired(t)
	for range 10 {
		require.Equal(t, None, w.seconds(40, quiet()).Level)
		require.Equal(t, None, w.seconds(20, full()).Level)
	}
}

func TestLinkWithoutSpeed(t *testing.T) {
	w := newWired(t)
	w.nic.SpeedBytesPerSecond = snapshot.Opt[uint64]{}
	w.nic.Absent = snapshot.Absent{"speedBytesPerSecond": "speed: unknown to the driver (-1)"}
	for range 120 {
		v := w.seconds(1, full())
		require.Equal(t, None, v.Level)
		require.Equal(t, "eth0: its speed is unknown, so that it is not known how full it is (set it in network.devices)", v.Absent)
	}
	w.nic.SpeedBytesPerSecond, w.nic.Absent = snapshot.Some[uint64](gigabit), nil
	assert.Equal(t, Soft, w.seconds(1, full()).Level, "its bytes were counted all the time")

	t.Run("that carries next to nothing is not full", func(t *testing.T) {
		w := newWired(t)
		w.nic.SpeedBytesPerSecond = snapshot.Opt[uint64]{}
		v := w.seconds(40, traffic{received: 100_000.0 / gigabit, segments: 10})
		assert.Empty(t, v.Absent)
		assert.Equal(t, None, v.Level)
		assert.Equal(t, "eth0 carries 0.8 Mbit/s: its speed is unknown, and no link is full at that", v.Reason)
	})
}

func networkContentionSpeedExceeded(t *testing.T) {
	w := newWired(t)
	of := full()
	of.sent = 1.2
	v := w.seconds(120, of)
	assert.Equal(t, None, v.Level)
	assert.Contains(t, v.Absent, "eth0: it carries more than its reported speed, so that speed is wrong")
	of.sent = 1.05 // counters that a driver updates late
	assert.Equal(t, Soft, w.seconds(60, of).Level)
}

func networkContentionLeavesThatAreUp(t *testing.T) {
	w := newWired(t)
	for what, change := range map[string]func(*snapshot.NIC){
		"a veth":                func(n *snapshot.NIC) { n.Kind, n.Layer = "veth", snapshot.LayerStacked },
		"the port of a bond":    func(n *snapshot.NIC) { n.Master, n.Layer = "bond0", snapshot.LayerPath },
		"of an unknown layer":   func(n *snapshot.NIC) { n.Layer = "" },
		"a link that is down":   func(n *snapshot.NIC) { n.Carrier = snapshot.Some(false) },
		"a device that is down": func(n *snapshot.NIC) { n.Carrier = snapshot.Opt[bool]{} },
	} {
		for range 60 {
			require.Empty(t, w.second(func(s *snapshot.Sample) {
				w.carry(s, full())
				change(&s.NICs[0])
			}), what)
		}
	}
	w.nic.Kind = "bond"
	assert.Len(t, w.second(func(s *snapshot.Sample) { w.carry(s, full()) }), 1)
}

func networkContentionTCPUnknown(t *testing.T) {
	w := newWired(t)
	w.network.Absent = snapshot.Absent{"tcp": "open /proc/1/net/snmp: permission denied"}
	v := w.seconds(60, quiet())
	assert.Empty(t, v.Absent, "a link that is not full is none whatever TCP does")
	v = w.seconds(60, full())
	assert.Equal(t, None, v.Level)
	assert.Equal(t, "eth0: open /proc/1/net/snmp: permission denied", v.Absent)

	w = newWired(t)
	of := full()
	of.segments, of.again = 30, 0.5 // pods with namespaces of their own send all that
	v = w.seconds(60, of)
	assert.Equal(t, None, v.Level)
	assert.Contains(t, v.Absent, "too few TCP segments sent in the host's network namespace")
	of.segments = 34
	assert.Equal(t, Soft, w.seconds(60, of).Level, "a thousand in half a minute")
}

func networkContentionNeedsWholeWindow(t *testing.T) {
	w := newWired(t)
	v := w.seconds(30, full())
	assert.Equal(t, None, v.Level)
	assert.Equal(t, "eth0: 29s of the last 30s seen so far", v.Absent)
	assert.True(t, v.Partial)
	assert.Equal(t, Soft, w.seconds(1, full()).Level)

	w.nic.Index = snapshot.Some(9) // made anew under its name: another one
	w.seconds(1, full())
	w.seconds(1, full())
	assert.Contains(t, w.levels.Verdicts[0].Absent, "1s of the last 30s")
	assert.Equal(t, None, w.levels.Verdicts[0].MetLevel)

	w.sleep(time.Minute)
	v = w.seconds(30, full())
	assert.Equal(t, None, v.MetLevel, "what was before the gap does not count")
	assert.Equal(t, Soft, v.Level, "and the level is not forgotten over it")
	assert.Equal(t, Soft, w.seconds(1, full()).MetLevel)
}

// Most of a node's connections are in the namespaces of its pods: what its own send is enough
// for the lower threshold too.
func networkContentionFewSegmentsHold(t *testing.T) {
	w := newWired(t)
	of := traffic{sent: 0.97, segments: 100, again: 0.03}
	require.Equal(t, Soft, w.seconds(60, of).Level)
	of.sent = 0.82
	assert.Equal(t, Soft, w.seconds(150, of).Level)
}

func networkContentionClears(t *testing.T) {
	for what, row := range map[string]struct {
		of traffic
		in int // seconds: until the 30 s window is not met any more, and 30 after it; 0: never
	}{
		"calm":                  {quiet(), 3 + 30},
		"lossy with room":       {traffic{sent: 0.8, segments: 60_000, again: 0.03}, 12 + 30},
		"full without loss":     {traffic{sent: 0.97, segments: 60_000, again: 0.004}, 23 + 30},
		"a little less of both": {traffic{sent: 0.82, segments: 60_000, again: 0.006}, 0},
		"still as bad":          {full(), 0},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWired(t)
			w.seconds(60, full())
			if row.in > 0 {
				assert.InDelta(t, row.in, w.until(None, row.of), 1)
				return
			}
			assert.Equal(t, Soft, w.seconds(150, row.of).Level)
		})
	}
}

func networkContentionWarmUp(t *testing.T) {
	w := newWired(t)
	w.set = NewSet(Config{WarmUp: 5 * time.Minute, NetworkContention: DefaultNetworkContention()}, nil)
	for range 300 {
		v := w.seconds(1, full())
		require.Equal(t, None, v.Level)
		require.True(t, v.Partial)
	}
	v := w.seconds(1, full())
	assert.Equal(t, Soft, v.Level)
	assert.False(t, v.Partial)
}

func networkContentionChangedRule(t *testing.T) {
	w := newWired(t)
	w.seconds(60, full())
	c := w.set.config
	c.NetworkContention.Retransmits = 0.02
	w.set.Configure(c)
	assert.Equal(t, None, w.seconds(1, full()).Level)
	assert.Equal(t, 30, w.until(Soft, full()))
	c.NetworkContention.Enabled = false
	w.set.Configure(c)
	assert.Empty(t, w.second(func(s *snapshot.Sample) { w.carry(s, full()) }))
}

func networkContentionNamesTraffic(t *testing.T) {
	w := newWired(t)
	full := traffic{received: 0.1, sent: 0.95, segments: 60_000, again: 0.03}
	var sent uint64
	var v Verdict
	for range 40 {
		sent += gigabit / 2
		v = w.second(func(s *snapshot.Sample) {
			w.carry(s, full)
			s.Cluster = snapshot.NewCluster([]snapshot.Pod{{UID: "u1", Namespace: "batch", Name: "du"}}, snapshot.Reclaimable{}, nil)
			s.Workloads = []snapshot.Workload{{
				Cgroup: "/kubepods/burstable/podu1", Kind: snapshot.KindPod, PodUID: "u1", Inode: 1,
				Network: snapshot.Some(snapshot.WorkloadNetwork{At: s.Monotonic, Namespace: 7, TransmitBytes: sent}),
			}}
		})[0]
	}
	assert.Equal(t, Soft, v.Level)
	assert.Contains(t, v.Reason, "; batch/du accounts for 53 % of the traffic; pods account for 53 % of it")
	assert.Empty(t, v.Candidates, "nobody is named: who waits is not known")
}
