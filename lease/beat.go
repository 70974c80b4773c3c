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

// Beat renews a node's Lease. It shares nothing with the rest of the agent that
// could delay it: its connection is its own, and what it is given to call must
// not block.
type Beat struct {
	// Node is the name of the Node, and of the Lease.
	Node string
	// Namespace of the Lease.
	Namespace string
	// Holder is who renews it.
	Holder string
	// Line is the connection. Nobody else may use it.
	Line *Line
	// Interval between two renewals, and the Duration that each is good for.
	Interval, Duration time.Duration
	// Exclusive: nobody else may write this Lease. While another holder renews
	// it, the Beat does not.
	Exclusive bool
	// Uptime is a clock that nobody sets and that runs through suspend. Timers
	// do not; so it is looked at once a second.
	Uptime func() time.Duration
	// Now is the clock that is written; nil for time.Now.
	Now func() time.Time
	// Carry returns the annotations to carry; an empty one is removed. Nil for
	// none. It must not block.
	Carry func() map[string]string
	// Beaten is told of every attempt, in order; nil for nobody. It must not
	// block, and must not keep the annotations.
	Beaten func(Attempt)

	once   sync.Once
	woken  chan struct{}
	reread atomic.Bool

	// Of Run's goroutine alone.
	rhythm  rhythm
	pulse   pulse
	stored  *stored   // nil: it must be read
	stamped time.Time // the last time that was written
	rival   rival
}

// Attempt is one attempt to renew.
type Attempt struct {
	// Time is when it began, and Took how long it took.
	Time    time.Time
	Took    time.Duration
	Outcome Outcome
	// Err says why it was none of Renewed and Created.
	Err error
	// Annotations of the Lease, as the API server answered.
	Annotations map[string]string
}

// Run beats until ctx is done.
func (b *Beat) Run(ctx context.Context) error {
	defer b.Line.Close()
	ctx = klog.NewContext(ctx, logr.Discard()) // a log that nobody reads would stop the client that writes to it
	b.rhythm = rhythm{interval: b.Interval, duration: b.Duration, phase: phaseOf(b.Node, b.Interval), random: rand.Float64}
	b.pulse = b.rhythm.first(b.Uptime())
	for b.wait(ctx) {
		b.beat(ctx)
	}
	return nil
}

// Wake makes Run renew at once, but not more often than once a second, nor
// earlier than a retry that is waited for. It never blocks.
func (b *Beat) Wake() {
	select {
	case b.wakeups() <- struct{}{}:
	default: // it is awake
	}
}

// Reread makes Run look at the Node and the Lease before the next renewal:
// there is another Node of this name.
func (b *Beat) Reread() {
	b.reread.Store(true)
	b.Wake()
}

func (b *Beat) wakeups() chan struct{} {
	b.once.Do(func() { b.woken = make(chan struct{}, 1) })
	return b.woken
}

// look is how often the time is looked at.
const look = time.Second

// wait until it is time; false when ctx is done.
func (b *Beat) wait(ctx context.Context) bool {
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
		timer.Reset(min(left, look))
	}
}

// beat makes one attempt, and plans the next.
func (b *Beat) beat(ctx context.Context) {
	start, began := time.Now(), b.Uptime()
	up := b.Line.up()
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
	if !a.Outcome.connected() {
		b.Line.Close()
	}
	if b.stored != nil {
		a.Annotations = b.stored.annotations
	}
	b.pulse = b.rhythm.end(b.pulse, b.Uptime(), a.Outcome, f.after)
	if b.Beaten != nil {
		b.Beaten(a)
	}
}

func (b *Beat) attempt(ctx context.Context, up bool) (Outcome, error) {
	if !up {
		if err := b.Line.dial(ctx); err != nil {
			return "", &failure{outcome: Unreachable, err: err}
		}
	}
	return b.renew(ctx)
}

func (b *Beat) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}
