package judge

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/judgement/peers"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// SweepPoint is KEP-5394's rule with one threshold, for one resource.
type SweepPoint struct {
	Resource plugins.Resource `json:"resource"`
	// Line of PSI, and Threshold in percent; of our own rules none.
	Line      peers.Line `json:"line,omitempty"`
	Threshold float64    `json:"thresholdPercent,omitempty"`
	// Met is how many expected levels were reached, which is how many had the condition:
	// our own rules must be at hard where hard is expected. False is how many recordings
	// had it although the label expects no such pressure and no stall of the node.
	Met   judgement.Rate  `json:"met"`
	False judgement.Rate  `json:"false"`
	After judgement.Times `json:"timeToDetect"`
}

// sweepThresholds in percent.
func sweepThresholds() []float64 {
	return []float64{1, 2, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90}
}

// sweep counts, for each rule and resource, what its points are made of.
type sweep struct {
	rules []sweptRule
	own   sweptRule
}

type sweptRule struct {
	rule      judgement.Rule
	line      peers.Line
	threshold float64
	of        map[plugins.Resource]*swept
}

type swept struct {
	expected, met, without, wrong int
	after                         []snapshot.Opt[float64]
}

func sweptResources() []plugins.Resource { return []plugins.Resource{plugins.Memory, plugins.Disk} }

func newSweep() *sweep {
	s := &sweep{own: sweptRule{of: newSwept()}}
	for _, line := range []peers.Line{peers.Full, peers.Some} {
		for _, t := range sweepThresholds() {
			s.rules = append(s.rules, sweptRule{rule: peers.KEP5394(t, line), line: line, threshold: t, of: newSwept()})
		}
	}
	return s
}

func newSwept() map[plugins.Resource]*swept {
	of := map[plugins.Resource]*swept{}
	for _, r := range sweptResources() {
		of[r] = &swept{}
	}
	return of
}

// add one recording, with what our own rules say of it.
func (s *sweep) add(l judgement.Label, what recorded, own judgement.Outcome) {
	s.own.add(l, own)
	for i := range s.rules {
		s.rules[i].add(l, outcome(s.rules[i].rule, l, what))
	}
}

func (s *sweptRule) add(l judgement.Label, o judgement.Outcome) {
	if o.Lacks != "" {
		return
	}
	for _, r := range sweptResources() {
		of := s.of[r]
		for _, d := range o.Expected {
			if d.Want.Resource == r {
				of.expected++
				of.met += count(d.Met)
				of.after = append(of.after, d.After)
			}
		}
		if without(l, r) {
			of.without++
			of.wrong += count(slices.ContainsFunc(slices.Concat(o.FalseHard, o.FalseSoft), func(s judgement.Spell) bool { return s.Resource == r }))
		}
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// without reports whether the label expects no pressure on a resource, leaves none
// open, and no stall of the whole node, which is felt at every resource.
func without(l judgement.Label, r plugins.Resource) bool {
	if l.Stalls() || slices.ContainsFunc(l.Want, func(w judgement.Want) bool { return w.Resource == r }) {
		return false
	}
	return !slices.ContainsFunc(l.NotJudged, func(n judgement.NotJudged) bool { return n.Resource == r })
}

func (s *sweep) points() []SweepPoint {
	var list []SweepPoint
	for _, r := range sweptResources() {
		for i := range s.rules {
			list = append(list, s.rules[i].point(r))
		}
	}
	return list
}

func (s *sweep) ours() []SweepPoint {
	var list []SweepPoint
	for _, r := range sweptResources() {
		list = append(list, s.own.point(r))
	}
	return list
}

func (s *sweptRule) point(r plugins.Resource) SweepPoint {
	of := s.of[r]
	return SweepPoint{
		Resource: r, Line: s.line, Threshold: s.threshold,
		Met: judgement.NewRate(of.met, of.expected), False: judgement.NewRate(of.wrong, of.without), After: judgement.NewTimes(of.after),
	}
}
