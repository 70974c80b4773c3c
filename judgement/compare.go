package judgement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Rule is what judges: our own rules, or one of another program.
type Rule struct {
	Name string `json:"name"`
	// Source is which version of what, and where it is documented.
	Source string `json:"source"`
	// Resources that it judges; it cannot miss anything else.
	Resources []plugins.Resource `json:"resources"`
	// Highest is the highest level that it has: a rule that only marks has no hard.
	Highest plugins.Level `json:"highest"`
	// Unnamed is why the workloads that it names are not judged: it names none,
	// or a recording lacks what it chooses by. Empty: they are judged.
	Unnamed string `json:"culpritsNotJudged,omitempty"`
	// New is a judge of one recording, which is not empty.
	New func(l Label, list []*snapshot.Sample) Judge `json:"-"`
}

// Judge is asked at each sample of one recording, oldest first.
type Judge interface {
	// Judge is the levels that it reaches, or which measurement the sample lacks.
	Judge(s *snapshot.Sample) (answers []Answer, lacks string)
}

// Nearness is told by judges that come near to a level without reaching it.
type Nearness interface {
	// Near is how near it came, in a few words.
	Near() string
}

// Alarm is a level of one resource.
type Alarm struct {
	Resource plugins.Resource `json:"resource"`
	// Scope is a device, where the judge knows devices; empty: the node.
	Scope string        `json:"scope,omitempty"`
	Level plugins.Level `json:"level"`
}

func (a Alarm) String() string {
	return strings.TrimSpace(string(a.Resource)+" "+a.Scope) + " " + a.Level.String()
}

// anyLevel is the alarm whatever its level.
func (a Alarm) anyLevel() Alarm { return Alarm{Resource: a.Resource, Scope: a.Scope} }

// Answer is a level at one sample.
type Answer struct {
	Alarm
	// Named are the workloads that should be evicted, the best first, and Shown
	// those that are only shown as culprits; each by its cgroup, UID and name.
	Named, Shown []string
}

// Spell is a time in which a judge has one level without a break.
type Spell struct {
	Alarm
	Span
	// StillOn at the last sample: when it ends is not known.
	StillOn bool `json:"stillOn,omitempty"`
	// Named and Shown are as of the first sample that had any, and NamedAt and
	// ShownAt the times of those.
	Named   []string `json:"-"`
	Shown   []string `json:"-"`
	NamedAt float64  `json:"-"`
	ShownAt float64  `json:"-"`
}

func (w Want) String() string {
	return fmt.Sprintf("%s %.0f–%.0f s", Alarm{w.Resource, w.Scope, w.Level}, w.From, w.To)
}

func (s Spell) String() string { return fmt.Sprintf("%s %.0f–%.0f s", s.Alarm, s.From, s.To) }

// Holes of a recording in which nothing can be judged: no sample for longer than longestGap,
// or a wall clock that was set by more than setClock.
const (
	longestGap = 5 * time.Second
	setClock   = 2 * time.Second
	// usual is for how long before its load a recording must have no hole.
	usual = 10
)

// Hole is what a recording lacks from shortly before its load until levels have ended;
// empty: nothing.
func (l Label) Hole(list []*snapshot.Sample) string {
	for i, s := range list[min(1, len(list)):] {
		was := list[i]
		from, to := was.Time.Sub(list[0].Time).Seconds(), s.Time.Sub(list[0].Time).Seconds()
		if to < l.Load.From-usual || from > l.Load.To+Leaves {
			continue
		}
		took := s.Boottime - was.Boottime
		if set := s.Time.Sub(was.Time) - took; set.Abs() > setClock {
			return fmt.Sprintf("a clock that is not set: at %.0f s by %s", to, set.Round(time.Second))
		}
		if took > longestGap {
			return fmt.Sprintf("samples from %.0f to %.0f s", from, to)
		}
	}
	return ""
}

// lacksAtMost is the share of samples that may lack a measurement, as after a read
// that failed: a judge is not shown these, and its last answer stays.
const lacksAtMost = 0.1

// Play asks a judge at each sample. lacks is the measurement for want of which the
// recording cannot be judged; then there are no spells.
func Play(list []*snapshot.Sample, j Judge) (all []Spell, lacks string) {
	missing := 0
	on := map[Alarm]int{}
	for _, s := range list {
		answers, without := j.Judge(s)
		if without != "" {
			lacks, missing = cmp.Or(lacks, without), missing+1
			continue
		}
		at := s.Time.Sub(list[0].Time).Seconds()
		now := map[Alarm]int{}
		for _, a := range answers {
			i, was := on[a.Alarm]
			if !was {
				i = len(all)
				all = append(all, Spell{Alarm: a.Alarm, Span: Span{From: at}})
			}
			all[i].add(at, a)
			now[a.Alarm] = i
		}
		on = now
	}
	if float64(missing) > lacksAtMost*float64(len(list)) {
		return nil, lacks
	}
	for _, i := range on {
		all[i].StillOn = true
	}
	return all, ""
}

func (s *Spell) add(at float64, a Answer) {
	s.To = at
	if len(s.Named) == 0 && len(a.Named) > 0 {
		s.Named, s.NamedAt = a.Named, at
	}
	if len(s.Shown) == 0 && len(a.Shown) > 0 {
		s.Shown, s.ShownAt = a.Shown, at
	}
}

// Leaves is how many seconds after the load a level may stay (hysteresis).
const Leaves = 40

// Outcome is what one rule says of one recording, held against its label.
type Outcome struct {
	// Lacks is which measurement is missing, so that nothing is judged.
	Lacks  string  `json:"notJudged,omitempty"`
	Spells []Spell `json:"levels,omitempty"`
	// FalseHard and FalseSoft are the spells that the label does not expect.
	FalseHard []Spell `json:"falseHard,omitempty"`
	FalseSoft []Spell `json:"falseSoft,omitempty"`
	// Expected is each level that must be reached, of the resources it judges.
	Expected []Detection `json:"expected,omitempty"`
	// Vain: a workload was named where the label says that none may be.
	Vain bool `json:"namedInVain,omitempty"`
	// NoneMayBe: the label says so of a level that was reached.
	NoneMayBe bool `json:"-"`
	// Near is how near it came to a level.
	Near string `json:"near,omitempty"`
}

// Detection is what became of one expected level.
type Detection struct {
	Want Want `json:"want"`
	// Met: its level was reached, or the highest that the rule has; Seen: any level.
	Met  bool `json:"met"`
	Seen bool `json:"seen"`
	// After is how many seconds after the truth the level was reached; 0: by then, or
	// before it.
	After snapshot.Opt[float64] `json:"afterSeconds,omitzero"`
	// Cleared is how many seconds after the load the last level ended; absent if
	// it was still on at the end of the recording.
	Cleared snapshot.Opt[float64] `json:"clearedSeconds,omitzero"`
	// Rank of the culprit among the workloads that were named first; 0: it was not.
	Rank int `json:"culpritRank,omitempty"`
}

// Compare holds the spells of a rule against the label.
func Compare(l Label, r Rule, spells []Spell) Outcome {
	o := Outcome{Spells: spells}
	for _, s := range spells {
		switch {
		case l.Expects(s) || l.leavesOpen(s) || s.Level == plugins.Soft && l.stalls(s):
		case s.Level == plugins.Hard:
			o.FalseHard = append(o.FalseHard, s)
		default:
			o.FalseSoft = append(o.FalseSoft, s)
		}
	}
	for _, w := range l.Want {
		if !slices.Contains(r.Resources, w.Resource) {
			continue
		}
		d := detection(l, r, w, spells)
		if w.NoCulprit && d.Seen {
			o.NoneMayBe = true
			o.Vain = o.Vain || slices.ContainsFunc(spells, func(s Spell) bool { return w.is(s) && len(s.Named) > 0 })
		}
		if !w.AtMost {
			o.Expected = append(o.Expected, d)
		}
	}
	return o
}

// inLoad: it begins with the load or later, and ends not long after it.
func (l Label) inLoad(s Spell) bool { return s.From >= l.Load.From && s.To <= l.Load.To+Leaves }

// Expects reports whether a spell is a level of the label or below it.
func (l Label) Expects(s Spell) bool {
	return l.inLoad(s) && slices.ContainsFunc(l.Want, func(w Want) bool { return w.is(s) && w.Level >= s.Level })
}

// stalls reports whether a level of another resource is explained by a node that stalls.
func (l Label) stalls(s Spell) bool { return l.inLoad(s) && l.Stalls() }

// Stalls reports whether the label says that the whole node stalls for memory, which is
// felt at every resource.
func (l Label) Stalls() bool {
	return slices.ContainsFunc(l.Want, func(w Want) bool {
		return w.Level == plugins.Hard && w.Resource == plugins.Memory && w.Scope == "" && !w.AtMost
	})
}

// leavesOpen reports whether the label says that what a soft level is about cannot be
// judged: a workload does wait there.
func (l Label) leavesOpen(s Spell) bool {
	return s.Level == plugins.Soft && l.inLoad(s) && slices.ContainsFunc(l.NotJudged, func(n NotJudged) bool {
		return n.Resource == s.Resource && (s.Scope == "" || s.Scope == n.Scope)
	})
}

// is: the spell is about what is wanted.
func (w Want) is(s Spell) bool {
	return w.Resource == s.Resource && (s.Scope == "" || s.Scope == w.Scope)
}

func detection(l Label, r Rule, w Want, spells []Spell) Detection {
	d := Detection{Want: w}
	last, stillOn := 0.0, false
	for _, s := range spells {
		if !w.is(s) {
			continue
		}
		last, stillOn = max(last, s.To), stillOn || s.StillOn
		within := s.From >= l.Load.From && s.From <= w.To && s.To >= w.From // what was on before the load detects nothing
		d.Seen = d.Seen || within
		if within && s.Level >= min(w.Level, r.Highest) {
			d.Met = true
			d.After = snapshot.Some(earliest(d.After, max(0, s.From-w.From)))
		}
	}
	if d.Seen && !stillOn {
		d.Cleared = snapshot.Some(max(0, last-l.Load.To))
	}
	d.Rank = w.rank(spells)
	return d
}

// rank of the culprit among the workloads that are named first, or shown first where
// none should be evicted; 0: it is not among them.
func (w Want) rank(spells []Spell) int {
	var first []string
	at := w.To
	for _, s := range spells {
		names, then := s.Named, s.NamedAt
		if w.Presser != "" {
			names, then = s.Shown, s.ShownAt
		}
		if w.is(s) && len(names) > 0 && then <= at {
			first, at = names, then
		}
	}
	return rank(first, cmp.Or(w.Presser, w.Culprit))
}

func earliest(known snapshot.Opt[float64], at float64) float64 {
	if v, ok := known.Get(); ok {
		return min(v, at)
	}
	return at
}

// rank of the first name that has the culprit's in it, from 1; 0: none has.
func rank(names []string, culprit string) int {
	return 1 + slices.IndexFunc(names, func(name string) bool { return culprit != "" && strings.Contains(name, culprit) })
}
