package lease

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// steady is a rhythm without chance: random is always r.
func steady(r float64) schedule {
	return schedule{interval: 10 * time.Second, duration: 40 * time.Second, phase: 3 * time.Second, random: func() float64 { return r }}
}

func TestSchedule(t *testing.T) {
	t.Run("next time is of node", scheduleNextTimeIsOfNode)
	t.Run("interval jitter", scheduleIntervalJitter)
	t.Run("after failure", scheduleAfterFailure)
	t.Run("timeout doubles", scheduleTimeoutDoubles)
	t.Run("retry tokens", scheduleRetryTokens)
	t.Run("dials", scheduleDials)
	t.Run("retries within tokens", scheduleRetriesWithinTokens)
	t.Run("dials spread", scheduleDialsSpread)
	t.Run("expiring lease is quick", scheduleExpiringLeaseIsQuick)
	t.Run("connection given up", scheduleConnectionGivenUp)
	t.Run("sick API server left", scheduleSickAPIServerLeft)
	t.Run("sick API servers dialled rarely", scheduleSickAPIServersDialledRarely)
	t.Run("urgent once per second", scheduleUrgentOncePerSecond)
	t.Run("nodes spread", scheduleNodesSpread)
	t.Run("first beat spread", scheduleFirstBeatSpread)
}

func scheduleNextTimeIsOfNode(t *testing.T) {
	for _, c := range []struct {
		random   float64
		now, due time.Duration
	}{
		{0.5, 1000 * time.Second, 1003 * time.Second},
		{0, 1000 * time.Second, 1003*time.Second - 200*ms},
		{0.999999999, 1000 * time.Second, 1003*time.Second + 200*ms},
		{0.5, 1003 * time.Second, 1013 * time.Second},
		{0.5, 1003*time.Second - 200*ms, 1013 * time.Second}, // it was early: this one is done
		{0.5, 1003*time.Second - 500*ms, 1003 * time.Second}, // a change was carried in between
		{0.5, 1003*time.Second - 400*ms, 1003 * time.Second}, // the earliest that may follow
		{0.5, 2 * time.Second, 3 * time.Second},
	} {
		r := steady(c.random)
		for _, outcome := range []Outcome{Renewed, Created} {
			p := r.end(r.begin(attemptState{failed: 1}, c.now, false), c.now, outcome, 0)
			assert.InDelta(t, c.due, p.due, float64(ms), "%s, random %g at %s", outcome, c.random, c.now)
			assert.Zero(t, p.failed, outcome)
			assert.Equal(t, c.now+r.duration, p.expires, outcome)
		}
	}
}

func scheduleIntervalJitter(t *testing.T) {
	r := steady(0)
	r.random = rand.New(rand.NewPCG(1, 2)).Float64
	p := r.first(0)
	last := p.due
	for i := range 10_000 {
		now := p.due + 30*ms // what an answer takes
		p = r.end(r.begin(p, p.due, false), now, Renewed, 0)
		if i > 0 {
			assert.InDelta(t, 10*time.Second, p.due-last, float64(400*ms))
		}
		last = p.due
	}
}

func scheduleAfterFailure(t *testing.T) {
	now := 1000 * time.Second
	for _, c := range []struct {
		name    string
		before  attemptState
		outcome Outcome
		after   time.Duration
		least   time.Duration
		most    time.Duration
		wait    time.Duration
	}{
		{"a connection that died is made anew at once", attemptState{timeout: 2 * time.Second}, Lost, 0, 0, 100 * ms, 2 * time.Second},
		{"one that lives is used again at once, and waited for longer", attemptState{timeout: 2 * time.Second}, Slow, 0, 0, 100 * ms, 4 * time.Second},
		{"never longer than this", attemptState{timeout: 8 * time.Second}, Slow, 0, 0, 100 * ms, 8 * time.Second},
		{"a second retry waits", attemptState{failed: 1}, Rejected, 0, 100 * ms, 400 * ms, 0},
		{"and a tenth", attemptState{failed: 9}, Rejected, 0, 100 * ms, 2 * time.Second, 0},
		{"what the API server wishes is minded", attemptState{}, Throttled, time.Second, time.Second, time.Second, 0},
		{"up to a bound", attemptState{}, Throttled, time.Minute, 2 * time.Second, 2 * time.Second, 0},
		{"a dial that failed is not made again at once", attemptState{dials: 1}, Unreachable, 0, 0, 5 * time.Second, 0},
		{"and less and less", attemptState{dials: 3}, Unreachable, 0, 0, 20 * time.Second, 0},
		{"to a bound", attemptState{dials: 30}, Unreachable, 0, 0, 30 * time.Second, 0},
		{"unless the lease is about to expire", attemptState{dials: 30, expires: now + 9*time.Second}, Unreachable, 0, 0, 2 * time.Second, 0},
		{"and not later than when it is", attemptState{dials: 30, expires: now + 15*time.Second}, Unreachable, 0, 0, 7 * time.Second, 0},
		{"and no more", attemptState{dials: 30, expires: now}, Unreachable, 0, 0, 30 * time.Second, 0},
		{"however often it failed", attemptState{dials: 100}, Unreachable, 0, 0, 30 * time.Second, 0},
		{"the same after a connection that died young", attemptState{dials: 3}, Lost, 0, 0, 20 * time.Second, 0},
		{"but not on a connection that lives", attemptState{dials: 3}, Slow, 0, 0, 100 * ms, 0},
		{"nor where it answers", attemptState{dials: 3}, Rejected, 0, 0, 100 * ms, 0},
		{"nor where a token may be new", attemptState{dials: 3}, Unauthorized, 0, 0, 100 * ms, 0},
		{"without a node there is nothing to try again", attemptState{}, NoNode, 0, 2800 * ms, 3200 * ms, 0},
		{"nor where somebody else renews", attemptState{}, Held, 0, 2800 * ms, 3200 * ms, 0},
		{"a budget that is spent is waited for", attemptState{retryTokensUsed: 5}, Rejected, 0, 2 * time.Second, 2 * time.Second, 0},
		{"no shorter than without it", attemptState{retryTokensUsed: 4.05, failed: 9}, Rejected, 0, 100 * ms, 2 * time.Second, 0},
	} {
		c.before.began, c.before.keepUntil = now, now+time.Hour
		low, high := steady(0).end(c.before, now, c.outcome, c.after), steady(1-1e-12).end(c.before, now, c.outcome, c.after)
		assert.InDelta(t, c.least, low.due-now, float64(ms), "%s: at the least", c.name)
		assert.InDelta(t, c.most, high.due-now, float64(ms), "%s: at the most", c.name)
		assert.Equal(t, c.wait, low.timeout, c.name)
	}
}

// A connection that answers is left when the Lease is about to expire, and then once per lease
// period: another may lead to another API server.
func scheduleConnectionGivenUp(t *testing.T) {
	r, now := steady(0.5), 1000*time.Second
	renewed := r.end(attemptState{}, now, Renewed, 0)
	assert.False(t, renewed.redial)
	last := now + r.duration - r.interval
	for _, outcome := range []Outcome{Throttled, Rejected, Slow} {
		assert.False(t, r.end(renewed, last-1, outcome, 0).redial, "%s: there is time", outcome)
		p := r.end(renewed, last, outcome, 0)
		assert.True(t, p.redial, outcome)
		failed := attemptState{failed: 9, dials: 9, keepUntil: last, began: last, expires: last + r.interval}
		assert.LessOrEqual(t, r.end(failed, last, outcome, 0).due, last+firstRetry, "%s: it is tried at once", outcome)
		p = r.end(p, last+r.duration, outcome, 0)
		assert.False(t, p.redial, "%s: the new one is kept as long", outcome)
		assert.True(t, r.end(p, last+r.duration+r.interval, outcome, 0).redial, outcome)
	}
	for _, outcome := range []Outcome{Lost, Unreachable, Unauthorized} {
		assert.True(t, r.end(renewed, now, outcome, 0).redial, outcome)
	}
	for dials, kept := range []time.Duration{firstDial / 2, firstDial, 2 * firstDial, longestDial / 2} {
		p := r.begin(attemptState{dials: dials, keepUntil: time.Hour}, now, true)
		assert.False(t, r.end(p, now+kept-1, Unauthorized, 0).redial, "dials back off")
		assert.True(t, r.end(p, now+kept, Unauthorized, 0).redial, "after %d dials", dials)
	}
	for _, outcome := range []Outcome{NoNode, Held} {
		assert.False(t, r.end(attemptState{redial: true}, last, outcome, 0).redial, "%s: every API server would answer the same", outcome)
	}
	assert.False(t, r.end(r.first(now), now+10*time.Second, Rejected, 0).redial, "an agent that starts waits as well")
	assert.True(t, r.end(r.first(now), now+r.duration, Rejected, 0).redial)
}

// sickness is what attempts on a connection end with from a time on: with one API server of two
// on the connection that is open then, else on each.
type sickness struct {
	from    time.Duration
	outcome Outcome
	one     bool
}

// live lets an agent live until end, and returns when it dialled and when it renewed.
func (s sickness) live(r schedule, end time.Duration) (dials, renewals []time.Duration) {
	up := false
	for p := r.first(0); p.due < end; {
		now, outcome, took := p.due, Renewed, 5*ms
		p = r.begin(p, now, !up)
		if !up {
			dials = append(dials, now)
		}
		if now >= s.from && !(s.one && dials[len(dials)-1] >= s.from) {
			if outcome = s.outcome; outcome == Slow {
				took = p.timeout
			}
		}
		p = r.end(p, now+took, outcome, 0)
		if up = !p.redial; outcome.Good() {
			renewals = append(renewals, now+took)
		}
	}
	return dials, renewals
}

func manyAgents(n int) []schedule {
	list := make([]schedule, n)
	for i := range list {
		list[i] = steady(0)
		list[i].random = rand.New(rand.NewPCG(uint64(i), 1)).Float64
		list[i].phase = phaseOf(fmt.Sprintf("node-%03d", i), list[i].interval)
	}
	return list
}

// One API server of several fails, or hangs while its connections live.
func scheduleSickAPIServerLeft(t *testing.T) {
	for _, outcome := range []Outcome{Throttled, Rejected, Slow, Unauthorized} {
		longest := time.Duration(0)
		for i, r := range manyAgents(500) {
			dials, renewals := sickness{from: time.Minute, outcome: outcome, one: true}.live(r, 5*time.Minute)
			assert.Len(t, dials, 2, "%s, agent %d: the first, and away from the sick one", outcome, i)
			for i := range renewals[1:] {
				longest = max(longest, renewals[i+1]-renewals[i])
			}
		}
		t.Logf("%s: longest gap %s", outcome, longest)
		assert.LessOrEqual(t, longest, steady(0).duration, outcome)
	}
}

// All API servers answer and refuse, for 5 min: thousands of agents must not dial together.
func scheduleSickAPIServersDialledRarely(t *testing.T) {
	const agents, from, minutes = 1000, time.Minute, 5
	for outcome, most := range map[Outcome]int{Throttled: 8, Rejected: 8, Slow: 8, Unauthorized: 25} {
		perSecond, n := map[time.Duration]int{}, 0
		for _, r := range manyAgents(agents) {
			dials, _ := sickness{from: from, outcome: outcome}.live(r, from+minutes*time.Minute)
			for _, at := range dials[1:] {
				perSecond[at/time.Second]++
				n++
			}
		}
		busiest := slices.Max(slices.Collect(maps.Values(perSecond)))
		t.Logf("%s: %.1f dials per agent, %d in the busiest second", outcome, float64(n)/agents, busiest)
		assert.LessOrEqual(t, n, most*agents, outcome)
		assert.LessOrEqual(t, busiest, 3*agents/10, outcome)
	}
}

func scheduleTimeoutDoubles(t *testing.T) {
	r := steady(0.5)
	for took, wait := range map[time.Duration]time.Duration{
		0: 2 * time.Second, time.Second: 2 * time.Second, 3 * time.Second: 6 * time.Second, 5 * time.Second: 8 * time.Second,
	} {
		p := r.begin(attemptState{}, 1000*time.Second, false)
		assert.Equal(t, wait, r.end(p, 1000*time.Second+took, Renewed, 0).timeout, took)
	}
}

// A token comes back in each of five parts of the interval of 10 s.
func scheduleRetryTokens(t *testing.T) {
	r := steady(0.5)
	for _, c := range []struct {
		name   string
		before attemptState
		now    time.Duration
		spent  float64
	}{
		{"a beat", attemptState{}, 0, 0},
		{"a beat after an hour", attemptState{}, time.Hour, 0},
		{"a retry", attemptState{failed: 1}, 0, 1},
		{"a retry after an hour", attemptState{failed: 1}, time.Hour, 1},
		{"a retry after 4 s", attemptState{failed: 2, retryTokensUsed: 3}, 4 * time.Second, 2},
	} {
		assert.InDelta(t, c.spent, r.begin(c.before, c.now, false).retryTokensUsed, 1e-9, c.name)
	}
	p := r.end(attemptState{retryTokensUsed: 5, began: time.Second}, 1500*ms, Rejected, 0)
	assert.Equal(t, 3*time.Second, p.due, "what the attempt took counts as waited for")
}

func scheduleDials(t *testing.T) {
	assert.Zero(t, steady(0).begin(attemptState{}, 0, false).dials)
	assert.Equal(t, 1, steady(0).begin(attemptState{}, 0, true).dials)
}

// An API server that refuses everybody is asked at most once in two seconds more.
func scheduleRetriesWithinTokens(t *testing.T) {
	for _, outcome := range []Outcome{Throttled, Rejected, Slow} {
		for seed := range uint64(20) {
			r := steady(0)
			r.random = rand.New(rand.NewPCG(seed, 1)).Float64
			p := r.first(0)
			n, end := 0, 10*time.Minute
			for p.due < end {
				now := p.due
				p = r.end(r.begin(p, now, false), now+5*ms, outcome, 0)
				n++
			}
			most := retryTokens + 1 + int(end/(r.interval/retryTokens))
			assert.LessOrEqual(t, n, most, "%s, seed %d", outcome, seed)
			assert.GreaterOrEqual(t, n, most*9/10, "%s, seed %d: it must not give up", outcome, seed)
		}
	}
}

// outage is when the API server is away, for one agent.
type outage struct{ from, to time.Duration }

// live lets an agent live until end, and returns when it dialled in vain and when
// it renewed.
func (o outage) live(r schedule, end time.Duration) (dials, renewals []time.Duration) {
	up := true
	for p := r.first(0); p.due < end; {
		now, outcome := p.due, Renewed
		begun := r.begin(p, now, !up)
		switch away := now >= o.from && now < o.to; {
		case away && up:
			up, outcome = false, Lost
		case away:
			outcome = Unreachable
			dials = append(dials, now)
		default:
			up = true
			renewals = append(renewals, now)
		}
		p = r.end(begun, now+10*ms, outcome, 0)
	}
	return dials, renewals
}

// 1,000 agents whose API server is away for five minutes.
func scheduleDialsSpread(t *testing.T) {
	const agents = 1000
	o := outage{60 * time.Second, 360 * time.Second}
	perSecond := map[time.Duration]int{}
	inVain := 0
	var slowest time.Duration
	for i, r := range manyAgents(agents) {
		dials, renewals := o.live(r, o.to+time.Minute)
		inVain += len(dials)
		after := slices.IndexFunc(renewals, func(at time.Duration) bool { return at >= o.to })
		require.GreaterOrEqual(t, after, 0, "agent %d did not come back", i)
		slowest = max(slowest, renewals[after]-o.to)
		for _, at := range renewals[after:] {
			perSecond[(at-o.to)/time.Second]++
		}
	}
	worst := slices.Max(slices.Collect(maps.Values(perSecond)))
	t.Logf("%.1f dials per agent in vain, all back after %s, most in a second %d", float64(inVain)/agents, slowest, worst)
	assert.LessOrEqual(t, worst, 3*agents/10, "three times the mean")
	assert.Less(t, inVain, 30*agents)
	assert.LessOrEqual(t, slowest, longestDial)
}

// Whose Lease ends soon is quick when the API server comes back.
func scheduleExpiringLeaseIsQuick(t *testing.T) {
	for i := range 500 {
		r := steady(0)
		r.random = rand.New(rand.NewPCG(uint64(i), 1)).Float64
		_, renewals := outage{60 * time.Second, 86 * time.Second}.live(r, 3*time.Minute) // renewed at 53 s: until 93 s
		after := slices.IndexFunc(renewals, func(at time.Duration) bool { return at > time.Minute })
		require.InDelta(t, 53*time.Second, renewals[after-1], float64(time.Second))
		assert.LessOrEqual(t, renewals[after]-86*time.Second, urgentDial+longestRetry, "seed %d", i)
	}
}

func scheduleUrgentOncePerSecond(t *testing.T) {
	r := steady(0.5)
	p := r.end(r.begin(r.first(0), time.Second, false), time.Second, Renewed, 0)
	assert.Equal(t, 2*time.Second, r.woken(p, 1200*ms).due)
	assert.Equal(t, 2500*ms, r.woken(p, 2500*ms).due)
	late := attemptState{due: 3 * time.Second, began: time.Second, expires: time.Minute}
	assert.Equal(t, 3*time.Second, r.woken(late, 4*time.Second).due, "what is due stays so")
	failed := attemptState{due: 9 * time.Second, failed: 1, expires: time.Minute}
	assert.Equal(t, 9*time.Second, r.woken(failed, 4*time.Second).due, "a retry is not hastened")
	assert.Equal(t, 2*time.Second, r.woken(attemptState{due: 2 * time.Second}, time.Second).due, "nor the first beat")
}

func scheduleNodesSpread(t *testing.T) {
	const parts, nodes = 10, 5000
	var in [parts]int
	for i := range nodes {
		in[phaseOf(fmt.Sprintf("ip-10-0-%d-%d", i/256, i%256), 10*time.Second)/time.Second]++
	}
	for i, n := range in {
		assert.InDelta(t, nodes/parts, n, nodes/parts/5, "part %d of %v", i, in)
	}
}

func scheduleFirstBeatSpread(t *testing.T) {
	for _, phase := range []time.Duration{0, 5 * time.Second, 9999 * ms} {
		r := steady(0.5)
		r.phase = phase
		assert.Equal(t, 77*time.Second+phase/5, r.first(77*time.Second).due)
	}
}

func TestRenewTimeIncreases(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	cut := now.Truncate(time.Microsecond)
	hour := cut.Add(time.Hour)
	for _, c := range []struct {
		name               string
		last, stored, want time.Time
	}{
		{"by the clock", time.Time{}, time.Time{}, cut},
		{"by the clock, after others", cut.Add(-time.Second), cut.Add(-time.Minute), cut},
		{"twice in a microsecond", cut, time.Time{}, cut.Add(time.Microsecond)},
		{"the clock was set back", hour, cut, hour.Add(time.Microsecond)},
		{"the agent before it had another clock", time.Time{}, hour, hour.Add(time.Microsecond)},
		{"both", hour, hour.Add(time.Second), hour.Add(time.Second + time.Microsecond)},
	} {
		assert.Equal(t, c.want, nextRenewTime(now, c.last, c.stored), c.name)
	}
}

func FuzzRenewTimeIncreases(f *testing.F) {
	f.Add(int64(0), int64(3600e9), int64(-1))
	f.Fuzz(func(t *testing.T, now, last, stored int64) {
		at := func(n int64) time.Time { return time.Unix(0, n).UTC() }
		got := nextRenewTime(at(now), at(last).Truncate(time.Microsecond), at(stored).Truncate(time.Microsecond))
		assert.True(t, got.After(at(last).Truncate(time.Microsecond)))
		assert.True(t, got.After(at(stored).Truncate(time.Microsecond)))
		assert.Equal(t, got, got.Truncate(time.Microsecond), "a Lease holds microseconds")
	})
}
