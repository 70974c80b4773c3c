package replay

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// says adds a verdict of an outer plugin from a sample on, which names the large pod.
func says(t *testing.T, s *snapshot.Sample, level plugins.Level) {
	t.Helper()
	v := plugins.Verdict{
		Plugin: "numa", Resource: plugins.Memory, Scope: "NUMA 0", Level: level, MetLevel: level, Since: s.Time,
		Observed: snapshot.Some(9.0), Operator: ">", Threshold: snapshot.Some(8.0), Condition: "NUMAPressure", Reason: "9 of 8",
	}
	if level > plugins.None {
		v.Candidates = []plugins.Candidate{{PodUID: largeUID, Name: "shop/db-0", Why: "named by numa"}}
	}
	said, err := json.Marshal([]plugins.Verdict{v})
	require.NoError(t, err)
	s.OuterVerdicts = said
}

func TestReplayOuterVerdicts(t *testing.T) {
	n := newNode().seconds(90, 0)
	says(t, n.samples[30], plugins.Hard)
	says(t, n.samples[40], plugins.None)
	n.samples[60].OuterVerdicts = json.RawMessage("null") // the plugin was ended
	r, err := play(t, recordingFile(t, "recording", n.samples))
	require.NoError(t, err)
	assert.Equal(t, []string{"numa NUMA 0 none>hard at 30s", "numa NUMA 0 hard>none at 40s"}, levels(r))
	require.NotEmpty(t, r.Decisions)
	going, some := r.Decisions[0].FirstEvicted()
	require.True(t, some)
	assert.Equal(t, largeUID, going.Pod.UID)
	assert.Equal(t, []string{"numa"}, going.Plugins)
	assert.InDelta(t, (30 * time.Second).Seconds(), r.Decisions[0].OffsetSeconds, 1.5, "a round begins with the verdict")
	assert.Equal(t, evict.CodeEnded, r.Decisions[len(r.Decisions)-1].Code)
}

func TestReplayOuterVerdictsUnreadable(t *testing.T) {
	n := newNode().seconds(20, 0)
	n.samples[3].OuterVerdicts = json.RawMessage(`{"not":"a list"}`)
	r, err := play(t, recordingFile(t, "recording", n.samples))
	require.NoError(t, err)
	i := slices.IndexFunc(r.Scopes, func(s Scope) bool { return s.Plugin == undecodedPlugins })
	require.GreaterOrEqual(t, i, 0)
	assert.Contains(t, r.Scopes[i].Absent, "cannot decode recorded verdicts")
	assert.InDelta(t, 17, r.Scopes[i].UnjudgedSeconds, 1)
}
