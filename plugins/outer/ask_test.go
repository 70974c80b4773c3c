package outer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func thresholdOf(r *wire.ThresholdMetResponse) func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
	return func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) { return r, nil }
}

func hardMet(scope string) *wire.ThresholdMetResponse {
	return &wire.ThresholdMetResponse{
		ObservedValue: 1, ThresholdValue: 1, ThresholdOperator: wire.ThresholdOperator_GREATER_THAN,
		MetType: wire.ThresholdMetType_HARD_MET, EvictionScope: scope,
	}
}

// verdict of a scope; it fails the test where there is none.
func verdict(t testing.TB, list []plugins.Verdict, scope string) plugins.Verdict {
	t.Helper()
	i := slices.IndexFunc(list, func(v plugins.Verdict) bool { return v.Scope == scope })
	require.GreaterOrEqual(t, i, 0, "%+v", list)
	return list[i]
}

func uids(list []plugins.Candidate) (taken, refused []string) {
	for _, c := range list {
		if c.Refused == "" {
			taken = append(taken, c.PodUID)
		} else {
			refused = append(refused, c.PodUID)
		}
	}
	return taken, refused
}

func TestOuterCallOrderAndScope(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	scope := "\u00fc/NUMA 0 \x01 verbatim"
	f.threshold = thresholdOf(hardMet(scope))
	var asked *wire.GetTopEvictionPodsRequest
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		asked = r
		return &wire.GetTopEvictionPodsResponse{TargetPods: [][]byte{r.GetActivePods()[1]}, DeletionOptions: &wire.DeletionOptions{GracePeriodSeconds: 7}}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	f.forgetRegistration(t)
	v := verdict(t, w.round("a", "b", "c"), scope)
	assert.Equal(t, []string{"GetEvictPods", "ThresholdMet", "GetTopEvictionPods"}, f.calls())
	assert.Equal(t, scope, asked.GetEvictionScope())
	assert.EqualValues(t, 1, asked.GetTopN())
	assert.Len(t, asked.GetActivePods(), 3)
	assert.Equal(t, plugins.Hard, v.Level)
	require.Len(t, v.Candidates, 1)
	c := v.Candidates[0]
	assert.Equal(t, "b", c.PodUID)
	assert.Equal(t, "default/pod-b", c.Name)
	assert.Equal(t, snapshot.Some[int64](7), c.GraceSeconds)
	assert.False(t, c.Forced)
}

func TestOuterSoftTakesNoPod(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	soft := hardMet("s")
	soft.MetType = wire.ThresholdMetType_SOFT_MET
	f.threshold = thresholdOf(soft)
	topN := uint64(99)
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		topN = r.GetTopN()
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	v := verdict(t, w.round("a", "b"), "s")
	assert.Zero(t, topN)
	assert.Equal(t, plugins.Soft, v.Level)
	taken, refused := uids(v.Candidates)
	assert.Empty(t, taken)
	assert.Equal(t, []string{"a", "b"}, refused)
	assert.EqualValues(t, 2, w.Counts()["p"].Refused[katalyst.RefusedTooMany])
}

func TestOuterCandidatesReplaceActivePods(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	met := hardMet("s")
	forged, err := (&corev1.Pod{ObjectMeta: objectMeta("b"), Spec: corev1.PodSpec{NodeName: "forged"}}).Marshal()
	require.NoError(t, err)
	met.CandidatePods = [][]byte{forged, podBytes(t, "stranger"), forged}
	f.threshold = thresholdOf(met)
	var active [][]byte
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		active = r.GetActivePods()
		return &wire.GetTopEvictionPodsResponse{}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	w.round("a", "b", "c")
	assert.Equal(t, [][]byte{podBytes(t, "b")}, active)
}

// A plugin takes the pods that it is shown for its candidates, so it is not asked to choose
// among others.
func TestOuterCandidatesNotShown(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	met := hardMet("s")
	met.CandidatePods = [][]byte{podBytes(t, "stranger")}
	f.threshold = thresholdOf(met)
	var asked atomic.Bool
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		asked.Store(true)
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	v := verdict(t, w.round("a", "b", "c"), "s")
	assert.False(t, asked.Load())
	assert.Equal(t, plugins.Hard, v.Level)
	assert.Empty(t, v.Candidates)
	assert.Equal(t, "no candidates: none of the candidates that it names was in the request to it", v.Absent)
}

// As in Katalyst there are records of the candidates that a plugin reports alone. One of
// which nothing is known has none.
func TestOuterRecords(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		met        wire.ThresholdMetType
		candidates []string
		asked      []string
		want       []string
	}{
		"of candidates":           {wire.ThresholdMetType_HARD_MET, []string{"b", "stranger", "c"}, []string{"b", "c"}, []string{"b"}},
		"none without candidates": {wire.ThresholdMetType_HARD_MET, nil, nil, nil},
		"none at soft":            {wire.ThresholdMetType_SOFT_MET, []string{"b"}, nil, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t)
			f := newFake("p")
			met := hardMet("s")
			met.MetType = row.met
			for _, uid := range row.candidates {
				met.CandidatePods = append(met.CandidatePods, podBytes(t, uid))
			}
			f.threshold = thresholdOf(met)
			var records []*wire.EvictionRecord
			f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
				records = r.GetCandidateEvictionRecords()
				return &wire.GetTopEvictionPodsResponse{}, nil
			}
			f.serve(t, w.path("p.sock"))
			w.run().waitFor("p")
			var asked []string
			w.Ask(t.Context(), Round{
				Time: time.Now(), Pods: wirePods(t, "a", "b", "c"), Graces: noGrace{}, MaxAge: time.Minute,
				Disruptions: func(_ context.Context, uids []string) map[string]katalyst.Disruption {
					asked = uids
					return map[string]katalyst.Disruption{"b": {HasPDB: true, Allowed: 1, CurrentHealthy: 2, DesiredHealthy: 3, ExpectedPods: 4}, "a": {}}
				},
			})
			assert.Equal(t, row.asked, asked)
			require.Len(t, records, len(row.want))
			for i, uid := range row.want {
				assert.Equal(t, uid, records[i].GetUid())
				assert.True(t, records[i].GetHasPdb())
				assert.Equal(t, []int32{1, 2, 3, 4}, []int32{records[i].GetDisruptionsAllowed(), records[i].GetCurrentHealthy(), records[i].GetDesiredHealthy(), records[i].GetExpectedPods()})
				assert.Nil(t, records[i].GetBuckets(), "earlier evictions are not known")
			}
		})
	}
}

func TestOuterTopN(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.threshold = thresholdOf(hardMet("s"))
	var topN uint64
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		topN = r.GetTopN()
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	for unevictable, want := range map[int]uint64{0: 1, 1: 2, 4: 5, 5: 5, 300: 5} {
		list := w.Ask(t.Context(), Round{
			Time: time.Now(), Pods: wirePods(t, "a", "b", "c", "d", "e", "f"), Graces: noGrace{}, MaxAge: time.Minute,
			Unevictable: map[string]int{"p": unevictable, "other": 3},
		})
		assert.Equal(t, want, topN, "%d of its pods cannot be evicted", unevictable)
		taken, refused := uids(verdict(t, list, "s").Candidates)
		assert.Len(t, taken, 5, "it named more than it was asked for, as some do")
		assert.Len(t, refused, 1)
	}
}

func TestOuterGracePerProcess(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	met := hardMet("s")
	met.GracePeriodSeconds = 30
	f.threshold = thresholdOf(met)
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	f.forgetRegistration(t)
	later := time.Now().Add(time.Hour)
	smoother := &recorder{due: later}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list := w.Ask(ctx, Round{Time: time.Now(), Graces: smoother, MaxAge: time.Minute})
	v := verdict(t, list, "s")
	assert.Equal(t, later, v.GraceEnds)
	assert.EqualValues(t, 30, v.GraceSeconds)
	assert.Equal(t, []string{"GetEvictPods", "ThresholdMet"}, f.calls())
	assert.Equal(t, []string{"registered p", "reported p s hard"}, smoother.all())
	first := v.Process
	require.NotEmpty(t, first)
	ask := func() plugins.Verdict {
		return verdict(t, w.Ask(t.Context(), Round{Time: time.Now(), Graces: smoother, MaxAge: time.Minute}), "s")
	}
	assert.Equal(t, first, ask().Process)
	f.kill()
	w.waitFor()
	f.serve(t, w.path("p.sock"))
	w.waitFor("p")
	assert.NotEqual(t, first, ask().Process, "it is another by the name")
	assert.Equal(t, []string{"registered p", "reported p s hard", "reported p s hard", "registered p", "reported p s hard"}, smoother.all(), "the grace period starts again")
}

// A plugin that ends is one that does not answer: its level goes after a while, and it is not told
// that the pressure is gone.
func TestVerdictsOfEndedPlugin(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	var names atomic.Pointer[[]string]
	names.Store(&w.config.Names)
	settings := w.Settings
	w.Settings = func() Config {
		c := settings()
		c.Names = *names.Load()
		return c
	}
	f := newFake("p")
	f.threshold = func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) { return hardMet("s"), nil }
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	require.Equal(t, plugins.Hard, verdict(t, w.round(), "s").Level)
	f.kill()
	w.waitFor()
	after := func(d time.Duration) []plugins.Verdict {
		return w.Ask(t.Context(), Round{Time: time.Now().Add(d), Graces: noGrace{}, MaxAge: 15 * time.Second})
	}
	v := verdict(t, after(0), "s")
	assert.Equal(t, plugins.Hard, v.Level)
	assert.Empty(t, v.Candidates)
	assert.Contains(t, v.Absent, "the plugin has ended")
	v = verdict(t, after(time.Minute), "s")
	assert.Equal(t, plugins.None, v.Level)
	assert.Contains(t, v.NotJudged(), "the plugin has ended")
	assert.Equal(t, plugins.None, verdict(t, w.Ended(time.Now().Add(59*time.Minute)), "s").Level)
	assert.Len(t, w.Counts(), 1)

	names.Store(&[]string{"another"})
	assert.Empty(t, w.Ended(time.Now()), "the configuration excludes it")
	names.Store(&w.config.Names)
	require.NotEmpty(t, w.Ended(time.Now()))
	f.serve(t, w.path("p.sock"))
	w.waitFor("p")
	assert.Empty(t, w.Ended(time.Now()), "it is registered again")
	f.kill()
	w.waitFor()
	assert.Empty(t, w.Ended(time.Now()), "it has answered no round")
}

type recorder struct {
	due       time.Time
	mu        sync.Mutex // guards both
	list      []string
	processes []string // that were registered, and those that reported
}

func (r *recorder) Reported(v plugins.Verdict, _ time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = append(r.processes, v.Process)
	r.list = append(r.list, "reported "+v.Plugin+" "+v.Scope+" "+v.Level.String())
	return r.due
}

func (r *recorder) Registered(plugin, process string, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = append(r.processes, process)
	r.list = append(r.list, "registered "+plugin)
}

func (r *recorder) Missed(plugin string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, "missed "+plugin)
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

func TestOuterPodNotShownRefused(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.threshold = thresholdOf(hardMet("s"))
	f.top = func(*wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		r := &wire.GetTopEvictionPodsResponse{TargetPods: [][]byte{[]byte("\xff\xff"), {}}}
		for i := range 50 {
			r.TargetPods = append(r.TargetPods, podBytes(t, fmt.Sprint("stranger-", i)))
		}
		r.TargetPods = append(r.TargetPods, podBytes(t, "a"))
		return r, nil
	}
	f.named = func(*wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
		return &wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{
			{Pod: podBytes(t, "stranger"), ForceEvict: true, Reason: "because"},
			{Pod: podBytes(t, "b"), Reason: "may go"},
			{Pod: podBytes(t, "c"), ForceEvict: true, Reason: "must go"},
			{Pod: podBytes(t, "c"), ForceEvict: true},
		}}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	list := w.round("a", "b", "c")
	taken, refused := uids(verdict(t, list, "s").Candidates)
	assert.Equal(t, []string{"a"}, taken)
	assert.Len(t, refused, katalyst.MaxRefused)
	named := verdict(t, list, plugins.ScopeNamed)
	assert.True(t, named.Named)
	assert.Equal(t, plugins.Hard, named.Level)
	taken, refused = uids(named.Candidates)
	assert.Equal(t, []string{"b", "c"}, taken)
	assert.Equal(t, []string{"stranger"}, refused)
	assert.Equal(t, []bool{true, false, true}, []bool{named.Candidates[0].Forced, named.Candidates[1].Forced, named.Candidates[2].Forced})
	assert.Equal(t, "must go", named.Candidates[2].Why)
	counted := w.Counts()["p"].Refused
	assert.EqualValues(t, 51, counted[katalyst.RefusedNotShown])
	assert.EqualValues(t, 2, counted[katalyst.RefusedPod])
}

func TestOuterSleeperDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Deadline, c.CallTimeout = 6*time.Second, 2*time.Second })
	sleeper, healthy := newFake("a-sleeper"), newFake("healthy")
	sleeps := make(chan struct{})
	t.Cleanup(func() { close(sleeps) })
	sleeper.named = func(*wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
		select {
		case <-sleeps:
		case <-deadline.After(15 * time.Second):
		}
		return &wire.GetEvictPodsResponse{}, nil
	}
	healthy.threshold = thresholdOf(hardMet("s"))
	healthy.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()[:1]}, nil
	}
	sleeper.serve(t, w.path("a.sock"))
	healthy.serve(t, w.path("h.sock"))
	w.run().waitFor("a-sleeper", "healthy")
	for i := range 8 {
		begun := deadline.Start()
		v := verdict(t, w.round("a", "b"), "s")
		took := begun.Elapsed()
		require.Len(t, v.Candidates, 1, "round %d", i)
		require.Empty(t, v.Absent)
		assert.Less(t, took, 2*w.config.Deadline, "round %d", i)
	}
	status := w.Status(time.Now())
	assert.Equal(t, "open", status[0].Breaker)
	assert.Contains(t, status[0].Failure, "DeadlineExceeded")
	assert.Equal(t, "closed", status[1].Breaker)
	calls := map[string]int{}
	for call, count := range w.Counts()["a-sleeper"].Calls {
		calls[call.Method+" "+call.Result] = int(count)
	}
	assert.Equal(t, map[string]int{"GetEvictPods DeadlineExceeded": failuresToOpen, "ThresholdMet OK": failuresToOpen}, calls,
		"a failed call costs its own answer only; after three failed rounds there are none")
}

// A plugin may return DeadlineExceeded of a call of its own: it did not let the round
// wait, so its threshold counts as after any other error.
func TestOuterQuickDeadlineExceeded(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.threshold = thresholdOf(hardMet("s"))
	f.named = func(*wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
		return nil, status.Error(codes.DeadlineExceeded, "my own backend")
	}
	f.top = func(*wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		return nil, status.Error(codes.DeadlineExceeded, "my own backend")
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	for i := range failuresToOpen + 2 {
		v := verdict(t, w.round("a"), "s")
		require.Equal(t, plugins.Hard, v.Level, "round %d", i)
		require.Contains(t, v.Absent, "my own backend")
	}
	assert.Equal(t, "closed", w.Status(time.Now())[0].Breaker)
}

func TestOuterLateAnswerNextRound(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	release := make(chan struct{})
	once := true
	f.named = func(r *wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
		<-release
		if !once {
			return &wire.GetEvictPodsResponse{}, nil
		}
		once = false
		return &wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{{Pod: r.GetActivePods()[0], ForceEvict: true, Reason: "said once"}}}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	f.forgetRegistration(t)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := Round{Time: time.Now(), Pods: wirePods(t, "a"), Graces: noGrace{}, MaxAge: time.Minute}
	assert.Empty(t, w.Ask(short, r), "it has never said anything")
	assert.Empty(t, w.Ask(short, r), "it is busy and not asked again")
	close(release)
	eventually(t, "answered", func() bool { return w.Status(time.Now())[0].TookSeconds > 0 })
	named := verdict(t, w.Ask(t.Context(), r), plugins.ScopeNamed)
	require.Len(t, named.Candidates, 1)
	assert.True(t, named.Candidates[0].Forced)
	assert.Equal(t, []string{"GetEvictPods", "ThresholdMet"}, f.calls())
	named = verdict(t, w.Ask(t.Context(), r), plugins.ScopeNamed)
	assert.Empty(t, named.Candidates)
	assert.Empty(t, named.Absent, "it was asked again")
}

// The round's patience ends, the call does not: a plugin that takes longer than
// plugins.deadline for each call is late, and never failed.
func TestSlowPlugin(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Deadline, c.CallTimeout = 50*time.Millisecond, time.Minute })
	f := newFake("p")
	release := make(chan struct{})
	f.threshold = func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
		<-release
		return hardMet("s"), nil
	}
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()[:1]}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	for answer := range failuresToOpen + 1 {
		w.round("a") // waits for it in vain
		eventually(t, "its call outlives the round's patience", func() bool {
			s := w.Status(time.Now())[0]
			return time.Since(s.LastCall) > 2*w.config.Deadline
		})
		begun := deadline.Start()
		w.round("a")
		assert.Less(t, begun.Elapsed(), w.config.Deadline, "a round has waited for this call already")
		release <- struct{}{}
		eventually(t, "answered", func() bool { return w.pending("p") })
		require.Len(t, verdict(t, w.takeAnswers(), "s").Candidates, 1, answer)
	}
	status := w.Status(time.Now())[0]
	assert.Equal(t, "closed", status.Breaker)
	assert.Empty(t, status.Failure)
	for call := range w.Counts()["p"].Calls {
		assert.Equal(t, "OK", call.Result, call.Method)
	}
}

func TestOuterOldAnswerMarksNamesNoPod(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	met := hardMet("s")
	met.Condition = &wire.Condition{ConditionName: "C", MetCondition: true}
	fails := false
	f.threshold = func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
		if fails {
			return nil, errors.New("broken")
		}
		return met, nil
	}
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	require.Len(t, verdict(t, w.round("a"), "s").Candidates, 1)
	fails = true
	missed := &recorder{}
	v := verdict(t, w.Ask(t.Context(), Round{Time: time.Now(), Pods: wirePods(t, "a"), Graces: missed, MaxAge: time.Minute}), "s")
	assert.Equal(t, []string{"missed p"}, missed.all())
	assert.Equal(t, plugins.Hard, v.Level)
	assert.Equal(t, "C", v.Condition)
	assert.Empty(t, v.Candidates)
	assert.Contains(t, v.Absent, "ThresholdMet")
	v = verdict(t, w.Ask(t.Context(), Round{Time: time.Now().Add(time.Minute), Graces: noGrace{}, MaxAge: 15 * time.Second}), "s")
	assert.Equal(t, plugins.None, v.Level, "it has aged out")
	assert.Contains(t, v.Absent, "no answer since")
}

// The page, the API and the metrics show Status.
func TestOuterStatusLastAnswerThenAbsent(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	fails := false
	f.threshold = func(*wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
		if fails {
			return nil, errors.New("broken")
		}
		return hardMet("s"), nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	w.round("a")
	shown := func(after time.Duration) plugins.Verdict {
		list := w.Status(time.Now().Add(after))
		require.Len(t, list, 1)
		return verdict(t, list[0].Verdicts, "s")
	}
	assert.Equal(t, plugins.Hard, shown(0).Level)
	assert.Empty(t, shown(0).Absent)
	assert.Equal(t, plugins.None, shown(16*time.Second).Level, "no round has come since")
	fails = true
	for range 2 * failuresToOpen { // until it is not asked any more
		w.round("a")
	}
	v := shown(0)
	assert.Equal(t, plugins.Hard, v.Level)
	assert.Contains(t, v.Absent, "broken")
	v = shown(16 * time.Second)
	assert.Equal(t, plugins.None, v.Level)
	assert.Equal(t, plugins.None, v.MetLevel)
	assert.Contains(t, v.Absent, "no answer since")
	assert.Contains(t, v.Reason, "broken")
}

// Two verdicts of one plugin and scope would be one metric series twice, and a
// plugin's threshold would withdraw its own forced candidates.
func TestOuterScopesUnique(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.threshold = thresholdOf(hardMet(plugins.ScopeNamed))
	asked := ""
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		asked = r.GetEvictionScope()
		return &wire.GetTopEvictionPodsResponse{}, nil
	}
	f.named = func(r *wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
		return &wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{{Pod: r.GetActivePods()[0]}}}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	list := w.round("a")
	require.Len(t, list, 2)
	assert.Equal(t, plugins.ScopeNamed, list[0].Scope)
	assert.Equal(t, "pods (threshold)", list[1].Scope)
	assert.Equal(t, plugins.ScopeNamed, asked, "the plugin hears its own word")
	status := w.Status(time.Now())[0].Verdicts
	require.Len(t, status, 2)
	assert.NotEqual(t, status[0].Scope, status[1].Scope)
}

func TestOuterUnmarkedCountedAndLogged(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	var log bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	newFake("p").serve(t, w.path("p.sock"))
	newFake("q").serve(t, w.path("q.sock"))
	w.run().waitFor("p", "q")
	for range 3 {
		w.Unmarked(map[string]string{"p": "the plugin has 4 already"})
		assert.Equal(t, "the plugin has 4 already", w.Status(time.Now())[0].Unmarked)
		assert.Empty(t, w.Status(time.Now())[1].Unmarked)
		w.Unmarked(nil)
		assert.Empty(t, w.Status(time.Now())[0].Unmarked)
	}
	assert.EqualValues(t, 3, w.Counts()["p"].Refused[refusedUnmarked])
	assert.Zero(t, w.Counts()["q"].Refused[refusedUnmarked])
	w.end()
	require.NoError(t, <-w.ended)
	w.ended <- nil
	assert.Equal(t, 1, strings.Count(log.String(), "more conditions or effects than the agent writes"), log.String())
}

// Deployed plugins answer GetEvictPods, or GetTopEvictionPods, with an error: their
// thresholds count as in Katalyst.
func TestOuterErrorSilencesNoThreshold(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GetEvictPods", "GetTopEvictionPods"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t)
			f := newFake("p")
			f.threshold = thresholdOf(hardMet("s"))
			if method == "GetEvictPods" {
				f.named = func(*wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
					return nil, errors.New("not supported")
				}
			} else {
				f.top = func(*wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
					return nil, errors.New("not supported")
				}
			}
			f.serve(t, w.path("p.sock"))
			w.run().waitFor("p")
			for range failuresToOpen + 1 {
				v := verdict(t, w.round("a"), "s")
				assert.Equal(t, plugins.Hard, v.Level)
				assert.NotContains(t, v.Absent, "no answer since")
			}
			status := w.Status(time.Now())[0]
			assert.Equal(t, "closed", status.Breaker)
			assert.Contains(t, status.Failure, method+": ")
			assert.Contains(t, status.Failure, "not supported", "it is told all the same")
		})
	}
}

// The threshold is as old as the call that measured it, however late the others end.
func TestOldAnswerEvictsNoPod(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) { c.Deadline, c.CallTimeout = 50*time.Millisecond, time.Minute })
	f := newFake("p")
	f.threshold = thresholdOf(hardMet("s"))
	f.named = func(r *wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
		return &wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{{Pod: r.GetActivePods()[0], ForceEvict: true}, {Pod: r.GetActivePods()[1]}}}, nil
	}
	release := make(chan struct{})
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		<-release
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()[:1]}, nil
	}
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	for what, row := range map[string]struct {
		age    time.Duration // of the calls when their answers are taken
		named  []string
		top    int
		absent bool
	}{
		"in time":                     {10 * time.Second, []string{"a", "b"}, 1, false},
		"too late":                    {20 * time.Second, []string{"a"}, 0, true},
		"too late for what is forced": {plugins.ForcedTTL + time.Second, nil, 0, true},
		"after the clock was set":     {-time.Minute, []string{"a"}, 0, true},
	} {
		asked := time.Now()
		w.round("a", "b")
		release <- struct{}{}
		eventually(t, "answered", func() bool { return w.pending("p") })
		list := w.registry.plugins()[0].takeVerdicts(Round{Time: asked.Add(row.age), MaxAge: 10 * time.Minute, EvictAge: 15 * time.Second})
		named, v := verdict(t, list, plugins.ScopeNamed), verdict(t, list, "s")
		taken, _ := uids(named.Candidates)
		assert.Equal(t, row.named, taken, what)
		assert.Empty(t, named.Absent, "%s: it withdraws what it does not repeat", what)
		assert.Equal(t, plugins.Hard, v.Level, "%s: it marks", what)
		assert.Len(t, v.Candidates, row.top, what)
		assert.Equal(t, row.absent, strings.Contains(v.Absent, "too long ago"), what)
	}
}

func TestOuterUnimplementedMethods(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.threshold = thresholdOf(hardMet("s"))
	f.serve(t, w.path("p.sock"))
	w.run().waitFor("p")
	for range failuresToOpen + 1 {
		v := verdict(t, w.round("a"), "s")
		assert.Empty(t, v.Absent)
		assert.Empty(t, v.Candidates)
	}
	assert.Equal(t, "closed", w.Status(time.Now())[0].Breaker)
}

func TestBreakerHalfOpen(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var b breaker
	assert.Equal(t, "closed", b.state(now))
	for range failuresToOpen {
		assert.True(t, b.open(now).IsZero())
		b = b.after(true, now)
	}
	assert.Equal(t, now.Add(firstOpen), b.open(now))
	assert.Equal(t, "open", b.state(now))
	now = now.Add(firstOpen)
	assert.True(t, b.open(now).IsZero())
	assert.Equal(t, "half-open", b.state(now))
	assert.Equal(t, "closed", b.after(false, now).state(now))
	b = b.after(true, now)
	assert.Equal(t, now.Add(2*firstOpen), b.open(now))
	for range 100 {
		b = b.after(true, now)
	}
	assert.Equal(t, now.Add(maxOpen), b.open(now))
	b = b.after(false, now)
	assert.True(t, b.after(true, now).open(now).IsZero(), "one success forgives all")
}

func TestOuterAnnotationsPerPlugin(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t, func(c *Config) {
		c.Annotations = []Annotations{{Plugin: "numa", Keys: []string{"numa"}}, {Plugin: "spread", Keys: []string{"other"}}}
	})
	seen := map[string][][]byte{}
	var mu sync.Mutex // guards seen
	for _, name := range []string{"numa", "spread", "plain"} {
		f := newFake(name)
		f.threshold = func(r *wire.GetThresholdMetRequest) (*wire.ThresholdMetResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[name] = r.GetActivePods()
			answer := hardMet("s")
			answer.CandidatePods = r.GetActivePods()[:1]
			return answer, nil
		}
		f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[name+" at top"] = r.GetActivePods()
			return &wire.GetTopEvictionPodsResponse{}, nil
		}
		f.serve(t, w.path(name+".sock"))
	}
	w.run().waitFor("numa", "plain", "spread")
	pods := wirePods(t, "a", "b")
	pods[0].Wire = append(make([]byte, 0, 1000), pods[0].Wire...) // room that two plugins could share
	pods[0].Annotations = map[string][]byte{"numa": []byte("\x92\x3e\x04numa"), "other": []byte("\x92\x3e\x05other")}
	w.Ask(t.Context(), Round{Time: time.Now(), Pods: pods, Graces: noGrace{}, MaxAge: time.Minute})
	mu.Lock()
	defer mu.Unlock()
	a, b := podBytes(t, "a"), podBytes(t, "b")
	numa, other := append(podBytes(t, "a"), "\x92\x3e\x04numa"...), append(podBytes(t, "a"), "\x92\x3e\x05other"...)
	assert.Equal(t, map[string][][]byte{
		"numa": {numa, b}, "numa at top": {numa}, "spread": {other, b}, "spread at top": {other}, "plain": {a, b}, "plain at top": {a},
	}, seen)
}

func TestOuterAnswerTooLarge(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		change func(*wire.ThresholdMetResponse)
		want   string
	}{
		"bytes":               {func(r *wire.ThresholdMetResponse) { r.CandidatePods = [][]byte{make([]byte, 8<<20)} }, "ResourceExhausted"},
		"fields":              {func(r *wire.ThresholdMetResponse) { r.CandidatePods = make([][]byte, maxFields) }, errManyFields.Error()},
		"fields of a message": {func(r *wire.ThresholdMetResponse) { r.Condition = &wire.Condition{Effects: make([]string, maxFields)} }, errManyFields.Error()},
		"no more than there may": {func(r *wire.ThresholdMetResponse) {
			r.CandidatePods = append(make([][]byte, maxFields-11), podBytes(t, "a"))
		}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newPluginEnv(t)
			f := newFake("p")
			r := hardMet("s")
			row.change(r)
			f.threshold = thresholdOf(r)
			f.serve(t, w.path("p.sock"))
			w.run().waitFor("p")
			w.round("a")
			assert.Contains(t, w.Status(time.Now())[0].Failure, row.want)
			assert.Equal(t, row.want != "", w.Status(time.Now())[0].Failure != "")
		})
	}
}

func TestOuterBusyOldAnswerNamesNoPod(t *testing.T) {
	t.Parallel()
	w := newPluginEnv(t)
	f := newFake("p")
	f.threshold = thresholdOf(hardMet("s"))
	f.top = func(r *wire.GetTopEvictionPodsRequest) (*wire.GetTopEvictionPodsResponse, error) {
		return &wire.GetTopEvictionPodsResponse{TargetPods: r.GetActivePods()}, nil
	}
	busy, asked := make(chan struct{}), 0
	f.named = func(*wire.GetEvictPodsRequest) (*wire.GetEvictPodsResponse, error) {
		if asked++; asked > 1 {
			<-busy
		}
		return &wire.GetEvictPodsResponse{}, nil
	}
	f.serve(t, w.path("p.sock"))
	defer close(busy)
	w.run().waitFor("p")
	require.Len(t, verdict(t, w.round("a"), "s").Candidates, 1)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	v := verdict(t, w.Ask(short, Round{Time: time.Now(), Pods: wirePods(t, "a"), Graces: noGrace{}, MaxAge: time.Minute}), "s")
	assert.Equal(t, plugins.Hard, v.Level)
	assert.Empty(t, v.Candidates)
	assert.Contains(t, v.Absent, "previous round still run")
}
