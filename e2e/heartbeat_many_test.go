package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// crowd is many agents' heartbeats, each with a connection of its own.
type crowd struct {
	t        *testing.T
	interval time.Duration
	lines    []*lease.Connection

	mu    sync.Mutex  // guards beats
	beats []crowdBeat // in the order of their end
}

// crowdBeat is an attempt of one of them.
type crowdBeat struct {
	of      int
	ended   time.Time
	outcome lease.Outcome
}

// newCrowd starts n of them, which end with ctx.
func newCrowd(ctx context.Context, t *testing.T, c *cluster.Cluster, how *rest.Config, n int, interval time.Duration) (cr *crowd, wait func()) {
	t.Helper()
	cr = &crowd{t: t, interval: interval}
	var running sync.WaitGroup
	for i := range n {
		node := fmt.Sprintf("crowd-%04d", i)
		_, err := c.AddNode(t.Context(), node, nil)
		require.NoError(t, err)
		line, err := lease.NewConnection(how)
		require.NoError(t, err)
		cr.lines = append(cr.lines, line)
		b := &lease.Heartbeat{
			Node: node, Namespace: lease.Namespace, Holder: "crowd", Connection: line,
			Interval: interval, Duration: 4 * interval, Uptime: bootTime,
			OnAttempt: func(a lease.Attempt) { cr.add(crowdBeat{i, time.Now(), a.Outcome}) },
		}
		running.Go(func() { assert.NoError(t, b.Run(ctx)) })
	}
	return cr, running.Wait
}

func (c *crowd) add(b crowdBeat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats = append(c.beats, b)
}

// since are the attempts that ended after a time.
func (c *crowd) since(begin time.Time) []crowdBeat {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.beats, func(b crowdBeat) bool { return b.ended.After(begin) })
	if i < 0 {
		return nil
	}
	return slices.Clone(c.beats[i:])
}

// dials that were made, per agent.
func (c *crowd) dials() float64 {
	n := uint64(0)
	for _, l := range c.lines {
		n += l.Dials.Load()
	}
	return float64(n) / float64(len(c.lines))
}

// rates are the renewals per second, and those of the busiest second.
func rates(beats []crowdBeat, begin, end time.Time) (mean float64, worst int) {
	perSecond := map[int]int{}
	n := 0
	for _, b := range beats {
		if b.outcome.Good() && b.ended.Before(end) {
			n++
			perSecond[int(b.ended.Sub(begin)/time.Second)]++
		}
	}
	for _, k := range perSecond {
		worst = max(worst, k)
	}
	return float64(n) / end.Sub(begin).Seconds(), worst
}

// first renewal of each after a time, the earliest first.
func first(beats []crowdBeat, begin time.Time) (delays []time.Duration) {
	seen := map[int]bool{}
	for _, b := range beats {
		if b.outcome.Good() && !seen[b.of] {
			seen[b.of] = true
			delays = append(delays, b.ended.Sub(begin))
		}
	}
	return delays
}

// Many agents on one real API server, which becomes slow, and is away and comes
// back.
func heartbeatsDoNotStorm(t *testing.T, c *cluster.Cluster) {
	n, interval, away, steady := 60, 2*time.Second, 6*time.Second, 4*time.Second
	if os.Getenv("PLIMSOLL_LONG") != "" {
		n, interval, away, steady = 1000, 10*time.Second, 5*time.Minute, 40*time.Second
	}
	require.NoError(t, c.Apply(t.Context(), deploy.RBAC))
	ctx, stop := context.WithCancel(t.Context())
	cr, wait := newCrowd(ctx, t, c, agentToken(t, c), n, interval)
	defer wait()
	defer stop()
	within(t, time.Minute, "all have renewed", func() error {
		if k := len(first(cr.since(time.Time{}), time.Now())); k < n {
			return fmt.Errorf("%d of %d", k, n)
		}
		return nil
	})
	expected := float64(n) / interval.Seconds()
	begin := time.Now()
	sleep(ctx, steady)
	mean, worst := rates(cr.since(begin), begin, begin.Add(steady))
	t.Logf("%d agents, interval %s: %.1f renewals/s (%.1f expected), busiest second %d, %.2f dials per agent", n, interval, mean, expected, worst, cr.dials())
	assert.LessOrEqual(t, mean, 1.25*expected)

	before, clock := cr.dials(), deadline.Start()
	for range 3 { // each write takes up to 5 s, and no connection is to blame
		require.NoError(t, c.Etcd.Pause())
		sleep(ctx, 5*time.Second)
		require.NoError(t, c.Etcd.Resume())
		sleep(ctx, time.Second)
	}
	t.Logf("an API server that answers after up to 5 s: %.2f dials per agent, %v", cr.dials()-before, tally(cr.since(begin)))
	// A tenth of the agents at most; on a busy machine 5 s and what it adds are too long.
	assert.LessOrEqual(t, cr.dials()-before, clock.Stretch(105*time.Millisecond).Seconds())

	before = cr.dials()
	api := c.APIServers[0]
	require.NoError(t, api.Kill())
	sleep(ctx, away)
	during := cr.dials() - before
	require.NoError(t, api.Start())
	require.NoError(t, api.WaitReady(ctx))
	back := time.Now()
	clock = deadline.Start()
	within(t, 90*time.Second, "all are back", func() error {
		if k := len(first(cr.since(back), back)); k < n {
			return fmt.Errorf("%d of %d", k, n)
		}
		return nil
	})
	all := cr.since(back)
	delays := first(all, back)
	_, worst = rates(all, back, time.Now())
	t.Logf("away for %s: %.1f dials per agent meanwhile, %.1f afterwards; half were back after %.1f s, nine of ten after %.1f s, all after %.1f s; busiest second %d (3 times the mean: %.0f)",
		away, during, cr.dials()-before-during, delays[n/2].Seconds(), delays[n*9/10].Seconds(), delays[n-1].Seconds(), worst, 3*expected)
	assert.LessOrEqual(t, delays[n-1], clock.Stretch(40*time.Second))
	assert.LessOrEqual(t, float64(worst), 2*3*expected)
}

func tally(beats []crowdBeat) map[lease.Outcome]int {
	n := map[lease.Outcome]int{}
	for _, b := range beats {
		n[b.outcome]++
	}
	return n
}
