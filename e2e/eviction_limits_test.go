package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/state"
)

// granted are the times of all accepted evictions, oldest first.
func (w *world) granted() (times []time.Time) {
	for _, d := range w.decisions() {
		for _, c := range d.Evicted() {
			times = append([]time.Time{c.Answers[len(c.Answers)-1].Time}, times...)
		}
	}
	return times
}

// savedLimits are those that the agent has on disk.
func (w *world) savedLimits() evict.RateLimits {
	w.t.Helper()
	s, err := state.File[evict.State]{Path: filepath.Join(w.state, "evict.json"), Version: evict.StateVersion, Adopt: (*evict.State).AdoptKeys}.Load()
	require.NoError(w.t, err)
	return s.RateLimits
}

// One eviction every 6 s; the agent is killed after each, and in the end its
// state is taken away.
func TestEvictionRateLimitSurvivesRestart(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.perMinute = 10 // a token every 6 s, and room for ten
	w.configure()
	const pressers = 7 // for four evictions or more: on a Node with our taint none comes again
	for i := range pressers {
		w.deploy(fmt.Sprint("presser-", i), 100, nil)
	}
	for i := range pressers {
		w.running(fmt.Sprint("presser-", i))
	}
	w.start()
	w.seen(w.running(fmt.Sprint("presser-", pressers-1)), 95)
	// Without its state the agent begins anew: on a busy machine tokens came meanwhile.
	require.Equal(t, -1, w.agent.end(sigkill))
	require.NoError(t, os.RemoveAll(filepath.Join(w.state, "evict.json")))
	w.press(true)
	started := time.Now()
	w.start()
	w.decided("the budget is empty at first", func(d evict.Decision) bool { return d.Code == evict.CodeRateLimit || isEvicted(d) })
	w.decided("then there is one", isEvicted)
	assert.GreaterOrEqual(t, w.granted()[0].Sub(started), 5900*time.Millisecond)
	for range 2 {
		require.Equal(t, -1, w.agent.end(sigkill))
		n, saved := len(w.granted0(t)), w.savedLimits()
		w.start()
		eventually(t, "another one goes", func() error {
			if got := len(w.granted()); got <= n {
				return fmt.Errorf("%d of more than %d: %s", got, n, strings.Join(w.words(), "\n"))
			}
			return nil
		})
		limits := w.savedLimits()
		assert.Equal(t, saved.Since, limits.Since, "the budget outlives the agent")
		assert.Greater(t, limits.Node, saved.Node, "and is taken from")
	}
	times := w.granted()
	require.GreaterOrEqual(t, len(times), 3, "decisions outlive the agent")
	for i := 1; i < len(times); i++ {
		t.Logf("%s after the one before", times[i].Sub(times[i-1]).Round(time.Millisecond))
	}
	assert.GreaterOrEqual(t, times[2].Sub(started), 17900*time.Millisecond, "three tokens")
	require.Equal(t, -1, w.agent.end(sigkill))
	require.NoError(t, os.Remove(filepath.Join(w.state, "evict.json")))
	lost := time.Now()
	w.start()
	eventually(t, "another one goes", func() error {
		times := w.granted()
		i := slices.IndexFunc(times, lost.Before)
		if i < 0 {
			return fmt.Errorf("%s", strings.Join(w.words(), "\n"))
		}
		assert.GreaterOrEqual(t, times[i].Sub(lost), 5900*time.Millisecond, "without its state the budget is empty")
		return nil
	})
}

// granted0 are those that the killed agent has left on disk.
func (w *world) granted0(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.state, "evictions", "newer.jsonl"))
	require.NoError(t, err)
	ids := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		_, text, _ := strings.Cut(line, " ")
		var d evict.Decision
		if json.Unmarshal([]byte(text), &d) == nil && d.Code == evict.CodeEvicted {
			ids[d.ID] = true
		}
	}
	var list []string
	for id := range ids {
		list = append(list, id)
	}
	return list
}

func TestReportOnlySurvivesRestart(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	w.reports = deadline.Scale(8 * time.Second) // the pod is seen and pressed in that time
	w.configure()
	started := time.Now()
	w.start()
	w.seen(presser, 140)
	w.press(true)
	d := w.decided("it only reports", func(d evict.Decision) bool { return d.Code == evict.CodeReportOnly })
	t.Log(d.Reason)
	eventually(t, "the node is tainted", func() error { return w.tainted(corev1.TaintEffectNoSchedule) })
	require.Equal(t, -1, w.agent.end(sigkill))
	w.start()
	w.decided("then it evicts", isEvicted)
	took := w.granted()[0].Sub(started)
	t.Logf("evicted %s after the rule was first seen (%s), over a restart", took.Round(100*time.Millisecond), w.reports)
	assert.GreaterOrEqual(t, took, w.reports)
	w.calm()
	eventually(t, "it is gone", func() error { return w.gone(presser) })
	require.Equal(t, -1, w.agent.end(sigkill))
	w.start()
	before := len(w.decisions())
	eventually(t, "the taint is lifted", func() error { return w.unmarked() })
	again := w.running("presser")
	w.seen(again, 140)
	w.press(true)
	eventually(t, "the same rule evicts at once", func() error {
		for _, d := range w.decisions()[:max(0, len(w.decisions())-before)] {
			if d.Code == evict.CodeReportOnly {
				t.Fatalf("it reports anew: %s", d.Reason)
			}
			if d.Code == evict.CodeEvicted {
				return nil
			}
		}
		return assert.AnError
	})
}

func TestDryRunPlugin(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.more = `, dryRunPlugins: ["*"]`
	w.configure()
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	w.start()
	w.seen(presser, 140)
	w.press(true)
	d := w.decided("it would evict", func(d evict.Decision) bool { return d.Code == evict.CodeWouldEvict })
	assert.True(t, d.DryRun)
	assert.NoError(t, w.unharmed(presser))
	assert.Empty(t, w.ourTaint())
	w.more = `, dryRunPlugins: ["*", "-memory-stall"]`
	w.configure()
	w.decided("from now on it counts", isEvicted)
	assert.Equal(t, corev1.TaintEffectNoSchedule, w.ourTaint())
}

// The kubelet evicts one at that moment: the API server shows it as a kubelet
// leaves it.
func TestEvictAfterKubeletEviction(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.deploy("theirs", 150, nil)
	w.deploy("ours", 150, nil)
	theirs, ours := w.running("theirs"), w.running("ours")
	w.kubelets = deadline.Scale(w.kubelets) // memory is short in that time
	w.configure()
	w.start()
	w.seen(theirs, 140)
	w.seen(ours, 140)
	patch := `{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory. Threshold quantity: 100Mi, available: 20Mi. ",
		"conditions":[{"type":"DisruptionTarget","status":"True","reason":"TerminationByKubelet"}]}}`
	_, err := w.c.Client.CoreV1().Pods(w.namespace).Patch(t.Context(), theirs.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	evicted := time.Now()
	w.press(true)
	d := w.decided("it is the kubelet's turn", func(d evict.Decision) bool { return d.Code == evict.CodeKubelet })
	t.Log(d.Reason)
	d = w.decided("and then it is ours", isEvicted)
	assert.GreaterOrEqual(t, d.Time.Sub(evicted), w.kubelets-time.Second)
	going, _ := d.FirstEvicted()
	assert.NotEqual(t, theirs.Name, going.Pod.Name, "that one has ended; its successor may go as well as ours")
}
