package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/rawplugin"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// player is a plugin that plays recorded answers, on frames of HTTP/2 written by hand.
type player struct {
	recording rawplugin.Recording
	raw       *rawplugin.Plugin

	mu    sync.Mutex // guards all below
	level string     // of ThresholdMet: none, soft or hard
	uid   string     // of the pod that it names
	names int        // how often it still names that pod
	takes time.Duration
	fails bool
	tops  [][]byte // the requests of GetTopEvictionPods
	wrong error
}

func (p *player) respond(method string, request []byte) ([]byte, int) {
	p.mu.Lock()
	takes, fails := p.takes, p.fails
	p.mu.Unlock()
	_, plays := map[string]bool{"GetEvictPods": true, "ThresholdMet": true, "GetTopEvictionPods": true}[method]
	if fails && plays {
		return nil, rawplugin.Unknown
	}
	if method == "ThresholdMet" {
		time.Sleep(takes) // a slow plugin
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := method
	switch method {
	case "ThresholdMet":
		name += " " + p.level
	case "GetTopEvictionPods":
		p.tops = append(p.tops, slices.Clone(request))
		name += " none"
		if p.names > 0 && rawplugin.Number(request, 2) > 0 {
			p.names--
			name = method + " pod"
		}
	}
	if _, is := p.recording[name]; !is {
		return nil, rawplugin.Unimplemented
	}
	message, err := p.recording.Answer(name, p.uid)
	if err != nil {
		p.wrong = err
		return nil, rawplugin.Unknown
	}
	return message, rawplugin.OK
}

func (p *player) set(change func(*player)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// asked returns the requests of GetTopEvictionPods since the last set of tops to nil.
func (p *player) asked() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tops)
}

// playing is a world with an agent and a plugin that plays the answers of a generation.
type playing struct {
	*world
	*player
	dir string
}

func startPlaying(t *testing.T, generation string) *playing {
	t.Helper()
	r, err := rawplugin.Recorded(generation)
	require.NoError(t, err)
	w := &playing{world: startWorld(t), player: &player{recording: r, level: "none", uid: rawplugin.RecordedUID}, dir: pluginDir(t)}
	w.rules = fmt.Sprintf("  dirs: [%s]\n  deadline: 300ms\n", w.dir)
	w.configure()
	w.deploy("once", 5, nil)
	w.deploy("late", 5, nil)
	w.budget("once")
	w.start()
	listener, err := net.Listen("unix", filepath.Join(w.dir, "recorded.sock"))
	require.NoError(t, err)
	w.raw = &rawplugin.Plugin{Respond: w.respond}
	served := make(chan error, 1)
	go func() { served <- w.raw.Serve(listener) }()
	t.Cleanup(func() {
		_ = listener.Close()
		require.NoError(t, <-served)
		require.NoError(t, w.wrong)
	})
	w.up("recorded")
	return w
}

// names lets it report hard and name a pod once.
func (w *playing) names(pod corev1.Pod, takes time.Duration) {
	w.player.set(func(p *player) { p.level, p.uid, p.names, p.takes, p.tops = "hard", string(pod.UID), 1, takes, nil })
}

// calm lets its threshold be met no more, and waits until the pod that was evicted is
// gone.
func (w *playing) calm(pod corev1.Pod) {
	w.t.Helper()
	w.player.set(func(p *player) { p.level, p.takes = "none", 0 })
	eventually(w.t, "the pod is gone", func() error { return w.gone(pod) })
}

// Each generation's recorded bytes on a real API server: a plugin that was built with
// the SDK of 2023 or 2025, or with that of today, works as it is.
func TestWireGenerations(t *testing.T) {
	t.Parallel()
	for _, generation := range rawplugin.Generations() {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
			w := startPlaying(t, generation)
			t.Run("is registered", w.isRegistered)
			t.Run("is asked", w.isAsked)
			t.Run("names once", func(t *testing.T) { w.namesOnce(t, generation) })
			t.Run("answers late", w.answersLate)
			t.Run("has a rival", w.hasRival)
			t.Run("only errors", w.onlyErrors)
		})
	}
}

func (w *playing) isRegistered(t *testing.T) {
	called(t, w.raw, "/pluginregistration.Registration/", "GetInfo", "NotifyRegistrationStatus")
	called(t, w.raw, "/evictionplugin.v1alpha1.EvictionPlugin/", "GetToken", "GetEvictPods", "ThresholdMet")
	is, why := w.raw.Registered()
	assert.True(t, is, why)
}

func (w *playing) isAsked(t *testing.T) {
	w.player.set(func(p *player) { p.level, p.tops = "soft", nil })
	eventually(t, "the Node has its condition and taint", func() error {
		n := w.getNode()
		for _, taint := range n.Spec.Taints {
			if taint.Key == "plimsoll.dev/RecordedPressure" && taint.Effect == corev1.TaintEffectNoSchedule {
				return nil
			}
		}
		return fmt.Errorf("%v", n.Spec.Taints)
	})
	for _, top := range w.asked() {
		assert.Zero(t, rawplugin.Number(top, 2), "at soft no pod is wanted")
		assert.Equal(t, "cpu.load.1min.container", string(rawplugin.Values(top, 3)[0]))
	}
	assert.NotEmpty(t, w.asked())
	w.player.set(func(p *player) { p.level = "none" })
}

// The name is kept while a PodDisruptionBudget blocks it, and one pod more is asked for.
func (w *playing) namesOnce(t *testing.T, generation string) {
	victim := w.running("once")
	w.names(victim, 0)
	w.decided("the PodDisruptionBudget blocks it", func(d evict.Decision) bool {
		return slices.ContainsFunc(d.Candidates, func(c evict.Considered) bool { return c.PodUID == string(victim.UID) && c.Code == evict.CodePDB })
	})
	eventually(t, "one more is asked for in its place", func() error {
		tops := w.asked()
		if len(tops) == 0 || rawplugin.Number(tops[len(tops)-1], 2) != 2 {
			return fmt.Errorf("%d requests, the last %x", len(tops), tops[max(0, len(tops)-1):])
		}
		return nil
	})
	first := w.asked()[0]
	assert.EqualValues(t, 1, rawplugin.Number(first, 2), "as Katalyst")
	shown := len(rawplugin.Values(first, 1))
	if generation == "2023" {
		assert.Greater(t, shown, 1, "all pods of the node")
	} else {
		assert.Equal(t, 1, shown, "its candidate")
	}
	assert.Empty(t, rawplugin.Values(first, 4), "without the right to list PodDisruptionBudgets there is no record")
	require.NoError(t, w.c.Client.PolicyV1().PodDisruptionBudgets(w.namespace).Delete(t.Context(), "once", metav1.DeleteOptions{}))
	w.evicts(victim)
	w.calm(victim)
}

func (w *playing) evicts(pod corev1.Pod) {
	w.t.Helper()
	w.decided(pod.Name+" is evicted", func(d evict.Decision) bool {
		c, some := d.FirstEvicted()
		return some && c.Pod.UID == string(pod.UID) && slices.Equal(c.Plugins, []string{"recorded"})
	})
}

// Its answers come after the round has stopped waiting.
func (w *playing) answersLate(t *testing.T) {
	victim := w.running("late")
	w.names(victim, 700*time.Millisecond)
	w.evicts(victim)
	p, err := w.plugin("recorded")
	require.NoError(t, err)
	assert.Equal(t, "closed", p.Outer.Breaker)
	assert.Empty(t, p.Outer.Failure)
	w.calm(victim)
}

// Another process watches the plugin's directory, as katalyst-agent does.
func (w *playing) hasRival(t *testing.T) {
	watched := filepath.Join(w.dir, "watched")
	require.NoError(t, os.WriteFile(watched, nil, 0o600))
	rival := exec.CommandContext(t.Context(), "tail", "-F", watched) // by inotify, on the directory too
	require.NoError(t, rival.Start())
	// The agent's /proc is a copy. In one cgroup with the plugin, which is this process, the
	// rival would be a part of it.
	seen := filepath.Join(w.weather.dir, fmt.Sprint(rival.Process.Pid))
	require.NoError(t, os.Mkdir(seen, 0o755))
	for _, name := range []string{"comm", "fd", "fdinfo", "mountinfo", "ns"} {
		require.NoError(t, os.Symlink(fmt.Sprintf("/proc/%d/%s", rival.Process.Pid, name), filepath.Join(seen, name)))
	}
	write(t, filepath.Join(seen, "cgroup"), "0::/rival\n")
	eventually(t, "it is left to the rival", func() error {
		p, err := w.plugin("")
		if err == nil && (p.Outer == nil || !strings.Contains(p.Outer.Problem, fmt.Sprintf("process %d (tail", rival.Process.Pid))) {
			err = fmt.Errorf("%+v", p.Outer)
		}
		return err
	})
	_, metrics, err := w.agent.get("/metrics")
	require.NoError(t, err)
	assert.Contains(t, metrics, fmt.Sprintf(`plimsoll_plugin_rival{dir=%q,pid="%d"} 1`, w.dir, rival.Process.Pid))
	assert.NotContains(t, metrics, `plimsoll_plugin_up{plugin="recorded"}`, "it is not down")
	asked := len(w.raw.Calls())
	require.NoError(t, rival.Process.Kill())
	_ = rival.Wait() // it was killed
	require.NoError(t, os.RemoveAll(seen))
	eventually(t, "it may be starting anew", func() error {
		p, err := w.plugin("")
		if err == nil && (p.Outer == nil || !strings.Contains(p.Outer.Problem, "counts as there until")) {
			err = fmt.Errorf("%+v", p.Outer)
		}
		return err
	})
	text, err := os.ReadFile(w.config)
	require.NoError(t, err)
	write(t, w.config, strings.Replace(string(text), w.rules, w.rules+"  beside: act\n", 1))
	status, body, err := w.agent.local(http.MethodPost, "/-/reload")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	w.up("recorded")
	calls := w.raw.Calls()
	require.Greater(t, len(calls), asked)
	assert.Equal(t, "/pluginregistration.Registration/GetInfo", calls[asked], "it was not asked meanwhile")
}

// What it said before ages, and it is called less often.
func (w *playing) onlyErrors(t *testing.T) {
	w.player.set(func(p *player) { p.level = "hard" })
	eventually(t, "it reports hard", func() error { return w.reports("hard") })
	w.player.set(func(p *player) { p.fails = true })
	eventually(t, "nothing is known of it any more", func() error { return w.reports("none") })
	p, err := w.plugin("recorded")
	require.NoError(t, err)
	assert.NotEqual(t, "closed", p.Outer.Breaker)
	assert.NotEmpty(t, p.Outer.Failure)
}

// reports is nil when the plugin's level is that one.
func (w *playing) reports(level string) error {
	p, err := w.plugin("recorded")
	if err == nil && p.Level != level {
		err = fmt.Errorf("%s", p.Level)
	}
	return err
}
