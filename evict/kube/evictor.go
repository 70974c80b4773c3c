package kube

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"

	corev1 "k8s.io/api/core/v1"

	policyv1 "k8s.io/api/policy/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// maxAnswerText bounds the text of an Answer in bytes: it is stored in every
// decision, and an admission webhook may return any text.
const maxAnswerText = 1024

// An Evictor requests evictions from the API server. It decides nothing: the
// caller chooses the pod and acts on the answer. Evict may be called from several
// goroutines.
type Evictor struct {
	// REST is a client of core/v1. Its rate limiter, if any, delays evictions.
	REST rest.Interface
	// Timeout bounds one Evict; evict.CallTimeout when 0.
	Timeout time.Duration
	// Now is the clock of Answer.Time; time.Now when nil.
	Now func() time.Time
}

// Evict requests the eviction of one pod, with its UID as precondition. It returns
// within Timeout, sends one request, and does not wait for a Retry-After: retries
// are the caller's. In a dry run the API server checks the eviction and deletes
// nothing.
func (e *Evictor) Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Timeout, evict.CallTimeout))
	defer cancel()
	code, err := e.post(ctx, v, dryRun)
	outcome, after := OutcomeOf(err)
	a := evict.Answer{Outcome: outcome, Code: code, RetryAfter: after, Text: answerText(err), DryRun: dryRun}
	if errors.Is(err, context.DeadlineExceeded) {
		switch gone, another := e.podIsGone(ctx, v); {
		case another:
			a.Outcome, a.Text = evict.NotFound, "the request timed out, and the pod of that name is another one"
		case gone: // most likely by this request, so it costs its token
			a.Outcome, a.Text = evict.Evicted, "the request timed out, and the pod is gone"
		}
	}
	a.Time = e.now()
	return a
}

// post sends the eviction; code is the HTTP status, 0 without an answer.
func (e *Evictor) post(ctx context.Context, v evict.Victim, dryRun bool) (code int, err error) {
	deadline, _ := ctx.Deadline()
	// A part of the time is reserved for podIsGone.
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)*4/5)
	defer cancel()
	uid := types.UID(v.UID)
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name},
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: &v.GraceSeconds,
			Preconditions:      &metav1.Preconditions{UID: &uid},
		},
	}
	// MaxRetries: client-go would sleep for a Retry-After.
	request := e.REST.Post().Namespace(v.Namespace).Resource("pods").Name(v.Name).SubResource("eviction").MaxRetries(0)
	if dryRun {
		// In the body it prevents the deletion, in the URL the side effects of
		// admission webhooks. The API server requires both to be equal.
		eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	result := request.Body(eviction).Do(ctx)
	if err = result.Error(); err == nil {
		result.StatusCode(&code)
	}
	s, _ := statusOf(err)
	return cmp.Or(code, int(s.Code)), err
}

// podIsGone reports whether no pod has the victim's name and UID, and whether another one
// has the name. For a Pending pod the API server answers a wrong UID only after retrying for ten seconds
// (EvictionsRetry in eviction.go of its pkg/registry/core/pod/storage), and a
// recreated pod of a StatefulSet is Pending under the same name.
func (e *Evictor) podIsGone(ctx context.Context, v evict.Victim) (gone, another bool) {
	var list corev1.PodList
	err := e.REST.Get().Namespace(v.Namespace).Resource("pods").MaxRetries(0).
		Param("fieldSelector", "metadata.name="+v.Name).Do(ctx).Into(&list)
	gone = err == nil && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return string(p.UID) == v.UID })
	return gone, gone && len(list.Items) > 0
}

func (e *Evictor) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// OutcomeOf returns the outcome that the error of an eviction request stands for,
// and its Retry-After, 0 without one. No error is Evicted. The answers are those
// of eviction.go in kubernetes/pkg/registry/core/pod/storage, of admission and of
// the API server's filters.
func OutcomeOf(err error) (evict.Outcome, time.Duration) {
	if err == nil {
		return evict.Evicted, 0
	}
	s, ok := statusOf(err)
	if !ok {
		return evict.UnknownOutcome, 0
	}
	after := retryAfter(s)
	if s.Code == http.StatusUnauthorized || s.Code == http.StatusRequestTimeout {
		return evict.UnknownOutcome, after // the request was not processed
	}
	switch {
	case isNotFound(s):
		return evict.NotFound, 0
	case isInProgress(s):
		return evict.InProgress, 0
	case isBlocked(s):
		return evict.Blocked, after
	case s.Code == http.StatusNotFound, s.Code == http.StatusTooManyRequests:
		// A 404 that does not name the pod comes from a proxy. A 429 without a
		// PodDisruptionBudget is flow control, which would reject others, too.
		return evict.UnknownOutcome, after
	case s.Code >= 400 && s.Code < 500:
		return evict.Refused, 0
	}
	return evict.UnknownOutcome, after
}

// isNotFound reports whether the pod does not exist, or has another UID.
func isNotFound(s metav1.Status) bool {
	switch s.Code {
	case http.StatusNotFound:
		return s.Details != nil && (s.Details.Kind == "pods" || s.Details.Kind == "namespaces") &&
			!hasCause(s, metav1.CauseTypeUnexpectedServerResponse)
	case http.StatusConflict:
		// Only the text distinguishes a wrong UID from a wrong resourceVersion;
		// reason and cause do not. Two places write it (apiserver,
		// registry/rest/delete.go and storage/interfaces.go).
		return strings.Contains(s.Message, "the UID in the precondition") ||
			strings.Contains(s.Message, "UID in precondition:")
	}
	return false
}

// manyPDBs is part of the fixed text of the 500 for a pod under two
// PodDisruptionBudgets, which has neither reason nor cause.
const manyPDBs = "more than one PodDisruptionBudget"

// isBlocked reports whether the eviction may succeed later.
func isBlocked(s metav1.Status) bool {
	switch s.Code {
	case http.StatusConflict:
		return true // the pod or its PodDisruptionBudget changed concurrently
	case http.StatusNotFound:
		// The PodDisruptionBudget was deleted concurrently.
		return s.Details != nil && s.Details.Kind == "poddisruptionbudgets"
	case http.StatusForbidden:
		// A PodDisruptionBudget may answer 403, too. In a terminating namespace no
		// eviction is allowed, but its pods are deleted anyway.
		return hasCause(s, policyv1.DisruptionBudgetCause) || hasCause(s, corev1.NamespaceTerminatingCause)
	case http.StatusTooManyRequests:
		return hasCause(s, policyv1.DisruptionBudgetCause) || byWebhook(s)
	case http.StatusInternalServerError:
		return strings.Contains(s.Message, manyPDBs)
	}
	return false
}

// inProgressText is how an admission webhook says that it has begun, or had begun before, to
// end the pod in its own way: KubeVirt migrates its virtual machine, and refuses each
// eviction of the pod meanwhile (pod-eviction-admitter.go in pkg/virt-api of KubeVirt:
// "Eviction triggered evacuation of VMI", later "Evacuation in progress: Eviction
// triggered evacuation of VMI"). It is a contract: the descheduler reads the same text.
// Other texts of that webhook, such as "not live-migratable", are refusals.
const inProgressText = "Eviction triggered evacuation"

// isInProgress reports whether an admission webhook refuses the eviction because it ends the
// pod in its own way.
func isInProgress(s metav1.Status) bool {
	return s.Code == http.StatusTooManyRequests && byWebhook(s) && strings.Contains(s.Message, inProgressText)
}

// byWebhook reports whether an admission webhook answered (admission/plugin/webhook/errors
// of apiserver), and not a PodDisruptionBudget.
func byWebhook(s metav1.Status) bool {
	return strings.HasPrefix(s.Message, "admission webhook ") && !hasCause(s, policyv1.DisruptionBudgetCause)
}

// statusOf is the API server's answer; false without one.
func statusOf(err error) (metav1.Status, bool) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return metav1.Status{}, false
	}
	return answer.Status(), true
}

func causes(s metav1.Status) []metav1.StatusCause {
	if s.Details == nil {
		return nil
	}
	return s.Details.Causes
}

func hasCause(s metav1.Status, cause metav1.CauseType) bool {
	return slices.ContainsFunc(causes(s), func(c metav1.StatusCause) bool { return c.Type == cause })
}

func retryAfter(s metav1.Status) time.Duration {
	if s.Details == nil || s.Details.RetryAfterSeconds < 0 {
		return 0
	}
	return time.Duration(s.Details.RetryAfterSeconds) * time.Second
}

// answerText is the error in one bounded line, with the causes of the Status: only
// they name the PodDisruptionBudget.
func answerText(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	s, _ := statusOf(err)
	for _, c := range causes(s) {
		if c.Message != "" && !strings.Contains(text, c.Message) {
			text += ": " + c.Message
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxAnswerText {
		text = strings.ToValidUTF8(text[:maxAnswerText], "") + "…"
	}
	return text
}
