package evict

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Victim is a pod that was chosen to go.
type Victim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// GraceSeconds it gets to end by itself.
	GraceSeconds int64 `json:"graceSeconds"`

	// Since when it is chosen, and by which plugin for what reason, at which level
	// of which resource, and whether memory is below its floor: what the controller
	// is told beside.
	Since    time.Time        `json:"-"`
	Plugin   string           `json:"-"`
	Why      string           `json:"-"`
	Level    plugins.Level    `json:"-"`
	Resource plugins.Resource `json:"-"`
	Urgent   bool             `json:"-"`
	// Alone: the controller did not answer, and this one goes without it.
	Alone bool `json:"-"`
}

// Outcome is what an answer of the API server means for a victim.
type Outcome string

// The outcomes.
const (
	Evicted    Outcome = "evicted"    // accepted: the pod is being ended
	Gone       Outcome = "gone"       // the pod with that UID is not there any more
	Blocked    Outcome = "blocked"    // a disruption budget forbids it for now
	Refused    Outcome = "refused"    // it will not be granted however often it is asked
	Braked     Outcome = "braked"     // the controller lets nobody go now for what it was asked for, whoever it is
	Unanswered Outcome = "unanswered" // nobody knows whether it was accepted
)

// Answer is what the API server said to one eviction.
type Answer struct {
	Time    time.Time `json:"time"`
	Outcome Outcome   `json:"outcome"`
	// Code is the HTTP status; 0 without an answer.
	Code int `json:"code,omitempty"`
	// RetryAfter is how long the API server asked to wait; 0 where it did not.
	RetryAfter time.Duration `json:"-"`
	// Text is the API server's own, or the error's.
	Text string `json:"text,omitempty"`
	// DryRun: the API server judged it and ended nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Via is ViaController where the controller asked, and answered.
	Via string `json:"via,omitempty"`
}

// says who answered, and what.
func (a *Answer) says() string {
	if a.Via == ViaController {
		return "the controller: " + a.Text
	}
	return "the API server: " + a.Text
}

// DefaultEvictTimeout bounds one eviction with all that belongs to it: less
// than a round, and long enough for an API server that is merely busy.
const DefaultEvictTimeout = 5 * time.Second

// maxAnswerText bounds the text of an Answer in bytes: it is kept in every
// decision record, and an admission webhook may say what it likes.
const maxAnswerText = 1024

// An Evictor asks the API server to evict pods. It decides nothing: whom to
// ask for, and what to do with the answer, is the caller's. Evict may be
// called from several goroutines.
type Evictor struct {
	// REST is a client of core/v1. Its rate limiter, if any, delays evictions.
	REST rest.Interface
	// Timeout bounds one Evict; DefaultEvictTimeout when 0.
	Timeout time.Duration
	// Now is the clock of Answer.Time; time.Now when nil.
	Now func() time.Time
}

// Evict asks for the eviction of one pod, under the precondition that the pod
// of that name still has the victim's UID. It always answers within Timeout,
// asks once, and follows no Retry-After: when to ask again is the caller's. In
// a dry run the API server judges the eviction and ends nothing.
func (e *Evictor) Evict(ctx context.Context, v Victim, dryRun bool) Answer {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Timeout, DefaultEvictTimeout))
	defer cancel()
	code, err := e.post(ctx, v, dryRun)
	outcome, after := Meaning(err)
	a := Answer{Outcome: outcome, Code: code, RetryAfter: after, Text: answerText(err), DryRun: dryRun}
	if errors.Is(err, context.DeadlineExceeded) && e.isAway(ctx, v) {
		a.Outcome, a.Text = Gone, "the request timed out, but no pod with that UID exists"
	}
	a.Time = e.now()
	return a
}

// post sends the eviction; code is the HTTP status, 0 without an answer. The
// result of a request tells it for a success only, an error tells its own.
func (e *Evictor) post(ctx context.Context, v Victim, dryRun bool) (code int, err error) {
	deadline, _ := ctx.Deadline()
	// A part of the time is kept for isAway.
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
	// MaxRetries: client-go would sleep through a Retry-After without a word.
	request := e.REST.Post().Namespace(v.Namespace).Resource("pods").Name(v.Name).SubResource("eviction").MaxRetries(0)
	if dryRun {
		// In the body it stops the deletion, in the URL the side effects of
		// admission webhooks. The API server wants both alike.
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

// isAway tells whether no pod has the victim's name and UID. For a pod that is
// Pending the API server answers a wrong UID only after it has tried for ten
// seconds (EvictionsRetry in eviction.go of its pkg/registry/core/pod/storage),
// and the pod of a StatefulSet is Pending just when it is back under its name.
func (e *Evictor) isAway(ctx context.Context, v Victim) bool {
	var list corev1.PodList
	err := e.REST.Get().Namespace(v.Namespace).Resource("pods").MaxRetries(0).
		Param("fieldSelector", "metadata.name="+v.Name).Do(ctx).Into(&list)
	return err == nil && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return string(p.UID) == v.UID })
}

func (e *Evictor) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// Meaning tells what the error of an eviction request means for the victim,
// and how long the API server asked to wait, 0 where it did not. No error is
// Evicted. The answers of the API server are those of eviction.go in
// kubernetes/pkg/registry/core/pod/storage, of its admission and its filters.
func Meaning(err error) (Outcome, time.Duration) {
	if err == nil {
		return Evicted, 0
	}
	s, ok := statusOf(err)
	if !ok {
		return Unanswered, 0
	}
	after := retryAfter(s)
	if s.Code == http.StatusUnauthorized || s.Code == http.StatusRequestTimeout {
		return Unanswered, after // nobody has judged it
	}
	switch {
	case isGone(s):
		return Gone, 0
	case isBlocked(s):
		return Blocked, after
	case s.Code == http.StatusNotFound, s.Code == http.StatusTooManyRequests:
		// A 404 that does not speak of the pod comes from something in between.
		// A 429 without a budget is flow control: others would fare no better.
		return Unanswered, after
	case s.Code >= 400 && s.Code < 500:
		return Refused, 0
	}
	return Unanswered, after
}

// isGone: there is no such pod, or it has another UID.
func isGone(s metav1.Status) bool {
	switch s.Code {
	case http.StatusNotFound:
		return s.Details != nil && (s.Details.Kind == "pods" || s.Details.Kind == "namespaces") &&
			!hasCause(s, metav1.CauseTypeUnexpectedServerResponse)
	case http.StatusConflict:
		// The text is all there is: neither reason nor cause tells a wrong UID
		// from a wrong resourceVersion. Two places write it (apiserver,
		// registry/rest/delete.go and storage/interfaces.go).
		return strings.Contains(s.Message, "the UID in the precondition") ||
			strings.Contains(s.Message, "UID in precondition:")
	}
	return false
}

// manyBudgets is the fixed text of the 500 for a pod under two budgets; it has
// neither reason nor cause.
const manyBudgets = "more than one PodDisruptionBudget"

// isBlocked: it may be granted later.
func isBlocked(s metav1.Status) bool {
	switch s.Code {
	case http.StatusConflict:
		return true // somebody changed the pod or its budget at that moment
	case http.StatusNotFound:
		// The budget was deleted while it was charged.
		return s.Details != nil && s.Details.Kind == "poddisruptionbudgets"
	case http.StatusForbidden:
		// A budget may forbid with a 403 too; in a namespace that is being
		// deleted no eviction is granted, but its pods go by themselves.
		return hasCause(s, policyv1.DisruptionBudgetCause) || hasCause(s, corev1.NamespaceTerminatingCause)
	case http.StatusTooManyRequests:
		// Webhooks that move a workload elsewhere first say "not yet" this way.
		return hasCause(s, policyv1.DisruptionBudgetCause) || strings.HasPrefix(s.Message, "admission webhook ")
	case http.StatusInternalServerError:
		return strings.Contains(s.Message, manyBudgets)
	}
	return false
}

// statusOf is the API server's own answer, false where none came.
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

// answerText is the error in one bounded line, with the causes that a Status
// keeps beside its message: only they name the budget.
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
