// Package reconcile is what the controllers of a cluster have in common: rounds, one
// after the other, each of which observes, decides and writes, and the objects that are
// left out of them because the API server does not change them ([Refusals]).
//
// # Usage
//
//	loop.Watch(func() { store.Run(ctx, nodes, core.Nodes(), "") })
//	loop.Run(ctx, wake, func(ctx context.Context) reconcile.Pause { … })
//
// # Concurrency
//
// Run belongs to one goroutine, in which the rounds run. Report may be called from any.
package reconcile

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/plimsoll-dev/plimsoll/store"
)

// FieldManager of all writes.
const FieldManager = "plimsoll-controller"

// CallTimeout bounds each call to the API server.
const CallTimeout = 5 * time.Second

// Events is client-go's record.EventRecorder. It may drop Events and must not block.
type Events interface {
	Event(about runtime.Object, kind, reason, message string)
}

// Pause between two rounds. The next one begins after Longest, or with a signal, but
// not before Shortest, which debounces signals.
type Pause struct{ Shortest, Longest time.Duration }

// Loop runs the rounds of one controller while its replica is the leader, and has the
// report of the last round. A Loop may be run again, for a later term.
type Loop[R any] struct {
	report  atomic.Pointer[R]
	watches sync.WaitGroup
}

// Watch runs something beside the rounds. Run waits for its end.
func (l *Loop[R]) Watch(run func()) { l.watches.Go(run) }

// Run runs a round at once, and others until ctx is done. After that there is no report.
func (l *Loop[R]) Run(ctx context.Context, wake store.Signal, round func(context.Context) Pause) {
	defer l.watches.Wait()
	defer l.report.Store(nil)
	for sleep(ctx, wake, round(ctx)) {
	}
}

// Publish the report of a round. It must not be changed afterwards.
func (l *Loop[R]) Publish(report R) { l.report.Store(&report) }

// Report of the last round; the zero value before the first, and while another replica
// is the leader.
func (l *Loop[R]) Report() (report R) {
	if last := l.report.Load(); last != nil {
		return *last
	}
	return report
}

// Published tells whether a round has published its report since this replica became
// the leader, be it an empty one: there may be nothing to report.
func (l *Loop[R]) Published() bool { return l.report.Load() != nil }

// sleep waits for the next round; false: ctx is done.
func sleep(ctx context.Context, wake store.Signal, p Pause) bool {
	shortest, longest := time.NewTimer(p.Shortest), time.NewTimer(p.Longest)
	defer shortest.Stop()
	defer longest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-shortest.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-longest.C:
	case <-wake:
	}
	return ctx.Err() == nil
}
