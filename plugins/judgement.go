package plugins

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// judgement is the result of one rule for one snapshot: whether its threshold is
// met, whether its lower threshold is (held, hysteresis), every comparison, and why
// some were not possible.
type judgement struct {
	met, held bool
	evidence  []Evidence
	absent    string
	// unseen: it is not known whether the lower threshold is met.
	unseen bool
}

// compare makes one comparison and adds it to the evidence. An absent value does
// not meet the threshold.
func (j *judgement) compare(level Level, what string, observed snapshot.Opt[float64], op string, threshold float64, unit, why string) bool {
	e := Evidence{Rule: level, What: what, Observed: observed, Operator: op, Threshold: threshold, Unit: unit}
	e.Met = whether(observed, op, threshold).met
	if observed.IsZero() {
		e.Absent = why
	}
	j.evidence = append(j.evidence, e)
	return e.Met
}

// maybe is a condition some values of which may be missing: it is met by those that are
// known, and it may be met, whatever the others are (three-valued logic).
type maybe struct{ met, may bool }

// whether compares a value with a threshold.
func whether(observed snapshot.Opt[float64], op string, threshold float64) maybe {
	o, known := observed.Get()
	met := o >= threshold
	switch op {
	case "<":
		met = o < threshold
	case ">":
		met = o > threshold
	}
	return maybe{met: known && met, may: !known || met}
}

// unseen: it is not known whether it is met.
func (m maybe) unseen() bool { return m.may && !m.met }

func (m maybe) and(o maybe) maybe { return maybe{met: m.met && o.met, may: m.may && o.may} }

func (m maybe) or(o maybe) maybe { return maybe{met: m.met || o.met, may: m.may || o.may} }

// reason is the judgement in one sentence.
func (j *judgement) reason(level Level, warmingUp bool) string {
	var met, not []string
	for _, e := range j.evidence {
		if e.Met {
			met = append(met, e.text())
		} else {
			not = append(not, e.text())
		}
	}
	switch {
	case level > None && j.met:
		return strings.Join(met, "; ")
	case level > None && j.unseen:
		return staysUnseen + strings.Join(not, "; ")
	case level > None:
		return "level stays on until clear for the whole window: " + strings.Join(not, "; ")
	case j.absent != "":
		return "incomplete data: " + j.absent
	case warmingUp:
		return "warming up, only the hard level is judged: " + strings.Join(not, "; ")
	}
	return strings.Join(not, "; ")
}

// foreseen adds an estimate to a reason. It decides nothing.
func foreseen(o snapshot.Opt[snapshot.Exhaustion]) string {
	if e, shrinks := o.Get(); shrinks {
		return "; " + e.String()
	}
	return ""
}

func (e Evidence) text() string {
	o, ok := e.Observed.Get()
	switch {
	case !ok:
		return e.What + " unknown (" + e.Absent + ")"
	case e.Unit == "ratio":
		return fmt.Sprintf("%s %.1f %% (%s %.3g %%)", e.What, 100*o, e.operatorText(), 100*e.Threshold)
	case e.Unit == "bytes":
		return fmt.Sprintf("%s %.0f MiB (%s %.0f MiB)", e.What, o/(1<<20), e.operatorText(), e.Threshold/(1<<20))
	case e.Unit == "cores":
		return fmt.Sprintf("%s %.4g (%s %.4g)", e.What, o, e.operatorText(), e.Threshold)
	case e.Unit == "seconds":
		return fmt.Sprintf("%s %.0f s (%s %g s)", e.What, o, e.operatorText(), e.Threshold)
	}
	return fmt.Sprintf("%s %.0f (%s %s)", e.What, o, e.operatorText(), strconv.FormatFloat(e.Threshold, 'f', -1, 64))
}

func (e Evidence) operatorText() string {
	op := strings.NewReplacer(">=", "≥", "<=", "≤").Replace(e.Operator)
	if e.Met {
		return op
	}
	return "needs " + op
}

func float(o snapshot.Opt[uint64]) snapshot.Opt[float64] {
	v, ok := o.Get()
	if !ok {
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(float64(v))
}

// applyHysteresis applies hysteresis to one level: it turns on when met, and off when neither
// met nor held for all of cleared, without a gap in the samples.
func (v *Verdict) applyHysteresis(view View, level Level, met, held bool, cleared time.Duration) {
	i := level - Soft
	if met || held {
		v.LowerMet[i] = view.Monotonic
	}
	_, seen := view.Over(cleared)
	if met {
		v.MetLevel = max(v.MetLevel, level)
	}
	switch {
	case met:
		v.Latched[i] = true
	case v.Latched[i] && seen && view.Monotonic-v.LowerMet[i] >= cleared:
		v.Latched[i] = false
	}
	if v.Latched[i] {
		v.Level = max(v.Level, level)
	}
}

// staysUnseen begins the reason of a level that is on and of which that is not known.
const staysUnseen = "level stays on for five minutes at most while values are missing: "

// maxUnseen is how long a level stays on at most of which it is not known whether its lower
// threshold is still met, counted from when that was last seen.
const maxUnseen = 5 * time.Minute

// stillHeld reports whether the lower threshold of a level counts as met: it is, or it may be
// and was seen to be not long ago. A missing value does not end a level at once, and turns
// none on.
func (v *Verdict) stillHeld(view View, level Level, lower maybe) bool {
	i := level - Soft
	if lower.met || !v.Latched[i] {
		v.LowerSeen[i] = view.Monotonic
	}
	return lower.met || lower.may && view.Monotonic-v.LowerSeen[i] < maxUnseen
}

// recordLasting records since when each of these workloads has met the rule without a break
// (debounce); a gap in the samples starts it again.
func (v *Verdict) recordLasting(view View, was Verdict, met []string) {
	if len(met) == 0 {
		return
	}
	v.MetSince = make(map[string]time.Duration, len(met))
	for _, cgroup := range met {
		since, before := was.MetSince[cgroup]
		if !before || view.Step().Elapsed() == 0 {
			since = view.Monotonic
		}
		v.MetSince[cgroup] = since
	}
}

// lastedFor reports whether a workload has met the rule for d without a break.
func (v *Verdict) lastedFor(view View, cgroup string, d time.Duration) bool {
	since, met := v.MetSince[cgroup]
	return met && view.Monotonic-since >= d
}

// metFor reports whether so was true at every sample for d (debounce). It must be
// called at each tick; a gap in the samples starts the time again.
func (v *Verdict) metFor(view View, j *judgement, so bool, d time.Duration) bool {
	if !so {
		v.RuleMetSince = 0
		return false
	}
	if v.RuleMetSince == 0 || view.Step().Elapsed() == 0 {
		v.RuleMetSince = view.Monotonic
	}
	lasted := snapshot.Some((view.Monotonic - v.RuleMetSince).Seconds())
	return j.compare(Soft, "met without a break for", lasted, ">=", d.Seconds(), "seconds", "")
}

// recordAnswers records since which answer of the runtime a level has been met at every
// tick (debounce), and returns how long that is until the newest answer: that it is old
// tells nothing of the time since. Samples may be missing between two answers.
func (v *Verdict) recordAnswers(was Verdict, level string, answer time.Duration) time.Duration {
	since, before := was.MetSince[level]
	if !before {
		since = answer
	}
	if v.MetSince == nil {
		v.MetSince = map[string]time.Duration{}
	}
	v.MetSince[level] = since
	return answer - since
}
