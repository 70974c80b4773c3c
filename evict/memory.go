package evict

import (
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/pods"
)

// Memory is what a round must know of those before it; it outlives the agent.
type Memory struct {
	// Marks by condition, without Prefix.
	Marks map[string]Seen `json:"marks,omitempty"`
	// Last is the pod that was chosen last. It is kept before the API server is
	// asked, so that an agent that was killed in between chooses no second one.
	Last *Chosen `json:"last,omitempty"`
	// Quiet is until when nobody is chosen.
	Quiet time.Time `json:"quiet,omitzero"`
	// Waiting are pods whose eviction was not granted, by UID.
	Waiting map[string]Waiting `json:"waiting,omitempty"`
	// Failed are the UIDs of pods that the kubelet evicted; they stay listed.
	Failed []string `json:"failed,omitempty"`
}

// Chosen is a pod that was chosen to go.
type Chosen struct {
	Victim
	// Decision is the ID of the Decision that chose it.
	Decision string    `json:"decision"`
	Time     time.Time `json:"time"`
	// Outcome is empty until the API server has answered.
	Outcome Outcome `json:"outcome,omitempty"`
	DryRun  bool    `json:"dryRun,omitempty"`
	// GoneAt is when it was seen to be gone.
	GoneAt time.Time `json:"goneAt,omitzero"`
	// Settled: what the node was like afterwards is recorded.
	Settled bool `json:"settled,omitempty"`
}

// Waiting is a pod whose eviction was not granted, and until when it is not
// asked for again.
type Waiting struct {
	Until time.Time `json:"until"`
	Times int       `json:"times"`
	Code  Code      `json:"code"`
	Text  string    `json:"text"`
}

// How long a pod that was not granted waits, where the API server did not say:
// doubled each time.
const (
	firstWait = 10 * time.Second
	maxWait   = 5 * time.Minute
	// late is how long after its grace period a pod still counts as ending.
	late = 30 * time.Second
	// unclear is how long a request without an answer may still come through:
	// after that time the API server has given it up (its --request-timeout).
	unclear = time.Minute
)

func (m Memory) clone() Memory {
	m.Marks, m.Waiting = maps.Clone(m.Marks), maps.Clone(m.Waiting)
	if m.Marks == nil {
		m.Marks = map[string]Seen{}
	}
	if m.Waiting == nil {
		m.Waiting = map[string]Waiting{}
	}
	if m.Last != nil {
		last := *m.Last
		m.Last = &last
	}
	return m
}

// Choose remembers that a pod is about to be evicted.
func (m Memory) Choose(d *Decision, v Victim) Memory {
	first := d.Time
	if m.pending(d.Time) == v.UID { // asked for again: nothing is clear since then
		first = m.Last.Time
	}
	m.Last = &Chosen{Victim: v, Decision: d.ID, Time: first, DryRun: d.DryRun}
	return m
}

// Answered remembers what the API server said.
func (m Memory) Answered(a Answer, settle time.Duration) Memory {
	m = m.clone()
	switch a.Outcome {
	case Evicted:
		m.Last.Outcome = a.Outcome
		if m.Last.DryRun {
			return m
		}
		m.Quiet = a.Time.Add(settle)
	case Gone: // somebody else ended it: its load is released all the same
		m.Last.Outcome, m.Last.GoneAt = a.Outcome, a.Time
		m.Quiet = a.Time.Add(settle)
	case Unanswered:
		m.Last.Outcome = a.Outcome
	case Blocked, Refused:
		m.Waiting[m.Last.UID] = m.Waiting[m.Last.UID].again(a)
		m.Last = nil
	}
	return m
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

// pending is the UID of a pod that was just chosen and whose eviction nobody
// confirmed: it goes first, and no other instead. Later the pod itself tells.
func (m Memory) pending(now time.Time) string {
	l := m.Last
	if l == nil || l.DryRun || !l.GoneAt.IsZero() || now.Sub(l.Time) >= unclear {
		return ""
	}
	if l.Outcome != "" && l.Outcome != Unanswered {
		return ""
	}
	return l.UID
}

// look brings the memory up to date with the pods as they are now.
func (m Memory) look(in Input) Memory {
	m = m.clone()
	m = m.bound(in)
	maps.DeleteFunc(m.Waiting, func(_ string, w Waiting) bool { return in.Time.Sub(w.Until) > maxWait })
	if m.Last != nil && m.Last.DryRun && !(in.Config.DryRun && slices.ContainsFunc(in.Levels.Verdicts, hard)) {
		m.Last = nil // that pressure is over, or from now on it is for real
	}
	if in.known() {
		m = m.lookAtLast(in).lookAtFailed(in)
	}
	return m
}

// bound keeps what is remembered from reaching further ahead than it ever is
// set, or a clock that was set back would make it last for as long as that.
func (m Memory) bound(in Input) Memory {
	for uid, w := range m.Waiting {
		w.Until = earlier(w.Until, in.Time.Add(maxWait))
		m.Waiting[uid] = w
	}
	m.Quiet = earlier(m.Quiet, in.Time.Add(in.Config.Settle))
	if m.Last != nil {
		m.Last.Time = earlier(m.Last.Time, in.Time)
	}
	return m
}

// lookAtLast sees what has become of the last victim.
func (m Memory) lookAtLast(in Input) Memory {
	if m.Last == nil || m.Last.DryRun || !m.Last.GoneAt.IsZero() {
		return m
	}
	p, there := byUID(in.Cluster.Pods, m.Last.UID)
	switch {
	case !there:
		m.Last.GoneAt = in.Time
		m.Quiet = later(m.Quiet, in.Time.Add(in.Config.Settle))
	case !p.GoneBy.IsZero():
		m.Last.Outcome = Evicted // also where the answer was lost
	case m.Last.Outcome != Evicted && in.Time.Sub(m.Last.Time) >= unclear:
		// It is still there: whoever does not answer for it keeps no other from going.
		m.Waiting[p.UID] = m.Waiting[p.UID].again(Answer{Time: in.Time, Outcome: Blocked, Text: "no answer for " + unclear.String()})
		m.Last = nil
	}
	return m
}

// lookAtFailed sees whom the kubelet evicted: such a pod is not ending, it
// fails and stays listed, and the node gets the same time to settle.
func (m Memory) lookAtFailed(in Input) Memory {
	var failed []string
	for _, p := range in.Cluster.Pods.Pods {
		if p.StatusReason != "Evicted" {
			continue
		}
		failed = append(failed, p.UID)
		if !slices.Contains(m.Failed, p.UID) {
			m.Quiet = later(m.Quiet, in.Time.Add(in.Config.Settle))
		}
	}
	slices.Sort(failed)
	m.Failed = failed
	return m
}

func byUID(l pods.List, uid string) (pods.Pod, bool) {
	for _, p := range l.Pods {
		if p.UID == uid {
			return p, true
		}
	}
	return pods.Pod{}, false
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
