package replay

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// known are the two pods of the made-up node, with their facts from the API server.
func known(change func(large, small *snapshot.Pod)) *snapshot.Cluster {
	pods := []snapshot.Pod{
		{UID: largeUID, Namespace: "shop", Name: "db-0", QoS: "Burstable", MemoryRequestBytes: 29 * gib},
		{UID: smallUID, Namespace: "batch", Name: "count-1", QoS: "Burstable", MemoryRequestBytes: gib},
	}
	change(&pods[0], &pods[1])
	return snapshot.NewCluster(pods, snapshot.Reclaimable{}, nil)
}

func TestReplayKnowsRecordedPods(t *testing.T) {
	n := newNode()
	n.small = 20 * gib
	n.seconds(40, 0).short(10)
	about := known(func(large, small *snapshot.Pod) { large.Mover, small.LowQoS, small.Priority = true, true, 7 })
	for _, s := range n.samples {
		s.Cluster = about
	}
	f, err := os.Open(recordingFile(t, "recording", n.samples))
	require.NoError(t, err)
	defer f.Close()
	p := player(nil)
	require.NoError(t, p.Files(t.Context(), []string{Stdin}, f))
	d := p.Report().Decisions[0]
	going, some := d.FirstEvicted()
	require.True(t, some)
	assert.Equal(t, "batch/count-1", going.Name)
	assert.EqualValues(t, 7, going.Pod.Priority)
	assert.EqualValues(t, gib, going.Pod.MemoryRequestBytes)
	db := slices.IndexFunc(d.Candidates, func(c evict.Considered) bool { return c.Name == "shop/db-0" })
	require.GreaterOrEqual(t, db, 0)
	assert.Equal(t, evict.Code("mover"), d.Candidates[db].Code, "it moves data for Velero")
}
