package evict

import (
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
)

// MemoryVersion is increased when an older program would misread a Memory.
const MemoryVersion = 2

// Memory is the state that a round needs of those before it. It is saved, and
// survives a restart of the agent. In the zero value all token buckets are empty.
type Memory struct {
	// Marks by condition, without Prefix.
	Marks map[string]Seen `json:"marks,omitempty"`
	// Claims are the outer plugins that own conditions, by condition.
	Claims map[string]string `json:"claims,omitempty"`
	// Victims are the chosen pods, the newest last, until the effect of their
	// eviction is recorded. Each is saved before the request, so that an agent
	// that is killed in between chooses no other pod in its place.
	Victims []Chosen `json:"victims,omitempty"`
	// Quiet is the end of the cooldown of all verdicts, and Settle that of single
	// ones, by plugin and scope.
	Quiet  time.Time            `json:"quiet,omitzero"`
	Settle map[string]time.Time `json:"settle,omitempty"`
	// Ending is when each terminating pod was first seen as such, by UID. Covered
	// is since when credits have covered a verdict's release target.
	Ending  map[string]time.Time `json:"ending,omitempty"`
	Covered map[string]time.Time `json:"covered,omitempty"`
	// Pretended are the pods that a dry run counts as evicted, by verdict, while
	// the verdict lasts.
	Pretended map[string]Chosen `json:"pretended,omitempty"`
	// Waiting are pods whose eviction was refused, by UID.
	Waiting map[string]Waiting `json:"waiting,omitempty"`
	// Brakes are the refusals of the controller that hold for every pod, by
	// verdict (Asked.String).
	Brakes map[string]Waiting `json:"brakes,omitempty"`
	// Failed are the UIDs of pods that the kubelet evicted for node pressure; they
	// stay listed.
	Failed []string `json:"failed,omitempty"`
	// Forced are the pods whose eviction plugins force whatever the levels.
	Forced []Forced `json:"forced,omitempty"`
	// Kubelet is when the kubelet was last seen to evict, by its pressure
	// condition.
	Kubelet map[string]time.Time `json:"kubelet,omitempty"`
	Budgets Budgets              `json:"budgets,omitzero"`
	Rules   map[string]Rule      `json:"rules,omitempty"`

	// Last is the only victim in version 1.
	Last *Chosen `json:"last,omitempty"`
}

// Chosen is a pod that was chosen for eviction.
type Chosen struct {
	Victim
	// Owner is the workload whose rate limit it counts for.
	Owner string `json:"owner,omitempty"`
	// Relief that each verdict expects of it, by plugin and scope. nil: not known;
	// it counts for each verdict as all that must be released.
	Relief map[string]float64 `json:"relief,omitempty"`
	// Decision is the ID of the Decision that chose it.
	Decision string    `json:"decision"`
	Time     time.Time `json:"time"`
	// Asked is when it was last requested from the controller; it is pending as
	// long as the request is. For is the verdict (Asked.String).
	Asked time.Time `json:"asked,omitzero"`
	For   string    `json:"for,omitempty"`
	// Outcome is empty until the API server has answered.
	Outcome Outcome `json:"outcome,omitempty"`
	DryRun  bool    `json:"dryRun,omitempty"`
	// GoneBy is the end of its termination grace period, if it was terminating
	// when it was chosen.
	GoneBy time.Time `json:"goneBy,omitzero"`
	// GoneAt is when it was seen to have terminated.
	GoneAt time.Time `json:"goneAt,omitzero"`
}

// The exponential backoff after a refused eviction without Retry-After.
const (
	firstWait = 10 * time.Second
	maxWait   = 5 * time.Minute
	// unclear is how long an unanswered request may still take effect: then the
	// API server has timed it out (its --request-timeout).
	unclear = time.Minute
	// victimsKept bounds the victims in the state.
	victimsKept = 100
)

// Waiting is a refused eviction: its reason, and until when it is not requested
// again.
type Waiting struct {
	Until time.Time `json:"until"`
	Times int       `json:"times"`
	Code  Code      `json:"code"`
	Text  string    `json:"text"`
}

// Unknown is the state of an agent that finds none saved: as if a pod had just
// been evicted and all rate limits were reached.
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

// Choose records that candidate i is about to be evicted, and takes its tokens
// from the rate limits.
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
	if pending { // requested again: the outcome has been unknown since then
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

// Answered records the answer for the newest victim.
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
	case Gone: // it terminated otherwise: its usage is released all the same
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

// pretend moves a dry run's victim from Victims to Pretended.
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

// wait records how long this pod, or every pod for the same verdict, is not
// requested again.
func (m *Memory) wait(l *Chosen, a Answer) {
	if a.Outcome == Braked {
		m.Brakes[l.For] = m.Brakes[l.For].again(a)
		return
	}
	m.Waiting[l.UID] = m.Waiting[l.UID].again(a)
}

// settle starts the cooldown of the verdicts that a victim relieves, and resets
// Covered for them.
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

// Pending is the UID of the last chosen pod while the outcome of its eviction is
// unknown: it is evicted first, and no other in its place. Empty: none, or chosen
// so long ago that the pod itself shows the outcome.
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
