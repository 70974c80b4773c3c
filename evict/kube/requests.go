package kube

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"
)

// Names in an EvictionRequest.
const (
	requester = names.Prefix + "agent"
	// requestPrefix and the pod's UID are its name: one pod has one request, of whichever
	// agent.
	requestPrefix = "plimsoll-"
)

// notServed is what to do where the API is missing.
const notServed = "the API server does not serve EvictionRequests (lifecycle.k8s.io/v1alpha1): start it with --feature-gates=EvictionRequestAPI=true " +
	"and --runtime-config=lifecycle.k8s.io/v1alpha1=true (Kubernetes 1.37), or set eviction.via to direct or controller"

// An EvictionRequester makes EvictionRequests (KEP-4563) and withdraws them. It decides
// nothing. A component of the cluster responds to a request, such as one that first moves
// the workload; the pod's termination grace is that component's.
type EvictionRequester struct {
	// REST is a client of core/v1. Its rate limiter, if any, delays requests.
	REST rest.Interface
	// Timeout bounds one call; evict.CallTimeout when 0.
	Timeout time.Duration
	// Now is the clock of Answer.Time; time.Now when nil.
	Now func() time.Time
}

// Evict makes an EvictionRequest of a pod. Accepted or there already, it is
// evict.InProgress: the pod goes when a component has responded. In a dry run nothing is
// stored.
func (e *EvictionRequester) Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Timeout, evict.CallTimeout))
	defer cancel()
	request := e.REST.Post().AbsPath("/apis/lifecycle.k8s.io/v1alpha1/namespaces", v.Namespace, "evictionrequests").MaxRetries(0)
	if dryRun {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	code := 0
	result := request.Body(evictionRequest(v)).Do(ctx)
	err := result.Error()
	if err == nil {
		result.StatusCode(&code)
	}
	a := evict.Answer{Via: evict.ViaRequest, DryRun: dryRun, Text: answerText(err)}
	a.Outcome, a.RetryAfter = requestOutcome(err)
	s, _ := statusOf(err)
	a.Code = cmp.Or(code, int(s.Code))
	switch a.Outcome {
	case evict.InProgress:
		a.Text = "EvictionRequest " + v.Namespace + "/" + requestPrefix + v.UID + " waits for a component that responds"
		if dryRun {
			a.Text = "an EvictionRequest would be accepted"
		}
	case evict.Braked:
		if a.Text += "; apply deploy/rbac-evict-request.yaml"; a.Code == http.StatusNotFound {
			a.Text = notServed
		}
	default:
	}
	if a.Time = time.Now(); e.Now != nil {
		a.Time = e.Now()
	}
	return a
}

func evictionRequest(v evict.Victim) *lifecyclev1alpha1.EvictionRequest {
	return &lifecyclev1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: requestPrefix + v.UID,
			// It ends with the pod, also where no agent is left to withdraw it.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: v.Name, UID: types.UID(v.UID)}},
		},
		Spec: lifecyclev1alpha1.EvictionRequestSpec{
			Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: v.Name, UID: types.UID(v.UID)}},
			Requester: requester, Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
		},
	}
}

// RequestResource is the resource of EvictionRequests.
func RequestResource() schema.GroupVersionResource {
	return lifecyclev1alpha1.SchemeGroupVersion.WithResource("evictionrequests")
}

// MadeByAgent tells whether an agent made an EvictionRequest: its requester is the agent, and
// its name that of its pod.
func MadeByAgent(u *unstructured.Unstructured) bool {
	by, _, _ := unstructured.NestedString(u.Object, "spec", "requester")
	uid, _, _ := unstructured.NestedString(u.Object, "spec", "target", "pod", "uid")
	return by == requester && u.GetName() == requestPrefix+uid
}

// requestOutcome is the outcome that the error of a request stands for.
func requestOutcome(err error) (evict.Outcome, time.Duration) {
	s, ok := statusOf(err)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return evict.InProgress, 0
	case ok && s.Code == http.StatusNotFound && !isNotFound(s),
		ok && s.Code == http.StatusForbidden && strings.Contains(s.Message, `cannot create resource "evictionrequests"`):
		return evict.Braked, 0 // for every pod alike: not served, or without the right
	}
	return OutcomeOf(err)
}

// Withdraw deletes the EvictionRequest of a pod, which withdraws it. No request is no error.
func (e *EvictionRequester) Withdraw(ctx context.Context, v evict.Victim) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Timeout, evict.CallTimeout))
	defer cancel()
	err := e.REST.Delete().AbsPath("/apis/lifecycle.k8s.io/v1alpha1/namespaces", v.Namespace, "evictionrequests", requestPrefix+v.UID).MaxRetries(0).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ErrNotServed says that the API server has no EvictionRequests, and what to do.
var ErrNotServed = errors.New(notServed)

// Served returns nil where the API server serves EvictionRequests, and ErrNotServed where it
// answers and does not.
func (e *EvictionRequester) Served(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Timeout, evict.CallTimeout))
	defer cancel()
	var list metav1.APIResourceList
	err := e.REST.Get().AbsPath("/apis/lifecycle.k8s.io/v1alpha1").MaxRetries(0).Do(ctx).Into(&list)
	served := slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "evictionrequests" })
	if apierrors.IsNotFound(err) || err == nil && !served {
		return ErrNotServed
	}
	return err
}
