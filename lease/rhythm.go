package lease

import (
	"hash/fnv"
	"time"
)

// The rhythm of a heartbeat. What is not said otherwise is of
// docs/heartbeat.md; times are of a clock that nobody sets and that runs
// through suspend.
const (
	// jitter of each beat: two that follow each other are an interval ± 4 %
	// apart.
	jitter = 0.02
	// firstRetry bounds the wait before the first retry, which costs nothing: a
	// request that was lost is made good before anybody sees it.
	firstRetry = 100 * time.Millisecond
	// longestRetry bounds it from there on.
	longestRetry = 2 * time.Second
	// budget of retries, full at first; one comes back in each of so many parts
	// of the interval. An API server that refuses everybody must not be asked
	// much more often than one that does not.
	budget = 5
	// shortestWait for an answer, and longestWait: a slow answer is waited for
	// longer the next time, for a new connection would not make it quicker.
	shortestWait, longestWait = 2 * time.Second, 8 * time.Second
	// firstDial bounds the wait before the second dial in a row, doubled with
	// each up to longestDial: thousands of agents must not dial together.
	firstDial, longestDial = 5 * time.Second, 30 * time.Second
	// urgentDial bounds it in the last interval before the Lease expires.
	urgentDial = 2 * time.Second
	// wakeEvery bounds how often an urgent change is carried at once.
	wakeEvery = time.Second
)

// Outcome of an attempt to renew.
type Outcome string

// The outcomes.
const (
	Renewed     Outcome = "renewed"     // the API server took the renewal
	Created     Outcome = "created"     // there was no Lease: it was made
	Throttled   Outcome = "throttled"   // the API server has too much to do (429)
	Rejected    Outcome = "rejected"    // it answered anything else
	Slow        Outcome = "slow"        // no answer in time on a connection that lives
	Lost        Outcome = "lost"        // the connection is dead
	Unreachable Outcome = "unreachable" // no connection was made
	NoNode      Outcome = "no_node"     // there is no Node, and so no Lease
	Held        Outcome = "held"        // somebody else renews this Lease
)

// Outcomes are all there are.
func Outcomes() []Outcome {
	return []Outcome{Renewed, Created, Throttled, Rejected, Slow, Lost, Unreachable, NoNode, Held}
}

// Good says that the Lease was renewed.
func (o Outcome) Good() bool { return o == Renewed || o == Created }

// connected: the connection can be used again.
func (o Outcome) connected() bool { return o != Lost && o != Unreachable }

// rhythm is what decides when a node's agent beats.
type rhythm struct {
	interval, duration time.Duration
	// phase of the node within the interval.
	phase time.Duration
	// random is in [0, 1).
	random func() float64
}

// phaseOf spreads nodes over the interval, so that agents that start together do
// not beat together.
func phaseOf(node string, interval time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node)) // it never fails
	x := h.Sum64()
	x ^= x >> 33 // names that differ in a digit must lie apart
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Duration(x % uint64(interval))
}

// pulse is what the next attempt depends on.
type pulse struct {
	// due is when it is, and wait for how long an answer is waited for.
	due, wait time.Duration
	// began is when the last one did.
	began time.Duration
	// expires is when the Lease does; 0 before it was renewed once.
	expires time.Duration
	// failed attempts and dials in a row, since the last renewal.
	failed, dials int
	// spent is how much of the budget is, as of began.
	spent float64
}

// first attempt of an agent that starts at now.
func (r rhythm) first(now time.Duration) pulse {
	return pulse{due: now + r.phase/firstShare, wait: shortestWait, began: now}
}

// firstShare of the interval is what the first beats of agents that start
// together are spread over.
const firstShare = 5

// begin an attempt.
func (r rhythm) begin(p pulse, now time.Duration, dials bool) pulse {
	p.spent = max(0, p.spent-budget*float64(now-p.began)/float64(r.interval))
	p.began = now
	if p.failed > 0 {
		p.spent++
	}
	if dials {
		p.dials++
	}
	return p
}

// end it: after is what the API server wants to be left alone for.
func (r rhythm) end(p pulse, now time.Duration, outcome Outcome, after time.Duration) pulse {
	if outcome.Good() {
		return pulse{
			due: r.beat(now), wait: min(max(2*(now-p.began), shortestWait), longestWait),
			began: p.began, expires: now + r.duration, spent: p.spent,
		}
	}
	p.failed++
	if outcome == Slow {
		p.wait = min(2*p.wait, longestWait)
	}
	if outcome == NoNode || outcome == Held {
		p.due = r.beat(now) // a retry would find the same
		return p
	}
	delay := max(r.retry(p.failed), min(after, longestRetry))
	if p.spent+1 > budget {
		delay = max(delay, time.Duration((p.spent+1-budget)/budget*float64(r.interval))-(now-p.began))
	}
	if !outcome.connected() {
		delay = max(delay, r.dial(p, now))
	}
	p.due = now + delay
	return p
}

// woken by a change that should be known at once. What waits for a retry waits
// on.
func (r rhythm) woken(p pulse, now time.Duration) pulse {
	if p.failed == 0 && p.expires > 0 {
		p.due = min(p.due, max(now, p.began+wakeEvery))
	}
	return p
}

// beat is the next of the node's own times that is not right now.
func (r rhythm) beat(now time.Duration) time.Duration {
	slot := now - (now-r.phase+r.interval)%r.interval + r.interval
	if slot-now < 2*time.Duration(jitter*float64(r.interval)) { // it is the one that was just beaten
		slot += r.interval
	}
	return slot + time.Duration((2*r.random()-1)*jitter*float64(r.interval))
}

func (r rhythm) retry(failed int) time.Duration {
	if failed == 1 {
		return time.Duration(r.random() * float64(firstRetry))
	}
	most := min(firstRetry<<min(failed, 10), longestRetry)
	return firstRetry + time.Duration(r.random()*float64(most-firstRetry))
}

// dial: the first is made at once.
func (r rhythm) dial(p pulse, now time.Duration) time.Duration {
	if p.dials == 0 {
		return 0
	}
	some := r.random()
	delay := time.Duration(some * float64(min(firstDial<<min(p.dials-1, 10), longestDial)))
	if left := p.expires - now; left > 0 {
		delay = min(delay, max(0, left-r.interval)+time.Duration(some*float64(urgentDial)))
	}
	return delay
}
