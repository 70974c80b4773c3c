package kube

import (
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func TestEventsOnPodAndNode(t *testing.T) {
	s := newScene(t, sharedPlane(t), "events-seen")
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.node, metav1.GetOptions{})
	require.NoError(t, err)
	pod := s.pod("web-0", corev1.PodRunning)
	a := NewAnnouncer(agentClient(t, s.Cluster).CoreV1(), s.node, slog.New(slog.DiscardHandler))
	defer a.Close()
	a.Pod(victim(pod), corev1.EventTypeWarning, "PressureEviction", "memory stall 31 % for 5 s")
	for range 2 {
		a.Node(string(node.UID), "MemoryContention", "web-0 was chosen")
	}
	var list *corev1.EventList
	deadline.Eventually(t, func() bool {
		list, err = s.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "source=plimsoll-agent,involvedObject.uid=" + string(node.UID)})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 2
	}, soon, 20*time.Millisecond, "the same again is counted, not written again")
	// The control plane has something to say of a new Node too.
	assert.Equal(t, "web-0 was chosen", list.Items[0].Message)

	list, err = s.Client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	e := list.Items[0]
	assert.Equal(t, "PressureEviction Warning memory stall 31 % for 5 s", e.Reason+" "+e.Type+" "+e.Message)
	assert.Equal(t, corev1.EventSource{Component: "plimsoll-agent", Host: s.node}, e.Source)
	assert.Equal(t, "Pod/web-0", e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name)
}

func TestEventsInKubectlDescribe(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	s := newScene(t, sharedPlane(t), "events-described")
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.node, metav1.GetOptions{})
	require.NoError(t, err)
	a := NewAnnouncer(agentClient(t, s.Cluster).CoreV1(), s.node, slog.New(slog.DiscardHandler))
	a.Node(string(node.UID), "MemoryContention", "nobody else would have said this")
	a.Close()
	text, err := exec.CommandContext(t.Context(), kubectl, "--kubeconfig", s.Kubeconfig, "describe", "node", s.node).CombinedOutput()
	require.NoError(t, err, "%s", text)
	assert.Contains(t, string(text), "nobody else would have said this")
}
