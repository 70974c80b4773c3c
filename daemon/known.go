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
		before, why := c.lent.last, c.lent.absent()
		if c.asksLent() {
			c.lent.look(ctx, time.Now())
		}
		if moved || before != c.lent.last || why != c.lent.absent() {
			c.know()
		}
	}
}

const whyNotListed = "the API server has not listed the node's pods yet"

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
	c.known.Store(probes.NewCluster(list.Known(), c.lent.last, absent))
}

// facts is what is known of the cluster now, without waiting for anybody; nil
// where there is none.
func (c *cluster) facts() *probes.Cluster {
	if c == nil {
		return nil
	}
	return c.known.Load()
}
