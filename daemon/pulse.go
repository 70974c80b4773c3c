package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lateAfter is the age of a loop's last pass from which the replica is not
// ready; from stuckAfter it is dead. A pass with a slow API server takes long,
// but each of its requests has a deadline: a pass of minutes is stuck.
const lateAfter = 30 * time.Second

// pulses are the times of the last pass of each loop (liveness). A loop that
// has not begun has none: it waits for the first lists of what it watches.
type pulses struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

// beat records a pass of a loop.
func (p *pulses) beat(loop string) {
	defer stick()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[string]time.Time{}
	}
	p.last[loop] = time.Now()
}

// end forgets all loops, which have stopped.
func (p *pulses) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = nil
}

// older fails if the last pass of a loop is longer ago than this, plus the
// loop's own pause between passes.
func (p *pulses) older(than time.Duration, pauses map[string]time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for loop, last := range p.last {
		if age := time.Since(last); age > than+pauses[loop] {
			return fmt.Errorf("%s: last pass of its loop was %s ago", loop, age.Round(time.Second))
		}
	}
	return nil
}

// watchEvery is how often loops are checked.
const watchEvery = time.Second

// watchLoops returns an error when a loop is stuck, so that the program exits:
// a leader that does not work must not go on renewing its Lease.
func watchLoops(ctx context.Context, healthy func() error) error {
	ticker := time.NewTicker(watchEvery)
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
