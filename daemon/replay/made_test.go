package replay

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const gib = 1 << 30

// node is a made-up machine of 64 GiB that can be short of memory: two pods and
// a service, of which the large one has most.
type node struct {
	boot              string
	clock             time.Time
	at                time.Duration // CLOCK_BOOTTIME and CLOCK_MONOTONIC
	stalled, scans    uint64
	available         uint64
	large, small, own uint64 // working sets
	samples           []*snapshot.Sample
}

func newNode() *node {
	return &node{
		boot: "boot-1", clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), at: time.Hour,
		available: 40 * gib, large: 30 * gib, small: 2 * gib, own: gib,
	}
}

// seconds go by, in which the tasks of the node stall for this share of the
// time and global reclaim scans if they do.
func (n *node) seconds(count int, stall float64) *node {
	for range count {
		n.pass(time.Second, stall)
	}
	return n
}

func (n *node) pass(d time.Duration, stall float64) *node {
	n.at += d
	n.clock = n.clock.Add(d)
	n.stalled += uint64(stall * float64(d.Microseconds()))
	if stall > 0 {
		n.scans += 1000
	}
	n.samples = append(n.samples, n.sample())
	return n
}

// short of memory for so long.
func (n *node) short(seconds int) *node {
	n.available = 2 * gib
	n.seconds(seconds, 0.6)
	n.available = 40 * gib
	return n
}

// reboot takes a minute.
func (n *node) reboot() *node {
	n.boot += "x"
	n.clock = n.clock.Add(time.Minute)
	n.at, n.stalled, n.scans = time.Second, 0, 0
	return n
}

const largeUID, smallUID = "41aa9e07-0000-4000-8000-00000000000a", "8d1c2f6e-0000-4000-8000-00000000000b"

func (n *node) sample() *snapshot.Sample {
	workload := func(cgroup string, kind snapshot.Kind, name, uid string, set uint64) snapshot.Workload {
		return snapshot.Workload{
			Cgroup: cgroup, Inode: 1, Kind: kind, Name: name, PodUID: uid, At: n.at, DetailAt: n.at, ThrottledAt: n.at,
			MemoryBytes: snapshot.Some(set), InactiveFileBytes: snapshot.Some(uint64(0)), LimitHits: snapshot.Some(uint64(0)),
		}
	}
	s := &snapshot.Sample{
		Time: n.clock, Monotonic: n.at, Boottime: n.at, BootID: n.boot,
		Memory: snapshot.Memory{
			TotalBytes: snapshot.Some(uint64(64 * gib)), AvailableBytes: snapshot.Some(n.available),
			ScansDirect: snapshot.Some(n.scans), ScansKswapd: snapshot.Some(uint64(0)),
		},
		Workloads: []snapshot.Workload{
			workload("/kubepods.slice/pod-a.slice", snapshot.KindPod, "pod 41aa9e07", largeUID, n.large),
			workload("/kubepods.slice/pod-b.slice", snapshot.KindPod, "pod 8d1c2f6e", smallUID, n.small),
			workload("/system.slice/backup.service", snapshot.KindService, "backup.service", "", n.own),
		},
	}
	s.Pressure.Memory = snapshot.Stall{Some: snapshot.Some(n.stalled), Full: snapshot.Some(n.stalled)}
	s.Pressure.IO = snapshot.Stall{Some: snapshot.Some(n.stalled / 2), Full: snapshot.Some(n.stalled / 4)}
	s.Pressure.CPU = snapshot.Stall{Some: snapshot.Some(uint64(n.at.Microseconds() / 10))}
	return s
}

// defaults are the configuration of a fresh install.
func defaults() *config.Agent {
	c := config.Default()
	return &c
}

// player plays by a configuration; nil is the defaults.
func player(c *config.Agent) *Player {
	if c == nil {
		c = defaults()
	}
	return &Player{Config: c}
}

// replayed is the report of a node's samples.
func replayed(p *Player, n *node) *Report {
	for _, s := range n.samples {
		p.Add(s)
	}
	return p.Report()
}

// recordingFile writes a node's samples to a file.
func recordingFile(t testing.TB, name string, samples []*snapshot.Sample) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	r, err := probes.CreateRecording(file, "v0.1.0", "")
	require.NoError(t, err)
	for _, s := range samples {
		require.NoError(t, r.Add(s))
	}
	require.NoError(t, r.Close())
	return file
}

// levels are the changes as words, with the second at which they came.
func levels(r *Report) []string {
	var list []string
	for _, c := range r.Changes {
		list = append(list, c.Plugin+" "+c.Scope+" "+c.From.String()+">"+c.To.String()+" at "+time.Duration(c.OffsetSeconds*float64(time.Second)).Round(time.Second).String())
	}
	return list
}
