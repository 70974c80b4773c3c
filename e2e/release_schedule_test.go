package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// The CronJob that releases hidden loads, by the real kube-controller-manager and
// scheduler. No kubelet runs its pod: the test does what the pod says, with a token of it.
func releaseHiddenOnSchedule(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 1, `{}`, "")
	_, err := h.c.Client.CoreV1().Nodes().Patch(t.Context(), h.nodes[0], types.MergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"plimsoll.dev/MemoryContention","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	manifest, err := os.ReadFile("../deploy/release-hidden.yaml")
	require.NoError(t, err)
	require.NoError(t, h.c.Apply(t.Context(), manifest))
	t.Cleanup(func() {
		require.NoError(t, c.Client.BatchV1().CronJobs("plimsoll-system").Delete(contextWithoutCancel(t), gate.ReleaseHidden, metav1.DeleteOptions{}))
	})
	doctor := func() string {
		_, out, stderr := run(t, "doctor", "--kubeconfig", h.c.Kubeconfig)
		require.Contains(t, out, "steer is missing", stderr)
		return out
	}
	assert.Contains(t, doctor(), "CronJob plimsoll-release-hidden has not succeeded yet")

	// As after ten minutes without a control plane: the last time that was missed counts for
	// four minutes, and the next one is at most a minute later.
	h.cronJobIs(`{"status":{"lastScheduleTime":%q}}`, time.Now().Add(-10*time.Minute))
	pod := h.scheduled(4*patience, 250*time.Second)
	assert.Equal(t, "plimsoll-release-hidden", pod.Spec.ServiceAccountName)
	assert.Equal(t, h.nodes[0], pod.Spec.NodeName, "in spite of the taint")
	assert.Equal(t, corev1.PodPending, pod.Status.Phase, "no kubelet is there")
	as, err := h.c.ServiceAccount(t.Context(), pod.Namespace, pod.Spec.ServiceAccountName, cluster.BoundTo{Kind: "Pod", Name: pod.Name, UID: pod.UID})
	require.NoError(t, err)
	status, said, stderr := run(t, append(pod.Spec.Containers[0].Args, "--kubeconfig", as)...)
	require.Zero(t, status, stderr)
	assert.Equal(t, "0 data mover loads released, 0 hidden ones are held by a controller\n", said)
	assert.Contains(t, doctor(), "CronJob plimsoll-release-hidden has not succeeded yet", "its pod has not ended")
	h.succeeds(pod)
	eventually(t, "kube-controller-manager tells that it succeeded", func() error {
		if out := doctor(); strings.Contains(out, "hide is missing") {
			return errors.New(out)
		}
		return nil
	})
	if os.Getenv("PLIMSOLL_LONG") != "" {
		h.scheduled(gate.ReleasePeriod+patience, 10*time.Second)
	}
}

// scheduled waits so long for a Job that kube-controller-manager makes of the CronJob, no
// later than that after a time of its schedule, and for its pod to have a node. What had
// ended before is not looked at.
func (h *veleroWorld) scheduled(wait, late time.Duration) (pod *corev1.Pod) {
	t := h.t
	t.Helper()
	within(t, wait, "a Job is made, and its pod has a node", func() error {
		jobs, err := h.c.Client.BatchV1().Jobs("plimsoll-system").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(jobs.Items, func(j batchv1.Job) bool { return j.Status.CompletionTime == nil })
		if i < 0 {
			return errors.New("no Job runs")
		}
		job := &jobs.Items[i]
		pods, err := h.c.Client.CoreV1().Pods(job.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].Spec.NodeName == "" {
			return fmt.Errorf("pods of %s: %+v, %w", job.Name, pods, err)
		}
		at, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		require.NoError(t, err)
		after := job.CreationTimestamp.Sub(at)
		t.Logf("scheduled for %s, made %s later", at.UTC().Format(time.TimeOnly), after)
		assert.Zero(t, at.Minute()%5+at.Second(), "%s", at)
		assert.LessOrEqual(t, after, late)
		pod = &pods.Items[0]
		return nil
	})
	return pod
}
