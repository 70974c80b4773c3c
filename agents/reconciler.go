package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/reconcile"
	"github.com/plimsoll-dev/plimsoll/store"
)

// Reasons of Events.
const (
	ReasonSilent           = "PlimsollAgentSilent"
	ReasonHeartbeatResumed = "PlimsollAgentHeartbeatResumed"
	ReasonTaintsRemoved    = "PlimsollTaintsRemoved"
	ReasonFullDisruption   = "PlimsollFullDisruption"
	ReasonCommon           = "PlimsollCommonCause"
)

// Reconciler watches the agents' heartbeats and acts as Judge decides. It is
// level-triggered: each round observes everything, decides, and does what remains to
// be done.
type Reconciler struct {
	Nodes  corev1client.NodesGetter
	Leases coordinationv1client.LeasesGetter
	Pods   corev1client.PodsGetter
	// Volumes tells which pods are bound to their node by a volume.
	Volumes pods.VolumeResolver
	// IsVelero tells whether a namespace is that of a Velero, whose pods are never evicted,
	// whatever Settings.Protect lists; nil: no namespace is.
	IsVelero func(ctx context.Context, namespace string) (bool, error)
	// Evictor posts approved evictions.
	Evictor Evictor
	// Clock is the API server's time (Clock.Now); nil: this machine's.
	Clock func() time.Time
	// Settings in force; read once in each round, which is its pulse.
	Settings func() Settings
	Events   reconcile.Events
	// About is the object of Events that concern all agents.
	About *corev1.ObjectReference
	Log   *slog.Logger

	loop     reconcile.Loop[*Report]
	counters counters.Group[Counts]

	// Owned by Run's goroutine.
	cache    *agentCache
	state    JudgeState
	journal  journal
	answered []Answered
}

// reconcileInterval is the interval of rounds: with one write after it, a returning agent is
// noticed within 2 s.
const reconcileInterval = time.Second

// reconcileDebounce is the shortest time between two rounds, however many agents send
// requests (debounce).
const reconcileDebounce = 100 * time.Millisecond

// Report of the last round; nil before the first, while the agents are not watched
// (Settings.Enabled), and where another replica is the leader.
func (r *Reconciler) Report() *Report { return r.loop.Report() }

// Decided tells whether this replica, as the leader, has decided about all there is.
func (r *Reconciler) Decided() bool { return r.loop.Published() }

// Counts of actions and refusals.
func (r *Reconciler) Counts() Counts { return r.counters.Counts() }

// Run reconciles until ctx is done. All timeouts start with it.
func (r *Reconciler) Run(ctx context.Context) error {
	r.reset()
	r.loop.Watch(func() { store.Run(ctx, r.cache.nodes, r.Nodes.Nodes(), "") })
	r.loop.Watch(func() { store.Run(ctx, r.cache.leases, r.Leases.Leases(lease.Namespace), "") })
	r.loop.Run(ctx, r.cache.wake, func(ctx context.Context) reconcile.Pause {
		r.round(ctx)
		return reconcile.Pause{Shortest: reconcileDebounce, Longest: reconcileInterval}
	})
	return nil
}

// reset resets the state of an earlier term.
func (r *Reconciler) reset() {
	r.cache, r.state, r.journal, r.answered = newAgentCache(), JudgeState{}, newJournal(), []Answered{}
}

// round reconciles if the agents are watched, and withdraws the report if they are not.
func (r *Reconciler) round(ctx context.Context) {
	switch s := r.Settings(); {
	case !s.Enabled:
		r.loop.Publish(nil)
	case r.cache.synced():
		r.reconcile(ctx, s)
	}
}

// reconcile is one round: observe, judge, act, answer requests, report.
func (r *Reconciler) reconcile(ctx context.Context, s Settings) {
	now := time.Now()
	j := Judge(Observation{Time: now, Settings: s, Agents: r.cache.list(), Previous: r.state})
	r.publishChanges(&j)
	r.act(ctx, s, &j, now.Add(maxActTime))
	r.state = j.Next
	g := r.answerRequests(ctx, s, &j)
	r.writeAllAnswers(ctx, s, &j, time.Now().Add(maxActTime))
	r.loop.Publish(newReport(&j, &g, r.answered))
}

// publishChanges logs full disruptions and heartbeats that resumed, and publishes them as
// Events.
func (r *Reconciler) publishChanges(j *Judgement) {
	if j.FullDisruption != r.state.FullDisruption {
		r.publishDisruption(j)
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		_, was := r.state.Silent[a.Name]
		if _, is := j.Next.Silent[a.Name]; was && !is {
			r.Log.Info("agent's heartbeat resumed", "node", a.Name)
			r.Events.Event(nodeRef(a.Agent), corev1.EventTypeNormal, ReasonHeartbeatResumed, "the agent's heartbeat resumed")
		}
	}
}

func (r *Reconciler) publishDisruption(j *Judgement) {
	if !j.FullDisruption {
		r.Log.Info("full disruption ended", "late", j.Late, "of", j.Total)
		return
	}
	r.Log.Warn("full disruption: too many agents are late or silent; changing no condition or taint and refusing evictions; check the controller's connection to the API server", "late", j.Late, "of", j.Total)
	r.Events.Event(r.About, corev1.EventTypeWarning, ReasonFullDisruption,
		fmt.Sprintf("full disruption: %d of %d agents are late or silent, so the controller suspects its own connection; it changes no condition or taint and refuses evictions", j.Late, j.Total))
}

// maxActTime bounds a round's time for silent agents, for requests and for the writes of
// their answers, each, so that a long list does not delay noticing agents that return.
const maxActTime = 500 * time.Millisecond

// actRetry is how long an act on a silent agent waits after it failed: it may have taken
// all of a round's time, in which others have their turn.
const actRetry = 5 * time.Second

// act declares agents silent, marks and lifts. A silence that it did not come to, or could
// not confirm, is judged anew in the next round.
func (r *Reconciler) act(ctx context.Context, s Settings, j *Judgement, until time.Time) {
	for i := range j.Agents {
		if ctx.Err() != nil || time.Now().After(until) {
			break
		}
		switch a := &j.Agents[i]; { // one write a round: it changes what the other was decided by
		case r.journal.actsAt(a.Name).After(time.Now()):
		case a.SetUnknown:
			r.recordAct(ctx, a, actMark, r.markUnknown(ctx, s, a))
		case a.RemoveTaints:
			r.recordAct(ctx, a, actLift, r.removeTaints(ctx, s, a))
		case a.Declare:
			if _, err := r.confirm(ctx, s, a); err != nil {
				r.recordAct(ctx, a, "declare", err)
			}
		}
	}
	for i := range j.Agents {
		if j.Agents[i].Declare {
			delete(j.Next.Silent, j.Agents[i].Name)
		}
	}
}

// Reading anew showed what the cache did not have.
var (
	errAlive    = errors.New("agent is alive: its heartbeat is newer than the cached one")
	errNotReady = errors.New("the node's Ready condition is no longer True")
)

// recordAct records the result of an act. An agent with a heartbeat, or a changed
// object, is judged anew in the next round anyway.
func (r *Reconciler) recordAct(ctx context.Context, a *Judged, act string, err error) {
	switch {
	case err == nil:
		r.counters.Change(func(c *Counts) { c.Acts.Add(act) })
	case ctx.Err() != nil: // the term is over: whether it was written is not known
		r.counters.Change(func(c *Counts) { c.Acts.Add(actFailed) })
	case errors.Is(err, errAlive), errors.Is(err, errNotReady), apierrors.IsNotFound(err), kube.IsConflict(err):
		r.Log.Info("left a silent agent alone: it renewed its Lease, or its Node or Lease changed; judging it again in the next round", "node", a.Name, "act", act, "reason", err)
	default:
		r.counters.Change(func(c *Counts) { c.Acts.Add(actFailed) })
		r.journal.node(a.Name).actsAt = time.Now().Add(actRetry)
		r.warnLimited(a.Name, "failed to act on silent agent; retrying", "act", act, "retryIn", actRetry, "error", err)
	}
}

// confirm returns the Node of a silent agent, and declares its silence if that is new. The
// cache may be stale, so Lease and Node are read anew first: nothing is told or written when
// they show a heartbeat.
func (r *Reconciler) confirm(ctx context.Context, s Settings, a *Judged) (*corev1.Node, error) {
	node, err := r.readFresh(ctx, a)
	switch {
	case errors.Is(err, errAlive):
		r.cache.recordHeartbeat(a.Name, time.Now())
	case err == nil && a.Declare:
		a.Declare = false
		r.Log.Warn("agent is silent; see the log of its pod or unit for why its heartbeats do not arrive", "node", a.Name, "silence", a.Silence.Round(time.Millisecond))
		r.Events.Event(nodeRef(a.Agent), corev1.EventTypeWarning, ReasonSilent,
			fmt.Sprintf("no heartbeat for %s: the agent's conditions become Unknown, its taints stay for at least %s; see the log of the agent's pod or unit on this node", a.Silence.Round(time.Second), s.TaintsStay))
	}
	return node, err
}

// markUnknown sets the agent's conditions to Unknown.
func (r *Reconciler) markUnknown(ctx context.Context, s Settings, a *Judged) error {
	node, err := r.confirm(ctx, s, a)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("No heartbeat of the agent for %s.", s.Grace)
	return lease.SetUnknown(ctx, r.Nodes, node, message)
}

// readFresh reads Lease and Node from the API server and fails with errAlive when they
// have a heartbeat that was not seen.
func (r *Reconciler) readFresh(ctx context.Context, a *Judged) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	l, err := r.Leases.Leases(lease.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case a.renewTime() == nil && apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("read the lease: %w", err)
	case !l.Spec.RenewTime.Equal(a.renewTime()):
		return nil, errAlive
	}
	node, err := r.Nodes.Nodes().Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the node: %w", err)
	}
	if node.UID != a.Node.UID || !lease.LastHeartbeat(node.Status.Conditions).Equal(lease.LastHeartbeat(a.Node.Status.Conditions)) {
		return nil, errAlive
	}
	return node, nil
}

// removeTaints removes the agent's taints, and only those, if the Node is unchanged since it
// was read anew (optimistic concurrency by the tests of the JSON patch).
func (r *Reconciler) removeTaints(ctx context.Context, s Settings, a *Judged) error {
	node, err := r.confirm(ctx, s, a)
	if err != nil {
		return err
	}
	if is := (&Agent{Node: node}); is.readyStatus() != corev1.ConditionTrue {
		return errNotReady
	}
	patch, some := kube.RemovalPatch(node)
	if !some {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.CallTimeout)
	defer cancel()
	if _, err := r.Nodes.Nodes().Patch(ctx, a.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: reconcile.FieldManager}); err != nil {
		return fmt.Errorf("remove taints of node %s: %w", a.Name, err)
	}
	r.Log.Info("removed taints of silent agent", "node", a.Name, "silence", a.Silence.Round(time.Second))
	r.Events.Event(nodeRef(a.Agent), corev1.EventTypeNormal, ReasonTaintsRemoved, a.Why)
	return nil
}

func nodeRef(a *Agent) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.Name, UID: a.Node.UID}
}
