package evict

import (
	"slices"
	"strings"
	"sync"
)

// Log is a bounded ring of the newest decisions.
type Log struct {
	// Max is how many are kept.
	Max int

	mu   sync.Mutex // guards list
	list []Decision
	last string // signature of the round before
}

// candidatesKept of a decision; of hundreds the rest says nothing more.
const candidatesKept = 30

// Add keeps a decision, unless it says what the round before said: the same
// causes at the same levels, the same outcome, nobody asked. It tells whether
// it was kept.
func (l *Log) Add(d Decision) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	signature := d.signature()
	if same := signature == l.last; len(d.Causes) == 0 || same && !d.asked() {
		l.last = signature
		return false
	}
	l.last = signature
	d.omit()
	l.list = append(l.list, d)
	if over := len(l.list) - l.Max; over > 0 {
		l.list = slices.Clone(l.list[over:])
	}
	return true
}

// Update changes the decision with that ID, if it is still kept.
func (l *Log) Update(id string, change func(*Decision)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if l.list[i].ID == id {
			change(&l.list[i])
		}
	}
}

// List returns the decisions, newest first. They are the caller's own, but for
// what they point at, which never changes.
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

// signature is what makes a decision worth telling again when it changes.
func (d *Decision) signature() string {
	words := []string{string(d.Code)}
	for _, c := range d.Causes {
		words = append(words, c.Plugin, c.Scope, c.Level.String())
	}
	if c, some := d.Going(); some {
		words = append(words, c.Pod.UID)
	}
	return strings.Join(words, "|")
}

func (d *Decision) asked() bool {
	return slices.ContainsFunc(d.Candidates, func(c Considered) bool { return len(c.Answers) > 0 })
}

// omit drops candidates beyond those kept for whom nobody asked.
func (d *Decision) omit() {
	var kept []Considered
	for i, c := range d.Candidates {
		if i < candidatesKept || len(c.Answers) > 0 { // who goes was asked for
			kept = append(kept, c)
		}
	}
	d.Omitted = len(d.Candidates) - len(kept)
	d.Candidates = kept
}
