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

// decisionOf is the first decision of a replay of two pods with these facts.
func decisionOf(t *testing.T, change func(large, small *snapshot.Pod)) Decision {
	t.Helper()
	n := newNode()
	n.small = 20 * gib
	n.seconds(40, 0).short(10)
	about := known(change)
	for _, s := range n.samples {
		s.Cluster = about
	}
	f, err := os.Open(recordingFile(t, "recording", n.samples))
	require.NoError(t, err)
	defer f.Close()
	p := player(nil)
	require.NoError(t, p.Files(t.Context(), []string{Stdin}, f))
	return p.Report().Decisions[0]
}

func TestReplayKnowsRecordedPods(t *testing.T) {
	d := decisionOf(t, func(large, small *snapshot.Pod) { large.Mover, small.LowQoS, small.Priority = true, true, 7 })
	going, some := d.FirstEvicted()
	require.True(t, some)
	assert.Equal(t, "batch/count-1", going.Name)
	assert.EqualValues(t, 7, going.Pod.Priority)
	assert.EqualValues(t, gib, going.Pod.MemoryRequestBytes)
	for code, change := range map[string]func(large, small *snapshot.Pod){
		"mover":     func(large, _ *snapshot.Pod) { large.Mover = true },
		"namespace": func(large, _ *snapshot.Pod) { large.Namespace = "kube-system" },
		"critical":  func(large, _ *snapshot.Pod) { large.Priority = 2_000_000_000 },
	} {
		d := decisionOf(t, change)
		large := slices.IndexFunc(d.Candidates, func(c evict.Considered) bool { return c.Pod.UID == largeUID })
		require.GreaterOrEqual(t, large, 0)
		assert.Equal(t, evict.Code(code), d.Candidates[large].Code)
		going, some := d.FirstEvicted()
		require.True(t, some, code)
		assert.Equal(t, "batch/count-1", going.Name, code)
	}
}

// One that terminates already is not evicted once more.
func TestReplayKnowsTerminatingPods(t *testing.T) {
	for _, terminating := range []bool{false, true} {
		d := decisionOf(t, func(large, small *snapshot.Pod) {
			small.Namespace, large.Terminating = "kube-system", terminating
		})
		going, some := d.FirstEvicted()
		assert.Equal(t, !terminating, some && going.Pod.UID == largeUID, d.Reason)
	}
}
