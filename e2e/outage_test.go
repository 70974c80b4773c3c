package e2e_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

// outage is one of an API server, which some tests live through beside each other.
type outage struct {
	c          *cluster.Cluster
	begin, end func() error // once

	mu    sync.Mutex // guards all below
	met   sync.Cond  // all have come once more
	tests int
	here  int // of them, which wait for the others
	times int // that all had come
}

func newOutage(t *testing.T, c *cluster.Cluster, tests int) *outage {
	api := c.APIServers[0]
	o := &outage{c: c, tests: tests, begin: sync.OnceValue(api.Kill), end: sync.OnceValue(func() error {
		return errors.Join(api.Start(), api.WaitReady(t.Context()))
	})}
	o.met.L = &o.mu
	return o
}

// meet waits until all other tests are here too.
func (o *outage) meet() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.times
	o.here++
	o.look()
	for o.times == now {
		o.met.Wait()
	}
}

// leave by one that waits for nobody any more.
func (o *outage) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tests--
	o.look()
}

func (o *outage) look() {
	if o.here >= o.tests {
		o.here = 0
		o.times++
		o.met.Broadcast()
	}
}

// begins when all are ready for it, right after what a test does then.
func (o *outage) begins(t *testing.T, before func()) {
	t.Helper()
	o.meet()
	before()
	o.meet()
	require.NoError(t, o.begin())
}

// ends when all have seen it.
func (o *outage) ends(t *testing.T) {
	t.Helper()
	o.meet()
	require.NoError(t, o.end())
}

// nothing is done right before it.
func nothing() {}

// An API server that goes away and comes back, for all who live through that.
func TestAPIServerOutage(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Graces: noKubelets()})
	t.Run("a controller says why it cannot lead", func(t *testing.T) { controllerCannotLead(t, c) })
	tests := map[string]func(*testing.T, *outage){
		"a leader says so, and leads again":       leaderLosesServer,
		"scrapes need a reviewed token":           scrapesNeedReviewedToken,
		"nothing is done that was decided before": nothingDecidedBefore,
		"a queue of Backups goes on":              backupQueueLosesServer,
	}
	o := newOutage(t, c, len(tests))
	var running sync.WaitGroup
	for name, test := range tests {
		running.Go(func() {
			defer o.leave() // also where it has failed, or was not asked for
			t.Run(name, func(t *testing.T) { test(t, o) })
		})
	}
	running.Wait()
}
