package evict

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Log is a bounded ring of the newest decisions. Those that requested an eviction are not
// pushed out by others, however many these are, nor others by them: each kind has half of
// the ring at least.
type Log struct {
	// Max is how many are kept.
	Max int

	mu   sync.Mutex // guards list
	list []Decision
	last map[bool]string // signature of the round before, keyed by DryRun
	// repeated is the ID of a decision that is stored as an earlier one, which it repeats.
	repeated struct{ id, as string }
}

// maxCandidates bounds the candidates of a stored decision.
const maxCandidates = 30

// Add stores a decision, unless it repeats that of the round before: the same
// causes at the same levels, the same outcome, no request, or one more for a pod
// whose eviction has an unknown outcome, which takes the place of the one before. It
// reports whether it was stored as a new one.
func (l *Log) Add(d Decision) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	signature := d.signature()
	if l.last == nil {
		l.last = map[bool]string{}
	}
	same := signature == l.last[d.DryRun]
	l.last[d.DryRun] = signature
	if len(d.Causes) == 0 || same && (!d.asked() || l.repeats(d)) {
		return false
	}
	d.omit()
	l.list = append(l.list, d)
	l.trim()
	return true
}

// repeats stores a decision in the place of the last one, with its ID and time, if both
// request the eviction of the same pod alone and the outcome is unknown.
func (l *Log) repeats(d Decision) bool {
	for i := range slices.Backward(l.list) {
		before := &l.list[i]
		switch {
		case before.DryRun != d.DryRun:
			continue
		case d.unknown() == "" || before.unknown() != d.unknown():
			return false
		}
		l.repeated.id, l.repeated.as = d.ID, before.ID
		d.ID, d.Time = before.ID, before.Time
		d.omit()
		*before = d
		return true
	}
	return false
}

// unknown is the UID of the one pod whose eviction was requested, if its outcome is unknown.
func (d *Decision) unknown() string {
	uid := ""
	for i := range d.Candidates {
		c := &d.Candidates[i]
		switch {
		case len(c.Answers) == 0:
		case uid != "" || c.Answers[len(c.Answers)-1].Outcome != UnknownOutcome:
			return ""
		default:
			uid = c.Pod.UID
		}
	}
	return uid
}

// trim removes the oldest decisions beyond the maximum, of the kind that has more than half.
func (l *Log) trim() {
	over := len(l.list) - l.Max
	if over <= 0 {
		return
	}
	requests, half := 0, l.Max/2
	for i := range l.list {
		if l.list[i].Requested() {
			requests++
		}
	}
	if l.list[len(l.list)-1].Requested() { // the newest one always stays
		half = l.Max - half
	}
	surplus := requests - min(requests, max(half, l.Max-(len(l.list)-requests)))
	drop := map[bool]int{true: surplus, false: over - surplus}
	l.list = slices.DeleteFunc(slices.Clone(l.list), func(d Decision) bool {
		kind := d.Requested()
		drop[kind]--
		return drop[kind] >= 0
	})
}

// Update changes the decision with that ID, if it is still stored, and reports
// whether it differs.
func (l *Log) Update(id string, change func(*Decision)) (Decision, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == l.repeated.id {
		id = l.repeated.as
	}
	for i := range l.list {
		if l.list[i].ID != id {
			continue
		}
		now := l.list[i]
		now.Candidates = slices.Clone(now.Candidates) // List may have returned the old ones
		change(&now)
		changed := !reflect.DeepEqual(l.list[i], now)
		l.list[i] = now
		return now, changed
	}
	return Decision{}, false
}

// Restore loads the decisions of the agent before this one, oldest first; of two
// with one ID the later one counts.
func (l *Log) Restore(list []Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := map[string]int{}
	for _, d := range list {
		if i, again := at[d.ID]; again {
			l.list[i] = d
			continue
		}
		at[d.ID] = len(l.list)
		l.list = append(l.list, d)
	}
	l.trim()
}

// List returns the decisions, newest first. They are copies, but for what they
// point at, which never changes.
func (l *Log) List() []Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Decision, 0, len(l.list))
	for _, d := range slices.Backward(l.list) {
		d.Causes, d.After = slices.Clone(d.Causes), slices.Clone(d.After)
		d.Candidates = slices.Clone(d.Candidates)
		out = append(out, d)
	}
	return out
}

// signature is the part of a decision whose change makes it worth storing.
func (d *Decision) signature() string {
	words := []string{string(d.Code)}
	for _, c := range d.Causes {
		words = append(words, c.Plugin, c.Scope, c.Level.String())
	}
	for _, c := range d.Evicted() {
		words = append(words, c.Pod.UID)
	}
	return strings.Join(words, "|")
}

// Requested reports whether the eviction of a pod was requested, not in a dry run.
func (d *Decision) Requested() bool { return !d.DryRun && d.asked() }

func (d *Decision) asked() bool {
	return slices.ContainsFunc(d.Candidates, func(c Considered) bool { return len(c.Answers) > 0 })
}

// omit drops the candidates beyond maxCandidates whose eviction was not
// requested.
func (d *Decision) omit() {
	var kept []Considered
	for i, c := range d.Candidates {
		if i < maxCandidates || len(c.Answers) > 0 { // requested, so also every evicted one
			kept = append(kept, c)
		}
	}
	d.Omitted = len(d.Candidates) - len(kept)
	d.Candidates = kept
}
