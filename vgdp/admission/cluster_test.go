package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// agentRunning is the status of a node-agent that runs.
func agentRunning() corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
}

func TestNodeAgentEndingNotReady(t *testing.T) {
	now := metav1.NewTime(noon())
	running := agentRunning()
	assert.True(t, readAgent(&corev1.Pod{Status: running}).Ready)
	pending, dead := agentRunning(), agentRunning()
	pending.Phase, dead.Conditions[0].Status = corev1.PodPending, corev1.ConditionFalse
	assert.False(t, readAgent(&corev1.Pod{Status: pending}).Ready)
	assert.False(t, readAgent(&corev1.Pod{Status: dead}).Ready, "its node is gone, or it crashes again and again")
	assert.False(t, readAgent(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Status: running}).Ready)

	r, _ := veleroServer(t)
	r.veleros["velero"] = newVelero(r, Velero{Namespace: "velero"})
	require.NoError(t, r.cluster.nodes.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ""}}}, ""))
	require.NoError(t, r.cluster.agents.Replace([]any{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "velero"}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: running},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "velero"}, Status: running},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "nobodys"}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: running},
	}, ""))
	f := r.cluster.topology(r.veleros)
	assert.True(t, f.HasAgent("n1", "velero"))
	assert.False(t, f.HasAgent("n1", "nobodys"))
	assert.False(t, f.HasAgent("", "velero"))
	assert.Same(t, f, r.cluster.topology(r.veleros), "made once")
}

func TestNodeAgentReplacedIsChange(t *testing.T) {
	was := agentPod{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Node: "n1", Ready: true, ConfigMap: "c", Started: noon()}
	is := was
	assert.False(t, agentChanged(&was, &is))
	for name, change := range map[string]func(*agentPod){
		"its UID": func(a *agentPod) { a.UID = "2" }, "its node": func(a *agentPod) { a.Node = "n2" }, "it is not ready": func(a *agentPod) { a.Ready = false },
		"its ConfigMap": func(a *agentPod) { a.ConfigMap = "" }, "it was started again": func(a *agentPod) { a.Started = noon().Add(time.Second) },
	} {
		is := was
		change(&is)
		assert.True(t, agentChanged(&was, &is), name)
	}
}

// Tickets of the leader before may be used until then.
func TestObserveOmitsVeleroOfOtherLeader(t *testing.T) {
	nowhere, err := dynamic.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	r := &Reconciler{Dynamic: nowhere, Settings: DefaultSettings}
	r.reset()
	v := newVelero(r, Velero{Namespace: "velero"})
	r.veleros["velero"] = v
	v.watching = true
	require.NoError(t, v.backups.Replace(nil, ""))
	require.NoError(t, v.movers.Replace(nil, ""))
	for _, s := range v.loads {
		require.NoError(t, s.Replace(nil, ""))
	}
	settings := DefaultSettings()
	in, _ := r.input(t.Context(), settings)
	assert.Contains(t, in.Veleros, "velero")
	v.keeper.ticketsFrom = time.Now().Add(time.Hour)
	in, _ = r.input(t.Context(), settings)
	assert.Empty(t, in.Veleros)
}
