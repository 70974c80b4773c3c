package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/reconcile"
)

// Evictor posts one eviction to the API server and returns the outcome.
type Evictor interface {
	Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer
}

// answerRequests approves or refuses the pending eviction requests for at most maxActTime.
func (r *Reconciler) answerRequests(ctx context.Context, s Settings, j *Judgement) Evaluation {
	now, server := time.Now(), r.serverTime()
	r.journal.prune(now, server, s, j)
	var asks []PendingRequest
	for _, a := range PendingRequests(now, s, j, r.journal.evaluatedAt) {
		if !answered(a.Request, r.journal.answers[a.Judged.Name]) {
			asks = append(asks, a)
		}
	}
	if len(asks) > 0 {
		r.countPods(ctx, now)
	}
	g := NewEvaluation(now, s, j, History{Own: r.journal.evictions, Answers: r.journal.answers, ServerTime: server, FirstSeen: r.journal.seen})
	g.Pods = r.journal.pods
	r.publishCommonCause(&g)
	r.logUnreadable(j, &s.Evictions)
	until := time.Now().Add(maxActTime) // after the count, which may have waited for the API server
	for _, a := range asks {
		if ctx.Err() != nil || time.Now().After(until) {
			break
		}
		if t := r.journal.node(a.Judged.Name); t.evalLimit.take(time.Now(), evalBurst, evalInterval) { // else the request stays pending
			r.answer(ctx, &g, a)
			t.evaluatedAt = time.Now()
		}
	}
	return g
}

// writeAllAnswers writes the answers into the agents' Leases. Those that it does not come to
// stay in the journal.
func (r *Reconciler) writeAllAnswers(ctx context.Context, s Settings, j *Judgement, until time.Time) {
	for _, a := range r.journal.unwritten(j) {
		if ctx.Err() != nil || time.Now().After(until) {
			return
		}
		r.writeAnswers(ctx, s, a)
	}
}

// serverTime is the API server's time.
func (r *Reconciler) serverTime() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock()
}

// answer evaluates one request, evicts, and records the answer.
func (r *Reconciler) answer(ctx context.Context, g *Evaluation, a PendingRequest) {
	ruling := g.Refuse(a)
	went := PastEviction{UID: a.UID, Node: a.Judged.Name, Zone: a.zone(), PastBrake: ruling.PastBrake}
	var given evict.Answer
	if ruling.Code == "" {
		pod, refused, err := r.checkPod(ctx, g, a)
		if err != nil {
			r.warnLimited(a.Judged.Name, "failed to evaluate eviction request; retrying", "pod", a.Namespace+"/"+a.Request.Name, "error", err)
			return // the request stays pending
		}
		if ruling = refused; ruling.Code == "" {
			if went.Owner = OwnerOf(pod); !r.recordIntent(ctx, g.Settings, a, went) {
				return
			}
			given = r.Evictor.Evict(ctx, victim(a.Request, pod, g.Settings.Evictions), a.DryRun)
			ruling = r.checkOutcome(a, given)
		}
	}
	code := ruling.Code
	r.counters.Change(func(c *Counts) { c.addDecision(code, given.Outcome) })
	answer := lease.Answer{UID: a.UID, Since: a.Since, Result: code.result(), Code: string(code), Reason: ruling.Why, At: lease.Micro(r.serverTime()), DryRun: a.DryRun}
	if code == "" {
		answer.Result, answer.Reason, ruling.RetryAfter = resultOf(given.Outcome), given.Text, given.RetryAfter
	}
	answer.RetryAfterSeconds = int((ruling.RetryAfter + time.Second - 1) / time.Second)
	answer.Reason = lease.Truncate(answer.Reason, lease.MaxReason)
	r.logAnswer(a, given.Outcome, &answer)
	if !a.DryRun {
		went.Time = time.Now()
		r.countEviction(g, went, given.Outcome)
	}
	if answer.Result == "" {
		return // outcome unknown: the request stays pending and is tried again
	}
	if isEviction(answer.Result) && !a.DryRun {
		answer.Owner, answer.PassedBrake = went.Owner, string(went.PastBrake)
	}
	r.recordAnswer(a, code, answer)
	r.journal.answers[a.Judged.Name] = append(r.journal.answers[a.Judged.Name], answer)
}

// unknownTimeout is for how long an eviction whose outcome is unknown is tried again while its
// request waits: then the API server has timed out the first try (its --request-timeout), and a
// pod that an admission webhook keeps must not hold up the other pods of its node.
const unknownTimeout = time.Minute

// checkOutcome refuses, for now, a pod whose eviction has had no definite answer for so long.
// The note in the Lease stays: it may have been evicted, so it counts.
func (r *Reconciler) checkOutcome(a PendingRequest, given evict.Answer) Decision {
	noted, is := r.journal.seen[a.UID]
	if given.Outcome != evict.UnknownOutcome || !is || time.Since(noted) < unknownTimeout {
		return Decision{}
	}
	return Decision{
		Code: CodeOutcomeUnknown, RetryAfter: maxRetryDelay,
		Why: fmt.Sprintf("its eviction has had no definite answer for %s; the last one: %s", time.Since(noted).Round(time.Second), given.Text),
	}
}

// checkPod reads the pod of a request and says why it is not evicted. What takes further
// requests comes last, only for a pod that would be evicted: whether its namespace is
// Velero's, and where its volumes can be used.
func (r *Reconciler) checkPod(ctx context.Context, g *Evaluation, a PendingRequest) (*corev1.Pod, Decision, error) {
	pod, err := r.getPod(ctx, a)
	if err != nil {
		return nil, Decision{}, err
	}
	ruling := g.RefusePod(a, pod)
	if ruling.Code == "" && r.IsVelero != nil {
		ruling = r.checkNamespace(ctx, pod.Namespace)
	}
	if ruling.Code == "" {
		ruling = checkVolumes(r.Volumes.Protections(ctx, pod, g.Settings.Protect))
	}
	return pod, ruling, nil
}

// namespaceTTL is how long it is used whether a namespace is a Velero's.
const namespaceTTL = time.Minute

// checkNamespace refuses a pod in the namespace of a Velero. Where it cannot be found out
// whether it is one, the request waits, and others of that namespace with it.
func (r *Reconciler) checkNamespace(ctx context.Context, name string) Decision {
	n := r.journal.namespaces[name]
	if !time.Now().Before(n.until) {
		kept := namespaceTTL
		if n.velero, n.err = r.IsVelero(ctx, name); n.err != nil {
			kept = maxRetryDelay
		}
		n.until = time.Now().Add(kept)
		r.journal.namespaces[name] = n
	}
	switch {
	case n.err != nil:
		return Decision{Code: CodeNamespaceUnknown, Why: fmt.Sprintf("cannot find out whether namespace %s is Velero's: %s", name, n.err), RetryAfter: maxRetryDelay}
	case n.velero:
		return protected([]pods.Protection{{Code: pods.Namespace, Why: "namespace " + name + " is protected: it has a Backup or a data mover load, so it is Velero's"}})
	}
	return Decision{}
}

// logAnswer logs an answer: evictions always, other answers within the node's
// log rate limit.
func (r *Reconciler) logAnswer(a PendingRequest, outcome evict.Outcome, answer *lease.Answer) {
	level := slog.LevelInfo
	unsaid, said := 0, (outcome == evict.Evicted || outcome == evict.InProgress) && !a.DryRun
	if !said {
		if unsaid, said = r.allowLog(a.Judged.Name); !said {
			level = slog.LevelDebug
		}
	}
	r.Log.Log(context.Background(), level, "answered eviction request", "node", a.Node.Name, "pod", a.Namespace+"/"+a.Request.Name, "uid", a.UID, "plugin", a.Plugin,
		"dryRun", a.DryRun, "outcome", outcome, "result", answer.Result, "code", answer.Code, "reason", answer.Reason, "past", answer.PassedBrake, "unlogged", unsaid)
}

// allowLog takes a token of the node's log rate limit, and returns how many lines
// were suppressed since the last one logged.
func (r *Reconciler) allowLog(node string) (unsaid int, may bool) {
	t := r.journal.node(node)
	if !t.logLimit.take(time.Now(), logBurst, logInterval) {
		t.suppressed++
		return 0, false
	}
	unsaid, t.suppressed = t.suppressed, 0
	return unsaid, true
}

// warnLimited logs a problem of a node within the node's log rate limit.
func (r *Reconciler) warnLimited(node, message string, facts ...any) {
	level := slog.LevelWarn
	unsaid, may := r.allowLog(node)
	if !may {
		level = slog.LevelDebug
	}
	r.Log.Log(context.Background(), level, message, append([]any{"node", node, "unlogged", unsaid}, facts...)...) //nolint:sloglint // each caller's is constant
}

// logUnreadable logs that the annotations of a Lease cannot be read, once for each
// distinct error.
func (r *Reconciler) logUnreadable(j *Judgement, e *Evictions) {
	for i := range j.Agents {
		a := &j.Agents[i]
		problem := ""
		if a.ParseErr != nil {
			problem = a.ParseErr.Error()
		}
		if t := r.journal.nodes[a.Name]; t == nil && problem == "" || t != nil && t.problem == problem {
			continue
		}
		r.journal.node(a.Name).problem = problem
		switch {
		case problem == "":
		case a.UnreadableSince.IsZero():
			r.warnLimited(a.Name, "cannot read annotations of agent's Lease; refusing its eviction requests", "error", problem)
		default:
			r.warnLimited(a.Name, "cannot read which pods of the node were evicted; leaving this in its Lease and its eviction requests unanswered until none of these evictions counts any more; to end this now, delete the Lease: its agent makes a new one",
				"namespace", lease.Namespace, "wait", e.countedPast(BrakeCommon), "error", problem)
		}
	}
}

// recordIntent records the eviction in the Lease before it is posted (write-ahead): the
// next leader counts it even if this one ends before the answer is written. It is
// false when the Lease cannot be written or the request was withdrawn.
func (r *Reconciler) recordIntent(ctx context.Context, s Settings, a PendingRequest, w PastEviction) bool {
	if stands := r.stillRequested(ctx, a); a.DryRun || !stands {
		return stands
	}
	node := a.Judged.Name
	before := r.journal.answers[node]
	r.journal.answers[node] = append(slices.Clip(before), lease.Answer{UID: a.UID, Owner: w.Owner, Result: lease.Accepted, PassedBrake: string(w.PastBrake), At: lease.Micro(r.serverTime())})
	if r.writeAnswers(ctx, s, a.Judged) {
		return true
	}
	r.journal.answers[node] = before
	return false
}

// mayHaveEvicted tells whether an eviction with this outcome counts: the pod ends, or may.
func mayHaveEvicted(o evict.Outcome) bool {
	return o == evict.Evicted || o == evict.InProgress || o == evict.UnknownOutcome
}

// isDefinite tells whether the API server's answer says whether the pod is evicted. NotFound
// does not: an earlier try may have evicted it.
func isDefinite(o evict.Outcome) bool {
	return o == evict.Evicted || o == evict.InProgress || o == evict.Blocked || o == evict.Refused
}

// countEviction counts an evicted pod against the cluster eviction limit, once. While the
// outcome is unknown it counts from the first try; a definite answer takes the place of that.
func (r *Reconciler) countEviction(g *Evaluation, w PastEviction, o evict.Outcome) {
	if isDefinite(o) {
		unknown := func(p PastEviction) bool { return p.UID == w.UID && p.Unknown }
		r.journal.evictions, g.PastEvictions = slices.DeleteFunc(r.journal.evictions, unknown), slices.DeleteFunc(g.PastEvictions, unknown)
	}
	if !mayHaveEvicted(o) || slices.ContainsFunc(g.PastEvictions, func(p PastEviction) bool { return p.UID == w.UID }) {
		return
	}
	w.Unknown = o == evict.UnknownOutcome
	r.journal.evictions, g.PastEvictions = append(r.journal.evictions, w), append(g.PastEvictions, w)
}

// resultOf is the result that the agent is told; empty: outcome unknown.
func resultOf(o evict.Outcome) lease.Result {
	switch o {
	case evict.Evicted:
		return lease.Accepted
	case evict.InProgress:
		return lease.InProgress
	case evict.NotFound:
		return lease.Gone
	case evict.Blocked:
		return lease.Blocked
	case evict.Refused:
		return lease.Refused
	case evict.UnknownOutcome, evict.Braked: // the API server has no brake
	}
	return ""
}

// victim is the pod with its termination grace: that of the request, else the
// pod's own, within the bounds of the cluster. The agent's own check is not
// trusted. It is 0 only where the plugin requests that and is allowed to.
func victim(r lease.Request, pod *corev1.Pod, e Evictions) evict.Victim {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case r.GraceSeconds != nil:
		grace = *r.GraceSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if r.GraceSeconds == nil || grace != 0 || !slices.Contains(e.ForceGraceZero, r.Plugin) {
		grace = max(1, min(grace, int64(e.MaxGrace/time.Second)))
	}
	return evict.Victim{UID: r.UID, Namespace: r.Namespace, Name: r.Name, GraceSeconds: grace}
}

// stillRequested reads the Lease anew and tells whether the request is still in it.
func (r *Reconciler) stillRequested(ctx context.Context, a PendingRequest) bool {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	l, err := r.Leases.Leases(lease.Namespace).Get(ctx, a.Judged.Name, metav1.GetOptions{})
	if err != nil {
		r.warnLimited(a.Judged.Name, "failed to evaluate eviction request; retrying", "pod", a.Namespace+"/"+a.Request.Name, "error", fmt.Errorf("read the lease: %w", err))
		return false
	}
	carried, err := lease.ReadContent(l.Annotations)
	return err == nil && slices.ContainsFunc(carried.Requests, func(o lease.Request) bool { return answered(o, []lease.Answer{{UID: a.UID, Since: a.Since}}) })
}

// getPod reads the pod from the API server; nil: it does not exist.
func (r *Reconciler) getPod(ctx context.Context, a PendingRequest) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
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

// podCountTTL is how long the count of the cluster's pods is reused, also where counting
// them again failed.
const podCountTTL = time.Minute

// countPods counts the pods of the cluster: a list with limit 1 returns the number of
// remaining ones.
func (r *Reconciler) countPods(ctx context.Context, now time.Time) {
	if now.Sub(r.journal.countedAt) < podCountTTL {
		return
	}
	r.journal.countedAt = now // a failure costs the call's timeout, so it is not repeated in each round either
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	list, err := r.Pods.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		r.Log.Warn("failed to count pods of the cluster; keeping the last count", "retryIn", podCountTTL, "error", err)
		return
	}
	r.journal.pods = len(list.Items)
	if list.RemainingItemCount != nil {
		r.journal.pods += int(*list.RemainingItemCount)
	}
}

// writeAnswers puts the answers into the Lease unless it has them; false: the write
// failed, or would replace answers that must be kept.
func (r *Reconciler) writeAnswers(ctx context.Context, s Settings, a *Judged) bool {
	if a.mustKeepAnswers(time.Now(), &s.Evictions) {
		return false
	}
	text, err := json.Marshal(Answers(r.serverTime(), s, a.Carried, r.journal.answers[a.Name]))
	if err == nil && string(text) == a.Lease.Annotations[lease.AnswersAnnotation] {
		delete(r.journal.answers, a.Name) // the Lease has them
		return true
	}
	if err == nil {
		err = r.patchAnswers(ctx, a.Name, string(text))
	}
	t := r.journal.node(a.Name)
	t.writtenAt, t.writeFailed = time.Now(), err != nil
	if err != nil && ctx.Err() == nil {
		r.warnLimited(a.Name, "failed to write answer to agent's Lease; retrying", "error", err)
	}
	return err == nil
}

func (r *Reconciler) patchAnswers(ctx context.Context, node, granted string) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{lease.AnswersAnnotation: granted}}})
	if err == nil {
		_, err = r.Leases.Leases(lease.Namespace).Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{FieldManager: reconcile.FieldManager})
	}
	return err
}

// publishCommonCause logs and publishes that a common cause began or ended.
func (r *Reconciler) publishCommonCause(g *Evaluation) {
	var common, texts []string
	for _, resource := range g.Common() {
		common = append(common, resource)
		name, _, _ := strings.Cut(resource, " ")
		texts = append(texts, fmt.Sprintf("common cause: %d of %d nodes have pressure on %s (%d hard); evictions for %s are braked", g.Pressed.Resources[name], g.Agents, name, g.Hard.Resources[name], resource))
	}
	for _, plugin := range g.CommonPlugins() {
		common = append(common, "plugin "+plugin)
		name, _, _ := strings.Cut(plugin, " ")
		texts = append(texts, fmt.Sprintf("common cause: %d of %d nodes have pressure reported by plugin %s; its eviction requests are refused", g.Pressed.Plugins[name], g.Agents, plugin))
	}
	if slices.Equal(common, r.journal.common) || !r.journal.commonLimit.take(g.Time, logBurst, logInterval) {
		return
	}
	r.journal.common = common
	if len(common) == 0 {
		r.Log.Info("common cause ended")
		return
	}
	text := strings.Join(texts, "; ")
	r.Log.Warn("common cause found", "reason", text)
	r.Events.Event(r.About, corev1.EventTypeWarning, ReasonCommon, text)
}

// maxAnswered bounds the answers that are shown, and maxOfNode those of one node, so
// that a node with many requests does not displace the others.
const (
	maxAnswered = 100
	maxOfNode   = 20
)

// recordAnswer adds an answer to those that are shown.
func (r *Reconciler) recordAnswer(a PendingRequest, code Code, answer lease.Answer) {
	of := 1
	r.answered = slices.DeleteFunc(r.answered, func(o Answered) bool {
		if o.Node == a.Judged.Name {
			of++
		}
		return o.Node == a.Judged.Name && of > maxOfNode
	})
	list := append([]Answered{{
		Time: answer.At.UTC(), Node: a.Judged.Name, Pod: a.Namespace + "/" + a.Request.Name, Plugin: a.Plugin, RequestReason: a.Request.Reason,
		Result: answer.Result, Code: code, Reason: answer.Reason, DryRun: a.DryRun,
	}}, r.answered...)
	r.answered = list[:min(len(list), maxAnswered)]
}
