package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/agents/client"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// nodeLeaseNamespace is the namespace of the Nodes' own Leases, which kubelets renew.
const nodeLeaseNamespace = "kube-node-lease"

// heartbeat renews one Lease, the agent's own or the Node's, and keeps what is
// shown about it.
type heartbeat struct {
	beat *lease.Heartbeat
	log  *slog.Logger

	// nodeChanged is called when the Node's conditions may have changed: after a gap in
	// the renewals, with a new Lease and, if the agent keeps the Node Ready, after each
	// renewal.
	nodeChanged func()
	// holdsNodeLease tells, if the agent keeps the Node Ready, whether the Lease is the
	// agent's to renew.
	holdsNodeLease atomic.Bool

	// requester supplies the eviction requests and receives the answers; nil for
	// the Node's Lease, which carries nothing.
	requester *client.EvictionRequester

	// renewed is when the Lease was last renewed, on the clock of Beat.Uptime; 0:
	// never. Up to settled the conditions may become Unknown; 0: they may not. Both are
	// owned by the beat's goroutine.
	renewed, settled time.Duration

	// report is what the Lease carries about the node.
	report client.Report
	// contention is what the last round reported.
	contention atomic.Pointer[reported]
	// attempts queues attempts for the log.
	attempts chan lease.Attempt
	// id of the agent's state directory; empty if unknown or if the Lease carries
	// nothing. other receives the ID of another agent.
	id         string
	otherAgent chan string

	mu    sync.Mutex // guards shown; nothing is done under it but copying
	shown view.Heartbeat
}

// newHeartbeat prepares the heartbeat of the agent's own Lease, which carries a
// report about the node. It does not connect.
func newHeartbeat(c config.Lease, node string, how *rest.Config, log *slog.Logger) (*heartbeat, error) {
	h, err := newHeartbeatFor(c, config.LeaseOfAgent, node, how, log)
	if err != nil {
		return nil, err
	}
	h.beat.Annotations, h.report.Wake = h.annotations, h.beat.Wake
	return h, nil
}

// newNodeLease prepares the renewal of the Node's own Lease, for nodes without a
// kubelet.
func newNodeLease(c config.Lease, node string, how *rest.Config, log *slog.Logger) (*heartbeat, error) {
	h, err := newHeartbeatFor(c, config.LeaseOfNode, node, how, log)
	if err != nil {
		return nil, err
	}
	h.beat.Exclusive = true
	return h, nil
}

func newHeartbeatFor(c config.Lease, target, node string, how *rest.Config, log *slog.Logger) (*heartbeat, error) {
	own := rest.CopyConfig(how)
	own.UserAgent = "plimsoll-heartbeat/" + process.Version()
	line, err := lease.NewConnection(own)
	if err != nil {
		return nil, err
	}
	h := &heartbeat{
		log: log, attempts: make(chan lease.Attempt, 16), otherAgent: make(chan string, 1),
		beat: &lease.Heartbeat{
			Node: node, Namespace: NamespaceOf(target), Holder: HolderOf(target, node), Connection: line,
			Interval: c.Interval, Duration: c.Duration, Uptime: uptime,
		},
		shown: view.Heartbeat{Target: target, Interval: c.Interval, Duration: c.Duration, Outcomes: map[lease.Outcome]uint64{}},
	}
	h.beat.OnAttempt = h.recordAttempt
	return h, nil
}

// HolderOf a Lease is the node's name, as with a kubelet. In the Node's own
// Lease it must differ from a kubelet's.
func HolderOf(target, node string) string {
	if target == config.LeaseOfNode {
		return "plimsoll-agent/" + node
	}
	return node
}

// NamespaceOf a Lease.
func NamespaceOf(target string) string {
	if target == config.LeaseOfNode {
		return nodeLeaseNamespace
	}
	return lease.Namespace
}

// annotations is the annotations that each renewal writes.
func (h *heartbeat) annotations() map[string]string {
	carried := client.Annotations(&h.report, h.requester)
	if r := h.contention.Load(); r != nil {
		carried[lease.ContentionAnnotation] = r.current(h.beat.Uptime())
	}
	if h.id != "" {
		carried[lease.AgentAnnotation] = h.id
	}
	return carried
}

// unjudgedResources are those of which something was not judged.
func unjudgedResources(s *view.State) []string {
	var names []string
	for _, u := range s.Unjudged() {
		if u.Resource != "" && !slices.Contains(names, string(u.Resource)) {
			names = append(names, string(u.Resource))
		}
	}
	slices.Sort(names)
	return names
}

// recordAttempt records an attempt. It is dropped from the log rather than wait for
// it: a log that is not read delays no renewal.
func (h *heartbeat) recordAttempt(a lease.Attempt) {
	h.mu.Lock()
	h.shown.Add(a)
	h.mu.Unlock()
	h.decideHolder(a.Outcome)
	if a.Outcome.Good() {
		h.checkNode(h.beat.Uptime(), a.Outcome)
		h.requester.ReadAnswers(a.Annotations)
		h.detectOther(a)
	}
	select {
	case h.attempts <- a:
	default:
	}
}

// decideHolder decides whether the Node is ours to keep Ready: another holder of its
// Lease keeps it Ready itself.
func (h *heartbeat) decideHolder(o lease.Outcome) {
	if !h.beat.Exclusive || !o.Good() && o != lease.Held {
		return
	}
	h.holdsNodeLease.Store(o.Good())
	if o.Good() {
		h.nodeChanged()
	}
}

// unknownWithin is how long after a renewal the conditions may still become Unknown: the
// controller looks at the Lease and then writes, with 5 s for each.
const unknownWithin = 15 * time.Second

// checkNode calls nodeChanged where the Node may lack the agent's conditions. Before the first
// renewal, or where one was missed, the controller may have set them to Unknown, after a time
// that only its own configuration has (agents.monitorGracePeriod), or may just be doing so: the
// renewals that follow look again. Where the Lease was created, the Node may be a new one.
func (h *heartbeat) checkNode(now time.Duration, o lease.Outcome) {
	if h.beat.Exclusive {
		return
	}
	gap := time.Duration(missedRenewals * float64(h.beat.Interval))
	if h.renewed == 0 || now-h.renewed > gap || o == lease.Created {
		h.settled = now + unknownWithin
	}
	h.renewed = now
	if h.settled == 0 {
		return
	}
	h.nodeChanged()
	if now >= h.settled {
		h.settled = 0
	}
}

// withReady adds the condition Ready if the agent keeps the Node Ready: once it is
// Unknown, renewing the Lease alone does not restore it. h may be nil.
func (h *heartbeat) withReady(list []lease.Condition) []lease.Condition {
	if h == nil || !h.holdsNodeLease.Load() {
		return list
	}
	return append(slices.Clip(list), lease.Condition{
		Type: string(corev1.NodeReady), Status: corev1.ConditionTrue, Reason: "AgentBeats", Message: "plimsoll-agent renews the Lease of this node; no kubelet does",
	})
}

// run renews the Lease until ctx is done.
func (h *heartbeat) run(ctx context.Context) error { return h.beat.Run(ctx) }

// logChanges logs changes, until ctx is done or another agent forces this one to
// exit.
func (h *heartbeat) logChanges(ctx context.Context) error {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case other := <-h.otherAgent:
			if err := h.resolveConflict(other); err != nil {
				return err
			}
		case a := <-h.attempts:
			switch {
			case a.Err != nil && a.Err.Error() != said:
				said = a.Err.Error()
				h.log.Warn("failed to renew the Lease; retrying", "namespace", h.beat.Namespace, "outcome", a.Outcome, "error", a.Err)
			case a.Err == nil && said != "":
				said = ""
				h.log.Info("renewal of the Lease recovered", "namespace", h.beat.Namespace)
			case a.Outcome == lease.Created:
				h.log.Info("created the Lease", "namespace", h.beat.Namespace)
			}
		}
	}
}

// errNotRenewed: the Lease has not been renewed since the start.
var errNotRenewed = errors.New("lease: not renewed yet")

// ready fails while the controller or the control plane would see no heartbeat;
// h may be nil.
func (h *heartbeat) ready() error {
	if h == nil {
		return nil
	}
	now := h.view()
	switch {
	case now.Renewed.IsZero() && now.Error != "":
		return fmt.Errorf("%w: %s", errNotRenewed, now.Error)
	case now.Renewed.IsZero():
		return errNotRenewed
	}
	if age := time.Since(now.Renewed); age > now.Duration {
		return fmt.Errorf("lease: not renewed for %s: %s", age.Round(time.Second), now.Error)
	}
	return nil
}

func (h *heartbeat) view() *view.Heartbeat {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	shown := h.shown.Clone()
	shown.Dials = h.beat.Connection.Dials.Load()
	return &shown
}

// withdrawLease withdraws the Lease that an agent with lease.enabled has left on this node: by it
// the controller would take this agent for silent, whose only heartbeat is its status. It tries
// until it can, or ctx is done.
func withdrawLease(ctx context.Context, leases coordinationv1client.LeasesGetter, node string, log *slog.Logger) {
	retry, said := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 5 * time.Minute}, ""
	for {
		err := lease.Withdraw(ctx, leases, node)
		if err == nil || ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			log.Warn("cannot withdraw the Lease of an earlier agent, and the controller may take this one for silent; retrying, or delete the Lease", "namespace", lease.Namespace, "name", node, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry.Step()):
		}
	}
}
