package web

import (
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

type pageDecision struct {
	ID, Time, Stamp, Ago, Causes, Level, Outcome, Class, Reason string
	Moment                                                      string   // link to its hour; empty: older than the history
	Because                                                     []string // the reason of each cause
	Victims                                                     []pageVictim
	Changes                                                     []string // how far the pressure fell after them
	Waits                                                       string   // instead of Changes, why that is unknown yet
	Others                                                      []consideredRow
	Omitted                                                     int
	Open                                                        bool
}

// pageVictim is an evicted pod, and the course of its eviction.
type pageVictim struct {
	ID, Name, Pod, UID, Relief string // ID is its cgroup
	Answers                    []string
	Terminated                 string
}

// consideredRow is a skipped candidate.
type consideredRow struct {
	ID, Name, Where, Pod, Relief, Outcome, Because string
	Answers                                        []string
}

// decisionsShown of all stored ones, and othersShown candidates of each; the
// API has the rest. The first three are not folded, nor are those up to the
// newest eviction if it is among the first eight.
const (
	decisionsShown = 20
	decisionsOpen  = 3
	evictionOpen   = 8
	othersShown    = 10
)

func pageDecisions(list []evict.Decision, now time.Time, open bool) []pageDecision {
	out := make([]pageDecision, 0, decisionsShown)
	for i := range list[:min(decisionsShown, len(list))] {
		out = append(out, newPageDecision(&list[i], now, open))
	}
	return out
}

// unfolded is how many decisions are not folded.
func unfolded(list []pageDecision) int {
	evicted := slices.IndexFunc(list, func(d pageDecision) bool { return len(d.Victims) > 0 })
	if evicted < evictionOpen {
		return max(decisionsOpen, evicted+1)
	}
	return decisionsOpen
}

func newPageDecision(d *evict.Decision, now time.Time, open bool) pageDecision {
	p := pageDecision{
		Open: open, ID: view.Printable(d.ID), Time: view.Clock(d.Time), Stamp: d.Time.UTC().Format(time.RFC3339), Ago: view.Age(now.Sub(d.Time)),
		Moment: moment(d, now), Causes: causeNames(d.Causes), Level: levelClass(d.Level()), Outcome: view.DecisionText(d), Class: decisionClass(d), Reason: view.Printable(d.Reason),
	}
	for _, c := range d.Causes {
		p.Because = append(p.Because, view.Printable(c.Reason))
		if c.Contention != nil {
			on := view.ContentionTitle(c.Contention)
			p.Because = append(p.Because, view.ContentionSentence(c.Contention, "the time"),
				on+" culprits: "+view.CulpritsText(c.Contention), on+" sufferers: "+view.SufferersText(c.Contention))
		}
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		switch {
		case c.Code == evict.CodeEvicted || c.Code == evict.CodeInProgress || c.Code == evict.CodeWouldEvict:
			p.Victims = append(p.Victims, newVictim(d, c))
		case len(p.Others) < othersShown:
			p.Others = append(p.Others, newConsidered(c))
		default:
			p.Omitted++
		}
	}
	p.Omitted += d.Omitted
	if p.Changes = view.PressureChanges(d); len(p.Changes) == 0 && !d.DryRun {
		p.Waits = "unknown until each evicted pod has terminated and the cooldown is over"
	}
	return p
}

// decisionClass is the colour of an outcome; the text has the same information.
func decisionClass(d *evict.Decision) string {
	switch d.Code {
	case evict.CodeEvicted, evict.CodeInProgress, evict.CodeUnknownOutcome:
		return "hard"
	case evict.CodeWouldEvict:
		return "soft"
	case evict.CodeEnded:
		return "none"
	default:
		return unknownClass
	}
}

func causeNames(causes []evict.Cause) string {
	titles := make([]string, len(causes))
	for i, c := range causes {
		titles[i] = view.CauseTitle(c)
	}
	return strings.Join(titles, ", ")
}

func newVictim(d *evict.Decision, c *evict.Considered) pageVictim {
	v := pageVictim{
		ID: c.Cgroup, Name: view.Printable(c.Name), UID: view.Printable(c.PodUID), Answers: answers(c),
		Relief: view.Quantity(c.Relief, c.Unit) + " (" + view.Printable(c.Why) + ")", Terminated: view.TerminatedText(d, c),
	}
	if c.Pod != nil {
		v.Pod, v.UID = view.PodText(c.Pod), view.Printable(c.Pod.UID)
	}
	if d.DryRun {
		v.Terminated = "no: dry run"
	}
	return v
}

func newConsidered(c *evict.Considered) consideredRow {
	row := consideredRow{
		ID: c.Cgroup, Name: view.Printable(c.Name), Where: view.Printable(c.Cgroup), Relief: view.Quantity(c.Relief, c.Unit),
		Outcome: view.CandidateText(c), Because: view.Printable(c.Reason), Answers: answers(c),
	}
	if c.Pod != nil {
		row.Pod = view.PodText(c.Pod)
	}
	return row
}

func answers(c *evict.Considered) []string {
	list := make([]string, len(c.Answers))
	for i, a := range c.Answers {
		list[i] = view.Clock(a.Time) + " UTC, " + view.AnswerSource(a) + ": " + view.AnswerText(a, c.Reason)
	}
	return list
}
