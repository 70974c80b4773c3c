package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

// One API server, whose audit log says what was done: first a cluster that knows nothing
// of Katalyst, last what the API server does not survive.
func TestPluginsOnAuditedCluster(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Audit: true})
	t.Run("reclaimed overcommit", func(t *testing.T) { evictReclaimedOvercommit(t, c) })
	t.Run("marks on Node and CNR", func(t *testing.T) { outerPluginMarksNodeAndCNR(t, c) })
	t.Run("rogues", func(t *testing.T) { roguePlugins(t, c) })
}

// Two plugins judge one condition of the Node, a third one of the same name on
// Katalyst's CustomNodeResource, which has a taint and a condition of Katalyst.
func outerPluginMarksNodeAndCNR(t *testing.T, c *cluster.Cluster) {
	w := startWorldOf(t, c)
	before := w.used()
	require.NoError(t, w.c.Apply(t.Context(), deploy.RBACKatalyst))
	require.NoError(t, w.c.Apply(t.Context(), []byte(customNodeResources)))
	w.says("40k", "10Gi")
	w.customNodeResource(`{"spec":{"taints":[{"key":"katalyst/a","value":"","effect":"NoSchedule","qosLevel":"shared_cores"}]}}`)
	w.customNodeResource(`{"status":{"conditions":[{"type":"AgentReady","status":"True"}]}}`, "status")
	const katalysts, ready = "katalyst/a shared_cores/NoSchedule", "AgentReady True "
	dir := w.withPlugins()
	mark := func(effects ...corev1.TaintEffect) kit.Condition {
		return kit.Condition{Name: "NUMAPressure", Effects: effects}
	}
	onCNR := mark("reclaimed_cores/NoSchedule")
	onCNR.CNR = true
	all := []*scripted{{mark: mark("NoSchedule")}, {mark: mark("PreferNoSchedule")}, {mark: onCNR}}
	for i, p := range all {
		p.level = kit.Soft
		w.serve(dir, fmt.Sprintf("numa-%d", i), p)
	}
	w.start()
	const ours, ourCondition = "plimsoll.dev/NUMAPressure ", "plimsoll.dev/NUMAPressure True Soft"
	node := []string{ours + "NoSchedule", ours + "PreferNoSchedule"}
	both := []string{katalysts, ours + "reclaimed_cores/NoSchedule"}
	eventually(t, "both are marked", func() error {
		return w.marked(node, both, []string{ready, ourCondition})
	})
	require.Equal(t, -1, w.agent.end(sigkill))
	w.start()
	for i := range all {
		w.up(fmt.Sprintf("numa-%d", i))
	}
	require.NoError(t, w.marked(node, both, []string{ready, ourCondition}), "a restart lifts nothing")
	for _, p := range all {
		p.set(func(s *scripted) { s.level = kit.None })
	}
	eventually(t, "nothing but Katalyst's is left", func() error {
		return w.marked([]string{}, []string{katalysts}, []string{ready, "plimsoll.dev/NUMAPressure False Clear"})
	})
	w.recordsOfCandidates(dir)
	for _, right := range grantedBy(t, deploy.RBACKatalyst) {
		assert.Greater(t, w.used()[right], before[right], right)
	}
}

// recordsOfCandidates: a plugin that reports candidates is sent the figures of their
// PodDisruptionBudgets.
func (w *world) recordsOfCandidates(dir string) {
	w.t.Helper()
	w.deploy("guarded", 5, nil)
	w.deploy("free", 5, nil)
	w.budget("guarded")
	guarded, free := w.running("guarded"), w.running("free")
	p := &scripted{level: kit.Hard, mark: kit.Condition{Name: "Recorded", Effects: []corev1.TaintEffect{}}}
	p.of = func(pods []*corev1.Pod) []*corev1.Pod {
		return append(only(guarded.Name)(pods), only(free.Name)(pods)...)
	}
	eventually(w.t, "the PodDisruptionBudget counts its pod", func() error {
		b, err := w.c.Client.PolicyV1().PodDisruptionBudgets(w.namespace).Get(w.t.Context(), "guarded", metav1.GetOptions{})
		if err == nil && b.Status.ExpectedPods != 1 {
			err = fmt.Errorf("%+v", b.Status)
		}
		return err
	})
	w.serve(dir, "aware", p)
	eventually(w.t, "it is sent the records", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.asks) == 0 {
			return errors.New("it is not asked for pods")
		}
		records := p.asks[len(p.asks)-1].Records
		of := records[string(guarded.UID)]
		of.CurrentHealthy = 0 // it may have become ready after it was read
		none, known := records[string(free.UID)]
		if want := (kit.Record{HasPDB: true, DesiredHealthy: 1, ExpectedPods: 1}); of != want || !known || none != (kit.Record{}) {
			return fmt.Errorf("%+v", records)
		}
		return nil
	})
}

// customNodeResource patches it as Katalyst would.
func (w *world) customNodeResource(patch string, sub ...string) {
	w.t.Helper()
	path := append([]string{"/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources", w.node}, sub...)
	require.NoError(w.t, w.c.Client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path...).
		SetHeader("Accept", "application/json").Body([]byte(patch)).Do(w.t.Context()).Error())
}

// marked is nil when the Node has these taints of ours, and its
// CustomNodeResource these taints and conditions.
func (w *world) marked(node, taints, conditions []string) error {
	w.t.Helper()
	body, err := w.c.Client.CoreV1().RESTClient().Get().AbsPath("/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources", w.node).
		SetHeader("Accept", "application/json").Do(w.t.Context()).Raw()
	require.NoError(w.t, err)
	var cnr struct {
		Spec struct {
			Taints []struct{ Key, Effect, QoSLevel string }
		}
		Status struct {
			Conditions []struct{ Type, Status, Reason string }
		}
	}
	require.NoError(w.t, json.Unmarshal(body, &cnr))
	onNode, onCNR, said := []string{}, []string{}, []string{}
	for _, t := range w.getNode().Spec.Taints {
		if strings.HasPrefix(t.Key, "plimsoll.dev/") {
			onNode = append(onNode, t.Key+" "+string(t.Effect))
		}
	}
	for _, t := range cnr.Spec.Taints {
		onCNR = append(onCNR, t.Key+" "+t.QoSLevel+"/"+t.Effect)
	}
	for _, c := range cnr.Status.Conditions {
		said = append(said, c.Type+" "+c.Status+" "+c.Reason)
	}
	slices.Sort(onNode)
	if !slices.Equal(onNode, node) || !slices.Equal(onCNR, taints) || !slices.Equal(said, conditions) {
		return fmt.Errorf("node %v, CustomNodeResource %v and %v", onNode, onCNR, said)
	}
	return nil
}
