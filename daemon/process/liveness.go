package process

import (
	"context"
	"fmt"
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
	mu       sync.Mutex // guards last
	LastPass map[string]time.Time
}

// Record records a pass of a loop.
func (p *Liveness) Record(loop string) {
	defer testHang()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.LastPass == nil {
		p.LastPass = map[string]time.Time{}
	}
	p.LastPass[loop] = time.Now()
}

// Reset forgets all loops, which have stopped.
func (p *Liveness) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.LastPass = nil
}

// Check fails if the last pass of a loop is longer ago than this, plus the
// loop's own pause between passes.
func (p *Liveness) Check(than time.Duration, pauses map[string]time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for loop, last := range p.LastPass {
		if age := time.Since(last); age > than+pauses[loop] {
			return fmt.Errorf("%s: last pass of its loop was %s ago", loop, age.Round(time.Second))
		}
	}
	return nil
}

// Age of the last pass of a loop; zero before the first.
func (p *Liveness) Age(loop string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, passed := p.LastPass[loop]
	if !passed {
		return 0
	}
	return time.Since(last)
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
