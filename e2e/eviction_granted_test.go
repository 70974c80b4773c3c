package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
	"github.com/plimsoll-dev/plimsoll/state"
)

// The controller looks at the whole cluster, so it has one to itself.
func TestEvictThroughController(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Graces: noKubelets()})
	for name, test := range map[string]func(*testing.T, *cluster.Cluster){
		"a pod goes through the controller":                        evictedThroughController,
		"a request outlives the agent, and waits for a controller": aRequestOutlivesTheAgent,
		"a zone that is tainted waits":                             aZoneThatIsTaintedWaits,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// governed is a world whose agent may not evict: the controller does.
func governed(t *testing.T, c *cluster.Cluster) (w *world, b *beats) {
	t.Helper()
	w = startWorldOf(t, c)
	b = newBeats(t, w.c, 0, "evictions: {maxShare: 1, period: 1s, ownerInterval: 1s, brakedInterval: 1h, urgentInterval: 1h}")
	w.more = ", via: controller"
	w.configure()
	roles := w.c.Client.RbacV1().ClusterRoleBindings()
	require.NoError(t, roles.Delete(t.Context(), "plimsoll-agent-evict", metav1.DeleteOptions{}))
	eventually(t, "the agent may not evict", func() error {
		review, err := w.c.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:plimsoll-system:plimsoll-agent",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: "create", Resource: "pods", Subresource: "eviction"},
			},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			err = errors.New("it may")
		}
		return err
	})
	t.Cleanup(func() {
		require.NoError(t, gone(w.c.Client.CoordinationV1().Leases(lease.Namespace).Delete(contextWithoutCancel(t), w.node, metav1.DeleteOptions{})))
	})
	return w, b
}

// requests that stand in the agent's Lease.
func (w *world) requests() []lease.Request {
	w.t.Helper()
	l, err := w.c.Client.CoordinationV1().Leases(lease.Namespace).Get(w.t.Context(), w.node, metav1.GetOptions{})
	require.NoError(w.t, err)
	carried, err := lease.ReadContent(l.Annotations)
	require.NoError(w.t, err)
	return carried.Requests
}

// A pod behind a disruption budget is asked for first, and is not granted.
func evictedThroughController(t *testing.T, c *cluster.Cluster) {
	w, b := governed(t, c)
	w.deploy("guarded", 400, nil) // the larger one, whoever is charged for the program's pages
	w.deploy("presser", 150, nil)
	w.budget("guarded")
	guarded, presser := w.running("guarded"), w.running("presser")
	b.leads()
	w.start()
	w.seen(guarded, 390)
	w.seen(presser, 140)
	pressed := time.Now()
	w.press(true)
	d := w.decided("somebody goes", isEvicted)
	require.Len(t, d.Candidates, 2)
	require.NotEmpty(t, d.Candidates[1].Answers, "%+v", d)
	t.Logf("evicted through the controller %s after the shortage began; asked for the first of two %s after", d.Candidates[1].Answers[0].Time.Sub(pressed).Round(time.Millisecond), d.Time.Sub(pressed).Round(time.Millisecond))
	assert.Equal(t, evict.CodePDB, d.Candidates[0].Code)
	refused := w.decided("the larger one was asked for", func(d evict.Decision) bool { // by this decision, or by one that became stale meanwhile
		return len(d.Candidates) > 0 && len(d.Candidates[0].Answers) > 0 && d.Candidates[0].Pod.Name == guarded.Name
	})
	assert.Contains(t, refused.Candidates[0].Reason, "the controller: ")
	assert.Equal(t, evict.ViaController, refused.Candidates[0].Answers[0].Via)
	assert.Equal(t, presser.Name, d.Candidates[1].Pod.Name)
	assert.Equal(t, evict.ViaController, d.Candidates[1].Answers[0].Via)
	eventually(t, "it is gone", func() error { return w.gone(presser) })
	assert.NoError(t, w.unharmed(guarded))
	w.calm()
	eventually(t, "nothing is asked for any more", func() error { return wanted(len(w.requests()), 0) })
}

// The agent, and then two controllers, are killed between the request and its
// answer: the second one when the pod is ending.
func aRequestOutlivesTheAgent(t *testing.T, c *cluster.Cluster) {
	w, b := governed(t, c)
	b.leads().end(sigkill)
	w.deploy("one", 150, nil)
	w.deploy("two", 150, nil)
	one, two := w.running("one"), w.running("two")
	w.start()
	w.seen(one, 140)
	w.seen(two, 140)
	w.press(true)
	asked := func() (list []lease.Request) {
		eventually(t, "somebody is asked for", func() error {
			list = w.requests()
			return wanted(len(list), 1)
		})
		return list
	}
	first := asked() // of a controller that was killed
	require.Equal(t, -1, w.agent.end(sigkill))
	w.start()
	w.decided("the decision says that the controller does not answer", func(d evict.Decision) bool {
		return d.Code == evict.CodeUnknownOutcome && strings.Contains(d.Reason, "the controller has not answered for")
	})
	again := asked() // with numbers of its own
	assert.Equal(t, first[0].UID, again[0].UID, "the next agent asks for the same")
	assert.True(t, first[0].Since.Equal(&again[0].Since), "%s and %s", first[0].Since, again[0].Since)
	for _, p := range []corev1.Pod{one, two} {
		assert.NoError(t, w.unharmed(p))
	}
	chosen, other := one, two
	if first[0].UID == string(two.UID) {
		chosen, other = two, one
	}
	held := b.answersHeld(w.node)
	controller := b.leads()
	back := time.Now()
	for held.wait(t); w.ending(chosen) != nil; held.wait(t) {
		held.answer <- true // that it may go; where a beat was first, the API server asks again
	}
	t.Logf("a controller that leads grants what was asked for before it after %s", time.Since(back).Round(time.Millisecond))
	controller.end(sigkill)
	held.answer <- false
	held.open()
	eventually(t, "it is gone", func() error {
		require.NoError(t, w.unharmed(other), "%v", w.words())
		return w.gone(chosen)
	})
	w.calm()
	b.leads()
	w.noEvictionFor(3 * time.Second)
	assert.NoError(t, w.unharmed(other))
}

// says in the Lease of a node what this account alone may.
func (b *beats) says(account, node, key string, what any) {
	b.t.Helper()
	text, err := json.Marshal(what)
	require.NoError(b.t, err)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: string(text)}}})
	require.NoError(b.t, err)
	how, err := b.c.ServiceAccountConfig(b.t.Context(), "plimsoll-system", account, cluster.BoundTo{Kind: "Node", Name: node})
	require.NoError(b.t, err)
	client, err := kubernetes.NewForConfig(how)
	require.NoError(b.t, err)
	_, err = client.CoordinationV1().Leases(lease.Namespace).Patch(b.t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(b.t, err)
}

// The two other nodes of the zone are simulated, and tainted; a pod of theirs went
// past that brake not long ago.
func aZoneThatIsTaintedWaits(t *testing.T, c *cluster.Cluster) {
	w, b := governed(t, c)
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	for i := range 2 {
		b.add(fmt.Sprintf("n%d-%s", i, w.node))
		b.taint(b.names[i])
		b.says("plimsoll-agent", b.names[i], lease.NodeAnnotation, lease.NodeReport{Pressure: map[string]string{"filesystem": lease.LevelHard}})
	}
	now := lease.Micro(time.Now())
	b.says("plimsoll-controller", b.names[0], lease.AnswersAnnotation, []lease.Answer{
		{UID: "1", Owner: "a", Result: lease.Accepted, PassedBrake: "zone", At: now}, {UID: "2", Owner: "b", Result: lease.Accepted, PassedBrake: "urgent", At: now},
	})
	b.beat(b.names...)
	controller := b.leads()
	w.start()
	w.seen(presser, 140)
	w.press(true)
	const why = `3 of 3 nodes of zone "zone-a" are tainted or not ready (limit 1)`
	w.decided("the brake holds", func(d evict.Decision) bool { return d.Code == evict.CodeBrake && strings.Contains(d.Reason, why) })
	w.explained(presser.Name, why)
	assert.Contains(t, w.agent.mustGet("/"), html.EscapeString(why))
	assert.NotEqual(t, "0", metric(w.agent, `plimsoll_evictions_total{plugin="memory-stall",result="brake"}`))
	assert.NotEqual(t, "0", metric(controller, `plimsoll_cluster_eviction_refusals_total{reason="zone"}`))
	assert.NoError(t, w.unharmed(presser))
	for _, name := range b.names {
		_, err := b.tainter(name).Apply(t.Context(), nil, nil)
		require.NoError(t, err)
	}
	within(t, 2*patience, "it goes when the zone has room", func() error { return w.gone(presser) })
	w.calm()
}

// TestEvictWithoutController is for three agents that may do without it, as far as rights
// and rules let them.
func TestEvictWithoutController(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Graces: noKubelets()})
	newBeats(t, c, 0, "").leads().end(sigkill)
	for name, row := range map[string]struct {
		right bool
		test  func(w *world, one, two corev1.Pod)
	}{
		"memory at hard takes one and no other": {right: true, test: oneGoesAloneAndNoOther},
		"another scope waits":                   {right: true, test: anotherScopeWaits},
		"without the right nobody goes":         {test: noFallbackWithoutRight},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := governed(t, c)
			w.more += ", viaFallback: true, viaFallbackAfter: 5s"
			w.configure()
			if row.right {
				w.mayEvictHere()
			}
			w.deploy("one", 150, nil)
			w.deploy("two", 150, nil)
			one, two := w.running("one"), w.running("two")
			w.start()
			w.rested(10 * time.Minute)
			w.seen(one, 140)
			w.seen(two, 140)
			row.test(w, one, two)
		})
	}
}

// mayEvictHere gives the agents the right in the namespace of this test.
func (w *world) mayEvictHere() {
	w.t.Helper()
	_, err := w.c.Client.RbacV1().RoleBindings(w.namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "evict"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plimsoll-agent-evict"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "plimsoll-system", Name: "plimsoll-agent"}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// rested restarts the agent as if so much time had passed for the bucket of
// those that go alone, which is empty at first.
func (w *world) rested(d time.Duration) {
	w.t.Helper()
	kept := state.File[evict.State]{Path: filepath.Join(w.state, "evict.json"), Version: evict.StateVersion}
	eventually(w.t, "its memory is kept", func() error {
		m, err := kept.Load()
		if err == nil && m.RateLimits.Boot == "" {
			err = errors.New("no budgets yet")
		}
		return err
	})
	require.Equal(w.t, -1, w.agent.end(sigkill))
	m, err := kept.Load()
	require.NoError(w.t, err)
	m.RateLimits.Fallback -= d
	require.NoError(w.t, kept.Save(m))
	w.start()
}

// unanswered waits until a pod was asked for in vain for so long.
func (w *world) unanswered(d time.Duration, pod corev1.Pod) evict.Decision {
	w.t.Helper()
	return w.decided("nobody answers", func(is evict.Decision) bool {
		words := regexp.MustCompile(`/(\S+): outcome unknown: the controller has not answered for (\S+)`).FindStringSubmatch(is.Reason)
		if words == nil || words[1] != pod.Name {
			return false
		}
		since, err := time.ParseDuration(words[2])
		return err == nil && since >= d
	})
}

func oneGoesAloneAndNoOther(w *world, one, two corev1.Pod) {
	pressed := time.Now()
	w.press(true)
	d := w.decided("one goes", isEvicted)
	going, _ := d.FirstEvicted()
	w.t.Logf("evicted without the controller %s after the shortage began", going.Answers[0].Time.Sub(pressed).Round(time.Millisecond))
	assert.GreaterOrEqual(w.t, going.Answers[0].Time.Sub(pressed), 5*time.Second)
	assert.Equal(w.t, evict.Answer{Time: going.Answers[0].Time, Outcome: evict.Evicted, Code: 201}, going.Answers[0])
	chosen, other := one, two
	if going.Pod.Name == two.Name {
		chosen, other = two, one
	}
	eventually(w.t, "it is gone", func() error { return w.gone(chosen) })
	w.unanswered(8*time.Second, other)
	assert.NoError(w.t, w.unharmed(other), "%v", w.words())
}

func anotherScopeWaits(w *world, one, _ corev1.Pod) {
	w.serve(w.withPlugins(), "honest", &scripted{level: kit.Hard, names: only(one.Name)})
	require.Equal(w.t, -1, w.agent.end(sigkill))
	w.start()
	w.unanswered(8*time.Second, one)
	assert.NoError(w.t, w.unharmed(one), "%v", w.words())
}

func noFallbackWithoutRight(w *world, one, two corev1.Pod) {
	w.press(true)
	d := w.decided("the right is missing", func(d evict.Decision) bool { return len(d.Candidates) > 0 && d.Candidates[0].Code == evict.CodeRefused })
	const why = `cannot create resource "pods/eviction"`
	assert.Contains(w.t, d.Candidates[0].Reason, why)
	w.explained(d.Candidates[0].Pod.Name, why)
	other := two
	if d.Candidates[0].Pod.Name == two.Name {
		other = one
	}
	w.unanswered(8*time.Second, other)
	for _, p := range []corev1.Pod{one, two} {
		assert.NoError(w.t, w.unharmed(p), "%v", w.words())
	}
}
