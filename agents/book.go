package agents

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// book is the state of this leader's term that the Leases do not have yet.
type book struct {
	went []Went
	// answers by node that its Lease may not have yet: at most its current
	// requests and its evicted pods.
	answers map[string][]lease.Answer
	// seen is when an eviction was first seen in a Lease, by pod UID.
	seen    map[string]time.Time
	nodes   map[string]*turn
	counted time.Time // when the pods were counted
	pods    int
	common  []string // the common causes that were last published
	tell    pace     // of publishing them
}

func newBook() book {
	return book{answers: map[string][]lease.Answer{}, seen: map[string]time.Time{}, nodes: map[string]*turn{}}
}

// prune drops evictions that no longer count, and answers to requests that are
// no longer made.
func (b *book) prune(now, server time.Time, s Settings, j *Judgement) {
	b.went = slices.DeleteFunc(b.went, func(w Went) bool { return now.Sub(w.Time) >= s.Evictions.countedPast(w.Past) })
	seen, nodes, answers := map[string]time.Time{}, map[string]*turn{}, map[string][]lease.Answer{}
	for i := range j.Agents {
		a := &j.Agents[i]
		for _, answer := range a.Carried.Answers {
			if spends(answer) {
				seen[answer.UID] = first(b.seen, answer.UID, now)
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
}

// pending are the answers that still have to be written to, or kept in, the
// agent's Lease.
func pending(server time.Time, s Settings, a *Judged, given []lease.Answer) []lease.Answer {
	var list []lease.Answer
	for i, answer := range given {
		over := slices.ContainsFunc(given[i+1:], func(b lease.Answer) bool { return replaces(b, answer) })
		ends := slices.ContainsFunc(a.Carried.Answers, func(c lease.Answer) bool { return replaces(answer, c) })
		if !over && (ends || counts(server, s, a.Carried.Requests, answer)) {
			list = append(list, answer)
		}
	}
	return list
}

func first(of map[string]time.Time, key string, now time.Time) time.Time {
	if at, is := of[key]; is {
		return at
	}
	return now
}

// turn is what one node has used of this leader's time and log.
type turn struct {
	judged time.Time
	judge  pace
	say    pace
	// unsaid counts suppressed log lines since the last one; problem is the
	// last one logged.
	unsaid  int
	problem string
}

func (b *book) turn(node string) *turn {
	t := b.nodes[node]
	if t == nil {
		t = &turn{}
		b.nodes[node] = t
	}
	return t
}

// judgedAt is when a request of the node was last evaluated; zero: never.
func (b *book) judgedAt(node string) time.Time {
	if t := b.nodes[node]; t != nil {
		return t.judged
	}
	return time.Time{}
}

// Rate limits of one node, burst and refill interval: for evaluated requests and
// for log lines. A well-behaved agent requests one pod after the other, one
// heartbeat apart.
const (
	judgeAtOnce = lease.MaxRequests
	judgeStep   = time.Second
	sayAtOnce   = 8
	sayStep     = time.Minute
)

// pace is a token bucket. The zero value is full.
type pace struct{ empty time.Time }

// take takes a token unless the bucket is empty. empty is the time at which the
// bucket held none: each step since then adds one, up to size.
func (p *pace) take(now time.Time, size int, step time.Duration) bool {
	if full := now.Add(-time.Duration(size) * step); p.empty.Before(full) {
		p.empty = full
	}
	if now.Sub(p.empty) < step {
		return false
	}
	p.empty = p.empty.Add(step)
	return true
}
