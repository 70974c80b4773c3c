package lease

import (
	"hash/fnv"
	"time"

	"github.com/plimsoll-dev/plimsoll/backoff"
)

// The rhythm of a heartbeat, as docs/heartbeat.md describes it. Times are of
// Beat.Uptime.
const (
	// jitter of each beat, as a share of the interval: consecutive beats are an
	// interval ± 4 % apart.
	jitter = 0.02
	// firstRetry bounds the wait before the first retry: a lost request is repeated
	// before its absence is noticed.
	firstRetry = 100 * time.Millisecond
	// longestRetry bounds the exponential backoff of further retries.
	longestRetry = 2 * time.Second
	// retryTokens is the size of the token bucket of retries, which is full at first and
	// refills completely in one interval. An API server that refuses all agents must
	// not get many more requests than otherwise.
	retryTokens = 5
	// minTimeout and maxTimeout bound the timeout of a request: twice the time of
	// the last answer, and doubled after a timeout on a live connection, since a new
	// connection would not be quicker.
	minTimeout, maxTimeout = 2 * time.Second, 8 * time.Second
	// firstDial bounds the wait before the second dial in a row; it is doubled up to
	// longestDial (exponential backoff with jitter), so that thousands of agents do
	// not dial at once.
	firstDial, longestDial = 5 * time.Second, 30 * time.Second
	// urgentDial bounds it in the last interval before the Lease expires.
	urgentDial = 2 * time.Second
	// minWakeInterval is the minimum time between renewals for urgent changes.
	minWakeInterval = time.Second
)

// Outcome of an attempt to renew.
type Outcome string

// The outcomes.
const (
	Renewed     Outcome = "renewed"     // the API server accepted the renewal
	Created     Outcome = "created"     // there was no Lease: it was created
	Throttled   Outcome = "throttled"   // the API server is overloaded (429)
	Rejected    Outcome = "rejected"    // any other answer
	Slow        Outcome = "slow"        // no answer in time on a live connection
	Lost        Outcome = "lost"        // the connection is dead
	Unreachable Outcome = "unreachable" // connecting failed
	NoNode      Outcome = "no_node"     // there is no Node, so no Lease is created
	Held        Outcome = "held"        // another holder renews this Lease
	// Unauthorized: the API server does not accept the credentials (401). A client
	// certificate belongs to its connection: a new one needs a new connection.
	Unauthorized Outcome = "unauthorized"
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{Renewed, Created, Throttled, Rejected, Slow, Lost, Unreachable, NoNode, Held, Unauthorized}
}

// Good reports whether the Lease was renewed.
func (o Outcome) Good() bool { return o == Renewed || o == Created }

// keepsConnection reports whether the connection can be used again.
func (o Outcome) keepsConnection() bool { return o != Lost && o != Unreachable }

// schedule decides when a node's agent renews its Lease.
type schedule struct {
	interval, duration time.Duration
	// phase of the node within the interval.
	phase time.Duration
	// random is in [0, 1).
	random func() float64
}

// phaseOf spreads nodes over the interval, so that agents that start at the same time
// do not renew at the same time.
func phaseOf(node string, interval time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node)) // it never fails
	x := h.Sum64()
	x ^= x >> 33 // spread names that differ in one digit
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return time.Duration(x % uint64(interval))
}

// attemptState is the state that the next attempt depends on.
type attemptState struct {
	// due is when the next attempt is due, and wait its timeout.
	due, timeout time.Duration
	// began is when the last attempt began.
	began time.Duration
	// expires is when the Lease expires; 0 before the first renewal.
	expires time.Duration
	// failed attempts, and dials, since the last renewal.
	failed, dials int
	// retryTokensUsed is the number of retry tokens in use, as of began.
	retryTokensUsed float64
	// keepUntil is until when a connection that answers is kept although attempts fail,
	// and keepUnauthorized although they are not authorized.
	keepUntil, keepUnauthorized time.Duration
	// redial: the connection is given up, and the next attempt dials.
	redial bool
}

// first schedules the first attempt of an agent that starts at now.
func (r schedule) first(now time.Duration) attemptState {
	return attemptState{due: now + r.phase/firstFraction, timeout: minTimeout, began: now, keepUntil: now + r.duration - r.interval - r.phase}
}

// firstFraction: the first beats of agents that start at the same time are spread over
// this fraction (1/firstFraction) of the interval.
const firstFraction = 5

// begin records the start of an attempt.
func (r schedule) begin(p attemptState, now time.Duration, dials bool) attemptState {
	p.retryTokensUsed = max(0, p.retryTokensUsed-retryTokens*float64(now-p.began)/float64(r.interval))
	p.began = now
	if p.failed > 0 {
		p.retryTokensUsed++
	}
	if dials {
		p.keepUnauthorized = now + time.Duration(r.random()*float64(dialBackoff(p.dials)))
		p.dials++
	}
	return p
}

// end records the end of an attempt and schedules the next. after is the API
// server's Retry-After.
func (r schedule) end(p attemptState, now time.Duration, outcome Outcome, after time.Duration) attemptState {
	if outcome.Good() {
		return attemptState{
			due: r.nextSlot(now), timeout: min(max(2*(now-p.began), minTimeout), maxTimeout),
			began: p.began, expires: now + r.duration, retryTokensUsed: p.retryTokensUsed,
			keepUntil: now + r.duration - r.interval,
		}
	}
	p.failed++
	if outcome == Slow {
		p.timeout = min(2*p.timeout, maxTimeout)
	}
	if outcome == NoNode || outcome == Held {
		p.redial, p.due = false, r.nextSlot(now) // a retry would find the same
		return p
	}
	p.redial = !outcome.keepsConnection() || outcome == Unauthorized && now >= p.keepUnauthorized
	if outcome.keepsConnection() && now >= p.keepUntil {
		p.redial, p.failed = true, 1 // the new connection is tried at once
		p.keepUntil = now + r.duration + time.Duration(r.random()*float64(r.interval))
	}
	delay := max(r.retry(p.failed), min(after, longestRetry))
	if p.retryTokensUsed+1 > retryTokens {
		delay = max(delay, time.Duration((p.retryTokensUsed+1-retryTokens)/retryTokens*float64(r.interval))-(now-p.began))
	}
	if !outcome.keepsConnection() {
		delay = max(delay, r.dial(p, now))
	}
	p.due = now + delay
	return p
}

// woken schedules an attempt for an urgent change. A pending retry is not moved.
func (r schedule) woken(p attemptState, now time.Duration) attemptState {
	if p.failed == 0 && p.expires > 0 {
		p.due = min(p.due, max(now, p.began+minWakeInterval))
	}
	return p
}

// nextSlot is the node's next regular slot that is not the current one.
func (r schedule) nextSlot(now time.Duration) time.Duration {
	slot := now - (now-r.phase+r.interval)%r.interval + r.interval
	if slot-now < 2*time.Duration(jitter*float64(r.interval)) { // the slot of the beat that just ended
		slot += r.interval
	}
	return slot + time.Duration((2*r.random()-1)*jitter*float64(r.interval))
}

func (r schedule) retry(failed int) time.Duration {
	if failed == 1 {
		return time.Duration(r.random() * float64(firstRetry))
	}
	most := backoff.Exponential{First: firstRetry, Longest: longestRetry}.Doubled(failed)
	return firstRetry + time.Duration(r.random()*float64(most-firstRetry))
}

// dial is the backoff before a dial; the first is made at once.
func (r schedule) dial(p attemptState, now time.Duration) time.Duration {
	if p.dials == 0 {
		return 0
	}
	some := r.random()
	delay := time.Duration(some * float64(dialBackoff(p.dials-1)))
	if left := p.expires - now; left > 0 {
		delay = min(delay, max(0, left-r.interval)+time.Duration(some*float64(urgentDial)))
	}
	return delay
}

// dialBackoff is the longest time between a dial and the next, after so many dials before it.
func dialBackoff(dials int) time.Duration {
	return backoff.Exponential{First: firstDial, Longest: longestDial}.Doubled(dials)
}
