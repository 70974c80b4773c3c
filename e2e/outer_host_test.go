package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

// scripted is an outer plugin that says what a test tells it, and when it was
// asked for pods.
type scripted struct {
	mu    sync.Mutex // guards all below
	level kit.Level
	grace time.Duration
	names func([]*corev1.Pod) []*corev1.Pod
	force func([]*corev1.Pod) []kit.Eviction
	after *int64        // deletion grace
	slow  time.Duration // of each Threshold
	mark  kit.Condition
	of    func([]*corev1.Pod) []*corev1.Pod // its candidates
	top   []time.Time
	asks  []kit.Ask
	heard []time.Time // when hard or soft was said
}

func (s *scripted) Threshold(ctx context.Context, pods []*corev1.Pod) (kit.Threshold, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return kit.Threshold{}, ctx.Err()
	}
	if s.level > kit.None {
		s.heard = append(s.heard, time.Now())
	}
	mark := s.mark
	mark.Name = cmp.Or(mark.Name, "MemoryPressure")
	said := kit.Threshold{Level: s.level, Observed: 1, Limit: 1, Scope: "NUMA 0", Grace: s.grace, Condition: &mark}
	if s.of != nil {
		said.Candidates = s.of(pods)
	}
	return said, nil
}

func (s *scripted) Top(_ context.Context, ask kit.Ask) (kit.Named, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top, s.asks = append(s.top, time.Now()), append(s.asks, ask)
	if s.names == nil || ask.N == 0 {
		return kit.Named{}, nil
	}
	return kit.Named{Pods: s.names(ask.Pods), Grace: s.after}, nil
}

func (s *scripted) Evict(_ context.Context, pods []*corev1.Pod) (kit.Evictions, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.force == nil {
		return kit.Evictions{}, nil
	}
	return kit.Evictions{Pods: s.force(pods)}, nil
}

func (s *scripted) set(change func(*scripted)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *scripted) times() (heard, top []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard), slices.Clone(s.top)
}

// pluginDir is short: a socket's path has 107 bytes at most.
func pluginDir(t *testing.T) string {
	t.Helper()
	// On a filesystem on which tail -F, a rival, uses inotify: not on an overlay.
	dir, err := os.MkdirTemp("/dev/shm", "plimsoll-") //nolint:usetesting // t.TempDir has the test's name in it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve runs a plugin until the test ends.
func (w *world) serve(dir, name string, p kit.Plugin) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- (&kit.Server{Name: name, Plugin: p, Dir: dir, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	w.t.Cleanup(func() {
		cancel()
		assert.NoError(w.t, <-ended)
	})
}

// withPlugins lets the agent look for plugins in a directory of its own.
func (w *world) withPlugins() string {
	w.t.Helper()
	dir := pluginDir(w.t)
	w.rules = fmt.Sprintf("  dirs: [%s]\n  deadline: 500ms\n", dir)
	w.configure()
	return dir
}

// pluginState is an entry of /api/v1/plugins.
type pluginState struct {
	Name, Scope, Level, Condition string
	Up                            bool
	Outer                         *struct{ Socket, Problem, Breaker, Failure string }
}

func (w *world) plugin(name string) (found pluginState, err error) {
	var list struct{ Plugins []pluginState }
	_, body, err := w.agent.local("GET", "/api/v1/plugins")
	if err == nil {
		err = json.Unmarshal([]byte(body), &list)
	}
	for _, p := range list.Plugins {
		if p.Name == name {
			return p, err
		}
	}
	return found, fmt.Errorf("%s is not among %s: %w", name, body, err)
}

func (w *world) up(name string) {
	w.t.Helper()
	eventually(w.t, name+" is up", func() error {
		p, err := w.plugin(name)
		if err == nil && !p.Up {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
}

func only(name string) func([]*corev1.Pod) []*corev1.Pod {
	return func(pods []*corev1.Pod) []*corev1.Pod {
		return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Name != name })
	}
}

func TestOuterPluginEvictsBesideHung(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	dir := w.withPlugins()
	recorded := filepath.Join(t.TempDir(), "recording")
	w.rules += fmt.Sprintf("  callTimeout: 2s\nrecording: {dir: %s, minAvailable: 0}\n", recorded) // three rounds of two calls are late
	w.configure()
	hangs := exec.Command(rogue(t), "-mode", "hang", "-name", "a-hangs", "-dir", dir)
	require.NoError(t, hangs.Start())
	t.Cleanup(func() { _ = hangs.Process.Kill(); _ = hangs.Wait() })
	honest := &scripted{}
	w.serve(dir, "honest", honest)
	w.deploy("victim", 5, nil)
	victim := w.running("victim")
	w.start()
	w.up("honest")
	w.up("a-hangs")
	honest.set(func(s *scripted) { s.level, s.names, s.after = kit.Hard, only(victim.Name), new(int64(0)) })
	begun := time.Now()
	d := w.decided("the pod is evicted", isEvicted)
	t.Logf("from the plugin's word to the eviction: %s (rounds of 1s, 500ms for each plugin)", time.Since(begun).Round(time.Millisecond))
	going, _ := d.FirstEvicted()
	assert.Equal(t, victim.Name, going.Pod.Name)
	assert.Equal(t, []string{"honest"}, going.Plugins)
	require.Len(t, d.Causes, 1)
	assert.Equal(t, "NUMA 0", d.Causes[0].Scope)
	assert.Equal(t, 201, going.Answers[0].Code)
	honest.set(func(s *scripted) { s.level = kit.None })
	w.memoryPressureIsOurs()
	eventually(t, "the one that hangs is asked no more", func() error {
		p, err := w.plugin("a-hangs")
		if err == nil && (p.Outer == nil || p.Outer.Breaker != "open") {
			err = fmt.Errorf("%+v", p.Outer)
		}
		return err
	})
	require.NoError(t, hangs.Process.Signal(syscall.SIGKILL))
	eventually(t, "it is removed, and its socket is told of", func() error {
		p, err := w.plugin("a-hangs")
		if err == nil {
			return fmt.Errorf("%+v", p)
		}
		if p, err = w.plugin(""); err != nil || p.Outer == nil || p.Outer.Socket != filepath.Join(dir, "a-hangs.sock") {
			return fmt.Errorf("%+v: %w", p, err)
		}
		return nil
	})
	eventually(t, "the pod is gone", func() error { return w.gone(victim) })
	assert.EqualValues(t, 1, w.graceOf(victim), "the plugin asked for none: that is for whoever may force")
	r := replay(t, "--config", w.config, recorded)
	assert.True(t, slices.ContainsFunc(r.Changes, func(c replayedChange) bool {
		return c.Plugin == "honest" && c.Scope == "NUMA 0" && c.To == plugins.Hard
	}), "%v", r.Changes)
	assert.True(t, slices.ContainsFunc(r.Decisions, func(d evict.Decision) bool {
		c, some := d.FirstEvicted()
		return some && c.Pod.UID == string(victim.UID) && slices.Equal(c.Plugins, []string{"honest"})
	}), "a replay decides as the agent did")
}

// graceOf is how many seconds a pod got to end by itself.
func (w *world) graceOf(pod corev1.Pod) int64 {
	w.t.Helper()
	ctx, cancel := deadline.Context(w.t.Context(), patience)
	defer cancel()
	since, err := w.c.Client.CoreV1().Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion,
	})
	require.NoError(w.t, err)
	defer since.Stop()
	for e := range since.ResultChan() {
		if p, is := e.Object.(*corev1.Pod); is && p.DeletionGracePeriodSeconds != nil {
			return *p.DeletionGracePeriodSeconds
		}
	}
	require.FailNow(w.t, "nobody deleted it", pod.Name)
	return 0
}

// memoryPressureIsOurs: a plugin's condition of that name stands under ours, and
// the kubelet's own is untouched.
func (w *world) memoryPressureIsOurs() {
	w.t.Helper()
	status := func(of corev1.NodeConditionType) corev1.ConditionStatus {
		for _, c := range w.getNode().Status.Conditions {
			if c.Type == of {
				return c.Status
			}
		}
		return ""
	}
	eventually(w.t, "the Node has the condition under our name", func() error {
		if status("plimsoll.dev/MemoryPressure") != corev1.ConditionTrue {
			return fmt.Errorf("%v", w.getNode().Status.Conditions)
		}
		return nil
	})
	assert.Equal(w.t, corev1.ConditionFalse, status(corev1.NodeMemoryPressure), "the kubelet's own is untouched")
}

func TestOuterPluginProtectedPodRefused(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	dir := w.withPlugins()
	w.deploy("guarded", 5, func(p *corev1.PodTemplateSpec) {
		p.Spec.PriorityClassName = "system-node-critical"
	})
	w.deploy("last", 5, nil)
	guarded, last := w.running("guarded"), w.running("last")
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "coredns", Namespace: "kube-system", UID: types.UID("11111111-2222-3333-4444-555555555555")}}
	liar := &scripted{level: kit.Hard, names: func(pods []*corev1.Pod) []*corev1.Pod {
		forged := only(guarded.Name)(pods)
		for i := range forged {
			forged[i] = forged[i].DeepCopy()
			forged[i].Spec.Priority, forged[i].Spec.PriorityClassName = nil, ""
		}
		return append([]*corev1.Pod{stranger}, append(forged, only(last.Name)(pods)...)...)
	}}
	w.serve(dir, "liar", liar)
	w.start()
	d := w.decided("somebody is evicted", isEvicted)
	liar.set(func(s *scripted) { s.level = kit.None })
	codes := map[string]evict.Code{}
	for _, c := range d.Candidates {
		codes[c.Name[strings.LastIndexByte(c.Name, '/')+1:]] = c.Code
	}
	assert.Equal(t, map[string]evict.Code{"coredns": evict.CodeNotAllowed, guarded.Name: "critical", last.Name: evict.CodeEvicted}, codes)
	assert.Equal(t, guarded.UID, w.running("guarded").UID)
	status, body, err := w.agent.get("/metrics")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	assert.Regexp(t, `(?m)^plimsoll_plugin_refused_total\{plugin="liar",reason="pod-not-shown"\} [1-9]`, body)
}

func TestOuterPluginGracePeriod(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	dir := w.withPlugins()
	const grace = 5 * time.Second
	p := &scripted{level: kit.Hard, grace: grace}
	w.serve(dir, "slow", p)
	w.start()
	first := func() time.Time {
		var at time.Time
		eventually(t, "it is met", func() error {
			if heard, _ := p.times(); len(heard) > 0 {
				at = heard[0]
				return nil
			}
			return fmt.Errorf("not asked yet")
		})
		return at
	}
	first()
	p.set(func(s *scripted) { s.level = kit.None })
	eventually(t, "it is not met for a while", func() error {
		heard, _ := p.times()
		if since := time.Since(heard[len(heard)-1]); since < 2500*time.Millisecond {
			return fmt.Errorf("%s", since)
		}
		return nil
	})
	_, top := p.times()
	require.Empty(t, top, "not within its grace")
	p.set(func(s *scripted) { s.level, s.heard = kit.Hard, nil })
	clock := deadline.Start()
	begun := first()
	eventually(t, "it is asked for pods", func() error {
		if _, top = p.times(); len(top) == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	waited := top[0].Sub(begun)
	t.Logf("asked for pods %s after it was met (grace %s, rounds of 1s)", waited.Round(time.Millisecond), grace)
	assert.Greater(t, waited, grace-100*time.Millisecond)
	assert.Less(t, waited, clock.Stretch(2*grace))
}

func TestForcedPodsWithinLimits(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	dir := w.withPlugins()
	apps := []string{"one", "two", "three", "four", "five"}
	var names []string
	for _, app := range apps {
		w.deploy(app, 1, nil)
	}
	for _, app := range apps {
		names = append(names, w.running(app).Name)
	}
	p := &scripted{}
	w.serve(dir, "forcing", p)
	w.start()
	p.set(func(s *scripted) { s.force = forcedOnce(names) })
	eventually(t, "all are evicted", func() error {
		gone := 0
		for _, d := range w.decisions() {
			assert.LessOrEqual(t, evictedIn(d), evict.DefaultConfig().Limits.PerRound)
			gone += evictedIn(d)
		}
		if gone < len(names) {
			return fmt.Errorf("%d of %d: %s", gone, len(names), strings.Join(w.words(), "\n"))
		}
		return nil
	})
}

// A plugin with a cooldown of its own names its pod once, while a
// PodDisruptionBudget blocks it; each of its answers is later than the round waits.
func TestNamedOnceByASlowPlugin(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	dir := pluginDir(t)
	w.rules = fmt.Sprintf("  dirs: [%s]\n  deadline: 200ms\n", dir)
	w.configure()
	w.deploy("victim", 5, nil)
	w.budget("victim")
	victim := w.running("victim")
	p := &scripted{}
	w.serve(dir, "once", p)
	w.start()
	w.up("once")
	asked := 0
	p.set(func(s *scripted) {
		s.level, s.slow = kit.Hard, 400*time.Millisecond
		s.names = func(pods []*corev1.Pod) []*corev1.Pod {
			if asked++; asked > 1 {
				return nil
			}
			return only(victim.Name)(pods)
		}
	})
	w.decided("the PodDisruptionBudget blocks it", func(d evict.Decision) bool {
		return len(d.Candidates) == 1 && d.Candidates[0].Code == evict.CodePDB
	})
	require.NoError(t, w.c.Client.PolicyV1().PodDisruptionBudgets(w.namespace).Delete(t.Context(), "victim", metav1.DeleteOptions{}))
	d := w.decided("the pod is evicted", isEvicted)
	assert.Equal(t, string(victim.UID), d.Candidates[0].PodUID)
	assert.False(t, d.Candidates[0].NamedAt.IsZero())
	p.set(func(*scripted) { assert.Greater(t, asked, 1, "it was asked again, and named no pod") })
	state, err := w.plugin("once")
	require.NoError(t, err)
	assert.Equal(t, "closed", state.Outer.Breaker)
	assert.Empty(t, state.Outer.Failure)
	w.explained(victim.Name, "named by once at ", " before")
}

// forcedOnce names pods the first time that it sees any of them, and never again.
func forcedOnce(names []string) func([]*corev1.Pod) []kit.Eviction {
	once := true
	return func(pods []*corev1.Pod) (list []kit.Eviction) {
		for _, pod := range pods {
			if once && slices.Contains(names, pod.Name) {
				list = append(list, kit.Eviction{Pod: pod, Reason: "told once", Force: true})
			}
		}
		once = once && len(list) == 0
		return list
	}
}

func evictedIn(d evict.Decision) (n int) {
	for _, c := range d.Candidates {
		if c.Code == evict.CodeEvicted {
			n++
		}
	}
	return n
}
