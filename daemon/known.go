package daemon

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/probes"
)

// knownEvery is how often what rules know of the cluster is made anew at most: a
// node that starts a hundred pods tells of each of them several times.
const knownEvery = time.Second

// keepKnown makes what the sample loop takes of the cluster, when it changed.
// What is lent is read while a rule asks for it.
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

// know makes it anew.
func (c *cluster) know() {
	var absent probes.Absent
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
	c.known.Store(probes.NewCluster(known, c.lent.last, absent))
}

// endings are since when pods were seen to be deleted, by UID, while they count as
// ending.
type endings map[string]time.Time

// bound has a pod count as ending for so long at most: the grace period is its
// owner's choice, and a rule would leave it alone for as long. It returns who is
// being deleted.
func (e endings) bound(known []probes.Pod, now time.Time, most time.Duration) endings {
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
			next[p.UID] = time.Time{} // for good
		}
	}
	return next
}

// outlasted: one of them counts as ending no more, which is not told yet.
func (e endings) outlasted(now time.Time, most time.Duration) bool {
	for _, since := range e {
		if !since.IsZero() && now.Sub(since) >= most {
			return true
		}
	}
	return false
}

// facts is what is known of the cluster now, without waiting for anybody; nil
// where there is none.
func (c *cluster) facts() *probes.Cluster {
	if c == nil {
		return nil
	}
	return c.known.Load()
}
