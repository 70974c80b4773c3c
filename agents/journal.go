package agents

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// journal is the state of this leader's term that the Leases do not have yet.
type journal struct {
	evictions []PastEviction
	// answers by node that its Lease may not have yet: at most its current
	// requests and its evicted pods.
	answers map[string][]lease.Answer
	// seen is when an eviction was first seen in a Lease, by pod UID.
	seen        map[string]time.Time
	nodes       map[string]*nodeState
	countedAt   time.Time // when the pods were last counted, or counting them failed
	pods        int
	common      []string    // the common causes that were last published
	commonLimit tokenBucket // of publishing them
	// namespaces that were asked about, by name.
	namespaces map[string]namespaceState
}

// namespaceState is whether a namespace is a Velero's, or why that cannot be found out, and
// until when that is used.
type namespaceState struct {
	velero bool
	err    error
	until  time.Time
}

func newJournal() journal {
	return journal{answers: map[string][]lease.Answer{}, seen: map[string]time.Time{}, nodes: map[string]*nodeState{}, namespaces: map[string]namespaceState{}}
}

// prune drops evictions that no longer count, and answers to requests that are
// no longer made.
func (b *journal) prune(now, server time.Time, s Settings, j *Judgement) {
	b.evictions = slices.DeleteFunc(b.evictions, func(w PastEviction) bool { return now.Sub(w.Time) >= s.Evictions.countedPast(w.PastBrake) })
	seen, nodes, answers := map[string]time.Time{}, map[string]*nodeState{}, map[string][]lease.Answer{}
	for i := range j.Agents {
		a := &j.Agents[i]
		for _, answer := range a.Carried.Answers {
			if countsAsEviction(answer) {
				seen[answer.UID] = firstSeen(b.seen, answer.UID, now)
			}
		}
		if t := b.nodes[a.Name]; t != nil {
			nodes[a.Name] = t
		}
		if list := pending(server, s, a, b.answers[a.Name]); len(list) > 0 {
			answers[a.Name] = list
		}
	}
	b.seen, b.nodes, b.answers = seen, nodes, answers
	maps.DeleteFunc(b.namespaces, func(_ string, n namespaceState) bool { return !now.Before(n.until) })
}

// pending are the answers that still have to be written to, or kept in, the
// agent's Lease.
func pending(server time.Time, s Settings, a *Judged, given []lease.Answer) []lease.Answer {
	var list []lease.Answer
	for i, answer := range given {
		over := slices.ContainsFunc(given[i+1:], func(b lease.Answer) bool { return supersedes(b, answer) })
		ends := slices.ContainsFunc(a.Carried.Answers, func(c lease.Answer) bool { return supersedes(answer, c) })
		if !over && (ends || retained(server, s, a.Carried.Requests, answer, given[i+1:])) {
			list = append(list, answer)
		}
	}
	return list
}

func firstSeen(of map[string]time.Time, key string, now time.Time) time.Time {
	if at, is := of[key]; is {
		return at
	}
	return now
}

// nodeState is what one node has used of this leader's time and log.
type nodeState struct {
	evaluatedAt time.Time
	// actsAt is the earliest next act on a silent agent. writtenAt is when answers were last
	// written to its Lease, or tried to be; writeFailed: that failed.
	actsAt, writtenAt time.Time
	writeFailed       bool
	evalLimit         tokenBucket
	logLimit          tokenBucket
	// suppressed counts suppressed log lines since the last one; problem is the
	// last one logged.
	suppressed int
	problem    string
}

func (b *journal) node(node string) *nodeState {
	t := b.nodes[node]
	if t == nil {
		t = &nodeState{}
		b.nodes[node] = t
	}
	return t
}

// evaluatedAt is when a request of the node was last evaluated; zero: never.
func (b *journal) evaluatedAt(node string) time.Time {
	if t := b.nodes[node]; t != nil {
		return t.evaluatedAt
	}
	return time.Time{}
}

// actsAt is the earliest next act on a silent agent; zero: now.
func (b *journal) actsAt(node string) time.Time {
	if t := b.nodes[node]; t != nil {
		return t.actsAt
	}
	return time.Time{}
}

// unwritten are the agents whose Leases may lack answers: those with an eviction first, unless
// their last write failed; else the last write longest ago.
func (b *journal) unwritten(j *Judgement) []*Judged {
	var list []*Judged
	for i := range j.Agents {
		if a := &j.Agents[i]; len(b.answers[a.Name]) > 0 && a.Lease != nil {
			list = append(list, a)
		}
	}
	place := func(a *Judged) int {
		if !b.node(a.Name).writeFailed && slices.ContainsFunc(b.answers[a.Name], countsAsEviction) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(x, y *Judged) int {
		return cmp.Or(place(x)-place(y), b.node(x.Name).writtenAt.Compare(b.node(y.Name).writtenAt))
	})
	return list
}

// Rate limits of one node, burst and refill interval: for evaluated requests and
// for log lines. A well-behaved agent requests one pod after the other, one
// heartbeat apart.
const (
	evalBurst    = lease.MaxRequests
	evalInterval = time.Second
	logBurst     = 8
	logInterval  = time.Minute
)

// tokenBucket is a token bucket. The zero value is full.
type tokenBucket struct{ emptyAt time.Time }

// take takes a token unless the bucket is empty. empty is the time at which the
// bucket held none: each step since then adds one, up to size.
func (p *tokenBucket) take(now time.Time, size int, step time.Duration) bool {
	if full := now.Add(-time.Duration(size) * step); p.emptyAt.Before(full) {
		p.emptyAt = full
	}
	if now.Sub(p.emptyAt) < step {
		return false
	}
	p.emptyAt = p.emptyAt.Add(step)
	return true
}
