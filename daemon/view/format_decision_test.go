package view_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestDecisionScenesFromRealRounds(t *testing.T) {
	code := func(list []evict.Decision) (codes []evict.Code) {
		for _, d := range list {
			codes = append(codes, d.Code)
		}
		return codes
	}
	assert.Equal(t, []evict.Code{evict.CodeEnded, evict.CodeEvicted, evict.CodeSoft}, code(scenes.Decisions(false)))
	assert.Equal(t, []evict.Code{evict.CodeWouldEvict, evict.CodeSoft}, code(scenes.Decisions(true)))
}

func TestStateWithClusterKeepsOwn(t *testing.T) {
	bare, cluster := scenes.Calm(), &view.Cluster{Pods: 3}
	with := bare.WithCluster(cluster, scenes.Decisions(false))
	assert.Same(t, cluster, with.Cluster)
	assert.Same(t, bare.Snapshot, with.Snapshot)
	assert.Nil(t, bare.Cluster, "a state that was published never changes")
	assert.Nil(t, bare.LastEviction)
	assert.Nil(t, (*view.State)(nil).WithCluster(cluster, nil), "before the first tick there is no state")
}

func TestStateLastEviction(t *testing.T) {
	list := scenes.Decisions(false)
	got := scenes.Calm().WithCluster(nil, list).LastEviction
	assert.Equal(t, &view.Eviction{
		Decision: list[1].ID, Time: list[1].Time, Code: evict.CodeEvicted, Name: "shop/cart-66b8d-mm4qz", Reason: "working set 3.0 GiB", TerminatedAt: list[1].Time.Add(14 * time.Second),
	}, got)
	assert.Nil(t, scenes.Calm().WithCluster(nil, list[2:]).LastEviction, "no pod evicted")

	two := scenes.TwoEvicted()
	got = scenes.Calm().WithCluster(nil, two).LastEviction
	assert.Equal(t, "evicted batch/report-28f7c-x2k9p and 1 more: working set 5.0 GiB; still terminating", got.Text(), "one of two has terminated")
	two[0].TerminatedAt = two[0].Time.Add(10 * time.Minute)
	got = scenes.Calm().WithCluster(nil, two).LastEviction
	assert.Equal(t, "evicted batch/report-28f7c-x2k9p and 1 more: working set 5.0 GiB; terminated after 10 min", got.Text())
}

func TestDecisionTexts(t *testing.T) {
	for code, want := range map[evict.Code]string{
		evict.CodeEvicted: "evicted", evict.CodeWouldEvict: "dry run: would evict", evict.CodeEnded: "pressure ended",
		evict.CodeUnknownOutcome: "eviction outcome unknown", evict.CodeSoft: "no eviction needed",
		evict.CodeCooldown: "no pod evicted", evict.CodeNone: "no pod evicted", "made-up": "no pod evicted",
	} {
		assert.Equal(t, want, view.DecisionText(&evict.Decision{Code: code}))
	}
	for code, want := range map[evict.Code]string{
		evict.CodeEvicted: "evicted", evict.CodeWouldEvict: "would be evicted", evict.CodeTerminated: "already deleted",
		evict.CodeUnknownOutcome: "outcome unknown", evict.CodePDB: "skipped: pdb", pods.DaemonSet: "skipped: daemonset",
	} {
		assert.Equal(t, want, view.CandidateText(&evict.Considered{Code: code}))
	}
	ending, other := &pods.Pod{TerminatesBy: scenes.Start()}, &pods.Pod{}
	assert.Equal(t, "already terminating", view.CandidateText(&evict.Considered{Code: evict.CodeTerminating, Pod: ending}))
	assert.Equal(t, "skipped: terminating", view.CandidateText(&evict.Considered{Code: evict.CodeTerminating, Pod: other}), "another one is ending")
}

func TestPodTextUnknownParts(t *testing.T) {
	assert.Equal(t, "BestEffort (low QoS: evicted first) · priority 0 · no owner · requests no memory", view.PodText(&pods.Pod{QoS: "BestEffort", LowQoS: true}))
	assert.Equal(t, " · priority 0 · no owner · requests no memory and 1.5 CPUs", view.PodText(&pods.Pod{CPURequestMillicores: 1500}))
	assert.Equal(t, "Guaranteed · priority -5 · StatefulSet db · requests 2.0 GiB of memory",
		view.PodText(&pods.Pod{QoS: "Guaranteed", Priority: -5, Owner: pods.Owner{Kind: "StatefulSet", Name: "db"}, MemoryRequestBytes: 2 << 30}))
}

func TestAnswerTextOnce(t *testing.T) {
	a := evict.Answer{Outcome: evict.Blocked, Code: http.StatusTooManyRequests, Text: "not now"}
	assert.Equal(t, "blocked (429): not now", view.AnswerText(a, ""))
	assert.Equal(t, "blocked (429)", view.AnswerText(a, "the API server: not now"))
	assert.Equal(t, "evicted, dry run (201)", view.AnswerText(evict.Answer{Outcome: evict.Evicted, Code: http.StatusCreated, DryRun: true}, ""))
	assert.Equal(t, `unknown-outcome: \x1b[2J`, view.AnswerText(evict.Answer{Outcome: evict.UnknownOutcome, Text: "\x1b[2J"}, ""), "no answer has no status")
}

func TestPressureChangesPerCause(t *testing.T) {
	cause := func(scope string, level plugins.Level, observed snapshot.Opt[float64], line float64) evict.Cause {
		return evict.Cause{
			Plugin: "disk-contention", Scope: scope, Level: level, Observed: observed, Operator: ">=", Threshold: snapshot.Some(line), Unit: "seconds", Reason: "as it is",
		}
	}
	d := &evict.Decision{
		Causes: []evict.Cause{
			cause("sda", plugins.Hard, snapshot.Some(0.25), 0.2), cause("sdb", plugins.Soft, snapshot.Some(0.1), 0.05), cause("sdc", plugins.Soft, snapshot.Some(0.2), 0.1),
		},
		After: []evict.Cause{cause("sdb", plugins.Soft, snapshot.Some(0.09), 0.05), cause("sda", plugins.None, snapshot.Opt[float64]{}, 0.1)},
	}
	assert.Equal(t, []string{
		"disk-contention sda: hard → none, 250 ms (threshold >= 200 ms) → – (threshold >= 100 ms); now as it is",
		"disk-contention sdb: still soft, 100 ms → 90.0 ms; now as it is",
	}, view.PressureChanges(d), "sdc is gone, what was not measured is not 0, and values of two rules are told apart")
	assert.Empty(t, view.PressureChanges(&evict.Decision{Causes: d.Causes}), "empty before the cooldown is over")
}

func TestTerminatedText(t *testing.T) {
	d, c := &evict.Decision{Code: evict.CodeEvicted, Time: scenes.Start()}, &evict.Considered{Code: evict.CodeEvicted}
	assert.Equal(t, "not yet", view.TerminatedText(d, c))
	d.TerminatedAt = scenes.Start().Add(10 * time.Minute)
	assert.Equal(t, "not yet", view.TerminatedText(d, c), "that is another pod of the decision")
	c.TerminatedAt = scenes.Start().Add(75 * time.Second)
	assert.Equal(t, "12:01:15 UTC, 1 min 15 s after the decision", view.TerminatedText(d, c))
	assert.Empty(t, view.TerminatedText(d, &evict.Considered{Code: evict.CodeWouldEvict}), "no pod evicted")
}

func TestModeText(t *testing.T) {
	state := func(c *view.Cluster) *view.State { return &view.State{Agent: view.Agent{Mode: "cluster"}, Cluster: c} }
	since := scenes.Start()
	const dry = "DRY RUN of evictions: no mark, no eviction"
	assert.Equal(t, "cluster", state(nil).ModeText())
	assert.Equal(t, "cluster: 1 pod on this node", state(&view.Cluster{Pods: 1, PodsSynced: true}).ModeText())
	assert.Equal(t, "cluster: 0 pods on this node", state(&view.Cluster{PodsSynced: true}).ModeText())
	assert.Equal(t, "cluster: pods not listed yet, evictions paused", state(&view.Cluster{}).ModeText())
	assert.Equal(t, "cluster: no connection to the API server since 12:00:00 UTC, evictions paused", state(&view.Cluster{PodsSynced: true, StaleSince: since}).ModeText())
	assert.Equal(t, "cluster: rounds stuck for 1 min 30 s, no pod is evicted", state(&view.Cluster{PodsSynced: true, RoundsStuckSeconds: 90}).ModeText())
	assert.Equal(t, "cluster: eviction state not saved for 1 min 30 s", state(&view.Cluster{PodsSynced: true, UnsavedSeconds: 90}).ModeText())
	assert.Equal(t, dry, state(&view.Cluster{PodsSynced: true, DryRun: true}).ModeText())
	assert.Equal(t, "cluster: eviction.enabled is false: no eviction", state(&view.Cluster{PodsSynced: true, EvictionsOff: true}).ModeText())
	assert.Equal(t, "cluster: conditions.enabled is false: no mark, no eviction · pods not listed yet, evictions paused", state(&view.Cluster{ConditionsOff: true, EvictionsOff: true}).ModeText())
	assert.Equal(t, "DRY RUN of evictions, and conditions.enabled is false: no mark, no eviction", state(&view.Cluster{PodsSynced: true, DryRun: true, ConditionsOff: true}).ModeText())
	assert.Equal(t, "DRY RUN of evictions, and eviction.enabled is false: no mark, no eviction", state(&view.Cluster{PodsSynced: true, DryRun: true, EvictionsOff: true}).ModeText())
	for _, dryRun := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} { // of other pods, and of data movers
		want, c := dry, view.Cluster{PodsSynced: true, DryRun: true, Throttles: &view.Throttles{DryRun: dryRun[0]}, DataMovers: &view.DataMovers{DryRun: dryRun[1]}}
		if !dryRun[0] || !dryRun[1] {
			want += "; pods are throttled"
		}
		assert.Equal(t, want, state(&c).ModeText())
	}
	assert.Equal(t, dry+" · pods not listed yet, evictions paused", state(&view.Cluster{DryRun: true}).ModeText())
}

func TestPressureCarriesCluster(t *testing.T) {
	s := scenes.Evicted()
	back := s.Pressure().State(s.Snapshot)
	require.NotNil(t, back.Cluster)
	assert.Same(t, s.Cluster, back.Cluster)
	assert.Same(t, s.LastEviction, back.LastEviction)
}
