package e2e_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// The agent is killed after it has chosen and asked, and before the API server
// has answered: a webhook of this test's keeps the answer back.
func TestAgentKilledBeforeEvictionAnswer(t *testing.T) {
	t.Parallel()
	for name, granted := range map[string]bool{"and the eviction is granted all the same": true, "and the eviction is not granted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t)
			deaf := func(p *corev1.PodTemplateSpec) {
				grace := int64(8)
				p.Spec.TerminationGracePeriodSeconds = &grace
				p.Spec.Containers[0] = holder(120, "deaf")
			}
			w.deploy("one", 120, deaf)
			w.deploy("two", 120, deaf)
			one, two := w.running("one"), w.running("two")
			hook := w.hook()
			w.start()
			w.seen(one, 110)
			w.seen(two, 110)
			w.press(true)
			asked := hook.wait(t)
			require.Equal(t, -1, w.agent.end(sigkill))
			chosen, other := one, two
			if asked == two.Name {
				chosen, other = two, one
			}
			hook.answer <- granted
			hook.open()
			if !granted { // by the order alone another would go now
				w.press(false)
				w.deploy("three", 200, func(p *corev1.PodTemplateSpec) {
					deaf(p)
					p.Spec.Containers[0] = holder(200, "deaf")
					p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // the node is tainted
				})
				three := w.running("three")
				w.start()
				w.seen(three, 190)
				w.press(true)
			} else {
				w.start()
			}
			eventually(t, "the one that was chosen is ending", func() error { return w.ending(chosen) })
			assert.NoError(t, w.unharmed(other))
			eventually(t, "it is gone", func() error {
				require.NoError(t, w.unharmed(other), "while the chosen one was ending: %v", w.words())
				return w.gone(chosen)
			})
			assert.NoError(t, w.tainted(corev1.TaintEffectNoSchedule), "the taint is kept")
			w.calm()
			w.noEvictionFor(4 * time.Second)
			assert.NoError(t, w.unharmed(other))
		})
	}
}

// A killed agent's state that is cut, or newer, is as good as none.
func TestAgentStateCorrupt(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	w.settle = 15 * time.Second // longer than it takes until it could evict
	w.deploy("presser", 150, nil)
	presser := w.running("presser")
	write(t, filepath.Join(w.state, "evict.json"), `{"version":1,"sha256":"`)
	w.start()
	w.seen(presser, 140)
	w.press(true)
	w.decided("it evicts nobody before it has settled", func(d evict.Decision) bool { return d.Code == evict.CodeCooldown })
	w.decided("then it works", isEvicted)
	w.calm()
	assert.Contains(t, w.agent.stderr.String(), "cannot read the saved eviction state; starting empty")
	b, err := os.ReadFile(filepath.Join(w.state, "evict.json"))
	require.NoError(t, err)
	assert.True(t, json.Valid(b), "it is written anew")
}

// hook is an admission webhook for evictions that answers when it is told to.
type hook struct {
	asked  chan string // names of pods
	answer chan bool
	opened chan struct{}
	over   chan struct{} // with the test
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	allowed := true
	select {
	case <-h.opened:
	default:
		h.asked <- review.Request.Name
		select {
		case allowed = <-h.answer:
		case <-h.over:
		}
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed}
	_ = json.NewEncoder(w).Encode(review) // an API server that is gone asks again
}

func (h *hook) wait(t *testing.T) string {
	t.Helper()
	select {
	case name := <-h.asked:
		return name
	case <-deadline.After(patience):
		t.Fatal("nobody was asked for")
		return ""
	}
}

// open lets every eviction through from now on.
func (h *hook) open() { close(h.opened) }

// effective waits until the API server asks the webhook for a trial, which is
// denied: it learns of a new one within a second or so.
func (h *hook) effective(t *testing.T, trial func() error) {
	t.Helper()
	eventually(t, "the API server asks the webhook", func() error {
		h.answer <- false
		err := trial()
		select {
		case <-h.asked:
			return nil
		default:
			<-h.answer
			return fmt.Errorf("not asked: %w", err)
		}
	})
}

// hook is registered for the evictions of this test's namespace.
func (w *world) hook() *hook {
	w.t.Helper()
	h := hookEvictions(w.t, w.c, w.namespace)
	w.bare("probe", 1)
	w.running("probe")
	h.effective(w.t, func() error { return tryEviction(w.t, w.c, w.namespace, "probe") })
	return h
}

// tryEviction as a dry run.
func tryEviction(t *testing.T, c *cluster.Cluster, namespace, pod string) error {
	t.Helper()
	return c.Client.CoreV1().Pods(namespace).EvictV1(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	})
}

func hookEvictions(t *testing.T, c *cluster.Cluster, namespace string) *hook {
	t.Helper()
	return hookOn(t, c, namespace, evictionHook())
}

// evictionHook matches evictions.
func evictionHook() admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
	}}}
}

// hookOn registers one for what v matches in a namespace.
func hookOn(t *testing.T, c *cluster.Cluster, namespace string, v admissionregistrationv1.ValidatingWebhook) *hook {
	t.Helper()
	h := &hook{asked: make(chan string, 1), answer: make(chan bool, 1), opened: make(chan struct{}), over: make(chan struct{})}
	serveHook(t, c, namespace, v, h)
	t.Cleanup(func() { close(h.over) })
	return h
}

// serveHook registers a webhook for what v matches in a namespace, until the test is over.
func serveHook(t *testing.T, c *cluster.Cluster, namespace string, v admissionregistrationv1.ValidatingWebhook, h http.Handler) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	fail, none, patient := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone, int32(30)
	v.Name, v.AdmissionReviewVersions, v.SideEffects, v.FailurePolicy, v.TimeoutSeconds = "held.plimsoll.test", []string{"v1"}, &none, &fail, &patient
	v.ClientConfig = admissionregistrationv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	v.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	hooks := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	made, err := hooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "held-"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{v},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, hooks.Delete(contextWithoutCancel(t), made.Name, metav1.DeleteOptions{})) })
}
