package probes

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// The recorded machines do known, steady work, and no rule was tuned by them: they are
// held-out labelled recordings as well. as is given the samples of a machine as they are
// read, and compares those of the labelled recording with them; with PLIMSOLL_LABELLED
// it writes that recording anew.
func (p *player) as(name string) func(*snapshot.Sample) {
	p.Helper()
	file := "../e2e/labelled/testdata/held-out/" + name + ".rec"
	if os.Getenv("PLIMSOLL_LABELLED") != "" {
		return p.rewrite(file)
	}
	var list []*snapshot.Sample
	f, err := os.Open(file)
	require.NoError(p, err)
	defer f.Close()
	_, err = Play(f, func(s *snapshot.Sample) error {
		list = append(list, s)
		return nil
	})
	require.NoError(p, err)
	i := 0
	p.Cleanup(func() { assert.Len(p, list, i) })
	return func(s *snapshot.Sample) {
		require.Less(p, i, len(list))
		assert.JSONEq(p, ofNode(p.T, neutral{}.sample(s)), ofNode(p.T, list[i]), "sample %d", i)
		i++
	}
}

// ofNode is what the readers read in every sample; how often each workload is read
// depends on how fast this machine is. The recordings are older than the requests in flight.
func ofNode(t *testing.T, s *snapshot.Sample) string {
	t.Helper()
	disks := slices.Clone(s.Disks)
	for i := range disks {
		disks[i].InFlight = 0
	}
	text, err := json.Marshal(snapshot.Sample{Monotonic: s.Monotonic, CPU: s.CPU, Memory: s.Memory, Pressure: s.Pressure, Network: s.Network, Disks: disks, NICs: s.NICs, NUMANodes: s.NUMANodes})
	require.NoError(t, err)
	return string(text)
}

// rewrite writes the samples to a recording, once all are read.
func (p *player) rewrite(file string) func(*snapshot.Sample) {
	p.Helper()
	n := neutral{}
	kernel, _, found := strings.Cut(strings.TrimPrefix(p.comment, "Recorded on Linux "), ",")
	require.True(p, found, p.comment)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	require.NoError(p, err)
	packed, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	require.NoError(p, err)
	lines := json.NewEncoder(packed)
	require.NoError(p, lines.Encode(Header{Format: RecordingFormat, Kernel: kernel, Version: "played", Command: "go test ./probes -run TestMachine"}))
	p.Cleanup(func() {
		require.NoError(p, packed.Close())
		require.NoError(p, f.Close())
	})
	return func(s *snapshot.Sample) { require.NoError(p, lines.Encode(n.sample(s))) }
}

// neutral numbers the inodes of the played tree, which differ with each play.
type neutral map[uint64]uint64

// sample is a copy without what a play adds: inodes, the wall clock, durations.
func (n neutral) sample(s *snapshot.Sample) *snapshot.Sample {
	c := *s
	c.Time, c.Boottime = time.Unix(1_790_000_000, 0).UTC().Add(s.Monotonic), s.Monotonic
	c.BootID = "00000000-0000-4000-8000-000000000000"
	c.Probes = nil
	for _, p := range s.Probes {
		p.Duration = 0
		c.Probes = append(c.Probes, p)
	}
	c.Workloads = nil
	for _, w := range s.Workloads {
		w.Inode = n.number(w.Inode)
		if net, ok := w.Network.Get(); ok {
			net.Namespace = n.number(net.Namespace)
			w.Network = snapshot.Some(net)
		}
		c.Workloads = append(c.Workloads, w)
	}
	return &c
}

func (n neutral) number(inode uint64) uint64 {
	if _, known := n[inode]; !known {
		n[inode] = uint64(len(n) + 1)
	}
	return n[inode]
}
