package agent

import (
	"context"
	"crypto/rand"
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

// ErrOtherAgent is the error of a second agent: both would each spend the whole of every rate limit.
var ErrOtherAgent = errors.New("another agent runs on this node, and two would double every rate limit: keep one (systemctl disable --now plimsoll-agent; or exclude this node by the chart's agent.affinity)")

// StateLock is the lock of the state directory, where it can be locked. Other agents see one
// without it only in the Lease, by an ID that it has until it ends.
type StateLock struct {
	dir   string
	log   *slog.Logger
	until time.Time // by when the disk has to answer what the start asks of it
	id    string    // of the state directory, or of this agent alone
	lock  *state.Lock
	// late brings the lock, once the disk answers; nil: it has answered. answered is closed
	// when lock and err are known.
	late     <-chan state.Answer[*state.Lock]
	answered chan struct{}
	err      error // another agent has the directory
}

// stateTimeout is how long a start waits in all for the disk of the state directory: the
// heartbeat comes first. Each further read has lateTimeout.
const (
	stateTimeout = 3 * time.Second
	lateTimeout  = 100 * time.Millisecond
)

// LockStateDir keeps other agents away from the state directory until the lock is released.
// Where the disk does not answer in time, the lock is taken when it does.
func LockStateDir(dir string, log *slog.Logger) (*StateLock, error) {
	return lockStateDir(dir, log, stateTimeout, func() (*state.Lock, error) { return state.Acquire(dir, time.Now(), StartedBy()) })
}

func lockStateDir(dir string, log *slog.Logger, wait time.Duration, acquire func() (*state.Lock, error)) (*StateLock, error) {
	l := &StateLock{dir: dir, log: log, until: time.Now().Add(wait), id: unlocked + rand.Text(), answered: make(chan struct{})}
	late := state.Begin(new(state.Writer), wait, acquire)
	select {
	case answer := <-late:
		err := l.take(answer)
		if err == nil && l.lock != nil {
			l.id = l.lock.ID
		}
		return l, err
	default:
		l.late = late
		log.Warn("the state directory is not locked yet, because its disk hangs; until it answers another agent is noticed only in the Lease, no pod is throttled and no state saved: a pod is evicted after a minute, or at once where memory is below its floor", "dir", dir)
		return l, nil
	}
}

// take takes the answer of the disk.
func (l *StateLock) take(answer state.Answer[*state.Lock]) error {
	defer close(l.answered)
	switch lock, err := answer.Value, answer.Err; {
	case errors.Is(err, state.ErrLocked):
		l.err = fmt.Errorf("%w: %w", err, ErrOtherAgent)
	case err != nil:
		l.log.Warn("cannot lock the state directory; another agent is noticed only in the Lease, and while no state can be saved a pod is evicted after a minute, or at once where memory is below its floor: make it writable, or set --state.dir, and restart", "dir", l.dir, "error", err)
	case lock.Unwritten != nil:
		l.log.Warn("the state directory is locked, but its file does not name this agent: make space; plimsoll doctor and other agents name an earlier one, or none, until the next start", "dir", l.dir, "error", lock.Unwritten)
	}
	l.lock = answer.Value
	return l.err
}

// await takes a late answer. It is an error that another agent has the directory.
func (l *StateLock) await(ctx context.Context) error {
	if l.late == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case answer := <-l.late:
		err := l.take(answer)
		if l.lock != nil {
			l.log.Info("the disk of the state directory answers, and it is locked", "dir", l.dir)
		}
		return err
	}
}

// wait is how long a start waits for what it reads now.
func (l *StateLock) wait() time.Duration { return max(time.Until(l.until), lateTimeout) }

// known tells whether the disk has answered, and err that another agent has the directory: what
// is saved there is its own.
func (l *StateLock) known() (known bool, err error) {
	if l == nil || l.late == nil {
		return true, nil
	}
	select {
	case <-l.answered:
		return true, l.err
	default:
		return false, nil
	}
}

// mayUse tells whether this agent may use what is saved in the directory.
func (l *StateLock) mayUse() bool {
	known, err := l.known()
	return known && err == nil
}

// StateID of an agent that runs with this lock.
func (l *StateLock) StateID() string { return l.id }

// Release unlocks the directory, also when the disk answers later.
func (l *StateLock) Release() {
	if known, _ := l.known(); known {
		l.lock.Release()
		return
	}
	go func() { (<-l.late).Value.Release() }()
}

// Holder is the agent that has a state directory, or had it last, and whether it runs. It is read
// by disk, for which it waits no longer than stateTimeout.
func Holder(disk *state.Writer, dir string) (holder state.Holder, runs bool, err error) {
	type peeked struct {
		holder state.Holder
		runs   bool
	}
	is, err := state.Read(disk, stateTimeout, func() (is peeked, err error) {
		is.holder, is.runs, err = state.Peek(dir)
		return is, err
	})
	return is.holder, is.runs, err
}

// unlocked begins the ID of an agent without a lock. It is greater than any ID of a state
// directory, which is hexadecimal, so that of two agents this one exits (resolveConflict).
const unlocked = "unlocked-"

// StartedBy returns how this program was started, in the words of package state.
func StartedBy() string {
	switch {
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return state.ByPod
	case os.Getenv("INVOCATION_ID") != "": // systemd.exec(5)
		return state.BySystemd
	}
	return state.ByCommand
}

// leaseHolder is what a Lease shows of the agent that renews it.
type leaseHolder struct {
	agent    string
	renewed  time.Time
	duration time.Duration
}

func holderOfLease(l *coordinationv1.Lease) leaseHolder {
	s := leaseHolder{agent: l.Annotations[lease.AgentAnnotation]}
	if l.Spec.RenewTime != nil {
		s.renewed = l.Spec.RenewTime.Time
	}
	if l.Spec.LeaseDurationSeconds != nil {
		s.duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return s
}

// missedRenewals is for how many renewal intervals a Lease must be unchanged
// before a renewal counts as missed, and its agent as gone: more than one with its jitter.
const missedRenewals = 1.5

// judgeHolder decides whether the Lease is free for the agent with this ID
// (free), renewed by another agent (err), or to be read again (neither). first
// is what was read at the start, waited ago. An expired Lease is free as well:
// its agent ran on this host, so its clock is ours.
func judgeHolder(id string, first, is leaseHolder, now time.Time, waited, interval time.Duration) (free bool, err error) {
	switch {
	case is.agent == "" || is.agent == id:
		return true, nil
	case !is.renewed.Equal(first.renewed):
		return false, fmt.Errorf("lease: renewed by agent %s at %s: %w", is.agent, is.renewed.UTC().Format(time.RFC3339), ErrOtherAgent)
	case now.Sub(is.renewed) > is.duration:
		return true, nil
	}
	return waited > time.Duration(missedRenewals*float64(interval)), nil
}

// leaseReadTimeout bounds one read of the Lease, leaseReadInterval is the time between two.
const (
	leaseReadTimeout  = 2 * time.Second
	leaseReadInterval = time.Second
)

// waitUntilAlone returns at once unless the node's Lease belongs to an agent
// with another state directory. Then it returns nil when that agent is gone,
// and an error when it renews its Lease. If the API server does not answer, it
// returns nil at once: detectOther detects the other agent later.
func (h *heartbeat) waitUntilAlone(ctx context.Context, leases coordinationv1client.LeasesGetter) error {
	if h == nil || h.id == "" {
		return nil
	}
	var first leaseHolder
	began := time.Now()
	for {
		l, err := h.readLease(ctx, leases)
		if err != nil {
			h.log.Debug("cannot read the Lease to see whether another agent renews it", "error", err)
			return nil
		}
		is := holderOfLease(l)
		if first.agent == "" {
			first = is
		}
		free, err := judgeHolder(h.id, first, is, time.Now(), time.Since(began), h.beat.Interval)
		if free || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(leaseReadInterval):
		}
	}
}

func (h *heartbeat) readLease(ctx context.Context, leases coordinationv1client.LeasesGetter) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseReadTimeout)
	defer cancel()
	return leases.Leases(h.beat.Namespace).Get(ctx, h.beat.Node, metav1.GetOptions{})
}

// detectOther looks for another agent in the answer to a renewal. The annotation
// is sent only when it is not ours, so a foreign ID in an answer was written
// after ours. Of two agents that started at the same time the one with the
// greater ID exits.
func (h *heartbeat) detectOther(a lease.Attempt) {
	other := a.Annotations[lease.AgentAnnotation]
	if h.id == "" || other == "" || other == h.id {
		return
	}
	select {
	case h.otherAgent <- other:
	default: // it is known already
	}
}

// resolveConflict ends this agent if its ID is the greater one.
func (h *heartbeat) resolveConflict(other string) error {
	if h.id > other {
		return fmt.Errorf("lease: also renewed by agent %s: %w", other, ErrOtherAgent)
	}
	h.log.Warn("another agent also renews the Lease of this node and should exit; stop one of the two", "agent", other, "self", h.id)
	return nil
}
