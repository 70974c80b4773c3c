package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// Evictor asks the API server for one eviction and says what it answered.
type Evictor interface {
	Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer
}

// book is what this leader did, until the Leases say it.
type book struct {
	went    []Went
	answers map[string][]lease.Answer // by node
	counted time.Time                 // when the pods were counted
	pods    int
	common  []string // the pressures with a common cause that were told
}

// prune what counts no more.
func (b *book) prune(now time.Time, keep time.Duration) {
	b.went = slices.DeleteFunc(b.went, func(w Went) bool { return now.Sub(w.Time) >= keep })
	for node, list := range b.answers {
		if list = slices.DeleteFunc(list, func(a lease.Answer) bool { return now.Sub(a.At.Time) >= keep }); len(list) == 0 {
			delete(b.answers, node)
		} else {
			b.answers[node] = list
		}
	}
}

// grant or refuse what agents ask for, and write the answers.
func (r *Reconciler) grant(ctx context.Context, j *Judgement, until time.Time) Grounds {
	now, s := time.Now(), r.Settings()
	r.book.prune(now, max(s.Evictions.Per, s.Evictions.PerOwner))
	var asks []Ask
	for _, a := range Asks(now, s, j) {
		if !answered(a.Request, r.book.answers[a.Judged.Name]) {
			asks = append(asks, a)
		}
	}
	if len(asks) > 0 {
		r.count(ctx, now)
	}
	g := NewGrounds(now, s, j, r.book.went)
	g.Pods = r.book.pods
	r.tellCommon(&g)
	for _, a := range asks {
		if ctx.Err() != nil || time.Now().After(until) {
			break
		}
		r.answer(ctx, &g, a)
	}
	for i := range j.Agents {
		if a := &j.Agents[i]; len(r.book.answers[a.Name]) > 0 && a.Lease != nil {
			r.write(ctx, now, a)
		}
	}
	return g
}

// answer one request.
func (r *Reconciler) answer(ctx context.Context, g *Grounds, a Ask) {
	code, why := g.Refuse(a)
	owner := ""
	var given evict.Answer
	if code == "" {
		pod, err := r.pod(ctx, a)
		if err != nil {
			r.Log.Warn("an eviction is not judged", "pod", a.Namespace+"/"+a.Request.Name, "node", a.Node.Name, "error", err)
			return // it is asked for still
		}
		if code, why = g.RefusePod(a, pod); code == "" {
			if owner = OwnerOf(pod); !r.note(ctx, a, owner) {
				return
			}
			given = r.Evictor.Evict(ctx, victim(a, pod), a.DryRun)
		}
	}
	r.tally.judged(code, given.Outcome)
	answer := lease.Answer{UID: a.UID, Since: a.Since, Result: code.result(), Code: string(code), Reason: why, At: lease.Micro(time.Now())}
	if code == "" {
		answer.Result, answer.Reason = resultOf(given.Outcome), given.Text
	}
	r.Log.Info("answered an agent", "node", a.Node.Name, "pod", a.Namespace+"/"+a.Request.Name, "uid", a.UID, "plugin", a.Plugin,
		"dryRun", a.DryRun, "outcome", given.Outcome, "result", answer.Result, "code", code, "reason", answer.Reason)
	if (given.Outcome == evict.Evicted || given.Outcome == evict.Unanswered) && !a.DryRun {
		r.spend(g, Went{UID: a.UID, Owner: owner, Time: time.Now()})
	}
	if answer.Result == "" {
		return // nobody knows: it is asked for again while the agent wants it
	}
	if answer.Result == lease.Accepted && !a.DryRun {
		answer.Owner = owner
	}
	r.decided(a, code, answer)
	r.book.answers[a.Judged.Name] = append(r.book.answers[a.Judged.Name], answer)
}

// note in the Lease that a pod may go, before it is asked for: whoever leads next
// counts it, also where it is gone by then and nobody has said so. False: it
// cannot be written, or the request was withdrawn meanwhile.
func (r *Reconciler) note(ctx context.Context, a Ask, owner string) bool {
	if stands := r.stands(ctx, a); a.DryRun || !stands {
		return stands
	}
	now, node := time.Now(), a.Judged.Name
	before := r.book.answers[node]
	r.book.answers[node] = append(slices.Clip(before), lease.Answer{UID: a.UID, Owner: owner, Result: lease.Accepted, At: lease.Micro(now)})
	if r.write(ctx, now, a.Judged) {
		return true
	}
	r.book.answers[node] = before
	return false
}

// spend a budget for a pod, once.
func (r *Reconciler) spend(g *Grounds, w Went) {
	if slices.ContainsFunc(g.Went, func(o Went) bool { return o.UID == w.UID }) {
		return
	}
	r.book.went, g.Went = append(r.book.went, w), append(g.Went, w)
}

// resultOf an outcome; empty where nobody knows.
func resultOf(o evict.Outcome) lease.Result {
	switch o {
	case evict.Evicted:
		return lease.Accepted
	case evict.Gone:
		return lease.Gone
	case evict.Blocked:
		return lease.Blocked
	case evict.Refused:
		return lease.Refused
	case evict.Unanswered:
	}
	return ""
}

// victim that goes with the grace of the request, or with the pod's own.
func victim(a Ask, pod *corev1.Pod) evict.Victim {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case a.GraceSeconds != nil:
		grace = max(0, *a.GraceSeconds)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	return evict.Victim{UID: a.UID, Namespace: a.Namespace, Name: a.Request.Name, GraceSeconds: grace}
}

// stands: the Lease, as it is now, asks for it still.
func (r *Reconciler) stands(ctx context.Context, a Ask) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l, err := r.Leases.Leases(lease.Namespace).Get(ctx, a.Judged.Name, metav1.GetOptions{})
	if err != nil {
		r.Log.Warn("an eviction is not judged", "pod", a.Namespace+"/"+a.Request.Name, "node", a.Node.Name, "error", fmt.Errorf("read the lease: %w", err))
		return false
	}
	carried, err := lease.ReadCarried(l.Annotations)
	return err == nil && slices.ContainsFunc(carried.Requests, func(o lease.Request) bool { return answered(o, []lease.Answer{{UID: a.UID, Since: a.Since}}) })
}

// pod as the API server has it now; nil: there is none.
func (r *Reconciler) pod(ctx context.Context, a Ask) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod, err := r.Pods.Pods(a.Namespace).Get(ctx, a.Request.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	return pod, nil
}

// countEvery is how old the number of the cluster's pods may be.
const countEvery = time.Minute

// count the pods of the cluster: a list of one says how many more there are.
func (r *Reconciler) count(ctx context.Context, now time.Time) {
	if now.Sub(r.book.counted) < countEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := r.Pods.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		r.Log.Warn("the pods of the cluster are not counted", "error", err)
		return
	}
	r.book.counted, r.book.pods = now, len(list.Items)
	if list.RemainingItemCount != nil {
		r.book.pods += int(*list.RemainingItemCount)
	}
}

// write the answers into the Lease, when it does not have them; false: it could
// not be.
func (r *Reconciler) write(ctx context.Context, now time.Time, a *Judged) bool {
	text, err := json.Marshal(Answers(now, r.Settings(), a.Carried, r.book.answers[a.Name]))
	if err == nil && string(text) == a.Lease.Annotations[lease.GrantedAnnotation] {
		delete(r.book.answers, a.Name) // the Lease says it
		return true
	}
	if err == nil {
		err = r.patch(ctx, a.Name, string(text))
	}
	if err != nil && ctx.Err() == nil {
		r.Log.Warn("an answer is not written", "node", a.Name, "error", err)
	}
	return err == nil
}

func (r *Reconciler) patch(ctx context.Context, node, granted string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{lease.GrantedAnnotation: granted}}})
	if err == nil {
		_, err = r.Leases.Leases(lease.Namespace).Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	}
	return err
}

// tellCommon says that a common cause begins or ends.
func (r *Reconciler) tellCommon(g *Grounds) {
	var common, texts []string
	for _, resource := range g.Common() {
		common = append(common, resource)
		texts = append(texts, fmt.Sprintf("%d of %d nodes have pressure on %s: a common cause, no eviction is granted", g.Pressed[resource], g.Agents, resource))
	}
	for _, plugin := range g.CommonPlugins() {
		common = append(common, "plugin "+plugin)
		texts = append(texts, fmt.Sprintf("%d of %d nodes have pressure, says plugin %s: a common cause, nothing is granted that it asks for", g.Plugins[plugin], g.Agents, plugin))
	}
	if slices.Equal(common, r.book.common) {
		return
	}
	r.book.common = common
	if len(common) == 0 {
		r.Log.Info("no pressure has a common cause any more")
		return
	}
	text := strings.Join(texts, "; ")
	r.Log.Warn("no eviction is granted", "reason", text)
	r.Events.Event(r.About, corev1.EventTypeWarning, ReasonCommon, text)
}
