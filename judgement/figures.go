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
	// reached. An alarm is one level of one resource and scope in one recording,
	// however often it came: it is right if each time was. HardPrecision and
	// HardRecall are of hard levels alone.
	Precision     Rate `json:"precision"`
	Recall        Rate `json:"recall"`
	HardPrecision Rate `json:"hardPrecision"`
	HardRecall    Rate `json:"hardRecall"`

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
	healthy, falseHard, falseAny         int
	alarms, right, hardAlarms, hardRight int
	expected, met, hardExpected, hardMet int
	culprits, first, two, none, vain     int
	detect, clears                       []snapshot.Opt[float64]
}

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
	f.Precision, f.Recall = NewRate(t.right, t.alarms), NewRate(t.met, t.expected)
	f.HardPrecision, f.HardRecall = NewRate(t.hardRight, t.hardAlarms), NewRate(t.hardMet, t.hardExpected)
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
		wrong[s.Alarm] = true
	}
	seen := map[Alarm]bool{}
	for _, s := range o.Spells {
		if seen[s.Alarm] || !wrong[s.Alarm] && !j.Label.expects(s) {
			continue // counted, or neither right nor false
		}
		seen[s.Alarm] = true
		t.alarms++
		t.right += one(!wrong[s.Alarm])
		if s.Level == plugins.Hard {
			t.hardAlarms++
			t.hardRight += one(!wrong[s.Alarm])
		}
	}
}

func (t *tally) detection(r Rule, d Detection) {
	t.expected++
	t.met += one(d.Seen)
	if d.Want.Level == plugins.Hard && r.Highest == plugins.Hard {
		t.hardExpected++
		t.hardMet += one(d.Met)
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
