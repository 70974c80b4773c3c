package snapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// linkOf is a NIC of a made-up node: what it carries per second, and its speed
// in bytes per second, 0 for one that does not say.
type linkOf struct {
	name           string
	received, sent uint64
	speed          uint64
	layer          Layer
}

// netOf is a pod's traffic per second; none for one of the host's network.
type netOf struct{ received, sent uint64 }

const gigabit = 125_000_000

// networkOf returns the contention on the network after two seconds.
func networkOf(links []linkOf, pods map[string]*netOf) (c Contention, some bool) {
	h := testHistory()
	var s *Snapshot
	for second := range uint64(3) {
		at := time.Hour + time.Duration(second)*time.Second
		raw := &Sample{Monotonic: at, Boottime: at, BootID: "a"}
		for i, l := range links {
			n := NIC{Name: l.name, Index: Some(i + 1), Layer: l.layer, NICCounters: NICCounters{ReceiveBytes: l.received * second, TransmitBytes: l.sent * second}}
			if l.speed > 0 {
				n.SpeedBytesPerSecond = Some(l.speed)
			}
			raw.NICs = append(raw.NICs, n)
		}
		for name, n := range pods {
			w := Workload{Cgroup: "/kubepods/burstable/pod" + name, Kind: KindPod, Name: "pod " + name, PodUID: name, Inode: 1}
			if n != nil {
				w.Network = Some(WorkloadNetwork{At: at, Namespace: 7, ReceiveBytes: n.received * second, TransmitBytes: n.sent * second})
			}
			raw.Workloads = append(raw.Workloads, w)
		}
		raw.Sort()
		s = h.Add(raw)
	}
	for _, c := range s.Contention {
		if c.Resource == SharedNetwork {
			return c, true
		}
	}
	return c, false
}

func TestContentionLinkTraffic(t *testing.T) {
	c, some := networkOf(
		[]linkOf{{"eth0", 20e6, 100e6, gigabit, LayerLeaf}, {"cni0", 99e6, 99e6, 0, LayerStacked}, {"eth1", 10, 10, gigabit, LayerLeaf}},
		map[string]*netOf{"a": {5e6, 70e6}, "b": {90e6, 20e6}, "host": nil, "idle": {1, 1}},
	)
	require.True(t, some)
	assert.Equal(t, "eth0", c.Device, "the others carry next to nothing, or repeat it")
	assert.Equal(t, ContentionUnknown, c.State)
	assert.Equal(t, "the kernel does not measure which workload waits for a link", c.Absent["sufferers"])
	assert.Empty(t, c.Sufferers)
	coverage, known := c.Coverage.Get()
	require.True(t, known)
	assert.InDelta(t, 0.9, coverage, 1e-6, "the rest is the host's own, or of pods in its network")
	require.Len(t, c.Culprits, 2)
	assert.Equal(t, "pod a", c.Culprits[0].Name)
	assert.InDelta(t, 0.7, c.Culprits[0].Share, 1e-6, "of what is sent: the link carries more that way")
	assert.InDelta(t, 70e6, c.Culprits[0].BytesPerSecond, 1)
	assert.InDelta(t, 0.2, c.Culprits[1].Share, 1e-6)

	c, _ = networkOf([]linkOf{{"eth0", 100e6, 20e6, gigabit, LayerLeaf}}, map[string]*netOf{"a": {5e6, 70e6}, "b": {90e6, 20e6}})
	assert.Equal(t, "pod b", c.Culprits[0].Name, "of what is received, where that is more")
}

func TestContentionLinkCoverageAtMostAll(t *testing.T) {
	c, some := networkOf([]linkOf{{"eth0", 1e6, 10e6, 0, LayerLeaf}}, map[string]*netOf{"a": {0, 30e6}, "b": {30e6, 10e6}})
	require.True(t, some)
	assert.Equal(t, Some(1.0), c.Coverage)
	assert.InDelta(t, 0.75, c.Culprits[0].Share, 1e-6)
}

func TestContentionSeveralLinks(t *testing.T) {
	c, some := networkOf([]linkOf{{"eth0", 1e6, 60e6, 0, LayerLeaf}, {"eth1", 1e6, 40e6, 0, LayerLeaf}}, map[string]*netOf{"a": {0, 50e6}})
	require.True(t, some)
	assert.Empty(t, c.Device, "all of them together")
	assert.True(t, c.Coverage.IsZero())
	assert.Contains(t, c.Absent["coverageRatio"], "several links are in use")
	assert.InDelta(t, 0.5, c.Culprits[0].Share, 1e-6)
}

func TestContentionLinkWithoutPodCounters(t *testing.T) {
	c, some := networkOf([]linkOf{{"eth0", 1e6, 60e6, 0, LayerLeaf}}, map[string]*netOf{"host": nil})
	require.True(t, some)
	assert.Empty(t, c.Culprits)
	assert.Equal(t, Some(0.0), c.Coverage)
	assert.Contains(t, c.Absent["culprits"], "pods with hostNetwork")
	assert.Equal(t, ContentionUnknown, c.State)
}

func TestContentionLinkIdle(t *testing.T) {
	for what, links := range map[string][]linkOf{
		"it carries next to nothing":   {{"eth0", 1e5, 1e5, 0, LayerLeaf}},
		"half of its speed is free":    {{"eth0", 60e6, 60e6, gigabit, LayerLeaf}},
		"it repeats what others carry": {{"cni0", 60e6, 60e6, 0, LayerStacked}},
		"there is no link":             nil,
		"several, and each has room":   {{"eth0", 60e6, 6e6, gigabit, LayerLeaf}, {"eth1", 60e6, 6e6, gigabit, LayerLeaf}},
	} {
		_, some := networkOf(links, map[string]*netOf{"a": {50e6, 50e6}})
		assert.False(t, some, what)
	}
	_, some := networkOf([]linkOf{{"eth0", 60e6, 6e6, gigabit, LayerLeaf}, {"eth1", 6e6, 60e6, 0, LayerLeaf}}, nil)
	assert.True(t, some, "of one it is not known")
}

func TestContentionLinkLargestNamed(t *testing.T) {
	pods := map[string]*netOf{}
	for i := range 20 {
		pods[fmt.Sprintf("%02d", i)] = &netOf{0, uint64(1e6 * (i + 10))}
	}
	c, _ := networkOf([]linkOf{{"eth0", 0, 400e6, 0, LayerLeaf}}, pods)
	require.Len(t, c.Culprits, 10)
	assert.Equal(t, 10, c.MoreCulprits)
	assert.Equal(t, "pod 19", c.Culprits[0].Name)
}
