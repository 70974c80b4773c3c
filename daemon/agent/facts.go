package agent

import (
	"context"
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// factsInterval is the least interval between two updates (debounce): a node that
// starts a hundred pods reports several changes of each.
const factsInterval = time.Second

// updateFacts updates what the sample loop uses of the cluster when it changes.
// Reclaimed resources are read only while a rule needs them.
func (c *cluster) updateFacts(ctx context.Context) error {
	look := time.NewTicker(factsInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		moved := false
		select {
		case <-c.podsChanged:
			moved = true
		default:
		}
		now := time.Now()
		before, why := c.reclaimed.last, c.reclaimed.absentReason()
		if c.needsReclaimed() {
			c.reclaimed.poll(ctx, now)
		}
		if moved || c.terminating.expired(now, c.terminationBound()) || !before.Equal(c.reclaimed.last) || why != c.reclaimed.absentReason() {
			c.buildFacts()
		}
	}
}

const podsNotListed = "pods of this node not listed yet"

// buildFacts builds it from the pods.
func (c *cluster) buildFacts() {
	var absent snapshot.Absent
	list := c.pods.List(pods.DefaultRules())
	if !list.Synced {
		absent.Because("pods", podsNotListed)
		list = pods.List{}
	}
	if why := c.reclaimed.absentReason(); why != "" {
		absent.Because("reclaimable", why)
	}
	known := list.ForRules()
	c.terminating = c.terminating.limit(known, time.Now(), c.terminationBound())
	c.facts.Store(snapshot.NewCluster(known, c.reclaimed.last, absent))
}

// terminations is when deleted pods were first seen, by UID; zero once they no
// longer count as terminating.
type terminations map[string]time.Time

// limit limits how long a pod counts as terminating: its owner chooses the
// termination grace, and rules leave a terminating pod alone (credit). It
// returns the pods that are being deleted.
func (e terminations) limit(known []snapshot.Pod, now time.Time, most time.Duration) terminations {
	next := terminations{}
	for i := range known {
		p := &known[i]
		if !p.Terminating {
			continue
		}
		since, seen := e[p.UID]
		if !seen {
			since = now
		}
		p.Terminating = now.Sub(since) < most
		if next[p.UID] = since; !p.Terminating {
			next[p.UID] = time.Time{} // never again
		}
	}
	return next
}

// expired tells whether a pod has just passed that limit.
func (e terminations) expired(now time.Time, most time.Duration) bool {
	for _, since := range e {
		if !since.IsZero() && now.Sub(since) >= most {
			return true
		}
	}
	return false
}

// currentFacts is what is known of the cluster now, without waiting; nil in standalone
// mode.
func (c *cluster) currentFacts() *snapshot.Cluster {
	if c == nil {
		return nil
	}
	return c.facts.Load()
}
