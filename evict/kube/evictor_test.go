package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// status is an answer of an API server: code, what it speaks of, text, causes.
func status(code int32, kind, message string, retryAfter int32, causes ...metav1.CauseType) error {
	s := metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}
	s.Details = &metav1.StatusDetails{Name: "web-0", Kind: kind, RetryAfterSeconds: retryAfter}
	for _, c := range causes {
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: c, Message: string(c)})
	}
	return &apierrors.StatusError{ErrStatus: s}
}

// bare is an answer without details.
func bare(code int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
}

func TestEvictorOutcomeOfEachStatus(t *testing.T) {
	const (
		budget     = policyv1.DisruptionBudgetCause
		unexpected = metav1.CauseTypeUnexpectedServerResponse
		ending     = metav1.CauseType("NamespaceTerminating")
	)
	// The sources are of kubernetes 1.37: eviction.go is that of
	// pkg/registry/core/pod/storage, the others are below apiserver/pkg.
	for _, c := range []struct {
		name string
		err  error
		want evict.Outcome
		wait time.Duration
	}{
		{"created", nil, evict.Evicted, 0}, // eviction.go, Create: "Success!"

		{"no such pod", status(404, "pods", `pods "web-0" not found`, 0), evict.NotFound, 0},               // eviction.go, getPod
		{"no such namespace", status(404, "namespaces", `namespaces "a" not found`, 0), evict.NotFound, 0}, // admission/plugin/namespace/lifecycle
		{"another UID", status(409, "Pod", "Operation cannot be fulfilled on Pod \"web-0\": the UID in the precondition (a) does not match "+
			"the UID in record (b). The object might have been deleted and then recreated", 0), evict.NotFound, 0}, // eviction.go, addConditionAndDeletePod; registry/rest/delete.go
		{"another UID, seen by the store", status(409, "pods", "Operation cannot be fulfilled on pods \"web-0\": StorageError: invalid object, "+
			"Code: 4, AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in object meta: b", 0), evict.NotFound, 0}, // storage/interfaces.go
		{"a budget deleted meanwhile", status(404, "poddisruptionbudgets", `poddisruptionbudgets.policy "b" not found`, 0), evict.Blocked, 0}, // eviction.go, refresh
		{"not found, by something in between", status(404, "pods", "page not found", 0, unexpected), evict.UnknownOutcome, 0},                 // client-go, newUnstructuredResponseError
		{"not found, nobody knows what", bare(404, "not found"), evict.UnknownOutcome, 0},

		{"the budget is used up", status(429, "", "Cannot evict pod as it would violate the pod's disruption budget.", 0, budget), evict.Blocked, 0},                                                                                 // eviction.go, checkAndDecrement
		{"the budget is not processed", status(429, "", "Cannot evict pod as it would violate the pod's disruption budget.", 10, budget), evict.Blocked, 10 * time.Second},                                                           // eviction.go, createTooManyRequestsError
		{"the budget is negative", status(403, "poddisruptionbudget", "pdb disruptions allowed is negative", 0, budget), evict.Blocked, 0},                                                                                           // eviction.go, checkAndDecrement
		{"too many evictions unconfirmed", status(403, "poddisruptionbudget", "DisruptedPods map too big", 0, budget), evict.Blocked, 0},                                                                                             // eviction.go, checkAndDecrement
		{"two budgets", bare(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."), evict.Blocked, 0},                                                                             // eviction.go, Create
		{"the budget changed at that moment", status(409, "poddisruptionbudgets", "the object has been modified", 0), evict.Blocked, 0},                                                                                              // eviction.go, UpdateStatus
		{"the pod changed at that moment", status(409, "Pod", "the ResourceVersion in the precondition (1) does not match", 0), evict.Blocked, 0},                                                                                    // eviction.go, addConditionAndDeletePod
		{"the namespace is being deleted", status(403, "pods", "forbidden", 0, ending), evict.Blocked, 0},                                                                                                                            // admission/plugin/namespace/lifecycle
		{"KubeVirt begins to migrate", bare(429, `admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: Eviction triggered evacuation of VMI "shop/vm"`), evict.InProgress, 0},                      // pod-eviction-admitter.go in pkg/virt-api of KubeVirt
		{"KubeVirt migrates", bare(429, `admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: Evacuation in progress: Eviction triggered evacuation of VMI "shop/vm"`), evict.InProgress, 0},       // the same
		{"KubeVirt cannot migrate", bare(429, `admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: VMI vm is configured with an eviction strategy but is not live-migratable`), evict.Blocked, 0}, // the same
		{"another webhook for now", bare(429, `admission webhook "w" denied the request: not now`), evict.Blocked, 0},                                                                                                                // admission/plugin/webhook/errors
		{"a budget with a name like that", status(429, "", `Cannot evict pod: Eviction triggered evacuation`, 0, budget), evict.Blocked, 0},
		{"a text that no webhook wrote", bare(429, "Eviction triggered evacuation"), evict.UnknownOutcome, 0},
		{"a webhook's other refusal", bare(403, `admission webhook "w" denied the request: Eviction triggered evacuation`), evict.Refused, 0},

		{"flow control", status(429, "pods", "Too many requests, please try again later.", 1, unexpected), evict.UnknownOutcome, time.Second}, // server/filters/priority-and-fairness.go
		{"a store that starts", status(429, "", "storage is (re)initializing", 1), evict.UnknownOutcome, time.Second},                         // storage/cacher
		{"no time left in the queue", status(504, "", "request timed out", 10), evict.UnknownOutcome, 10 * time.Second},                       // apimachinery, NewTimeoutError
		{"the webhook is away", status(500, "", "Internal error occurred: failed calling webhook", 0), evict.UnknownOutcome, 0},               // admission/plugin/webhook/validating
		{"etcd is away", bare(500, "etcdserver: request timed out"), evict.UnknownOutcome, 0},                                                 // storage/etcd3
		{"the API server shuts down", bare(503, "apiserver is shutting down"), evict.UnknownOutcome, 0},                                       // server/filters/with_retry_after.go
		{"the token expired", bare(401, "Unauthorized"), evict.UnknownOutcome, 0},                                                             // endpoints/filters/authentication.go
		{"the request took too long to arrive", bare(408, "request timeout"), evict.UnknownOutcome, 0},                                        // net/http

		{"no right to evict", status(403, "pods", `pods "web-0" is forbidden: User "x" cannot create resource "pods/eviction"`, 0), evict.Refused, 0}, // endpoints/handlers/responsewriters
		{"a webhook that says no", bare(403, `admission webhook "w" denied the request: no`), evict.Refused, 0},                                       // admission/plugin/webhook/errors
		{"a name that fits not", bare(400, "name in URL does not match name in Eviction object"), evict.Refused, 0},                                   // eviction.go, Create
		{"a webhook without dry run", bare(400, `admission webhook "w" does not support dry run`), evict.Refused, 0},                                  // admission/plugin/webhook/errors
		{"an invalid value", status(422, "", "invalid", 0), evict.Refused, 0},                                                                         // eviction.go, NewInvalid
		{"a method not allowed", bare(405, "no"), evict.Refused, 0},

		{"no connection", errors.New("dial tcp 127.0.0.1:1: connect: connection refused"), evict.UnknownOutcome, 0},
		{"too late", fmt.Errorf("Post \"https://x\": %w", context.DeadlineExceeded), evict.UnknownOutcome, 0},
		{"stopped", context.Canceled, evict.UnknownOutcome, 0},
		{"wrapped", fmt.Errorf("evict: %w", bare(403, "no")), evict.Refused, 0},
		{"an absurd wait", status(429, "", "x", -5, budget), evict.Blocked, 0},
		{"a redirect", bare(302, "elsewhere"), evict.UnknownOutcome, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, wait := OutcomeOf(c.err)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.wait, wait)
		})
	}
}

// served is an Evictor whose API server is the handler given.
func served(t *testing.T, timeout time.Duration, handler http.HandlerFunc) Evictor {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return Evictor{REST: client.CoreV1().RESTClient(), Timeout: timeout}
}

// untilGone waits until the client has left, which a server notices only once
// it has read the whole request.
func untilGone(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestEvictorRequest(t *testing.T) {
	for _, dry := range []bool{false, true} {
		var path string
		var sent policyv1.Eviction
		e := served(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
			path = r.Method + " " + r.URL.String()
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&sent))
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		})
		e.Now = func() time.Time { return time.Unix(5, 0) }
		got := e.Evict(t.Context(), evict.Victim{UID: "u1", Namespace: "shop", Name: "web-0", GraceSeconds: 7}, dry)
		assert.Equal(t, evict.Answer{Time: time.Unix(5, 0), Outcome: evict.Evicted, Code: 201, DryRun: dry}, got)
		want := "POST /api/v1/namespaces/shop/pods/web-0/eviction"
		if dry {
			want += "?dryRun=All"
			assert.Equal(t, []string{"All"}, sent.DeleteOptions.DryRun)
		}
		assert.Equal(t, want, path)
		assert.Equal(t, "policy/v1", sent.APIVersion)
		assert.EqualValues(t, "u1", *sent.DeleteOptions.Preconditions.UID)
		assert.EqualValues(t, 7, *sent.DeleteOptions.GracePeriodSeconds)
		assert.Equal(t, !dry, sent.DeleteOptions.DryRun == nil)
	}
}

func TestEvictorDoesNotRetry(t *testing.T) {
	asked := 0
	e := served(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Retry-After", "30")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	})
	start := deadline.Start()
	got := e.Evict(t.Context(), evict.Victim{UID: "u1", Namespace: "shop", Name: "web-0"}, false)
	assert.Less(t, start.Elapsed(), 20*time.Second, "it slept through the Retry-After")
	assert.Equal(t, 1, asked)
	assert.Equal(t, evict.UnknownOutcome, got.Outcome)
	assert.Equal(t, 30*time.Second, got.RetryAfter)
	assert.Equal(t, 429, got.Code)
	assert.WithinDuration(t, time.Now(), got.Time, time.Minute)
}

func TestEvictorTimeout(t *testing.T) {
	e := served(t, 200*time.Millisecond, func(w http.ResponseWriter, r *http.Request) { untilGone(r) })
	start := deadline.Start()
	got := e.Evict(t.Context(), evict.Victim{UID: "u1", Namespace: "shop", Name: "web-0"}, false)
	assert.Less(t, start.Elapsed(), 20*time.Second)
	assert.Equal(t, evict.UnknownOutcome, got.Outcome)
	assert.Zero(t, got.Code)
	assert.Contains(t, got.Text, "deadline")
}

func TestEvictorUnansweredLooksForPod(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       evict.Outcome
	}{
		{"still there", `{"items":[{"metadata":{"name":"web-0","uid":"u1"}}]}`, evict.UnknownOutcome},
		{"another came under its name", `{"items":[{"metadata":{"name":"web-0","uid":"u2"}}]}`, evict.NotFound},
		{"no pod has the name", `{"items":[]}`, evict.Evicted},
		{"no list", `{"kind":"Status","status":"Failure"}`, evict.UnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each waits for a deadline
			e := served(t, 5*time.Second, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					untilGone(r)
					return
				}
				assert.Equal(t, "/api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dweb-0", r.URL.String())
				w.Header().Set("Content-Type", "application/json")
				if strings.Contains(c.list, "Failure") {
					w.WriteHeader(http.StatusForbidden)
				}
				fmt.Fprint(w, c.list)
			})
			got := e.Evict(t.Context(), evict.Victim{UID: "u1", Namespace: "shop", Name: "web-0"}, false)
			assert.Equal(t, c.want, got.Outcome, got.Text)
		})
	}
}

func TestAnswerTextBounded(t *testing.T) {
	err := status(429, "", "Cannot evict pod.\nIt would violate.", 0, policyv1.DisruptionBudgetCause)
	assert.Equal(t, "Cannot evict pod. It would violate.: DisruptionBudget", answerText(err))
	assert.Empty(t, answerText(nil))
	assert.Equal(t, "no route", answerText(errors.New("no route")))
	long := answerText(bare(403, strings.Repeat("ä", maxAnswerText)))
	assert.LessOrEqual(t, len(long), maxAnswerText+len("…"))
	assert.True(t, utf8.ValidString(long))
}

func TestEvictorRateLimitedOrCancelled(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: 0.001, Burst: 1})
	require.NoError(t, err)
	e := Evictor{REST: client.CoreV1().RESTClient(), Timeout: time.Minute}
	v := evict.Victim{UID: "u1", Namespace: "shop", Name: "web-0"}
	ctx, cancel := context.WithCancel(t.Context())
	for _, code := range []int{503, 0} {
		got := e.Evict(ctx, v, false)
		assert.Equal(t, evict.UnknownOutcome, got.Outcome)
		assert.Equal(t, code, got.Code, got.Text)
		assert.Equal(t, 1, asked)
	}
	cancel()
	assert.Equal(t, evict.UnknownOutcome, e.Evict(ctx, v, false).Outcome)
}
