package evict

import (
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// MemoryVersion is raised when an older program would misread a Memory.
const MemoryVersion = 2

// Memory is what a round must know of those before it; it outlives the agent.
// The zero value is that of nothing known: its budgets are empty.
type Memory struct {
	// Marks by condition, without Prefix.
	Marks map[string]Seen `json:"marks,omitempty"`
	// Claims are which plugin of another process has a condition, by condition.
	Claims map[string]string `json:"claims,omitempty"`
	// Victims are the pods that were chosen, the newest last, until what they
	// left behind is recorded. Each is kept before the API server is asked, so
	// that an agent that was killed in between chooses nobody in its place.
	Victims []Chosen `json:"victims,omitempty"`
	// Quiet is until when nobody is chosen, and Settle until when nobody is for
	// a verdict, by its plugin and scope.
	Quiet  time.Time            `json:"quiet,omitzero"`
	Settle map[string]time.Time `json:"settle,omitempty"`
	// Ending is since when pods that are being deleted were seen to be, by UID,
	// and Covered since when what is ending has been all that a verdict misses.
	Ending  map[string]time.Time `json:"ending,omitempty"`
	Covered map[string]time.Time `json:"covered,omitempty"`
	// Pretended are the pods that a dry run counts as evicted, by the verdict
	// that they went for, while it lasts.
	Pretended map[string]Chosen `json:"pretended,omitempty"`
	// Waiting are pods whose eviction was not granted, by UID.
	Waiting map[string]Waiting `json:"waiting,omitempty"`
	// Brakes are until when the controller is not asked again, and why, by what it
	// was asked for: whichever pod it is.
	Brakes map[string]Waiting `json:"brakes,omitempty"`
	// Failed are the UIDs of pods that the kubelet evicted because the node was
	// short of something; they stay listed.
	Failed []string `json:"failed,omitempty"`
	// Forced are the pods that plugins want gone whatever the levels, by plugin.
	Forced []Forced `json:"forced,omitempty"`
	// Kubelet is when it was last seen to evict, by the condition that it
	// reports then.
	Kubelet map[string]time.Time `json:"kubelet,omitempty"`
	Budgets Budgets              `json:"budgets,omitzero"`
	Rules   map[string]Rule      `json:"rules,omitempty"`

	// Last is the one victim that version 1 knew.
	Last *Chosen `json:"last,omitempty"`
}

// Chosen is a pod that was chosen to go.
type Chosen struct {
	Victim
	// Owner is whose budget it is charged to.
	Owner string `json:"owner,omitempty"`
	// Relief that each verdict expects of it, by plugin and scope. nil: not
	// known, it counts for all as all that is missing.
	Relief map[string]float64 `json:"relief,omitempty"`
	// Decision is the ID of the Decision that chose it.
	Decision string    `json:"decision"`
	Time     time.Time `json:"time"`
	// Asked is when the controller was asked for it last: it is pending as long
	// as the request stands. For is what it was asked for.
	Asked time.Time `json:"asked,omitzero"`
	For   string    `json:"for,omitempty"`
	// Outcome is empty until the API server has answered.
	Outcome Outcome `json:"outcome,omitempty"`
	DryRun  bool    `json:"dryRun,omitempty"`
	// GoneBy is when its grace period was to end, of one that was being deleted
	// when it was chosen.
	GoneBy time.Time `json:"goneBy,omitzero"`
	// GoneAt is when it was seen to be gone.
	GoneAt time.Time `json:"goneAt,omitzero"`
}

// How long a pod that was not granted waits, where the API server did not say:
// doubled each time.
const (
	firstWait = 10 * time.Second
	maxWait   = 5 * time.Minute
	// unclear is how long a request without an answer may still come through:
	// after that time the API server has given it up (its --request-timeout).
	unclear = time.Minute
	// victimsKept bounds what is remembered of victims.
	victimsKept = 100
)

// Waiting is a pod whose eviction was not granted, and until when it is not
// asked for again.
type Waiting struct {
	Until time.Time `json:"until"`
	Times int       `json:"times"`
	Code  Code      `json:"code"`
	Text  string    `json:"text"`
}

// Unknown is the memory of an agent that finds none: as if somebody had just
// gone, and all budgets were used up.
func Unknown(now time.Time, c Config) Memory { return Memory{Quiet: now.Add(c.Settle)} }

func (m Memory) clone() Memory {
	m.Marks, m.Settle, m.Waiting = cloned(m.Marks), cloned(m.Settle), cloned(m.Waiting)
	m.Claims = cloned(m.Claims)
	m.Pretended, m.Kubelet = cloned(m.Pretended), cloned(m.Kubelet)
	m.Ending, m.Covered, m.Brakes = cloned(m.Ending), cloned(m.Covered), cloned(m.Brakes)
	m.Victims = slices.Clone(m.Victims)
	if m.Last != nil { // of version 1
		m.Victims, m.Last = append(m.Victims, *m.Last), nil
	}
	return m
}

func cloned[V any](of map[string]V) map[string]V {
	if of == nil {
		return map[string]V{}
	}
	return maps.Clone(of)
}

// last is the newest victim; nil: none.
func (m *Memory) last() *Chosen {
	if len(m.Victims) == 0 {
		return nil
	}
	return &m.Victims[len(m.Victims)-1]
}

// Choose remembers that candidate i is about to be evicted, and takes it out of
// the budgets.
func (m Memory) Choose(in Input, d *Decision, i int) (Memory, Victim) {
	m = m.clone()
	c := &d.Candidates[i]
	v := d.Victim(i, in.Config.MaxGrace)
	chosen := Chosen{Victim: v, Owner: ownerOf(c.Pod), Relief: map[string]float64{}, Decision: d.ID, Time: d.Time, DryRun: d.DryRun, GoneBy: c.Pod.GoneBy}
	for _, o := range in.Levels.Verdicts {
		if relief, named := reliefBy(o, c); named {
			chosen.Relief[scopeOf(o)] = relief
		}
	}
	pending := m.Pending(d.Time) == v.UID
	if pending { // asked for again: nothing is clear since then
		chosen.Time = m.last().Time
	}
	if in.Config.Via == ViaController {
		v.Since, v.Why = chosen.Time, c.Why
		v.Plugin, v.Level, v.Resource, v.Urgent = c.Asked.Plugin, c.Asked.Level, c.Asked.Resource, c.Asked.Urgent
		chosen.Asked, chosen.For = d.Time, c.Asked.String()
		if v.Alone = in.mayAlone(m, &chosen) && c.Asked.forMemory(); v.Alone {
			m.Budgets.Alone = aloneBucket().take(m.Budgets.Alone, in.Uptime)
		}
	}
	if !pending && !d.DryRun {
		m.Budgets = m.Budgets.spend(in.Config.Limits, c.Pod, in.Uptime)
	}
	m.Victims = append(slices.DeleteFunc(m.Victims, func(o Chosen) bool { return o.UID == v.UID }), chosen)
	if over := len(m.Victims) - victimsKept; over > 0 {
		m.Victims = m.Victims[over:]
	}
	return m, v
}

// Answered remembers what the API server said to the newest victim.
func (m Memory) Answered(a Answer, c Config) Memory {
	m = m.clone()
	l := m.last()
	l.Outcome = a.Outcome
	if l.DryRun {
		return m.pretend(a)
	}
	switch a.Outcome {
	case Evicted:
		delete(m.Brakes, l.For)
		m.settle(l, a.Time.Add(c.Settle))
	case Gone: // somebody else ended it: its load is released all the same
		l.GoneAt = a.Time
		m.settle(l, a.Time.Add(c.Settle))
		m.Budgets = m.Budgets.refund(c.Limits, l.Owner)
	case Unanswered:
	case Blocked, Refused, Braked:
		m.wait(l, a)
		m.Budgets = m.Budgets.refund(c.Limits, l.Owner)
		m.Victims = m.Victims[:len(m.Victims)-1]
	}
	return m
}

// pretend takes a dry run's victim out of those that are for real.
func (m Memory) pretend(a Answer) Memory {
	l := *m.last()
	m.Victims = m.Victims[:len(m.Victims)-1]
	switch a.Outcome {
	case Evicted, Gone:
		for scope := range l.Relief {
			m.Pretended[scope] = l
		}
	case Blocked, Refused, Braked:
		m.wait(&l, a)
	case Unanswered:
	}
	return m
}

// wait before this pod is asked for again, or any is for the same.
func (m *Memory) wait(l *Chosen, a Answer) {
	if a.Outcome == Braked {
		m.Brakes[l.For] = m.Brakes[l.For].again(a)
		return
	}
	m.Waiting[l.UID] = m.Waiting[l.UID].again(a)
}

// settle gives what a victim was to relieve time until then: from here what is
// ending counts anew.
func (m *Memory) settle(l *Chosen, until time.Time) {
	if l.Relief == nil {
		m.Quiet = later(m.Quiet, until)
	}
	for scope := range l.Relief {
		m.Settle[scope] = later(m.Settle[scope], until)
		delete(m.Covered, scope)
	}
}

func (w Waiting) again(a Answer) Waiting {
	wait := a.RetryAfter
	if wait <= 0 {
		wait = firstWait << min(w.Times, 10)
	}
	w = Waiting{Until: a.Time.Add(min(wait, maxWait)), Times: w.Times + 1, Code: CodeBudget, Text: a.Text}
	if a.Outcome == Refused {
		w.Until, w.Code = a.Time.Add(maxWait), CodeRefused
	}
	return w
}

// Pending is the UID of a pod that was just chosen and whose eviction nobody
// confirmed: it goes first, and no other instead. Later the pod itself tells.
func (m Memory) Pending(now time.Time) string {
	l := m.last()
	if l == nil || l.DryRun || !l.GoneAt.IsZero() || now.Sub(later(l.Time, l.Asked)) >= unclear {
		return ""
	}
	if l.Outcome != "" && l.Outcome != Unanswered {
		return ""
	}
	return l.UID
}

func levelsOf(in Input) map[string]plugins.Level {
	levels := map[string]plugins.Level{}
	for _, v := range in.Levels.Verdicts {
		levels[scopeOf(v)] = v.Level
	}
	return levels
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
