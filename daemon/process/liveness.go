package process

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// NotReadyAfter is the age of a loop's last pass from which the replica is not
// ready; from StuckAfter it is dead. A pass with a slow API server takes long,
// but each of its requests has a deadline: a pass of minutes is stuck.
const NotReadyAfter = 30 * time.Second

// Liveness are the times of the last pass of each loop (liveness). A loop that
// has not begun has none: it waits for the first lists of what it watches.
type Liveness struct {
	mu     sync.Mutex // guards passes
	passes map[string]pass
}

// pass is when a loop passed last, and how long it may pause then: by the configuration of that
// pass, since another one does not end the pause.
type pass struct {
	at    time.Time
	pause time.Duration
}

// overdue is how long ago the pass was, where that is more than the pause and than this; else 0.
func (p pass) overdue(than time.Duration) time.Duration {
	if age := time.Since(p.at); !p.at.IsZero() && age > than+p.pause {
		return age
	}
	return 0
}

// Record records a pass of a loop, after which it pauses so long at most.
func (p *Liveness) Record(loop string, pause time.Duration) {
	defer testHang()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.passes == nil {
		p.passes = map[string]pass{}
	}
	p.passes[loop] = pass{time.Now(), pause}
}

// Reset forgets all loops, which have stopped.
func (p *Liveness) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passes = nil
}

// Loops are those that have passed, in order.
func (p *Liveness) Loops() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.passes))
}

// Check fails if the last pass of a loop is longer ago than this, plus its pause.
func (p *Liveness) Check(than time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for loop, last := range p.passes {
		if age := last.overdue(than); age > 0 {
			return fmt.Errorf("%s: last pass of its loop was %s ago", loop, age.Round(time.Second))
		}
	}
	return nil
}

// Overdue is how long ago a loop's last pass was, where that is longer than this, plus its
// pause; else 0.
func (p *Liveness) Overdue(loop string, than time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passes[loop].overdue(than)
}

// WatchInterval is how often loops are checked.
const WatchInterval = time.Second

// WatchLoops returns an error when a loop is stuck, so that the program exits:
// a leader that does not work must not go on renewing its Lease.
func WatchLoops(ctx context.Context, healthy func() error) error {
	ticker := time.NewTicker(WatchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := healthy(); err != nil {
				return fmt.Errorf("a loop is stuck; exiting so that another replica can lead: %w", err)
			}
		}
	}
}
