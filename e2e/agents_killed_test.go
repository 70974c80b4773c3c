package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	fleets "github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// answersHeld registers a webhook for what the controller writes into Leases, of
// which node has one.
func (b *beats) answersHeld(node string) *hook {
	b.t.Helper()
	const account = "plimsoll-controller"
	h := hookOn(b.t, b.c, lease.Namespace, admissionregistrationv1.ValidatingWebhook{
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"leases"}},
		}},
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "controller", Expression: "request.userInfo.username.endsWith(':" + account + "')"}},
	})
	config, err := b.c.ServiceAccountConfig(b.t.Context(), "plimsoll-system", account, cluster.BoundTo{})
	require.NoError(b.t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(b.t, err)
	h.effective(b.t, func() error {
		_, err := client.CoordinationV1().Leases(lease.Namespace).Patch(b.t.Context(), node, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"trial":""}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return h
}

// Each controller is killed at a point of its way from a request to the answer:
// a webhook of this test's keeps back what the API server was asked for.
func controllerKilledEvictsOnce(t *testing.T, c *cluster.Cluster) {
	b := newBeats(t, c, 1, "evictions: {maxShare: 1, forceGraceZero: [memory-stall]}")
	node, namespace := b.names[0], b.c.Namespace(t)
	b.beat(node)
	a := b.leads()
	for i, row := range []struct {
		killed  string
		posting bool
		posted  bool
		results []lease.Result
	}{
		{killed: "before it asks for the eviction", results: []lease.Result{lease.Accepted}},
		{killed: "while it asks for the eviction", posting: true, results: []lease.Result{lease.Accepted, lease.Gone}},
		{killed: "before it answers", posted: true, results: []lease.Result{lease.Gone}},
	} {
		pods := b.deploy(namespace, fmt.Sprint("web", i), node, node)
		var h *hook
		if row.posting {
			h = hookEvictions(t, c, namespace)
			h.effective(t, func() error { return tryEviction(t, c, namespace, pods[1].Name) })
		} else {
			h = b.answersHeld(node)
		}
		asked := b.ask(node, pods[0])
		for h.wait(t); row.posted && b.there(pods[0]); h.wait(t) {
			h.answer <- true // the note; where a beat was first, the API server asks again
		}
		a.end(syscall.SIGKILL)
		killed := time.Now()
		h.answer <- row.posting // what the API server does without a client is its own affair
		h.open()
		a = b.leads()
		got := b.answers(node, asked)[0]
		t.Logf("killed %s: the next one answers %q %s after", row.killed, got.Result, time.Since(killed).Round(10*time.Millisecond))
		assert.Contains(t, row.results, got.Result, "%s: %s", row.killed, got.Reason)
		assert.False(t, b.there(pods[0]), row.killed)
		sibling := b.answers(node, b.ask(node, pods[1]))[0]
		assert.Equal(t, string(fleets.CodeOwner), sibling.Code, "%s: %s", row.killed, sibling.Reason)
		assert.True(t, b.there(pods[1]), "a second pod: %s", row.killed)
		assert.Equal(t, i+1, shown(a).EvictionLimit.Spent)
	}
}
