package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lateAfter is the age of a loop's last look at which a replica is not ready; at
// stuckAfter it is dead. A look over a slow API server takes a while,
// and each of its calls has a deadline; minutes without an end are none of that.
const lateAfter = 30 * time.Second

// pulses are when the loops of a program looked last. A loop that has not begun
// has none: it waits for the first lists of what it watches.
type pulses struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

// beat: the loop looks.
func (p *pulses) beat(loop string) {
	defer stick()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[string]time.Time{}
	}
	p.last[loop] = time.Now()
}

// end of all loops.
func (p *pulses) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = nil
}

// older says which loop looked last longer ago than it may; pauses are how long
// each rests by itself between two looks.
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

// watchEvery is how often loops are looked at.
const watchEvery = time.Second

// watchLoops returns an error when a loop is stuck, so that the program ends: the
// Lease of a leader that only seems to lead is renewed no more.
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
