package reconcile

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/backoff"
)

// Refusals are the objects that the API server did not change when it was asked to, by UID: it
// refuses to, or did not answer. Nothing is written to such an object for a while, so that
// others go on. The zero value has none. It belongs to one goroutine.
type Refusals struct {
	now  time.Time // of the round
	made time.Time // when another write was made last
	of   map[types.UID]refusal
}

type refusal struct {
	version   string    // of the object; with another one it counts no more
	times     int       // in a row
	alone     int       // of these, those with another write between them
	at, until time.Time // of the last time, and until when nothing is written to it
	why       string
	unknown   bool // whether the write was made; it gives something, and counts as made
}

const (
	// RefusedFor is the longest time for which nothing is written to an object.
	RefusedFor = 5 * time.Minute
	// settleTime is how long a write without an answer may still be made: an API server ends
	// each after 34 s (requestTimeoutUpperBound, k8s.io/apiserver 0.33.13,
	// pkg/endpoints/handlers/rest.go). It is also the first time for which nothing is written.
	settleTime = 40 * time.Second
	// settleRetry is the interval at which it is looked whether a write was made.
	settleRetry = 10 * time.Second
	// forgetAfter is how long after its pause an object keeps its count: longer than any pause.
	forgetAfter = 2 * RefusedFor
	// maxWhy bounds the text of a refusal in bytes: an admission webhook may return any.
	maxWhy = 500
)

// pause is for how long nothing is written to an object that alone was not changed so many times.
func pause(times int) time.Duration {
	return backoff.Exponential{First: settleTime, Longest: RefusedFor}.Doubled(times - 1)
}

// Refused tells whether the API server refuses this change of this object: not where the server
// is away or overloaded, or does not know the client, nor where the object has changed.
func Refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusNotFound, http.StatusConflict:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// Unanswered tells whether a write was sent and its answer did not come, so that it may have been
// made: in time, or before the connection was lost.
func Unanswered(err error) bool {
	var status apierrors.APIStatus
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	dial, is := errors.AsType[*net.OpError](err)
	return err != nil && !errors.As(err, &status) && !(is && dial.Op == "dial")
}

// webhookFailed tells whether the API server has answered that a webhook failed, with which
// nothing is written.
func webhookFailed(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 500 && strings.Contains(status.Status().Message, "webhook")
}

// Why is the text of an error, clipped.
func Why(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxWhy)], "")
}

// Begin a round.
func (r *Refusals) Begin(now time.Time) {
	r.now = now
	maps.DeleteFunc(r.of, func(_ types.UID, of refusal) bool { return now.Sub(of.until) > forgetAfter })
}

// None tells whether there is none.
func (r *Refusals) None() bool { return len(r.of) == 0 }

// Add an object: nothing is written to it until then.
func (r *Refusals) Add(uid types.UID, version string, until time.Time) {
	r.set(uid, refusal{version: version, times: r.Times(uid, version) + 1, until: until})
}

func (r *Refusals) set(uid types.UID, of refusal) {
	if r.of == nil {
		r.of = map[types.UID]refusal{}
	}
	r.of[uid] = of
}

// Made records that a write was made: what is not changed meanwhile is not changed alone.
func (r *Refusals) Made() { r.made = time.Now() }

// Failed records a write that failed, and returns how often in a row; 0: it is not about this
// object. The pause gets longer only where others were changed meanwhile: it is this one's fault. gives: the write gives its object what others then cannot have.
// Where no answer came it counts as made until it is known that it was not.
func (r *Refusals) Failed(uid types.UID, version string, err error, gives bool) (times int) {
	lost := gives && Unanswered(err)
	if !lost && !errors.Is(err, context.DeadlineExceeded) && !Refused(err) && !webhookFailed(err) {
		return 0
	}
	was := r.get(uid, version)
	is := refusal{version: version, times: was.times + 1, alone: max(1, was.alone), at: time.Now(), why: Why(err), unknown: lost}
	if was.times > 0 && (lost || Refused(err) || r.made.After(was.at)) { // what is lost keeps others waiting
		is.alone++
	}
	lasts := settleTime
	if !is.unknown {
		lasts = pause(is.alone)
	}
	is.until = is.at.Add(lasts)
	r.set(uid, is)
	return is.times
}

// Settle finds out whether a write without an answer was made, when no API server works on it
// any more. The list is as etcd has it. Where it was made, it counts as made until the object is
// seen with its new version.
func (r *Refusals) Settle(ctx context.Context, uid types.UID, version, name string, in dynamic.ResourceInterface) {
	of := r.get(uid, version)
	if !of.unknown || time.Now().Before(of.until) {
		return
	}
	list, err := in.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	of.until = time.Now().Add(settleRetry)
	if err == nil && slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return u.GetUID() == uid && u.GetResourceVersion() == version }) {
		of.unknown, of.until = false, of.at.Add(pause(of.alone))
	}
	r.of[uid] = of
}

func (r *Refusals) get(uid types.UID, version string) refusal {
	if of := r.of[uid]; of.version == version {
		return of
	}
	return refusal{}
}

// Held tells whether nothing is to be written to an object.
func (r *Refusals) Held(uid types.UID, version string) bool {
	of := r.get(uid, version)
	return of.unknown || r.now.Before(of.until)
}

// Unknown tells whether a write without an answer counts as made, and since when.
func (r *Refusals) Unknown(uid types.UID, version string) (since time.Time, is bool) {
	of := r.get(uid, version)
	return of.at, of.unknown
}

// Until is when an object to which nothing is to be written is looked at again.
func (r *Refusals) Until(uid types.UID, version string) time.Time { return r.get(uid, version).until }

// Times is how often in a row an object was not changed, and Reason why it was not the last
// time.
func (r *Refusals) Times(uid types.UID, version string) int { return r.get(uid, version).times }

// Reason is the text of the last failure.
func (r *Refusals) Reason(uid types.UID, version string) string { return r.get(uid, version).why }
