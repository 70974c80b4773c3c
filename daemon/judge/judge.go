// Package judge holds our own rules and those of other programs against labelled
// recordings: plimsoll judge.
//
// # Usage
//
// Run reads a directory and makes a Report; WriteText writes it for people.
package judge

import (
	"context"
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/judgement/peers"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Format is the first field of a Report. The version changes when a field is removed
// or changes its meaning.
const Format = "plimsoll-judge/1"

// Report is what all judges say of a directory of labelled recordings.
type Report struct {
	Format    string `json:"format"`
	Directory string `json:"directory"`
	// Judges, ours first.
	Judges []judgement.Rule `json:"judges"`
	// Recordings with what each judge says, sorted by name.
	Recordings []Recording `json:"recordings"`
	// Parts of the set, apart: what rules may be tuned by, and what is held out.
	Parts []Part `json:"parts"`
	// Sweep is KEP-5394's rule with many thresholds, over all recordings.
	Sweep []SweepPoint `json:"sweep"`
	// OurPoints are our own rules where the sweep has each threshold.
	OurPoints []SweepPoint `json:"ownPoints"`
}

// Recording is one labelled recording and its outcomes.
type Recording struct {
	judgement.Label
	File    string  `json:"file"`
	Kernel  string  `json:"kernel"`
	Samples int     `json:"samples"`
	Seconds float64 `json:"seconds"`
	// Swap: the machine had some.
	Swap bool `json:"swap"`
	// Pods: the API server's facts about pods are in it, such as their requests.
	Pods bool `json:"pods"`
	// Outcomes in the order of the judges.
	Outcomes []judgement.Outcome `json:"outcomes"`
}

// The parts.
const (
	PartTuned   = "tuned"
	PartHeldOut = "held out"
)

// Part of the set.
type Part struct {
	Name string `json:"name"`
	Group
	Classes []Group `json:"classes"`
}

// Group is recordings and the figures of each judge over them.
type Group struct {
	Class      string              `json:"class,omitempty"`
	Recordings int                 `json:"recordings"`
	Healthy    int                 `json:"healthy"`
	Hard       int                 `json:"expectedHard"`
	Soft       int                 `json:"expectedSoft"`
	Figures    []judgement.Figures `json:"figures"`
}

// Run judges the labelled recordings of a directory, with a configuration of our rules.
func Run(ctx context.Context, dir string, c *config.Agent) (*Report, error) {
	list, err := entries(dir)
	if err != nil {
		return nil, err
	}
	return run(dir, list, func(e entry) (recorded, error) { return e.read(ctx) }, c)
}

// run judges these recordings, as read reads them.
func run(dir string, list []entry, read func(entry) (recorded, error), c *config.Agent) (*Report, error) {
	r := &Report{Format: Format, Directory: dir, Judges: append([]judgement.Rule{Plimsoll(c)}, peers.Rules()...)}
	s := newSweep()
	for _, e := range list {
		what, err := read(e)
		if err != nil {
			return nil, err
		}
		one := Recording{Label: e.label, File: e.path, Kernel: what.header.Kernel, Samples: len(what.samples), Seconds: what.seconds}
		swap, _ := what.samples[len(what.samples)/2].Memory.SwapTotalBytes.Get()
		one.Swap = swap > 0
		one.Pods = slices.ContainsFunc(what.samples, func(s *snapshot.Sample) bool { return s.Cluster != nil && len(s.Cluster.Pods) > 0 })
		for _, rule := range r.Judges {
			one.Outcomes = append(one.Outcomes, outcome(rule, e.label, what))
		}
		s.add(e.label, what, one.Outcomes[0])
		r.Recordings = append(r.Recordings, one)
	}
	for _, name := range []string{PartTuned, PartHeldOut} {
		if part := r.part(name); part.Recordings > 0 {
			r.Parts = append(r.Parts, part)
		}
	}
	r.Sweep, r.OurPoints = s.points(), s.ours()
	return r, nil
}

// outcome of one rule on one recording.
func outcome(rule judgement.Rule, l judgement.Label, what recorded) judgement.Outcome {
	if hole := l.Hole(what.samples); hole != "" {
		return judgement.Outcome{Lacks: hole}
	}
	j := rule.New(l, what.samples)
	spells, lacks := judgement.Play(what.samples, j)
	if lacks != "" {
		return judgement.Outcome{Lacks: lacks}
	}
	o := judgement.Compare(l, rule, spells)
	if near, is := j.(judgement.Nearness); is {
		o.Near = near.Near()
	}
	return o
}

// part of the set, with its classes.
func (r *Report) part(name string) Part {
	var list []*Recording
	byClass := map[string][]*Recording{}
	var classes []string
	for i := range r.Recordings {
		one := &r.Recordings[i]
		if one.HeldOut != (name == PartHeldOut) {
			continue
		}
		if byClass[one.Class] == nil {
			classes = append(classes, one.Class)
		}
		list, byClass[one.Class] = append(list, one), append(byClass[one.Class], one)
	}
	p := Part{Name: name, Group: r.group("", list)}
	slices.Sort(classes)
	for _, class := range classes {
		p.Classes = append(p.Classes, r.group(class, byClass[class]))
	}
	return p
}

func (r *Report) group(class string, list []*Recording) Group {
	g := Group{Class: class, Recordings: len(list)}
	for _, one := range list {
		if one.Healthy() {
			g.Healthy++
		}
		for _, w := range one.Want {
			switch {
			case w.AtMost:
			case w.Level == plugins.Hard:
				g.Hard++
			default:
				g.Soft++
			}
		}
	}
	for i, rule := range r.Judges {
		var judged []judgement.Judged
		for _, one := range list {
			judged = append(judged, judgement.Judged{Label: one.Label, Outcome: one.Outcomes[i]})
		}
		g.Figures = append(g.Figures, judgement.Sum(rule, judged))
	}
	return g
}
