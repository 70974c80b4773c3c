package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/state"
)

// agentAnnotation of the agent's Lease is the ID of its state directory, of
// which the kernel lets one agent run at a time. Two agents with states of their
// own, such as a package beside a chart, show in it.
const agentAnnotation = "plimsoll.dev/agent"

// errOtherAgent: two would each spend the whole of every limit.
var errOtherAgent = errors.New("another agent runs on this node, and two would double every rate limit: stop one (helm uninstall plimsoll; systemctl disable --now plimsoll-agent)")

// lockState keeps other agents away from the state until it is released. Without
// a directory that can be written there is no lock, and no pod is evicted either.
func lockState(dir string, log *slog.Logger) (*state.Lock, error) {
	lock, err := state.Acquire(dir, time.Now(), how())
	switch {
	case errors.Is(err, state.ErrLocked):
		return nil, fmt.Errorf("%w: %w", err, errOtherAgent)
	case err != nil:
		log.Warn("cannot lock the state directory; no pod will be evicted", "dir", dir, "error", err)
		return nil, nil //nolint:nilnil // the agent measures without a state
	}
	return lock, nil
}

// how this program was started.
func how() string {
	switch {
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return state.ByPod
	case os.Getenv("INVOCATION_ID") != "": // systemd.exec(5)
		return state.BySystemd
	}
	return state.ByCommand
}

// beatSeen is what a Lease says of the agent that renews it.
type beatSeen struct {
	agent   string
	renewed time.Time
	good    time.Duration
}

func seenOf(l *coordinationv1.Lease) beatSeen {
	s := beatSeen{agent: l.Annotations[agentAnnotation]}
	if l.Spec.RenewTime != nil {
		s.renewed = l.Spec.RenewTime.Time
	}
	if l.Spec.LeaseDurationSeconds != nil {
		s.good = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return s
}

// missedBeats is for how many intervals a Lease must not be renewed for its
// agent to be gone.
const missedBeats = 1.5

// judgeBeat says whether the Lease is free for the agent of this ID, taken by
// another one (an error), or whether to look again. first is what was seen so
// long ago. That the Lease has ended by our clock says as much: its agent ran on
// this host.
func judgeBeat(id string, first, is beatSeen, now time.Time, waited, interval time.Duration) (free bool, err error) {
	switch {
	case is.agent == "" || is.agent == id:
		return true, nil
	case !is.renewed.Equal(first.renewed):
		return false, fmt.Errorf("lease: renewed by agent %s at %s: %w", is.agent, is.renewed.UTC().Format(time.RFC3339), errOtherAgent)
	case now.Sub(is.renewed) > is.good:
		return true, nil
	}
	return waited > time.Duration(missedBeats*float64(interval)), nil
}

// beatTimeout bounds one look at the Lease, and beatEvery is how often it is
// looked at.
const (
	beatTimeout = 2 * time.Second
	beatEvery   = time.Second
)

// waitUntilAlone returns at once unless the node's Lease is of an agent with
// another state: then when that is gone, or with an error when it renews its
// Lease. An API server that is away delays nothing; the beats find out later.
func (h *heartbeat) waitUntilAlone(ctx context.Context, leases coordinationv1client.LeasesGetter) error {
	if h == nil || h.id == "" {
		return nil
	}
	var first beatSeen
	began := time.Now()
	for {
		l, err := h.lookAtLease(ctx, leases)
		if err != nil {
			h.log.Debug("cannot read the Lease to see whether another agent renews it", "error", err)
			return nil
		}
		is := seenOf(l)
		if first.agent == "" {
			first = is
		}
		free, err := judgeBeat(h.id, first, is, time.Now(), time.Since(began), h.beat.Interval)
		if free || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(beatEvery):
		}
	}
}

func (h *heartbeat) lookAtLease(ctx context.Context, leases coordinationv1client.LeasesGetter) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	return leases.Leases(h.beat.Namespace).Get(ctx, h.beat.Node, metav1.GetOptions{})
}

// hearOther looks at the answer to a beat. The annotation is sent only when it is
// not ours, so another one in an answer was written after ours. Of two agents
// that started at once the one with the greater ID ends.
func (h *heartbeat) hearOther(a lease.Attempt) {
	other := a.Annotations[agentAnnotation]
	if h.id == "" || other == "" || other == h.id {
		return
	}
	select {
	case h.other <- other:
	default: // it is told already
	}
}

// meet another agent.
func (h *heartbeat) meet(other string) error {
	if h.id > other {
		return fmt.Errorf("lease: also renewed by agent %s: %w", other, errOtherAgent)
	}
	h.log.Warn("another agent also renews the Lease of this node and should exit; stop one of the two", "agent", other, "self", h.id)
	return nil
}
