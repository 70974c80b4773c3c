package agent

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// knownEvery is the least interval between two updates (debounce): a node that
// starts a hundred pods reports several changes of each.
const knownEvery = time.Second

// keepKnown updates what the sample loop uses of the cluster when it changes.
// Reclaimed resources are read only while a rule needs them.
func (c *cluster) keepKnown(ctx context.Context) error {
	look := time.NewTicker(knownEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		moved := false
		select {
		case <-c.moved:
			moved = true
		default:
		}
		now := time.Now()
		before, why := c.lent.last, c.lent.absent()
		if c.asksLent() {
			c.lent.look(ctx, now)
		}
		if moved || c.ending.outlasted(now, c.mayEnd()) || before != c.lent.last || why != c.lent.absent() {
			c.know()
		}
	}
}

const whyNotListed = "pods of this node not listed yet"

// know builds it from the pods.
func (c *cluster) know() {
	var absent snapshot.Absent
	list := c.pods.List(pods.DefaultRules())
	if !list.Synced {
		absent.Because("pods", whyNotListed)
		list = pods.List{}
	}
	if why := c.lent.absent(); why != "" {
		absent.Because("reclaimable", why)
	}
	known := list.Known()
	c.ending = c.ending.bound(known, time.Now(), c.mayEnd())
	c.known.Store(snapshot.NewCluster(known, c.lent.last, absent))
}

// endings is when deleted pods were first seen, by UID; zero once they no
// longer count as terminating.
type endings map[string]time.Time

// bound limits how long a pod counts as terminating: its owner chooses the
// termination grace, and rules leave a terminating pod alone (credit). It
// returns the pods that are being deleted.
func (e endings) bound(known []snapshot.Pod, now time.Time, most time.Duration) endings {
	next := endings{}
	for i := range known {
		p := &known[i]
		if !p.Ending {
			continue
		}
		since, seen := e[p.UID]
		if !seen {
			since = now
		}
		p.Ending = now.Sub(since) < most
		if next[p.UID] = since; !p.Ending {
			next[p.UID] = time.Time{} // never again
		}
	}
	return next
}

// outlasted tells whether a pod has just passed that limit.
func (e endings) outlasted(now time.Time, most time.Duration) bool {
	for _, since := range e {
		if !since.IsZero() && now.Sub(since) >= most {
			return true
		}
	}
	return false
}

// facts is what is known of the cluster now, without waiting; nil in standalone
// mode.
func (c *cluster) facts() *snapshot.Cluster {
	if c == nil {
		return nil
	}
	return c.known.Load()
}
