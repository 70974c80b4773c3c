package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/evict"
)

func TestRequestOutcome(t *testing.T) {
	exists := apierrors.NewAlreadyExists(schema.GroupResource{Group: "lifecycle.k8s.io", Resource: "evictionrequests"}, "plimsoll-u1")
	for _, c := range []struct {
		name string
		err  error
		want evict.Outcome
	}{
		{"created", nil, evict.InProgress},
		{"there already", exists, evict.InProgress},
		{"not served", bare(404, "the server could not find the requested resource"), evict.Braked},
		{"the namespace is gone", status(404, "namespaces", `namespaces "a" not found`, 0), evict.NotFound},
		{"no right", bare(403, `evictionrequests.lifecycle.k8s.io is forbidden: User "x" cannot create resource "evictionrequests" in API group "lifecycle.k8s.io"`), evict.Braked},
		{"a webhook that says no", bare(403, `admission webhook "w" denied the request: no`), evict.Refused},
		{"an invalid value", status(422, "", "invalid", 0), evict.Refused},
		{"flow control", status(429, "", "Too many requests", 1), evict.UnknownOutcome},
		{"the API server shuts down", bare(503, "apiserver is shutting down"), evict.UnknownOutcome},
		{"no connection", assert.AnError, evict.UnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := requestOutcome(c.err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestEvictionRequester(t *testing.T) {
	var paths []string
	var sent lifecyclev1alpha1.EvictionRequest
	e := served(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.String())
		if r.Method == http.MethodPost {
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&sent))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`)
	})
	q := EvictionRequester{REST: e.REST, Timeout: time.Minute, Now: func() time.Time { return time.Unix(5, 0) }}
	v := evict.Victim{UID: "u1", Namespace: "shop", Name: "web-0"}
	got := q.Evict(t.Context(), v, true)
	assert.Equal(t, evict.Answer{Time: time.Unix(5, 0), Outcome: evict.Braked, Code: 404, DryRun: true, Via: evict.ViaRequest, Text: notServed}, got)
	require.NoError(t, q.Withdraw(t.Context(), v), "none is no error")
	require.ErrorIs(t, q.Served(t.Context()), ErrNotServed)
	const path = "/apis/lifecycle.k8s.io/v1alpha1"
	assert.Equal(t, []string{
		"POST " + path + "/namespaces/shop/evictionrequests?dryRun=All", "DELETE " + path + "/namespaces/shop/evictionrequests/plimsoll-u1", "GET " + path,
	}, paths)
	assert.Equal(t, lifecyclev1alpha1.EvictionRequestSpec{
		Target: lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: "web-0", UID: "u1"}}, Requester: "plimsoll.dev/agent", Intent: "Eviction",
	}, sent.Spec)
}

func TestMadeByAgent(t *testing.T) {
	v := evict.Victim{UID: "u1", Namespace: "shop", Name: "web-0"}
	for name, c := range map[string]struct {
		change func(*lifecyclev1alpha1.EvictionRequest)
		want   bool
	}{
		"as an agent makes it":       {func(*lifecyclev1alpha1.EvictionRequest) {}, true},
		"another requester":          {func(r *lifecyclev1alpha1.EvictionRequest) { r.Spec.Requester = "acme.io/drain" }, false},
		"another name":               {func(r *lifecyclev1alpha1.EvictionRequest) { r.Name = "web-0" }, false},
		"the name of another pod":    {func(r *lifecyclev1alpha1.EvictionRequest) { r.Spec.Target.Pod.UID = "u2" }, false},
		"a target that is not a pod": {func(r *lifecyclev1alpha1.EvictionRequest) { r.Spec.Target.Pod = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := evictionRequest(v)
			c.change(r)
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
			require.NoError(t, err)
			assert.Equal(t, c.want, MadeByAgent(&unstructured.Unstructured{Object: object}))
		})
	}
}

func TestEvictionRequestNotServed(t *testing.T) {
	s := newScene(t, sharedPlane(t), "request-none")
	pod := s.pod("web-0", "Running")
	q := EvictionRequester{REST: agentClient(t, s.Cluster).CoreV1().RESTClient(), Timeout: soon}
	require.NoError(t, s.Apply(t.Context(), deploy.RBACEvictRequest))
	require.ErrorIs(t, q.Served(t.Context()), ErrNotServed)
	deadline.Within(t, soon, "it says that nothing is served", func() error { // RBAC follows a binding in its own time
		if got := q.Evict(t.Context(), victim(pod), false); got.Outcome != evict.Braked || got.Text != notServed {
			return fmt.Errorf("%s: %s", got.Outcome, got.Text)
		}
		return nil
	})
	require.NoError(t, q.Withdraw(t.Context(), victim(pod)))
}

func evictionRequestServed(t *testing.T, c *cluster.Cluster) {
	s := newScene(t, c, "request-some")
	pod := s.pod("web-0", "Running")
	q := EvictionRequester{REST: agentClient(t, c).CoreV1().RESTClient(), Timeout: soon}
	v := victim(pod)
	require.NoError(t, q.Served(t.Context()))
	got := q.Evict(t.Context(), v, false)
	assert.Equal(t, evict.Braked, got.Outcome, "without the right")
	assert.Contains(t, got.Text, "; apply deploy/rbac-evict-request.yaml")
	require.NoError(t, c.Apply(t.Context(), deploy.RBACEvictRequest))
	deadline.Within(t, soon, "the dry run is accepted", func() error {
		if dry := q.Evict(t.Context(), v, true); dry.Outcome != evict.InProgress || dry.Code != http.StatusCreated {
			return fmt.Errorf("%s, %d: %s", dry.Outcome, dry.Code, dry.Text)
		}
		return nil
	})
	requests := c.Client.LifecycleV1alpha1().EvictionRequests(s.namespace)
	list, err := requests.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items, "a dry run stores nothing")
	for _, code := range []int{201, 409} {
		got = q.Evict(t.Context(), v, false)
		assert.Equal(t, evict.InProgress, got.Outcome, got.Text)
		assert.Equal(t, code, got.Code)
	}
	list, err = requests.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, pod.UID, list.Items[0].Spec.Target.Pod.UID)
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}, list.Items[0].OwnerReferences)
	assert.False(t, s.ends(pod))
	for range 2 {
		require.NoError(t, q.Withdraw(t.Context(), v))
	}
	_, err = requests.Get(t.Context(), list.Items[0].Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	v.UID = string(types.UID("00000000-0000-0000-0000-000000000000"))
	assert.Equal(t, evict.InProgress, q.Evict(t.Context(), v, true).Outcome, "whether the pod exists is for the responder")
}
