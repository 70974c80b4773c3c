package evict

import (
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/backoff"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// StateVersion is increased when an older program would misread a State.
const StateVersion = 2

// State is the state that a round needs of those before it. It is saved, and
// survives a restart of the agent. In the zero value all token buckets are empty.
type State struct {
	// Marks by condition, without names.Prefix.
	Marks map[string]MarkState `json:"marks,omitempty"`
	// CNRMarked: the CustomNodeResource may carry marks of Plimsoll.
	CNRMarked bool `json:"cnrMarked,omitempty"`
	// Claims are the outer plugins that own conditions, by condition.
	Claims map[string]string `json:"claims,omitempty"`
	// Victims are the chosen pods, the newest last, until the effect of their
	// eviction is recorded. Each is saved before the request, so that an agent
	// that is killed in between chooses no other pod in its place.
	Victims []Chosen `json:"victims,omitempty"`
	// CooldownUntil is the end of the cooldown of all verdicts, and Cooldowns that of
	// single ones, by plugin and scope.
	CooldownUntil time.Time            `json:"quiet,omitzero"`
	Cooldowns     map[string]time.Time `json:"settle,omitempty"`
	// Terminating is when each terminating pod was first seen as such, by UID. Covered
	// is since when credits have covered a verdict's release target.
	Terminating map[string]time.Time `json:"ending,omitempty"`
	Covered     map[string]time.Time `json:"covered,omitempty"`
	// Elsewhere is when each pod that another component evicts was first seen as such,
	// by UID. It stays as long as the pod exists: removing the mark and setting it
	// again gains no time.
	Elsewhere map[string]time.Time `json:"elsewhere,omitempty"`
	// DryRunEvicted are the pods that a dry run counts as evicted, by verdict, while
	// the verdict lasts.
	DryRunEvicted map[string]Chosen `json:"pretended,omitempty"`
	// Backoffs are pods whose eviction was refused, by backoffKey.
	Backoffs map[string]Backoff `json:"waiting,omitempty"`
	// Refusals are the refusals, by the controller above all, that hold for every pod, by
	// verdict (Asked.String).
	Refusals map[string]Backoff `json:"brakes,omitempty"`
	// Requests are the EvictionRequests that were made and are not withdrawn yet, by the
	// pod's UID (ViaRequest).
	Requests map[string]Victim `json:"requests,omitempty"`
	// KubeletEvicted are the UIDs of pods that the kubelet evicted for node pressure; they
	// stay listed.
	KubeletEvicted []string `json:"failed,omitempty"`
	// Named are the pods that outer plugins named for eviction.
	Named []NamedPod `json:"named,omitempty"`
	// KubeletEvictions is when the kubelet was last seen to evict, by its pressure
	// condition.
	KubeletEvictions map[string]time.Time `json:"kubelet,omitempty"`
	RateLimits       RateLimits           `json:"budgets,omitzero"`
	Rules            map[string]Rule      `json:"rules,omitempty"`
}

// Chosen is a pod that was chosen for eviction.
type Chosen struct {
	Victim
	// Owner is the workload whose rate limit it counts for.
	Owner string `json:"owner,omitempty"`
	// Relief that each verdict expects of it, by plugin and scope. nil: not known;
	// it counts for each verdict as all that must be released.
	Relief map[string]float64 `json:"relief,omitempty"`
	// Met are the verdicts that were met when it was requested, of those in Relief
	// (ViaRequest).
	Met []string `json:"met,omitempty"`
	// Decision is the ID of the Decision that chose it.
	Decision string    `json:"decision"`
	Time     time.Time `json:"time"`
	// Requested is when it was last requested from the controller; it is pending as
	// long as the request is. For is the verdict (Asked.String).
	Requested time.Time `json:"asked,omitzero"`
	For       string    `json:"for,omitempty"`
	// Outcome is empty until the API server has answered.
	Outcome Outcome `json:"outcome,omitempty"`
	DryRun  bool    `json:"dryRun,omitempty"`
	// TerminatesBy is the end of its termination grace period, if it was terminating
	// when it was chosen.
	TerminatesBy time.Time `json:"goneBy,omitzero"`
	// TerminatedAt is when it was seen to have terminated.
	TerminatedAt time.Time `json:"goneAt,omitzero"`
}

// The exponential backoff after a refused eviction without Retry-After.
const (
	minBackoff = 10 * time.Second
	maxBackoff = 5 * time.Minute
	// requestTimeout is how long an unanswered request may still take effect: then the
	// API server has timed it out (its --request-timeout).
	requestTimeout = time.Minute
	// maxVictims bounds the victims in the state.
	maxVictims = 100
)

// Backoff is a refused eviction: its reason, and until when it is not requested
// again.
type Backoff struct {
	Until    time.Time `json:"until"`
	Attempts int       `json:"times"`
	Code     Code      `json:"code"`
	Text     string    `json:"text"`
	// Via is the Config.Via by which it was requested; empty in the state of an agent that
	// did not save it.
	Via string `json:"via,omitempty"`
}

// holds reports whether the eviction is not requested yet. Another Via needs other rights, so
// that it may be accepted.
func (w Backoff) holds(now time.Time, via string) bool {
	return now.Before(w.Until) && (w.Via == "" || w.Via == via)
}

// NoSavedState is the state of an agent that finds none saved: as if a pod had just
// been evicted and all rate limits were reached.
func NoSavedState(now time.Time, c Config) State { return State{CooldownUntil: now.Add(c.Cooldown)} }

// AdoptKeys reads the keys of a state of version 1, in which those of verdicts had the
// slashes of a plugin's name as they are. Such a key may be of several plugins: it counts
// for each, so that a pod that is terminating is not evicted for anew.
func (m *State) AdoptKeys() {
	adoptKeys(m.Cooldowns)
	adoptKeys(m.Covered)
	adoptKeys(m.DryRunEvicted)
	for _, c := range m.Victims {
		adoptKeys(c.Relief)
	}
	for _, c := range m.DryRunEvicted {
		adoptKeys(c.Relief)
	}
}

func adoptKeys[V any](of map[string]V) {
	for key, v := range maps.Clone(of) {
		for i, r := range key {
			if r == '/' {
				of[keyOf(key[:i], key[i+1:])] = v
			}
		}
	}
}

func (m State) clone() State {
	m.Marks, m.Cooldowns, m.Backoffs = cloned(m.Marks), cloned(m.Cooldowns), cloned(m.Backoffs)
	m.Claims = cloned(m.Claims)
	m.DryRunEvicted, m.KubeletEvictions = cloned(m.DryRunEvicted), cloned(m.KubeletEvictions)
	m.Terminating, m.Covered, m.Refusals = cloned(m.Terminating), cloned(m.Covered), cloned(m.Refusals)
	m.Elsewhere, m.Requests = cloned(m.Elsewhere), cloned(m.Requests)
	m.Victims = slices.Clone(m.Victims)
	return m
}

func cloned[V any](of map[string]V) map[string]V {
	if of == nil {
		return map[string]V{}
	}
	return maps.Clone(of)
}

// last is the newest victim; nil: none.
func (m *State) last() *Chosen {
	if len(m.Victims) == 0 {
		return nil
	}
	return &m.Victims[len(m.Victims)-1]
}

// RecordChoice records that candidate i is about to be evicted, and takes its tokens
// from the rate limits.
func (m State) RecordChoice(in Input, d *Decision, i int) (State, Victim) {
	m = m.clone()
	c := &d.Candidates[i]
	v := d.Victim(i, in.Config.MaxTerminationGrace)
	chosen := Chosen{Victim: v, Owner: ownerOf(c.Pod), Relief: map[string]float64{}, Decision: d.ID, Time: d.Time, DryRun: d.DryRun, TerminatesBy: c.Pod.TerminatesBy}
	chosen.chosenBy(in, c)
	if in.Config.Via == ViaRequest {
		chosen.For = c.For.String()
		if !d.DryRun { // saved before the request: a next agent can withdraw it
			m.Requests[v.UID] = Victim{UID: v.UID, Namespace: v.Namespace, Name: v.Name, GraceSeconds: v.GraceSeconds}
		}
	}
	before := slices.IndexFunc(m.Victims, func(o Chosen) bool { return o.UID == v.UID && o.unanswered(d.Time) })
	again := before >= 0 && !d.DryRun
	if again { // the outcome has been unknown since then
		chosen.Time = m.Victims[before].Time
	}
	if in.Config.Via == ViaController {
		v.Since, v.Why = chosen.Time, c.Why
		v.Plugin, v.Level, v.Resource, v.Urgent = c.For.Plugin, c.For.Level, c.For.Resource, c.For.Urgent
		chosen.Requested, chosen.For = d.Time, c.For.String()
		if v.Fallback = mayFallBack(in, m, &chosen) && c.For.hardMemory(); v.Fallback {
			m.RateLimits.Fallback = fallbackBucket().take(m.RateLimits.Fallback, in.Uptime)
			chosen.Fallback = true
		}
	}
	if !again && !d.DryRun {
		m.RateLimits = m.RateLimits.spend(in.Config.Limits, c.Pod, in.Uptime)
	}
	m.Victims = append(slices.DeleteFunc(m.Victims, func(o Chosen) bool { return o.UID == v.UID && o.DryRun == d.DryRun }), chosen)
	if over := len(m.Victims) - maxVictims; over > 0 {
		m.Victims = m.Victims[over:]
	}
	return m, v
}

// chosenBy keeps the relief that each verdict expects of the candidate and, where its
// eviction may be withdrawn, which thresholds are met.
func (l *Chosen) chosenBy(in Input, c *Considered) {
	for _, o := range in.Levels.Verdicts {
		relief, named := reliefBy(o, c)
		if !named {
			continue
		}
		l.Relief[verdictKey(o)] = relief
		if o.MetLevel > plugins.None && in.Config.Via == ViaRequest {
			l.Met = append(l.Met, verdictKey(o))
		}
	}
}

// RecordAnswer records the answer for the newest victim.
func (m State) RecordAnswer(a Answer, c Config) State {
	m = m.clone()
	l := m.last()
	l.Outcome = a.Outcome
	if l.DryRun {
		return m.recordDryRun(a, c)
	}
	switch a.Outcome {
	case Evicted, InProgress:
		delete(m.Refusals, l.For)
		m.Named = withoutNames(m.Named, l)
		m.startCooldown(l, a.Time.Add(c.Cooldown))
	case NotFound: // it terminated otherwise: its usage is released all the same
		m.Named = withoutNames(m.Named, l)
		l.TerminatedAt = a.Time
		m.startCooldown(l, a.Time.Add(c.Cooldown))
		m.RateLimits = m.RateLimits.refund(c.Limits, l)
	case UnknownOutcome:
	case Blocked, Refused, Braked:
		delete(m.Requests, l.UID) // none was stored
		m.backOff(l, a, c.Via)
		if a.Outcome == Refused {
			m.Named = withoutPod(m.Named, l.UID)
			l.Fallback = false // the agent may lack the right: others would be refused, too
		}
		m.RateLimits = m.RateLimits.refund(c.Limits, l)
		m.Victims = m.Victims[:len(m.Victims)-1]
	}
	return m
}

// recordDryRun moves a dry run's victim from Victims to DryRunEvicted.
func (m State) recordDryRun(a Answer, c Config) State {
	l := *m.last()
	m.Victims = m.Victims[:len(m.Victims)-1]
	switch a.Outcome {
	case Evicted, InProgress, NotFound:
		for scope := range l.Relief {
			m.DryRunEvicted[scope] = l
		}
	case Blocked, Refused, Braked:
		m.backOff(&l, a, c.Via)
	case UnknownOutcome:
	}
	return m
}

// backOff records how long this pod, or every pod for the same verdict, is not
// requested again.
func (m *State) backOff(l *Chosen, a Answer, via string) {
	if a.Outcome == Braked {
		m.Refusals[l.For] = m.Refusals[l.For].next(a, via)
		return
	}
	key := backoffKey(l.DryRun, l.UID)
	m.Backoffs[key] = m.Backoffs[key].next(a, via)
}

// backoffKey is the key of a pod's backoff. What a dry run was answered holds back no real
// eviction.
func backoffKey(dryRun bool, uid string) string {
	if dryRun {
		return "dry-run/" + uid
	}
	return uid
}

// startCooldown starts the cooldown of the verdicts that a victim relieves, and resets
// Covered for them.
func (m *State) startCooldown(l *Chosen, until time.Time) {
	if l.Relief == nil {
		m.CooldownUntil = later(m.CooldownUntil, until)
	}
	for scope := range l.Relief {
		m.Cooldowns[scope] = later(m.Cooldowns[scope], until)
		delete(m.Covered, scope)
	}
}

func (w Backoff) next(a Answer, via string) Backoff {
	wait := a.RetryAfter
	if wait <= 0 {
		wait = backoff.Exponential{First: minBackoff, Longest: maxBackoff}.Doubled(w.Attempts)
	}
	w = Backoff{Until: a.Time.Add(min(wait, maxBackoff)), Attempts: w.Attempts + 1, Code: CodePDB, Text: a.Text, Via: via}
	if a.Outcome == Refused {
		w.Until, w.Code = a.Time.Add(maxBackoff), CodeRefused
	}
	return w
}

// Pending is the UID of the last chosen pod, those of dry runs aside, while the outcome of
// its eviction is unknown: it is evicted first, and no other in its place. Empty: none, or
// chosen so long ago that the pod itself shows the outcome.
func (m State) Pending(now time.Time) string {
	if l := m.pending(now); l != nil {
		return l.UID
	}
	return ""
}

// pending is the pod of Pending; nil: none.
func (m State) pending(now time.Time) *Chosen {
	for i := range slices.Backward(m.Victims) {
		if l := &m.Victims[i]; !l.DryRun {
			if l.unanswered(now) {
				return l
			}
			break
		}
	}
	return nil
}

// unanswered reports whether the outcome of an eviction, of no dry run, is unknown.
func (l *Chosen) unanswered(now time.Time) bool {
	return !l.DryRun && l.TerminatedAt.IsZero() && (l.Outcome == "" || l.Outcome == UnknownOutcome) &&
		now.Sub(later(l.Time, l.Requested)) < requestTimeout
}

func levelsOf(in Input) map[string]plugins.Level {
	levels := map[string]plugins.Level{}
	for _, v := range in.Levels.Verdicts {
		levels[verdictKey(v)] = v.Level
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

// Withdrawn records that the EvictionRequest of a pod does not exist any more.
func (m State) Withdrawn(uid string) State {
	m = m.clone()
	delete(m.Requests, uid)
	return m
}

// AdoptSaved returns the state that an earlier agent saved, where it could be read only now,
// with what has been decided since in m.
func (m State) AdoptSaved(saved State) State {
	out := saved.clone()
	out.CooldownUntil = later(saved.CooldownUntil, m.CooldownUntil)
	out.CNRMarked = saved.CNRMarked || m.CNRMarked
	// What is known anew is the newer.
	maps.Copy(out.Marks, m.Marks)
	maps.Copy(out.Claims, m.Claims)
	maps.Copy(out.DryRunEvicted, m.DryRunEvicted)
	maps.Copy(out.Backoffs, m.Backoffs)
	maps.Copy(out.Refusals, m.Refusals)
	maps.Copy(out.Requests, m.Requests)
	maps.Copy(out.KubeletEvictions, m.KubeletEvictions)
	for scope, until := range m.Cooldowns {
		out.Cooldowns[scope] = later(out.Cooldowns[scope], until)
	}
	// What was seen first was seen by the earlier agent.
	out.Rules, out.Terminating = copied(m.Rules, saved.Rules), copied(m.Terminating, saved.Terminating)
	out.Elsewhere, out.Covered = copied(m.Elsewhere, saved.Elsewhere), copied(m.Covered, saved.Covered)
	out.KubeletEvicted = slices.Concat(saved.KubeletEvicted, m.KubeletEvicted)
	out.Victims = append(slices.DeleteFunc(out.Victims, func(l Chosen) bool {
		return slices.ContainsFunc(m.Victims, func(o Chosen) bool { return o.UID == l.UID && o.DryRun == l.DryRun })
	}), m.Victims...)
	out.Named = append(slices.DeleteFunc(slices.Clone(saved.Named), func(n NamedPod) bool {
		return slices.ContainsFunc(m.Named, func(o NamedPod) bool { return o.Plugin == n.Plugin && o.Scope == n.Scope && o.UID == n.UID })
	}), m.Named...)
	if m.RateLimits.spent() { // those of m began empty: no more pods are evicted than by either
		out.RateLimits = m.RateLimits
	}
	return out
}

// copied is a map with what is in either, and of both what is in last.
func copied[V any](first, last map[string]V) map[string]V {
	all := cloned(first)
	maps.Copy(all, last)
	return all
}
