package judgement

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Judged is one recording before one rule.
type Judged struct {
	Label   Label
	Outcome Outcome
}

// Figures of one rule over many recordings. The rates count recordings or expected
// levels, never samples: samples of one recording are not independent.
type Figures struct {
	Rule string `json:"judge"`
	// Recordings that were judged, and why others were not.
	Recordings int      `json:"recordings"`
	NotJudged  int      `json:"notJudged"`
	Lacks      []string `json:"lacks,omitempty"`

	// FalseHard is the healthy recordings with a hard level, and FalseAny those with
	// any level.
	FalseHard Rate `json:"falseHardOfHealthy"`
	FalseAny  Rate `json:"falseOfHealthy"`
	// Precision is how many alarms were right, Recall how many expected levels were
	// reached, by any level. An alarm is one resource and scope in one recording,
	// however often it came and with which levels: it is right if each time was. The
	// others are of one level alone: a hard level counts as reached if the judge was at
	// hard.
	Precision     Rate `json:"precision"`
	Recall        Rate `json:"recall"`
	HardPrecision Rate `json:"hardPrecision"`
	HardRecall    Rate `json:"hardRecall"`
	SoftPrecision Rate `json:"softPrecision"`
	SoftRecall    Rate `json:"softRecall"`

	// Detect is the time from the truth to its level, Clear from the load's end to
	// the end of the last level.
	Detect Times `json:"timeToDetect"`
	Clear  Times `json:"timeToClear"`

	// Top1 is how often the culprit was named first, Top2 among the first two, of
	// the expected levels that were reached and whose label names one. Vain is how
	// often a workload was named where none may be.
	Top1    Rate   `json:"culpritFirst"`
	Top2    Rate   `json:"culpritAmongTwo"`
	Vain    Rate   `json:"namedInVain"`
	Unnamed string `json:"culpritsNotJudged,omitempty"`
}

// tally counts what Figures are made of.
type tally struct {
	healthy, falseHard, falseAny     int
	alarms, expected                 [plugins.Hard + 1]share // by level; None: any
	culprits, first, two, none, vain int
	detect, clears                   []snapshot.Opt[float64]
}

// share is how many of a number were so.
type share struct{ count, of int }

func (s *share) add(is bool) { s.count, s.of = s.count+one(is), s.of+1 }

func (s share) rate() Rate { return NewRate(s.count, s.of) }

// Sum makes the Figures of a rule.
func Sum(r Rule, list []Judged) Figures {
	f := Figures{Rule: r.Name, Unnamed: r.Unnamed}
	var t tally
	for _, j := range list {
		if j.Outcome.Lacks != "" {
			f.NotJudged++
			if !slices.Contains(f.Lacks, j.Outcome.Lacks) {
				f.Lacks = append(f.Lacks, j.Outcome.Lacks)
			}
			continue
		}
		f.Recordings++
		t.recording(j)
		for _, d := range j.Outcome.Expected {
			t.detection(r, d)
		}
	}
	f.FalseHard, f.FalseAny = NewRate(t.falseHard, t.healthy), NewRate(t.falseAny, t.healthy)
	f.Precision, f.Recall = t.alarms[plugins.None].rate(), t.expected[plugins.None].rate()
	f.HardPrecision, f.HardRecall = t.alarms[plugins.Hard].rate(), t.expected[plugins.Hard].rate()
	f.SoftPrecision, f.SoftRecall = t.alarms[plugins.Soft].rate(), t.expected[plugins.Soft].rate()
	f.Detect, f.Clear = NewTimes(t.detect), NewTimes(t.clears)
	if r.Unnamed == "" {
		f.Top1, f.Top2, f.Vain = NewRate(t.first, t.culprits), NewRate(t.two, t.culprits), NewRate(t.vain, t.none)
	}
	return f
}

func (t *tally) recording(j Judged) {
	o := &j.Outcome
	if j.Label.Healthy() {
		t.healthy++
		t.falseHard += one(len(o.FalseHard) > 0)
		t.falseAny += one(len(o.FalseHard)+len(o.FalseSoft) > 0)
	}
	t.none += one(o.NoneMayBe)
	t.vain += one(o.Vain)
	wrong := map[Alarm]bool{}
	for _, s := range slices.Concat(o.FalseHard, o.FalseSoft) {
		wrong[s.Alarm], wrong[s.anyLevel()] = true, true
	}
	counted := map[Alarm]bool{}
	for _, s := range o.Spells {
		if !wrong[s.Alarm] && !j.Label.Expects(s) {
			continue // neither right nor false
		}
		for _, a := range []Alarm{s.Alarm, s.anyLevel()} {
			if !counted[a] {
				counted[a] = true
				t.alarms[a.Level].add(!wrong[a])
			}
		}
	}
}

func (t *tally) detection(r Rule, d Detection) {
	t.expected[plugins.None].add(d.Seen)
	if d.Want.Level == plugins.Soft {
		t.expected[plugins.Soft].add(d.Seen)
	} else if r.Highest == plugins.Hard {
		t.expected[plugins.Hard].add(d.Met)
	}
	t.detect = append(t.detect, d.After)
	if d.Seen {
		t.clears = append(t.clears, d.Cleared)
	}
	if d.Met && (d.Want.Culprit != "" || d.Want.Presser != "") {
		t.culprits++
		t.first += one(d.Rank == 1)
		t.two += one(d.Rank == 1 || d.Rank == 2)
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}
