package agents

import (
	"maps"
	"sync"

	"github.com/plimsoll-dev/plimsoll/evict"
)

// Counts are what this process did as the leader.
type Counts struct {
	// Acts on silent agents: mark, lift, failed.
	Acts map[string]uint64
	// Evictions that were approved, by outcome.
	Evictions map[string]uint64
	// Refusals by code.
	Refusals map[string]uint64
}

// Counters counts; its methods may be called from any goroutine.
type Counters struct {
	mu     sync.Mutex // guards counts
	counts Counts
}

// newCounts has an entry for every label value, so that metrics start at 0.
func newCounts() Counts {
	c := Counts{Acts: map[string]uint64{actMark: 0, actLift: 0, actFailed: 0}, Evictions: map[string]uint64{}, Refusals: map[string]uint64{}}
	for _, o := range []evict.Outcome{evict.Evicted, evict.NotFound, evict.Blocked, evict.Refused, evict.UnknownOutcome} {
		c.Evictions[string(o)] = 0
	}
	for _, code := range []Code{CodeFullDisruption, CodeUnreadable, CodeCommon, CodeZone, CodeShare, CodeCluster, CodeOwner, CodeWrongNode, CodeProtected, CodeUnresolved, CodeGone} {
		c.Refusals[string(code)] = 0
	}
	return c
}

// Acts on silent agents, as counted.
const (
	actMark   = "mark"
	actLift   = "lift"
	actFailed = "failed"
)

// Counts so far.
func (t *Counters) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ensure()
	return Counts{Acts: maps.Clone(t.counts.Acts), Evictions: maps.Clone(t.counts.Evictions), Refusals: maps.Clone(t.counts.Refusals)}
}

func (t *Counters) ensure() {
	if t.counts.Acts == nil {
		t.counts = newCounts()
	}
}

func (t *Counters) addAct(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ensure()
	t.counts.Acts[kind]++
}

func (t *Counters) addDecision(code Code, o evict.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ensure()
	if code != "" {
		t.counts.Refusals[string(code)]++
	} else {
		t.counts.Evictions[string(o)]++
	}
}
