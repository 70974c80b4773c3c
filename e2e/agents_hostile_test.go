package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	fleets "github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// What the token of one node, a wrong clock or an accident may not bend; last, what leaves
// many Leases behind.
func TestControllerHostile(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Without: []string{cluster.Scheduler}, Graces: noKubelets()})
	for name, test := range map[string]func(*testing.T, *cluster.Cluster){
		"a flood from one node keeps no other waiting":          aFloodFromOneNode,
		"a grace is bounded whatever an agent asks for":         aGraceIsBounded,
		"soft marks do not refuse memory at hard":               softMarksDoNotRefuseHard,
		"a leader whose clock is ahead keeps what was spent":    aLeaderWhoseClockIsAhead,
		"a budget of one pod is not for one node alone":         aBudgetOfOnePod,
		"a node whose clock is 61 s off is heard as another is": aNodeWhoseClockIsOff,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
	t.Run("heartbeats survive faults", func(t *testing.T) { heartbeatFaults(t, c) })
}

// flood writes what one token may into its own Lease, each second, until it is
// told to stop: 2,000 requests of another moment, and a report that is none.
func (b *beats) flood(node string) (stop func()) {
	b.t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(b.t))
	var flooding sync.WaitGroup
	flooding.Go(func() {
		for ctx.Err() == nil {
			list := make([]lease.Request, 2000)
			for i := range list {
				list[i] = lease.Request{UID: fmt.Sprint("u", i), Namespace: "s", Name: fmt.Sprint("p", i), Since: lease.Micro(time.Now())}
			}
			text, err := json.Marshal(list)
			if err == nil {
				err = b.renew(ctx, node, map[string]string{lease.EvictionsAnnotation: string(text), lease.NodeAnnotation: `{"pressure":7}`})
			}
			if err != nil && ctx.Err() == nil {
				b.t.Errorf("flood: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	stop = func() { end(); flooding.Wait() }
	b.t.Cleanup(stop)
	return stop
}

func aFloodFromOneNode(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 2, "evictions: {maxShare: 1}")
	thief, honest := b.names[0], b.names[1]
	pod := b.deploy(b.c.Namespace(t), "web", honest)[0]
	b.beat(honest)
	a := b.leads()
	stop := b.flood(thief)
	looks := 0
	for seen := ""; looks < 16; { // a while of it
		eventually(t, "the controller looks", func() error {
			at := shown(a).Time.String()
			if at == seen {
				return fmt.Errorf("not since %s", at)
			}
			seen = at
			return nil
		})
		looks++
	}
	start := time.Now()
	got := b.answers(honest, b.ask(honest, pod))
	took := time.Since(start)
	stop()
	text := a.stderr.String()
	t.Logf("under the flood the honest agent is answered after %s; %d lines in the log, %d warn", took.Round(10*time.Millisecond), strings.Count(text, "\n"), strings.Count(text, "level=WARN"))
	assert.Equal(t, lease.Accepted, got[0].Result, got[0].Reason)
	assert.LessOrEqual(t, strings.Count(text, "level=WARN"), 10)
	assert.NotContains(t, text, "uid=u1999")
	l, err := b.c.Client.CoordinationV1().Leases(lease.Namespace).Get(t.Context(), thief, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Less(t, len(l.Annotations[lease.AnswersAnnotation]), 1024)
}

func aGraceIsBounded(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 1, "evictions: {maxShare: 1, ownerInterval: 1s, maxGrace: 20s, forceGraceZero: [trusted]}")
	node, namespace := b.names[0], b.c.Namespace(t)
	b.beat(node)
	b.leads()
	rows := []struct {
		plugin string
		asked  *int64
		want   int64
	}{
		{"memory-stall", new(int64(0)), 1},
		{"memory-stall", new(int64(-5)), 1},
		{"memory-stall", new(int64(1 << 40)), 20},
		{"memory-stall", new(int64(7)), 7},
		{"memory-stall", nil, 20}, // the pod's own is 30
		{"trusted", new(int64(-5)), 1},
		{"trusted", new(int64(0)), 0},
	}
	var pods []corev1.Pod // all of them first: they are counted once a minute, and as many may go
	for i := range rows {
		pods = append(pods, b.deploy(namespace, fmt.Sprint("app", i), node)...)
	}
	for i, row := range rows {
		pod := pods[i]
		asked := request(pod)
		asked[0].Plugin, asked[0].GraceSeconds = row.plugin, row.asked
		b.send(node, asked)
		got := b.answers(node, asked)[0]
		require.Equal(t, lease.Accepted, got.Result, "%d: %s", i, got.Reason)
		is, err := b.c.Client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if row.want == 0 {
			assert.NoError(t, gone(err))
			assert.Error(t, err, "%d: the API server has forgotten it", i)
			continue
		}
		require.NoError(t, err, "%d: the API server has forgotten it", i)
		require.NotNil(t, is.DeletionGracePeriodSeconds)
		assert.Equal(t, row.want, *is.DeletionGracePeriodSeconds, "%d", i)
	}
}

func softMarksDoNotRefuseHard(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 19, "evictions: {maxShare: 1, period: 1s}")
	namespace := b.c.Namespace(t)
	short := b.names[0]
	one, two := b.deploy(namespace, "one", short)[0], b.deploy(namespace, "two", short)[0]
	three, four := b.deploy(namespace, "three", short)[0], b.deploy(namespace, "four", short)[0]
	b.beat(b.names...)
	a := b.leads()
	text, err := json.Marshal(lease.NodeReport{Pressure: map[string]string{"filesystem": "soft"}})
	require.NoError(t, err)
	taint := func(name string, effect corev1.TaintEffect) {
		_, err := b.tainter(name).Apply(t.Context(), nil, []corev1.Taint{{Key: "plimsoll.dev/FilesystemPressure", Effect: effect}})
		require.NoError(t, err)
	}
	for _, name := range b.names {
		taint(name, corev1.TaintEffectPreferNoSchedule)
		require.NoError(t, b.renew(t.Context(), name, map[string]string{lease.NodeAnnotation: string(text)}))
	}
	eventually(t, "the soft marks are seen", func() error { return wanted(shown(a).EvictionLimit.PressedNodes["filesystem"], 19) })
	ask := func(p corev1.Pod, urgent bool) lease.Answer {
		list := request(p)
		list[0].Level, list[0].Resource, list[0].Urgent = lease.LevelHard, "memory", urgent
		b.send(short, list)
		return b.answers(short, list)[0]
	}
	got := ask(one, false)
	assert.Equal(t, lease.Accepted, got.Result, got.Reason)
	for _, name := range b.names[:2] {
		taint(name, corev1.TaintEffectNoSchedule)
	}
	eventually(t, "those that keep pods away are seen", func() error { return wanted(shown(a).EvictionLimit.Zones["zone-a"].Tainted, 2) })
	got = ask(two, false)
	assert.Equal(t, lease.Accepted, got.Result, "whoever taints two nodes stops nobody: %s", got.Reason)
	assert.Equal(t, "zone", got.PassedBrake)
	got = ask(three, false)
	assert.Equal(t, string(fleets.CodeZone), got.Code, "one in ten minutes: %s", got.Reason)
	assert.Positive(t, got.RetryAfterSeconds)
	got = ask(three, true)
	assert.Equal(t, lease.Accepted, got.Result, "below the floor it does not wait for that: %s", got.Reason)
	assert.Equal(t, "urgent", got.PassedBrake)
	got = ask(four, true)
	assert.Equal(t, string(fleets.CodeZone), got.Code, "one in a minute: %s", got.Reason)
	for _, name := range b.names[:2] { // what they suffered from is over, and their taints stay for a while
		require.NoError(t, b.renew(t.Context(), name, map[string]string{lease.NodeAnnotation: "{}"}))
	}
	eventually(t, "they count no more", func() error { return wanted(shown(a).EvictionLimit.Zones["zone-a"].Tainted, 0) })
	got = ask(four, false)
	assert.Equal(t, lease.Accepted, got.Result, got.Reason)
	assert.Empty(t, got.PassedBrake)
}

// behind is the way to an API server whose clock differs from this machine's,
// which is then as much ahead of it.
func (b *beats) behind(by time.Duration) string {
	b.t.Helper()
	how, err := b.c.ServiceAccountConfig(b.t.Context(), "plimsoll-system", "plimsoll-controller", cluster.BoundTo{})
	require.NoError(b.t, err)
	to, err := url.Parse(how.Host)
	require.NoError(b.t, err)
	authority := x509.NewCertPool()
	require.True(b.t, authority.AppendCertsFromPEM(how.CAData))
	onward := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority}, ForceAttemptHTTP2: true}
	b.t.Cleanup(onward.CloseIdleConnections)
	desk := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: onward, FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(-by).UTC().Format(http.TimeFormat))
			return nil
		},
	})
	desk.EnableHTTP2 = true
	desk.StartTLS()
	b.t.Cleanup(func() { desk.CloseClientConnections(); desk.Close() })
	through := rest.CopyConfig(how)
	through.Host = desk.URL
	through.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: desk.Certificate().Raw})
	path, err := b.c.WriteKubeconfig("behind-"+b.prefix, through)
	require.NoError(b.t, err)
	return path
}

// The one before it let a pod of web go a minute ago, by the API server's clock;
// this one's own is twenty minutes ahead of that.
func aLeaderWhoseClockIsAhead(t *testing.T, c *cluster.Cluster) {
	const ahead = 20 * time.Minute
	b := newBeats(t, c, 1, "evictions: {maxShare: 1}")
	node, namespace := b.names[0], b.c.Namespace(t)
	web, other := b.deploy(namespace, "web", node)[0], b.deploy(namespace, "other", node)[0]
	text, err := json.Marshal([]lease.Answer{{UID: "before", Owner: namespace + "/ReplicaSet/web", Result: lease.Accepted, At: lease.Micro(time.Now().Add(-ahead - time.Minute))}})
	require.NoError(t, err)
	require.NoError(t, b.renew(t.Context(), node, map[string]string{lease.AnswersAnnotation: string(text)}))
	b.beat(node)
	b.leadsBy(b.behind(ahead))
	got := b.answers(node, b.ask(node, web, other))
	assert.Equal(t, string(fleets.CodeOwner), got[0].Code, "%s %s", got[0].Result, got[0].Reason)
	assert.True(t, b.there(web))
	assert.Equal(t, lease.Accepted, got[1].Result, got[1].Reason)
	assert.WithinDuration(t, time.Now().Add(-ahead), got[1].At.Time, 5*time.Minute, "what it writes is by the API server's clock")
}

// leadsBy starts a controller by another kubeconfig, and waits as leads does.
func (b *beats) leadsBy(kubeconfig string) *agent {
	b.t.Helper()
	require.NoError(b.t, gone(b.c.Client.CoordinationV1().Leases("plimsoll-system").Delete(b.t.Context(), "plimsoll-controller", metav1.DeleteOptions{})))
	a := b.controller()
	for i, arg := range a.cmd.Args {
		if arg == "--kubeconfig" {
			a.cmd.Args[i+1] = kubeconfig
		}
	}
	a.start()
	eventually(b.t, "the controller is ready and leads", func() error {
		leads := metric(a, "plimsoll_leader")
		status, body, err := a.get("/-/ready")
		if err == nil && (status != 200 || leads != "1") {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	})
	return a
}

// Of two nodes one asks for all that it has.
func aBudgetOfOnePod(t *testing.T, c *cluster.Cluster) {
	per := deadline.Scale(6 * time.Second)
	b := newBeats(t, c, 2, fmt.Sprintf("evictions: {period: %s, ownerInterval: 1s}", per))
	thief, honest := b.names[0], b.names[1]
	namespace := b.c.Namespace(t)
	first, second, web := b.deploy(namespace, "first", thief)[0], b.deploy(namespace, "second", thief)[0], b.deploy(namespace, "web", honest)[0]
	b.beat(b.names...)
	b.leads()
	got := b.answers(thief, b.ask(thief, first))
	require.Equal(t, lease.Accepted, got[0].Result, got[0].Reason)
	start := time.Now()
	eventually(t, "the budget is there again, and left to others", func() error {
		got := b.answers(thief, b.ask(thief, second))[0]
		if got.Code != string(fleets.CodeShare) {
			return fmt.Errorf("%s %s %s", got.Result, got.Code, got.Reason)
		}
		return nil
	})
	eventually(t, "the other node has it", func() error {
		return wanted(b.answers(honest, b.ask(honest, web))[0].Result, lease.Accepted)
	})
	assert.GreaterOrEqual(t, time.Since(start), per/2)
	assert.True(t, b.there(second))
}

// The time of its beats, and of what it asks for, is 61 s behind or ahead.
func aNodeWhoseClockIsOff(t *testing.T, c *cluster.Cluster) {
	for name, skew := range map[string]time.Duration{"behind": -61 * time.Second, "ahead": 61 * time.Second} {
		t.Run(name, func(t *testing.T) { aNodeWhoseClockIsOffBy(t, c, skew) })
	}
}

func aNodeWhoseClockIsOffBy(t *testing.T, c *cluster.Cluster, skew time.Duration) {
	b := newBeats(t, c, 1, "evictions: {maxShare: 1}")
	node := b.names[0]
	pod := b.deploy(b.c.Namespace(t), "web", node)[0]
	b.leads()
	list := request(pod)
	list[0].Since = lease.Micro(time.Now().Add(skew))
	text, err := json.Marshal(list)
	require.NoError(t, err)
	beat := func() {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{lease.EvictionsAnnotation: string(text)}}, "spec": coordinationv1.LeaseSpec{RenewTime: new(lease.Micro(time.Now().Add(skew)))}})
		require.NoError(t, err)
		_, err = b.c.Client.CoordinationV1().Leases(lease.Namespace).Patch(t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{})
		require.NoError(t, err)
	}
	beat()
	beat()
	got := b.answers(node, list)[0]
	assert.Equal(t, lease.Accepted, got.Result, got.Reason)
}
