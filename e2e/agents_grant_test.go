package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// deploy a Deployment's pods onto nodes, one each. The scheduler that binds
// them, and the kubelets that say that they run, are SIMULATED.
func (b *beats) deploy(namespace, name string, nodes ...string) []corev1.Pod {
	b.t.Helper()
	labels, replicas := map[string]string{"app": name}, int32(len(nodes))
	_, err := b.c.Client.AppsV1().Deployments(namespace).Create(b.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{SchedulerName: "simulated", Containers: []corev1.Container{{Name: "c", Image: "nothing"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(b.t, err)
	pods := b.c.Client.CoreV1().Pods(namespace)
	var list *corev1.PodList
	eventually(b.t, name+" is made", func() error {
		list, err = pods.List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		return wanted(len(list.Items), len(nodes))
	})
	for i := range list.Items {
		p := &list.Items[i]
		require.NoError(b.t, pods.Bind(b.t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: nodes[i]}}, metav1.CreateOptions{}))
		p, err := pods.Patch(b.t.Context(), p.Name, types.StrategicMergePatchType,
			[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{FieldManager: "kubelet"}, "status")
		require.NoError(b.t, err)
		list.Items[i] = *p
	}
	return list.Items
}

// ask as an agent does, with its next beat; it returns what is asked.
func (b *beats) ask(node string, pods ...corev1.Pod) []lease.Request {
	b.t.Helper()
	list := request(pods...)
	b.send(node, list)
	return list
}

func request(pods ...corev1.Pod) []lease.Request {
	var list []lease.Request
	for _, p := range pods {
		list = append(list, lease.Request{
			UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Plugin: "memory-stall", Reason: "simulated", GraceSeconds: new(int64(0)), Since: lease.Micro(time.Now()),
		})
	}
	return list
}

func (b *beats) send(node string, list []lease.Request) {
	b.t.Helper()
	text, err := json.Marshal(list)
	require.NoError(b.t, err)
	require.NoError(b.t, b.renew(b.t.Context(), node, map[string]string{lease.EvictionsAnnotation: string(text)}))
}

// answers to what is asked, in its order.
func (b *beats) answers(node string, of []lease.Request) []lease.Answer {
	b.t.Helper()
	var list []lease.Answer
	eventually(b.t, "the controller answers "+node, func() error {
		list = nil
		l, err := b.c.Client.CoordinationV1().Leases(lease.Namespace).Get(b.t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		carried, err := lease.ReadContent(l.Annotations)
		if err != nil {
			return err
		}
		for _, r := range of {
			for _, a := range carried.Answers {
				if a.UID == r.UID && a.Since.Equal(&r.Since) {
					list = append(list, a)
				}
			}
		}
		return wanted(len(list), len(of))
	})
	return list
}

// there tells whether a pod is there, with its UID.
func (b *beats) there(p corev1.Pod) bool {
	b.t.Helper()
	now, err := b.c.Client.CoreV1().Pods(p.Namespace).Get(b.t.Context(), p.Name, metav1.GetOptions{})
	require.NoError(b.t, gone(err))
	return err == nil && now.UID == p.UID && now.DeletionTimestamp == nil
}

func controllerApproves(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 2, "evictions: {maxShare: 1}")
	here, elsewhere := b.names[0], b.names[1]
	namespace := b.c.Namespace(t)
	web := b.deploy(namespace, "web", here, here)
	other := b.deploy(namespace, "other", elsewhere)[0]
	guarded := b.deploy(namespace, "guarded", here)[0]
	dry := b.deploy(namespace, "dry", here)[0]
	_, err := b.c.Client.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guarded"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the budget is known", func() error {
		p, err := b.c.Client.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), "guarded", metav1.GetOptions{})
		if err == nil && p.Status.ObservedGeneration == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	stranger := web[1]
	stranger.UID = "00000000-0000-0000-0000-000000000000"
	missing := web[0]
	missing.Name, missing.UID = "nobody", "11111111-0000-0000-0000-000000000000"
	b.beat(b.names...)
	a := b.leads()
	start := time.Now()
	asked := b.ask(here, web[0], web[1], other, guarded, stranger, missing)
	got := b.answers(here, asked)
	t.Logf("six answers %s after they were asked", time.Since(start).Round(time.Millisecond))
	for i, want := range []struct {
		result lease.Result
		reason string
	}{
		{lease.Accepted, ""},
		{lease.Refused, "a pod of " + namespace + "/ReplicaSet/web was evicted"},
		{lease.Refused, `pod is on node "` + elsewhere},
		{lease.Blocked, "guarded"},
		{lease.Gone, "another UID"},
		{lease.Gone, "pod not found"},
	} {
		assert.Equal(t, want.result, got[i].Result, "%d: %s", i, got[i].Reason)
		assert.Contains(t, got[i].Reason, want.reason)
	}
	assert.False(t, b.there(web[0]))
	for _, p := range []corev1.Pod{web[1], other, guarded} {
		assert.True(t, b.there(p), p.Name)
	}
	assert.Equal(t, "1", metric(a, `plimsoll_cluster_evictions_total{result="evicted"}`))
	assert.Equal(t, "1", metric(a, `plimsoll_cluster_eviction_refusals_total{reason="owner"}`))
	eventually(t, "the page has the answers", func() error { return wanted(len(shown(a).Answers) > 0, true) })

	// Whoever leads next knows who went.
	a.end(syscall.SIGKILL)
	b.leads()
	again := b.answers(here, b.ask(here, web[1]))
	assert.Equal(t, lease.Refused, again[0].Result)
	assert.Contains(t, again[0].Reason, "was evicted")
	assert.True(t, b.there(web[1]))

	// A dry run is judged to the end, and nobody goes.
	asked = request(dry)
	asked[0].DryRun = true
	b.send(here, asked)
	assert.Equal(t, lease.Accepted, b.answers(here, asked)[0].Result)
	assert.True(t, b.there(dry))
}

func limitOfSmallCluster(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 1, "evictions: {period: 6s}")
	node := b.names[0]
	namespace := b.c.Namespace(t)
	one, two := b.deploy(namespace, "one", node)[0], b.deploy(namespace, "two", node)[0]
	b.beat(node)
	b.leads()
	dry := request(two)
	dry[0].DryRun = true
	b.send(node, dry)
	require.Equal(t, lease.Accepted, b.answers(node, dry)[0].Result)
	got := b.answers(node, b.ask(node, one, two)) // a dry run has spent nothing
	assert.Equal(t, lease.Accepted, got[0].Result, got[0].Reason)
	assert.Equal(t, lease.Refused, got[1].Result)
	assert.Contains(t, got[1].Reason, "cluster eviction limit reached: 1 of ")
	assert.True(t, b.there(two))
	eventually(t, "the budget comes back", func() error {
		return wanted(b.answers(node, b.ask(node, two))[0].Result, lease.Accepted)
	})
}

// aZoneIsTainted has six of the fifty nodes of one zone tainted, and five of the
// other's.
func aZoneIsTainted(b *beats, a *agent, namespace string) {
	b.t.Helper()
	here, there := b.names[:50], b.names[50:]
	for _, name := range there {
		b.label(name, corev1.LabelTopologyZone, "zone-b")
	}
	for _, name := range append(there[:5:5], here[:6]...) {
		b.taint(name)
		b.press(name, "memory", lease.LevelHard)
	}
	eventually(b.t, "the taints are seen", func() error {
		return wanted(fmt.Sprint(shown(a).EvictionLimit.Zones), "map[zone-a:{50 6} zone-b:{50 5}]")
	})
	left, right := b.deploy(namespace, "left", here[0])[0], b.deploy(namespace, "right", there[0])[0]
	refused := b.answers(here[0], b.ask(here[0], left))[0]
	const why = `6 of 50 nodes of zone "zone-a" are tainted or not ready (limit 5)`
	require.Equal(b.t, lease.Refused, refused.Result)
	require.Equal(b.t, "zone "+why, refused.Code+" "+refused.Reason)
	granted := b.answers(there[0], b.ask(there[0], right))[0]
	require.Equal(b.t, lease.Accepted, granted.Result, granted.Reason)
	assert.True(b.t, b.there(left))
	assert.False(b.t, b.there(right))
	assert.Equal(b.t, "1", metric(a, `plimsoll_cluster_eviction_refusals_total{reason="zone"}`))
	assert.Equal(b.t, []string{why}, shown(a).EvictionLimit.Full)
	assert.Contains(b.t, a.mustGet("/"), "Evictions in a zone are braked: "+html.EscapeString(why))
	assert.Contains(b.t, a.stderr.String(), strconv.Quote(why))

	_, err := b.tainter(here[0]).Apply(b.t.Context(), nil, nil)
	require.NoError(b.t, err)
	eventually(b.t, "with one less it is granted", func() error {
		return wanted(b.answers(here[0], b.ask(here[0], left))[0].Result, lease.Accepted)
	})
	assert.False(b.t, b.there(left))
}

func taintedZoneAndBrownout(t *testing.T, c *cluster.Cluster) {
	const n, apps = 100, 10
	b := newBeats(t, c, n, "evictions: {maxShare: 1, ownerInterval: 1s}")
	namespace := b.c.Namespace(t)
	var pods []corev1.Pod // one on each node
	for i := range apps {
		pods = append(pods, b.deploy(namespace, fmt.Sprintf("app%d", i), b.names[i*n/apps:(i+1)*n/apps]...)...)
	}
	b.beat(b.names...)
	a := b.leads()
	aZoneIsTainted(b, a, namespace)
	report := func(some []string, r lease.NodeReport) {
		text, err := json.Marshal(r)
		require.NoError(t, err)
		for _, name := range some {
			require.NoError(t, b.renew(t.Context(), name, map[string]string{lease.NodeAnnotation: string(text)}))
		}
	}
	press := func(some []string, level string) {
		report(some, lease.NodeReport{Pressure: map[string]string{"disk": level}})
	}
	// A plugin that is wrong everywhere is refused itself, and stops nobody else.
	report(b.names, lease.NodeReport{Plugins: map[string]string{"wrong": "hard"}})
	eventually(t, "the plugin has a common cause", func() error { return wanted(fmt.Sprint(shown(a).EvictionLimit.CommonPlugins), "[wrong]") })
	list := request(pods[0])
	list[0].Plugin = "wrong"
	b.send(b.names[0], list)
	got := b.answers(b.names[0], list)
	require.Equal(t, lease.Refused, got[0].Result)
	require.Equal(t, "common cause: 100 of 100 nodes have pressure reported by plugin wrong; evictions would not end it", got[0].Reason)

	press(b.names[:n*3/10], "hard")
	got = b.answers(b.names[0], b.ask(b.names[0], pods[0]))
	require.Equal(t, lease.Accepted, got[0].Result, "30 %% have no common cause: %s", got[0].Reason)

	press(b.names[n*3/10:], "soft")
	eventually(t, "the brake holds", func() error { return wanted(metric(a, "plimsoll_eviction_common_cause"), "1") })
	start := time.Now()
	for i := 1; i < n; i++ {
		b.ask(b.names[i], pods[i])
	}
	eventually(t, "each has its answer", func() error {
		return wanted(metric(a, `plimsoll_cluster_eviction_refusals_total{reason="common"}`), fmt.Sprint(1+n-1))
	})
	t.Logf("%d requests are refused within %s", n-1, time.Since(start).Round(10*time.Millisecond))
	assert.Equal(t, "3", metric(a, `plimsoll_cluster_evictions_total{result="evicted"}`))
	for _, p := range pods[1:] {
		require.True(t, b.there(p), p.Name)
	}
	assert.Contains(t, shown(a).Answers[0].Reason, "common cause: 100 of 100 nodes have pressure on disk")
	assert.Contains(t, a.stderr.String(), "common cause found")
}
