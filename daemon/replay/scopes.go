package replay

import (
	"cmp"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// instant of a sample.
type instant struct {
	time   time.Time
	offset time.Duration // from the first sample
	step   time.Duration // from the sample before
	gap    bool          // nothing was observed in that step
}

// scopes collects the results by plugin and scope.
type scopes struct {
	list    []*scope
	omitted uint64
	at      map[key]*scope
}

type key struct{ plugin, scope string }

// scope of one plugin.
type scope struct {
	report             Scope
	present            bool // in the last sample there was a verdict
	measurementMissing bool // in it a measurement was missing
	trace              trace[Rules]
}

// add takes the verdicts of one moment, and returns the changes of levels.
func (l *scopes) add(at instant, levels *plugins.Levels) []Change {
	for _, s := range l.list {
		s.addTime(at)
		s.present = false
	}
	var changes []Change
	for i := range levels.Verdicts {
		v := &levels.Verdicts[i]
		s := l.find(v)
		if s == nil {
			continue
		}
		s.present = true
		if c, changed := s.add(at, v); changed {
			changes = append(changes, c)
		}
	}
	for _, s := range l.list {
		if !s.present {
			changes = append(changes, s.end(at, evict.ReasonNoLongerJudged)...)
		}
	}
	return changes
}

// find is the scope of a verdict; nil beyond maxScopes.
func (l *scopes) find(v *plugins.Verdict) *scope {
	k := key{v.Plugin, v.Scope}
	if s := l.at[k]; s != nil {
		return s
	}
	if len(l.list) == maxScopes {
		l.omitted++
		return nil
	}
	if l.at == nil {
		l.at = map[key]*scope{}
	}
	s := &scope{report: Scope{Plugin: v.Plugin, Scope: v.Scope, Resource: v.Resource}}
	l.at[k], l.list = s, append(l.list, s)
	return s
}

// end ends all levels.
func (l *scopes) end(at instant, why string) []Change {
	var changes []Change
	for _, s := range l.list {
		changes = append(changes, s.end(at, why)...)
	}
	return changes
}

// reports are in the order of appearance.
func (l *scopes) reports() []Scope {
	list := make([]Scope, 0, len(l.list))
	for _, s := range l.list {
		s.report.Points = append([]Point[Rules]{}, s.trace.points...)
		list = append(list, s.report)
	}
	return list
}

// addTime adds the time since the last sample to the level of that sample.
func (s *scope) addTime(at instant) {
	seconds := at.step.Seconds()
	r := &s.report
	switch {
	case !s.present:
	case at.gap:
		r.UnobservedSeconds += seconds
	case r.Level == plugins.Hard:
		r.HardSeconds += seconds
	case r.Level == plugins.Soft:
		r.SoftSeconds += seconds
	default:
		r.NoneSeconds += seconds
		if s.measurementMissing {
			r.UnjudgedSeconds += seconds
		}
	}
}

func (s *scope) add(at instant, v *plugins.Verdict) (Change, bool) {
	r := &s.report
	r.Unit, r.Operator = v.Unit, v.Operator
	s.measurementMissing = v.Absent != ""
	r.Absent = cmp.Or(v.Absent, r.Absent)
	now := Rules{Level: v.Level}
	now.Soft, r.Soft = compareRule(v, plugins.Soft, at, r.Soft)
	now.Hard, r.Hard = compareRule(v, plugins.Hard, at, r.Hard)
	s.trace.add(at.offset.Seconds(), at.gap, now, s.worst)
	was := r.Level
	if v.Level == was {
		return Change{}, false
	}
	r.Level = v.Level
	switch {
	case v.Level == plugins.Hard:
		r.RoseToHard++
	case v.Level == plugins.Soft && was == plugins.None:
		r.RoseToSoft++
	}
	return Change{
		Time: at.time, OffsetSeconds: at.offset.Seconds(), Plugin: v.Plugin, Scope: v.Scope, From: was, To: v.Level,
		Observed: v.Observed, Operator: v.Operator, Threshold: v.Threshold, Unit: v.Unit, Reason: v.Reason,
	}, true
}

// end is the change of a level that ends because there is no verdict any more.
func (s *scope) end(at instant, why string) []Change {
	was := s.report.Level
	if was == plugins.None {
		return nil
	}
	s.report.Level = plugins.None
	return []Change{{
		Time: at.time, OffsetSeconds: at.offset.Seconds(), Plugin: s.report.Plugin, Scope: s.report.Scope,
		From: was, To: plugins.None, Reason: why,
	}}
}

// compareRule is the comparison of a rule in the verdict's own unit, and the worst
// so far.
func compareRule(v *plugins.Verdict, rule plugins.Level, at instant, worst *Extreme) (Comparison, *Extreme) {
	i := -1
	for j, e := range v.Evidence {
		same := e.Rule == rule && e.Unit == v.Unit && e.Operator == v.Operator
		if same && (i < 0 || e.Observed == v.Observed && v.Evidence[i].Observed != v.Observed) {
			i = j // of several, such as a link's two directions, the one in the verdict
		}
	}
	if i < 0 {
		return Comparison{}, worst
	}
	e := v.Evidence[i]
	c := Comparison{Observed: e.Observed}
	c.Threshold = some(e.Threshold)
	observed, ok := e.Observed.Get()
	if ok && (worst == nil || exceeds(v.Operator, observed, worst.Observed)) {
		worst = &Extreme{What: e.What, Observed: observed, Threshold: e.Threshold, Time: at.time, OffsetSeconds: at.offset.Seconds()}
	}
	return c, worst
}

// exceeds reports whether a exceeds b in the direction of the comparison.
func exceeds(operator string, a, b float64) bool {
	if operator == "<" || operator == "<=" {
		return a < b
	}
	return a > b
}

// worst of two moments, value by value.
func (s *scope) worst(a, b Rules) Rules {
	a.Level = max(a.Level, b.Level)
	a.Soft = s.worse(a.Soft, b.Soft)
	a.Hard = s.worse(a.Hard, b.Hard)
	return a
}

func (s *scope) worse(a, b Comparison) Comparison {
	x, ok1 := a.Observed.Get()
	y, ok2 := b.Observed.Get()
	if !ok1 || ok2 && exceeds(s.report.Operator, y, x) {
		return b
	}
	return a
}
