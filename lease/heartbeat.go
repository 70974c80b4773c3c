package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Heartbeat renews a node's Lease. It shares nothing with the rest of the agent that
// could delay it: it has its own connection, and its callbacks must not block.
type Heartbeat struct {
	// Node is the name of the Node, and of the Lease.
	Node string
	// Namespace of the Lease.
	Namespace string
	// Holder is the Lease's holderIdentity.
	Holder string
	// Connection is the connection; it must not be shared.
	Connection *Connection
	// Interval between two renewals, and Duration of the Lease
	// (leaseDurationSeconds).
	Interval, Duration time.Duration
	// Exclusive: the Lease has one holder. While another holder renews it, the Beat
	// does not.
	Exclusive bool
	// Uptime is a clock that cannot be set and that runs during suspend
	// (CLOCK_BOOTTIME). Timers stop during suspend, so it is read once a second.
	Uptime func() time.Duration
	// Now is the clock of renewTime; time.Now when nil.
	Now func() time.Time
	// Annotations returns the annotations to write; an empty one is removed. Nil: none.
	// It must not block.
	Annotations func() map[string]string
	// OnAttempt is called after every attempt, in order. Nil: not called. It must not
	// block, and must not keep the annotations.
	OnAttempt func(Attempt)

	once   sync.Once
	woken  chan struct{}
	reread atomic.Bool

	// Of Run's goroutine alone.
	rhythm        schedule
	pulse         attemptState
	stored        *stored   // nil: it must be read
	lastRenewTime time.Time // the last renewTime that was written
	otherHolder   otherHolder
}

// Attempt is one attempt to renew.
type Attempt struct {
	// Time is when it began, and Took how long it took.
	Time    time.Time
	Took    time.Duration
	Outcome Outcome
	// Err is why it was neither Renewed nor Created.
	Err error
	// Annotations of the Lease, from the API server's answer.
	Annotations map[string]string
}

// Run renews the Lease until ctx is done.
func (b *Heartbeat) Run(ctx context.Context) error {
	defer b.Connection.Close()
	ctx = klog.NewContext(ctx, logr.Discard()) // a blocked log must not block the client
	b.rhythm = schedule{interval: b.Interval, duration: b.Duration, phase: phaseOf(b.Node, b.Interval), random: rand.Float64}
	b.pulse = b.rhythm.first(b.Uptime())
	for b.wait(ctx) {
		b.attemptOnce(ctx)
	}
	return nil
}

// Wake makes Run renew at once, but at most once a second (rate limit), and not
// before a pending retry. It never blocks.
func (b *Heartbeat) Wake() {
	select {
	case b.wakeups() <- struct{}{}:
	default: // a wake-up is pending
	}
}

// Reread makes Run read the Node and the Lease before the next renewal: the Node was
// recreated.
func (b *Heartbeat) Reread() {
	b.reread.Store(true)
	b.Wake()
}

func (b *Heartbeat) wakeups() chan struct{} {
	b.once.Do(func() { b.woken = make(chan struct{}, 1) })
	return b.woken
}

// pollInterval is how often Uptime is read.
const pollInterval = time.Second

// wait until the next attempt is due; false when ctx is done.
func (b *Heartbeat) wait(ctx context.Context) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-b.wakeups():
			b.pulse = b.rhythm.woken(b.pulse, b.Uptime())
		case <-timer.C:
		}
		left := b.pulse.due - b.Uptime()
		if left <= 0 {
			return ctx.Err() == nil
		}
		timer.Reset(min(left, pollInterval))
	}
}

// attemptOnce makes one attempt and schedules the next.
func (b *Heartbeat) attemptOnce(ctx context.Context) {
	start, began := time.Now(), b.Uptime()
	up := b.Connection.usable()
	b.pulse = b.rhythm.begin(b.pulse, began, !up)
	if b.reread.Swap(false) {
		b.stored = nil
	}
	outcome, err := b.attempt(ctx, up)
	if ctx.Err() != nil {
		return
	}
	f := &failure{outcome: outcome}
	if err != nil && !errors.As(err, &f) {
		f.outcome = Rejected
	}
	a := Attempt{Time: start, Took: b.Uptime() - began, Outcome: f.outcome, Err: err}
	b.pulse = b.rhythm.end(b.pulse, b.Uptime(), a.Outcome, f.after)
	if b.pulse.redial {
		b.Connection.Close()
	}
	if b.stored != nil {
		a.Annotations = b.stored.annotations
	}
	if b.OnAttempt != nil {
		b.OnAttempt(a)
	}
}

func (b *Heartbeat) attempt(ctx context.Context, up bool) (Outcome, error) {
	if !up {
		if err := b.Connection.dial(ctx); err != nil {
			return "", &failure{outcome: Unreachable, err: err}
		}
	}
	return b.renew(ctx)
}

func (b *Heartbeat) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}
