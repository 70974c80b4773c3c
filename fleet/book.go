package fleet

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/lease"
)

// book is what this leader did, until the Leases say it.
type book struct {
	went []Went
	// answers by node that its Lease may not have. Of a node there are no more
	// than it asks for now, and those who went.
	answers map[string][]lease.Answer
	// seen is when a Lease was first seen to say that a pod went, by UID.
	seen    map[string]time.Time
	nodes   map[string]*turn
	counted time.Time // when the pods were counted
	pods    int
	common  []string // the pressures with a common cause that were told
	tell    pace     // of that
}

func newBook() book {
	return book{answers: map[string][]lease.Answer{}, seen: map[string]time.Time{}, nodes: map[string]*turn{}}
}

// prune what counts no more, and answers to what is asked no more.
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

// pending are the answers that change what the Lease of an agent says, or keep it.
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

// turn is what one node has had of this leader's time, and of its log.
type turn struct {
	judged time.Time
	judge  pace
	say    pace
	// unsaid lines since the last, and the problem that was said last.
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

// judgedAt is when a request of the node was judged last; zero: not yet.
func (b *book) judgedAt(node string) time.Time {
	if t := b.nodes[node]; t != nil {
		return t.judged
	}
	return time.Time{}
}

// What one node may have judged and logged: so many at once, and then one in each
// step. An honest agent asks for one pod after the other, a beat apart.
const (
	judgeAtOnce = lease.MaxRequests
	judgeStep   = time.Second
	sayAtOnce   = 8
	sayStep     = time.Minute
)

// pace is a token bucket. The zero one is full.
type pace struct{ empty time.Time }

// take one, unless none is left. empty is when the bucket was without any: a step
// of time since then is one.
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
