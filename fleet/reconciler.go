package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/mirror"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// fieldManager of what is written.
const fieldManager = "plimsoll-controller"

// Events are said about Nodes: client-go's record.EventRecorder. They may be
// dropped and must not block.
type Events interface {
	Event(about runtime.Object, kind, reason, message string)
}

// Reasons of Events.
const (
	ReasonSilent = "PlimsollAgentSilent"
	ReasonBack   = "PlimsollAgentBack"
	ReasonLifted = "PlimsollTaintsLifted"
	ReasonBlind  = "PlimsollAgentsNotHeard"
	ReasonCommon = "PlimsollCommonCause"
)

// Reconciler watches the agents' heartbeats and acts as Judge says. It is
// level-triggered: it looks at all that is known, decides, and does what is
// still to be done.
type Reconciler struct {
	Nodes  corev1client.NodesGetter
	Leases coordinationv1client.LeasesGetter
	Pods   corev1client.PodsGetter
	// Volumes tells which pods their volumes bind to their node.
	Volumes pods.Volumes
	// Evictor posts what is granted.
	Evictor Evictor
	// Clock is the API server's (Clock.Now); nil: this machine's.
	Clock func() time.Time
	// Settings in force; asked at each look.
	Settings func() Settings
	Events   Events
	// About is what Events of the whole fleet are said of.
	About *corev1.ObjectReference
	Log   *slog.Logger

	report atomic.Pointer[Report]
	tally  Tally

	// Of Run alone.
	sight    *sight
	memory   Memory
	book     book
	answered []Answered
}

// lookEvery is how often it is looked: with one write after it, an agent is
// noticed within 2 s.
const lookEvery = time.Second

// lookLeast is the time between two looks when agents ask for something.
const lookLeast = 100 * time.Millisecond

// Run until ctx is done. The clocks begin with it.
func (r *Reconciler) Run(ctx context.Context) error {
	r.begin()
	var watches sync.WaitGroup
	watches.Go(func() { mirror.Run(ctx, r.sight.nodes.name, &r.sight.nodes, r.Nodes.Nodes(), "") })
	watches.Go(func() { mirror.Run(ctx, r.sight.leases.name, &r.sight.leases, r.Leases.Leases(lease.Namespace), "") })
	defer watches.Wait()
	defer r.report.Store(nil)
	for {
		if r.sight.synced() && r.Settings().Enabled {
			r.look(ctx)
		}
		if !r.wait(ctx) {
			return nil
		}
	}
}

// begin without a memory.
func (r *Reconciler) begin() {
	r.sight, r.memory, r.book, r.answered = newSight(), Memory{}, newBook(), []Answered{}
}

// wait for the next look: until it is time, or an agent asks for something. It
// is false when ctx is done.
func (r *Reconciler) wait(ctx context.Context) bool {
	soonest, latest := time.NewTimer(lookLeast), time.NewTimer(lookEvery)
	defer soonest.Stop()
	defer latest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soonest.C: // thousands may ask at once
	}
	select {
	case <-ctx.Done():
		return false
	case <-latest.C:
	case <-r.sight.asked:
	}
	return true
}

// look at all that is known, and do what is to be done.
func (r *Reconciler) look(ctx context.Context) {
	now := time.Now()
	j := Judge(Sighting{Time: now, Settings: r.Settings(), Agents: r.sight.all(), Memory: r.memory})
	r.tell(&j)
	r.memory = j.Memory
	r.act(ctx, &j, now.Add(actFor))
	g := r.grant(ctx, &j, time.Now().Add(actFor))
	r.report.Store(newReport(&j, &g, r.answered))
}

// actFor so long is acted before the next look, about silent agents and about
// requests each: who comes back meanwhile must not wait for a long list.
const actFor = 500 * time.Millisecond

func (r *Reconciler) act(ctx context.Context, j *Judgement, until time.Time) {
	for i := range j.Agents {
		if ctx.Err() != nil || time.Now().After(until) {
			return
		}
		switch a := &j.Agents[i]; { // one at a time: the first changes what the second was decided by
		case a.Mark:
			r.tried(ctx, a, actMark, r.mark(ctx, a))
		case a.Lift:
			r.tried(ctx, a, actLift, r.lift(ctx, a))
		}
	}
}

// errAlive: the agent was heard where it was looked at closely.
var errAlive = errors.New("agent is alive: its heartbeat is newer than the cached one")

// tried: who was heard, or is another by now, is looked at again anyway.
func (r *Reconciler) tried(ctx context.Context, a *Judged, act string, err error) {
	switch {
	case err == nil:
		r.tally.acted(act)
	case ctx.Err() != nil:
	case errors.Is(err, errAlive), apierrors.IsNotFound(err), evict.IsStale(err):
		r.Log.Info("skipped action on silent agent", "node", a.Name, "act", act, "reason", err)
	default:
		r.tally.acted(actFailed)
		r.Log.Warn("failed to act on silent agent; retrying", "node", a.Name, "act", act, "error", err)
	}
}

// callTimeout bounds each call to the API server.
const callTimeout = 5 * time.Second

// mark makes the conditions Unknown. What was seen may be old: the Lease and
// the Node are read anew, and nothing is written when they say that the agent
// lives.
func (r *Reconciler) mark(ctx context.Context, a *Judged) error {
	node, err := r.closely(ctx, a)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("No heartbeat of the agent for %s.", r.Settings().Grace)
	return lease.MakeUnknown(ctx, r.Nodes, node, message)
}

// closely reads the Node as it is now, and fails when the agent gave a sign of
// life that was not seen.
func (r *Reconciler) closely(ctx context.Context, a *Judged) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if a.Lease != nil {
		l, err := r.Leases.Leases(lease.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the lease: %w", err)
		}
		if !l.Spec.RenewTime.Equal(a.Lease.Spec.RenewTime) {
			return nil, errAlive
		}
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

// lift takes the agent's taints away, and only those, if the Node is still as
// it was seen.
func (r *Reconciler) lift(ctx context.Context, a *Judged) error {
	patch, some := evict.LiftPatch(a.Node)
	if !some {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := r.Nodes.Nodes().Patch(ctx, a.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("remove taints of node %s: %w", a.Name, err)
	}
	r.Log.Info("removed taints of silent agent", "node", a.Name, "silence", a.Silence.Round(time.Second))
	r.Events.Event(nodeRef(a.Agent), corev1.EventTypeNormal, ReasonLifted, a.Why)
	return nil
}

func nodeRef(a *Agent) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.Name, UID: a.Node.UID}
}
