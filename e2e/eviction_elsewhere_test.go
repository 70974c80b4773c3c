package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// virtual answers for evictions as virt-api of KubeVirt does for pods whose label app is
// machine: it refuses each, for it migrates what is in them.
func virtual(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !strings.HasPrefix(review.Request.Name, "machine")}
	if !review.Response.Allowed {
		review.Response.Result = &metav1.Status{
			Code: http.StatusTooManyRequests, Message: fmt.Sprintf("Eviction triggered evacuation of VMI \"%s/%s\"", review.Request.Namespace, "vm"),
		}
	}
	_ = json.NewEncoder(w).Encode(review)
}

// virtualized is a node under pressure with a large virtual machine and another pod.
func virtualized(t *testing.T, more string) (w *world, machine, other corev1.Pod) {
	t.Helper()
	w = startWorld(t)
	w.more = more
	w.configure()
	serveHook(t, w.c, w.namespace, evictionHook(), http.HandlerFunc(virtual))
	w.deploy("machine", 200, nil)
	later := "later-" + w.node
	w.priorityClass(later, 100) // whatever the two have filled by then, the machine is the first
	w.deploy("other", 150, func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = later })
	machine, other = w.running("machine"), w.running("other")
	eventually(t, "the API server asks the webhook", func() error {
		err := tryEviction(t, w.c, w.namespace, machine.Name)
		if err == nil || !strings.Contains(err.Error(), "Eviction triggered evacuation") {
			return fmt.Errorf("not asked: %w", err)
		}
		return nil
	})
	w.start()
	w.seen(machine, 190)
	w.seen(other, 140)
	w.press(true)
	return w, machine, other
}

func inProgress(d evict.Decision) bool { return d.Code == evict.CodeInProgress }

func TestEvictionInProgress(t *testing.T) {
	t.Parallel()
	t.Run("it is migrated", itIsMigrated)
	t.Run("it is never migrated", itIsNeverMigrated)
}

func itIsMigrated(t *testing.T) {
	t.Parallel()
	w, machine, other := virtualized(t, "")
	d := w.decided("the migration is in progress", inProgress)
	going, _ := d.FirstEvicted()
	assert.Equal(t, machine.Name, going.Pod.Name)
	assert.Equal(t, 429, going.Answers[0].Code)
	w.decided("it is waited for", func(d evict.Decision) bool {
		return d.Code == evict.CodeTerminating && strings.Contains(d.Reason, "the eviction of "+w.namespace+"/"+machine.Name+" is in progress")
	})
	w.explained(machine.Name, "eviction in progress", "Eviction triggered evacuation of VMI", "is evicted by another component: its use counts as released until")
	status, page, err := w.agent.get("/")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	assert.Contains(t, page, "eviction in progress")
	w.eventOn(w.namespace, machine.Name, "PressureEvictionInProgress")
	w.noEvictionFor(5 * time.Second)
	assert.Equal(t, []string{machine.Name}, w.evicted(), "one pressure, one request")
	require.NoError(t, w.unharmed(other))
	w.press(false)
	now := int64(0) // as KubeVirt does in the end
	require.NoError(t, w.c.Client.CoreV1().Pods(w.namespace).Delete(t.Context(), machine.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	eventually(t, "it is recorded when the pod was gone", func() error {
		if d := w.decided("it is still recorded", inProgress); d.TerminatedAt.IsZero() {
			return assert.AnError
		}
		return nil
	})
	assert.NoError(t, w.unharmed(other))
}

func itIsNeverMigrated(t *testing.T) {
	t.Parallel()
	w, machine, other := virtualized(t, ", inProgressWait: 6s")
	d := w.decided("the next one is evicted", isEvicted)
	w.calm()
	assert.Equal(t, machine.Name, d.Candidates[0].Pod.Name)
	assert.Equal(t, evict.CodeRefused, d.Candidates[0].Code, d.Candidates[0].Reason)
	assert.Contains(t, d.Candidates[0].Reason, "its eviction was in progress for 6s, and the pod still exists")
	going, _ := d.FirstEvicted()
	assert.Equal(t, other.Name, going.Pod.Name)
	require.NoError(t, w.unharmed(machine))
	w.explained(machine.Name, "skipped: refused")
}

// A pod that bears the mark of an eviction by another component is credited for a time, and
// protected no longer than that.
func TestEvictedElsewhereMark(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.more = ", inProgressWait: 30s"
	w.configure()
	const mark = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	w.deploy("machine", 200, func(p *corev1.PodTemplateSpec) { p.Annotations = map[string]string{mark: "kubevirt"} })
	machine := w.running("machine")
	w.start()
	w.seen(machine, 190)
	w.press(true)
	d := w.decided("it is credited", func(d evict.Decision) bool { return d.Code == evict.CodeTerminating })
	assert.Contains(t, d.Candidates[0].Reason, "another component evicts it (annotation "+mark+")")
	d = w.decided("a mark protects it no longer", isEvicted)
	going, _ := d.FirstEvicted()
	assert.Equal(t, machine.Name, going.Pod.Name)
	w.calm()
}

// An EvictionRequest waits for a component that responds, and is withdrawn when relief comes
// first.
func TestEvictionRequestWithdrawn(t *testing.T) {
	t.Parallel()
	live.Long(t, "a control plane of its own")
	c := cluster.New(t, cluster.Options{Args: evictionRequests()})
	w := startWorldOf(t, c)
	require.NoError(t, c.Apply(t.Context(), deploy.RBACEvictRequest))
	w.more = ", via: request"
	w.configure()
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	w.start()
	w.seen(presser, 140)
	w.press(true)
	d := w.decided("it is requested", inProgress)
	assert.Equal(t, presser.Name, d.Candidates[0].Pod.Name)
	requests := c.Client.LifecycleV1alpha1().EvictionRequests(w.namespace)
	list, err := requests.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, lifecyclev1alpha1.EvictionRequestPodReference{Name: presser.Name, UID: presser.UID}, *list.Items[0].Spec.Target.Pod)
	w.explained(presser.Name, "EvictionRequest "+w.namespace+"/plimsoll-"+string(presser.UID))
	w.press(false)
	eventually(t, "it is withdrawn", func() error {
		_, err := requests.Get(t.Context(), list.Items[0].Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it stands: %w", err)
	})
	require.NoError(t, w.unharmed(presser))
	eventually(t, "the decision tells so", func() error {
		for _, d := range w.decisions() {
			if len(d.Candidates) > 0 && strings.Contains(d.Candidates[0].Reason, "the EvictionRequest is withdrawn") {
				return nil
			}
		}
		return assert.AnError
	})
	assert.NotContains(t, w.agent.stderr.String(), "no pod can be evicted")
}

func TestEvictionRequestNotServed(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	require.NoError(t, w.c.Apply(t.Context(), deploy.RBACEvictRequest))
	w.more = ", via: request"
	w.configure()
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	w.start()
	eventually(t, "the log tells so", func() error {
		if !strings.Contains(w.agent.stderr.String(), "eviction.via is request, and no pod can be evicted") {
			return assert.AnError
		}
		return nil
	})
	w.seen(presser, 140)
	w.press(true)
	d := w.decided("it is refused", func(d evict.Decision) bool { return d.Code == evict.CodeBrake })
	assert.Contains(t, d.Reason, "the API server does not serve EvictionRequests (lifecycle.k8s.io/v1alpha1): start it with --feature-gates=EvictionRequestAPI=true")
	require.NoError(t, w.unharmed(presser))
	if os.Getenv("PLIMSOLL_LONG") != "" {
		w.noEvictionFor(10 * time.Second)
	}
}
