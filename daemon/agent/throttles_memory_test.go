package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

const eaterPod = "/kubepods/besteffort/pod7"

// memoryFixture is a node whose memory one pod takes.
type memoryFixture struct {
	*throttleFixture
	history snapshot.History
	since   time.Time
}

func newMemoryFixture(t *testing.T) *memoryFixture {
	t.Helper()
	h := &memoryFixture{throttleFixture: newThrottleFixture(t), history: snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: time.Minute}}
	h.since = h.now.Add(-time.Second)
	h.config.Throttle.DryRun = false
	h.pods = pods.List{Synced: true, Pods: []pods.Pod{{UID: "7", CgroupUID: "7", Namespace: "batch", Name: "eater", QoS: "BestEffort", LowQoS: true, Phase: "Running"}}}
	require.NoError(t, os.MkdirAll(filepath.Join(h.dir, eaterPod), 0o755))
	h.put("memory.current", "1610612737\n")
	h.put("memory.high", "max\n")
	h.sample(1000, plugins.None)
	return h
}

func (h *memoryFixture) put(file, text string) {
	require.NoError(h.t, os.WriteFile(filepath.Join(h.dir, eaterPod, file), []byte(text), 0o644))
}

func (h *memoryFixture) high() string {
	b, err := os.ReadFile(filepath.Join(h.dir, eaterPod, "memory.high"))
	require.NoError(h.t, err)
	return strings.TrimSpace(string(b))
}

// sample after a second, in which the pod holds so many MiB.
func (h *memoryFixture) sample(mib uint64, level plugins.Level) *view.State {
	h.now = h.now.Add(time.Second)
	since, available, missing := h.now.Sub(h.since), uint64(80<<20), 300.0*(1<<20)
	if level == plugins.None {
		available, missing = 900<<20, 0
	}
	s := &snapshot.Sample{
		Time: h.now, Monotonic: since, Boottime: since, IOSource: snapshot.IOStat,
		Memory: snapshot.Memory{AvailableBytes: snapshot.Some(available)},
		Workloads: []snapshot.Workload{{
			Cgroup: eaterPod, Inode: 7, Kind: snapshot.KindPod, Name: "pod7", PodUID: "7", At: since, DetailAt: since, ThrottledAt: since, MemoryBytes: snapshot.Some(mib << 20),
		}},
		Cluster: snapshot.NewCluster([]snapshot.Pod{{UID: "7", Namespace: "batch", Name: "eater"}}, snapshot.Reclaimable{}, nil),
	}
	return &view.State{
		Snapshot: h.history.Add(s),
		Levels:   &plugins.Levels{Time: h.now, Verdicts: []plugins.Verdict{{Resource: plugins.Memory, Scope: "node", Level: level, Target: snapshot.Some(missing)}}},
	}
}

// calm passes six seconds without pressure, after which no limit is left.
func (h *memoryFixture) calm(mib uint64) {
	for range 6 {
		h.throttles.round(h.sample(mib, plugins.None), &h.config, h.pods)
	}
}

// eats takes 400 MiB in a second at hard pressure.
func (h *memoryFixture) eats() *view.State { return h.sample(1400, plugins.Hard) }

func TestMemoryLimited(t *testing.T) {
	h := newMemoryFixture(t)
	s := h.eats()
	h.throttles.round(s, &h.config, h.pods)
	assert.Equal(t, "1610616832", h.high(), "what it holds when it is written, which is more than in the sample")
	require.Len(t, h.throttles.shown.Load().Throttled, 1)
	const until = ", until the pressure is over, at the latest 12:02:32 UTC"
	const why = ", since batch/eater took 400 MiB in 1 s, and 100 % of the memory growth of a minute; 80 MiB are available"
	assert.Equal(t, "batch/eater: memory limited to 1.4 GiB"+until+why, h.throttles.shown.Load().Throttled[0].Text())
	assert.Equal(t, []string{"Normal Throttled batch/eater: memory limited to 1.4 GiB" + until + why}, h.events)
	assert.Equal(t, []snapshot.SharedResource{snapshot.SharedMemory}, (*h.throttles.cgroups.Load())[eaterPod], "its stall is our doing")
	require.Len(t, h.throttles.relief, 1)
	assert.Equal(t, []any{plugins.Memory, h.now.Add(10 * time.Second)}, []any{h.throttles.relief[0].Resource, h.throttles.relief[0].Until}, "an eviction waits for it, but not longer")
	h.throttles.round(h.sample(1400, plugins.Hard), &h.config, h.pods)
	assert.Equal(t, h.now.Add(9*time.Second), h.throttles.relief[0].Until)
	assert.Equal(t, 100, h.throttles.shown.Load().Percent(eaterPod, "", true))
	assert.Zero(t, h.throttles.shown.Load().Percent(eaterPod, "", false), "its CPU is not limited")

	h.put("memory.current", "1073741824\n")
	h.throttles.round(h.sample(1024, plugins.Soft), &h.config, h.pods)
	assert.Equal(t, "1610616832", h.high(), "never lowered")
	h.calm(1024)
	assert.Equal(t, "max", h.high())
	assert.Equal(t, "Normal ThrottleReleased batch/eater: no longer throttled on memory: the pressure is over, or it may not be throttled any more", h.events[1])
}

// Memory runs out before any level is met: the round lists the pods all the same, and holds
// the one that takes it.
func TestMemoryLimitedBeforeLevel(t *testing.T) {
	h := newMemoryFixture(t)
	assert.False(t, h.throttles.needPods(h.sample(1000, plugins.None)), "a calm node lists none")
	s := h.eats()
	s.Levels.Verdicts[0].Level = plugins.None
	require.True(t, h.throttles.needPods(s))
	h.throttles.round(s, &h.config, h.pods)
	assert.Equal(t, "1610616832", h.high())
	assert.Empty(t, h.throttles.relief, "there is no level, so no eviction waits for it")
	s = h.sample(1400, plugins.None)
	assert.True(t, h.throttles.needPods(s), "as long as one is held")
}

func TestMemoryLimitEnds(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*memoryFixture)
		after  int // seconds
		why    string
	}{
		"in any case":                          {func(*memoryFixture) {}, 150, "it lasted as long as it may; not tried again before"},
		"sooner where it has a liveness probe": {func(h *memoryFixture) { h.pods.Pods[0].Liveness = 10 * time.Second }, 128, "it lasted as long as it may; not tried again before"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMemoryFixture(t)
			row.change(h)
			h.throttles.round(h.eats(), &h.config, h.pods)
			for range row.after - 1 {
				h.throttles.round(h.sample(1400, plugins.Hard), &h.config, h.pods)
				require.NotEqual(t, "max", h.high())
			}
			h.throttles.round(h.sample(1800, plugins.Hard), &h.config, h.pods)
			assert.Equal(t, "max", h.high())
			assert.Contains(t, h.events[1], row.why)
			h.throttles.round(h.sample(2200, plugins.Hard), &h.config, h.pods)
			assert.Equal(t, "max", h.high(), "the eviction comes next")
			require.Len(t, h.throttles.shown.Load().Exempt, 1)
			assert.Contains(t, h.throttles.shown.Load().Exempt[0].Text(), "batch/eater, memory: it lasted as long as it may")
		})
	}
}

// What is held as long as it may gets a quarter of what is available, and again 5 s later:
// an eviction comes before it has taken the rest.
func TestMemoryLimitRaised(t *testing.T) {
	h := newMemoryFixture(t)
	h.throttles.round(h.eats(), &h.config, h.pods)
	for range 29 {
		h.throttles.round(h.sample(1536, plugins.Soft), &h.config, h.pods)
		require.Equal(t, "1610616832", h.high())
	}
	for range 5 {
		h.throttles.round(h.sample(1536, plugins.Soft), &h.config, h.pods)
		require.Equal(t, strconv.Itoa((1536+80/4)<<20), h.high())
	}
	h.throttles.round(h.sample(1556, plugins.Soft), &h.config, h.pods)
	assert.Equal(t, strconv.Itoa((1556+80/4)<<20), h.high())
	h.calm(1556)
	assert.Equal(t, "max", h.high(), "and what was there before is restored")
}

// The agent is killed after it has limited the pod's memory; what the pod wrote itself
// meanwhile stays.
func TestMemoryLimitSurvivesRestart(t *testing.T) {
	h := newMemoryFixture(t)
	h.throttles.round(h.eats(), &h.config, h.pods)
	h.start()
	h.throttles.round(h.sample(1400, plugins.Hard), &h.config, h.pods)
	assert.Equal(t, "1610616832", h.high())
	h.start()
	h.calm(1400)
	assert.Equal(t, "max", h.high())

	h = newMemoryFixture(t)
	h.throttles.round(h.eats(), &h.config, h.pods)
	h.put("memory.high", "1048576\n")
	h.throttles.round(h.sample(1400, plugins.Hard), &h.config, h.pods)
	assert.Contains(t, h.throttles.shown.Load().Throttled[0].Text(), "another program changed this limit since, it is left unchanged")
	h.calm(1400)
	assert.Equal(t, "1048576", h.high())
}

// The agent is killed while it holds a pod, and the next one cannot list its pods: it raises
// the limit when the time is over, as the one before would have.
func TestMemoryLimitRaisedUnlisted(t *testing.T) {
	h := newMemoryFixture(t)
	h.throttles.round(h.eats(), &h.config, h.pods)
	h.start()
	h.now = h.now.Add(30 * time.Second)
	unlisted := h.sample(1600, plugins.Hard)
	unlisted.Snapshot.Workloads[0].Pod = nil
	h.throttles.round(unlisted, &h.config, pods.List{})
	assert.Equal(t, strconv.Itoa((1600+80/4)<<20), h.high(), "what it holds, and a quarter of what is available")
}

func TestMemoryLimitForbiddenByNamespace(t *testing.T) {
	for label, why := range map[string]string{
		"never":       "namespace batch forbids it: label plimsoll.dev/throttle=never",
		pods.Unlisted: "whether its namespace forbids it is not known yet: may the agent list namespaces?",
	} {
		h := newMemoryFixture(t)
		h.labels = map[string]string{"batch": label}
		h.throttles.round(h.eats(), &h.config, h.pods)
		assert.Equal(t, "max", h.high())
		require.Len(t, h.throttles.shown.Load().Exempt, 1)
		assert.Equal(t, "batch/eater, memory: "+why, h.throttles.shown.Load().Exempt[0].Text())
	}
}

func TestMemoryLimitDryRun(t *testing.T) {
	h := newMemoryFixture(t)
	h.config.Throttle.DryRun = true
	h.throttles.round(h.eats(), &h.config, h.pods)
	assert.Equal(t, "max", h.high())
	assert.Contains(t, h.log.String(), "memory limited to 1.4 GiB")
	assert.Contains(t, h.log.String(), "resource=memory dryRun=true")
	assert.Empty(t, h.events)
	assert.Empty(t, h.throttles.relief, "no eviction waits for what is not done")
}

// The throttle loop holds a pod when memory runs out, whatever a round waits for; a round goes
// on with the newest sample and the relief of it; and with the loop every limit ends.
func TestThrottleLoop(t *testing.T) {
	h, a := newMemoryFixture(t), newCarrying(t, "7").Agent
	path := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(path, []byte("apiVersion: plimsoll.dev/v1alpha1\nkind: AgentConfiguration\nthrottle: {dryRun: false}\n"), 0o600))
	file, err := config.Open(path, nil)
	require.NoError(t, err)
	a.Config, a.throttles, a.throttleDue = file, h.throttles, make(chan struct{}, 1)
	a.state.Store(h.sample(1000, plugins.None))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.throttleLoop(ctx) }()
	eats := h.eats()
	eats.Levels.Verdicts[0].Level = plugins.None
	a.state.Store(eats)
	wake(a.throttleDue)
	deadline.Within(t, 10*time.Second, "the pod is held", func() error {
		if high := h.high(); high != "1610616832" {
			return errors.New(high)
		}
		return nil
	})
	hard := h.sample(1400, plugins.Hard)
	a.state.Store(hard)
	state, relief := a.throttle(false)
	assert.Same(t, hard, state)
	require.Len(t, relief, 1, "of a level that the loop has not seen")
	_, relief = a.throttle(false)
	assert.Len(t, relief, 1, "and again by the same sample")
	end()
	require.NoError(t, <-ended)
	assert.Equal(t, "max", h.high())
	a.state.Store(h.eats())
	a.throttle(false)
	assert.Equal(t, "max", h.high(), "a round that still runs makes none after it")
}

// A held pod is looked after at each sample: it is to get more before a probe of it fails,
// whatever a round waits for.
func TestThrottleLoopWokenWhileHeld(t *testing.T) {
	for held, woken := range map[snapshot.SharedResource]bool{snapshot.SharedMemory: true, snapshot.SharedCPU: false} {
		h := newMemoryFixture(t)
		file, err := config.Open("", nil)
		require.NoError(t, err)
		a := &Agent{Config: file, config: &h.config, throttles: h.throttles, triggers: newTriggers(&h.config, file.Current, nil), throttleDue: make(chan struct{}, 1), levelRose: make(chan struct{}, 1), published: make(chan struct{}, 1)}
		for range 2 {
			s := h.sample(1000, plugins.None)
			a.publish(s.Snapshot, s.Levels, s.Snapshot.Time)
			h.throttles.cgroups.Store(&map[string][]snapshot.SharedResource{eaterPod: {held}})
		}
		assert.Equal(t, woken, len(a.throttleDue) == 1, "%s", held)
		assert.Empty(t, a.levelRose)
	}
}

// A pod that is no data mover keeps its limit where that is read late, on a node that is calm by now.
func TestEaterLimitReadLate(t *testing.T) {
	h := newMemoryFixture(t)
	round := func(s *view.State) {
		var list pods.List
		if h.throttles.needPods(s) { // as Agent.throttle
			list = h.pods
		}
		h.throttles.round(s, &h.config, list)
	}
	round(h.eats())
	limit, kept := h.high(), h.throttles.saved
	require.NotEqual(t, "max", limit)
	late := h.startsUnread()
	round(h.sample(1400, plugins.None))
	assert.Equal(t, limit, h.high())
	late <- state.Answer[savedThrottles]{Value: kept}
	round(h.sample(1400, plugins.None))
	assert.Equal(t, limit, h.high())
	assert.Len(t, h.throttles.list, 1)
}
