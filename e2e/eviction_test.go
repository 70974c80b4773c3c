package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

func isEvicted(d evict.Decision) bool { return d.Code == evict.CodeEvicted }

func TestEvictExactPod(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.deploy("presser", 150, nil)
	w.deploy("steady", 5, nil)
	presser, steady := w.running("presser"), w.running("steady")
	w.start()
	w.seen(presser, 140)
	order := w.follow(presser)
	w.press(true)
	start, clock := time.Now(), deadline.Start()
	d := w.decided("somebody is evicted", isEvicted)
	t.Logf("from the shortage's begin to the accepted eviction: %s (bound 5s: rule 1s, round 1s, twice, and a second)", d.Candidates[0].Answers[0].Time.Sub(start).Round(time.Millisecond))
	assert.Less(t, d.Candidates[0].Answers[0].Time.Sub(start), clock.Stretch(5*time.Second))
	going, _ := d.FirstEvicted()
	assert.Equal(t, presser.Name, going.Pod.Name)
	require.Len(t, going.Answers, 1)
	assert.Equal(t, 201, going.Answers[0].Code)
	eventually(t, "the condition is met", func() error { return w.conditioned("True Hard") })
	eventually(t, "the pod is gone", func() error { return w.gone(presser) })
	w.press(false)

	steps := slices.DeleteFunc(order(), func(s string) bool { return s == "taint PreferNoSchedule" }) // where soft was met a tick before hard
	assert.Equal(t, []string{"taint NoSchedule", "deleted"}, steps, "the taint comes first, so that it does not come back here")
	eventually(t, "the pod's successor waits elsewhere", func() error { return w.pending("presser") })
	eventually(t, "it is recorded when the pod was gone and what the node was like then", func() error {
		d = w.decided("it is still recorded", isEvicted)
		if d.TerminatedAt.IsZero() || len(d.After) != 1 {
			return assert.AnError
		}
		return nil
	})
	w.noEvictionFor(5 * time.Second)
	assert.Equal(t, []string{presser.Name}, w.evicted())
	now := w.running("steady")
	assert.Equal(t, steady.UID, now.UID, "the other pod is the same")
	eventually(t, "the taint is lifted", func() error { return w.unmarked() })
	w.running("presser") // now it may come back
	w.toldInEvents(presser)
}

func TestEvictBlockedByPDBTakesNext(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.deploy("guarded", 200, nil)
	w.priorityClass("plimsoll-e2e-later", 100) // whatever the two have filled by then, guarded is the first
	w.deploy("other", 150, func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = "plimsoll-e2e-later" })
	w.budget("guarded")
	guarded, other := w.running("guarded"), w.running("other")
	w.start()
	w.seen(guarded, 190)
	w.seen(other, 140)
	w.press(true)
	d := w.decided("somebody is evicted", isEvicted)
	w.calm()
	require.Len(t, d.Candidates, 2)
	first, second := d.Candidates[0], d.Candidates[1]
	assert.Equal(t, guarded.Name, first.Pod.Name)
	assert.Equal(t, evict.CodePDB, first.Code, first.Reason)
	w.decided("it was asked for", func(d evict.Decision) bool { // by this decision, or by one that became stale meanwhile
		return len(d.Candidates) > 0 && d.Candidates[0].Pod.Name == guarded.Name && len(d.Candidates[0].Answers) > 0 && d.Candidates[0].Answers[0].Code == 429
	})
	assert.Equal(t, other.Name, second.Pod.Name)
	assert.Equal(t, evict.CodeEvicted, second.Code, second.Reason)
	assert.Equal(t, guarded.UID, w.running("guarded").UID)
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.dryRun = true
	w.configure()
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	before := w.getNode()
	w.start()
	w.seen(presser, 140)
	w.press(true)
	d := w.decided("somebody would be evicted", func(d evict.Decision) bool { return d.Code == evict.CodeWouldEvict })
	going, _ := d.FirstEvicted()
	assert.Equal(t, presser.Name, going.Pod.Name)
	assert.True(t, going.Answers[0].DryRun)
	w.noEvictionFor(5 * time.Second)
	w.calm()
	assert.Len(t, w.evicted(), 1, "one pressure, one victim, also in a dry run")
	assert.Equal(t, presser.UID, w.running("presser").UID)
	node := w.getNode()
	assert.Equal(t, before.Spec.Taints, node.Spec.Taints)
	assert.Empty(t, w.ourCondition())
	assert.NotContains(t, node.Annotations, evict.TaintsAnnotation)
}

// The API server is away, the pressure comes and goes meanwhile.
func nothingDecidedBefore(t *testing.T, o *outage) {
	w := startWorldOf(t, o.c)
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	w.start()
	w.seen(presser, 140)
	o.begins(t, nothing)
	w.press(true)
	d := w.decided("nobody goes", func(d evict.Decision) bool { return d.Code == evict.CodeStale })
	t.Log(d.Reason)
	w.calm()
	o.ends(t)
	w.noEvictionFor(8 * time.Second)
	assert.Empty(t, w.evicted())
	assert.Equal(t, presser.UID, w.running("presser").UID)
	w.press(true)
	w.decided("a new pressure is acted upon", isEvicted)
}

// Of what it did only the Node tells: its state is lost.
func TestTaintKeptByNextAgent(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	foreign := corev1.Taint{Key: "plimsoll.dev/SomebodyElse", Effect: corev1.TaintEffectPreferNoSchedule}
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error { // its StandIn writes it too
		node := w.getNode()
		node.Spec.Taints = append(node.Spec.Taints, foreign)
		_, err := w.c.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		return err
	}))
	w.start()
	w.press(true)
	eventually(t, "the node is tainted", func() error { return w.tainted(corev1.TaintEffectNoSchedule) })
	require.Equal(t, -1, w.agent.end(sigkill))
	w.press(false)
	require.NoError(t, os.RemoveAll(filepath.Join(w.state, "evict.json"))) // it may have been killed before the first write
	tainted := time.Now()
	w.start()
	eventually(t, "the taint is lifted", func() error { return w.unmarked() })
	t.Logf("the taint stayed for %s after the agent was killed (it stays 6s from when it was last met)", time.Since(tainted).Round(100*time.Millisecond))
	assert.Greater(t, time.Since(tainted), 4*time.Second)
	assert.Contains(t, w.getNode().Spec.Taints, foreign)
}

func TestDryRunRemovesFormerMarks(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.start()
	w.press(true)
	eventually(t, "the node is tainted", func() error { return w.tainted(corev1.TaintEffectNoSchedule) })
	eventually(t, "the condition is met", func() error { return w.conditioned("True Hard") })
	require.Equal(t, -1, w.agent.end(sigkill))
	w.dryRun = true
	w.configure()
	w.start()
	eventually(t, "taint and condition are gone, while it presses", func() error {
		if taint, condition := w.ourTaint(), w.ourCondition(); taint != "" || condition != "" {
			return fmt.Errorf("taint %q, condition %q", taint, condition)
		}
		return nil
	})
}
