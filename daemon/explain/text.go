package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

// How many decisions one screen shows, of all or of one name; JSON has the
// rest.
const (
	decisionsShown = 6
	aboutShown     = 4
)

// WriteNewest writes the newest decisions of a list, newest first. First comes what the
// agent's present state s tells: its mode, and what no level tells about, with the reasons.
// Without it the absence of a decision would read as an all-clear.
func WriteNewest(w io.Writer, list []evict.Decision, s *view.State, now time.Time) error {
	t := text{now: now}
	decides := t.present(s)
	for _, what := range s.UnjudgedText() {
		t.line("Not judged now: %s", what)
	}
	switch {
	case len(list) > 0:
	case decides:
		t.line("No decision yet: no level has changed since the agent started.")
	default:
		t.line("No decision yet.")
	}
	for i := range list[:min(decisionsShown, len(list))] {
		t.overview(&list[i])
	}
	t.olderNote(len(list)-decisionsShown, "decisions")
	if at := newestEviction(list); at >= decisionsShown {
		t.overview(&list[at])
	}
	if len(names(list)) > 0 {
		t.line("")
		t.line("Details: plimsoll explain eviction POD, NAMESPACE/POD, UID or DECISION")
	}
	return t.writeTo(w)
}

// present is the mode of an agent, and whether it decides at present.
func (t *text) present(s *view.State) (decides bool) {
	t.line("Now: %s", s.ModeText())
	decides = s.Cluster == nil || s.Cluster.RoundsStuckSeconds == 0
	if s.Stale() {
		t.line("No new sample for %s: the present levels are as old", view.Age(s.SampleAge))
		decides = false
	}
	return decides
}

// WriteAbout writes what the decisions that About found meant for a name, or the
// whole decision if the name is its ID, after the mode of the agent.
func WriteAbout(w io.Writer, found []evict.Decision, name string, s *view.State, now time.Time) error {
	t := text{now: now}
	t.present(s)
	shown := 0
	for i := range found {
		d := &found[i]
		if d.ID == name {
			t.decision(d)
			continue
		}
		if shown++; shown > aboutShown {
			continue
		}
		for _, at := range places(d, name) {
			t.candidate(d, at)
		}
	}
	t.olderNote(shown-aboutShown, "decisions about it")
	return t.writeTo(w)
}

// newestEviction is the index of the newest decision that evicts; -1: none.
func newestEviction(list []evict.Decision) int {
	return slices.IndexFunc(list, func(d evict.Decision) bool {
		_, some := d.FirstEvicted()
		return some
	})
}

// text collects lines. Names chosen by others are made printable, so that they
// cannot control the terminal.
type text struct {
	now time.Time
	b   strings.Builder
}

func (t *text) line(format string, args ...any) {
	t.b.WriteString(view.Printable(fmt.Sprintf(format, args...)) + "\n")
}

// labelled writes an indented line with a label; an empty fact writes none.
func (t *text) labelled(name, fact string) {
	if fact != "" {
		t.line("  %-11s %s", name, fact)
	}
}

func (t *text) olderNote(n int, what string) {
	if n > 0 {
		t.line("")
		t.line("and %d older %s; -o json prints all", n, what)
	}
}

func (t *text) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, t.b.String())
	return err
}

// head writes the first line of a decision, after an empty line if there is
// text.
func (t *text) head(d *evict.Decision, what string) {
	if t.b.Len() > 0 {
		t.line("")
	}
	t.line("%s UTC, %s ago: %s (decision %s)", view.Stamp(d.Time), view.Age(t.now.Sub(d.Time)), what, d.ID)
}

func (t *text) causes(d *evict.Decision) {
	for _, c := range d.Causes {
		t.labelled("cause", fmt.Sprintf("%s %s since %s: %s", view.CauseTitle(c), c.Level, view.Clock(c.Since), c.Reason))
		for _, e := range c.Credit {
			state := "is terminating"
			if e.InProgress {
				state = "is evicted by another component"
			}
			t.labelled("credit", e.Name+" "+state+": its use counts as released until "+view.Clock(e.Until))
		}
		if c.Contention != nil {
			t.labelled("contention", view.ContentionSentence(c.Contention, "the time"))
		}
	}
}

// contentionParties are culprits and sufferers, as far as the decision has them.
func (t *text) contentionParties(d *evict.Decision) {
	for _, c := range d.Causes {
		if c.Contention == nil {
			continue
		}
		on := view.ContentionTitle(c.Contention)
		t.labelled("used by", on+": "+view.CulpritsText(c.Contention))
		t.labelled("waiting", on+": "+view.SufferersText(c.Contention))
	}
}

// aftermath is when these pods of a decision terminated, and how the pressure changed.
func (t *text) aftermath(d *evict.Decision, evicted ...evict.Considered) {
	for i := range evicted {
		terminated := view.TerminatedText(d, &evicted[i])
		if len(evicted) > 1 && terminated != "" {
			terminated = evicted[i].Name + ": " + terminated
		}
		t.labelled("terminated", terminated)
	}
	for _, fell := range view.PressureChanges(d) {
		t.labelled("pressure", fell)
	}
	if (d.Code == evict.CodeEvicted || d.Code == evict.CodeInProgress) && len(d.After) == 0 {
		t.labelled("pressure", "not known until each evicted pod has terminated and the cooldown has passed")
	}
}

// overview writes a decision in a few lines.
func (t *text) overview(d *evict.Decision) {
	t.head(d, view.DecisionText(d))
	t.causes(d)
	t.labelled("decision", d.Reason)
	t.aftermath(d, d.Evicted()...)
	if all := len(d.Candidates) + d.Omitted; all > 0 {
		t.labelled("skipped", counts(d))
	}
}

// counts is how many candidates were skipped, by reason, in their order.
func counts(d *evict.Decision) string {
	n := map[evict.Code]int{}
	var order []evict.Code
	for _, c := range d.Candidates {
		if c.Code == evict.CodeEvicted || c.Code == evict.CodeInProgress || c.Code == evict.CodeWouldEvict {
			continue
		}
		if n[c.Code]++; n[c.Code] == 1 {
			order = append(order, c.Code)
		}
	}
	parts := make([]string, 0, len(order)+1)
	for _, code := range order {
		parts = append(parts, fmt.Sprintf("%d %s", n[code], code))
	}
	if d.Omitted > 0 {
		parts = append(parts, fmt.Sprintf("%d not stored", d.Omitted))
	}
	return strings.Join(parts, ", ")
}

// decision writes a decision with all its candidates.
func (t *text) decision(d *evict.Decision) {
	t.head(d, view.DecisionText(d))
	t.causes(d)
	t.contentionParties(d)
	t.labelled("decision", d.Reason)
	t.aftermath(d, d.Evicted()...)
	for i := range d.Candidates {
		c := &d.Candidates[i]
		t.line("  %2d. %s: %s", i+1, c.Name, view.CandidateText(c))
		t.line("      relief %s (%s%s)%s", relief(c), c.Why, view.NamedEarlierText(d, c), podFacts(c))
		if c.Reason != c.Why {
			t.line("      %s", c.Reason)
		}
		for _, a := range c.Answers {
			t.line("      %s, %s: %s", view.AnswerSource(a), view.Clock(a.Time), view.AnswerText(a, c.Reason))
		}
	}
	if d.Omitted > 0 {
		t.line("  and %d more, all skipped", d.Omitted)
	}
}

func podFacts(c *evict.Considered) string {
	if c.Pod == nil {
		return ""
	}
	return "; " + view.PodText(c.Pod)
}

// relief of a candidate; an outer plugin tells none.
func relief(c *evict.Considered) string {
	if c.Relief == 0 {
		return "unknown"
	}
	return view.Quantity(c.Relief, c.Unit)
}

// candidate writes what a decision meant for one candidate.
func (t *text) candidate(d *evict.Decision, at int) {
	c := &d.Candidates[at]
	t.head(d, c.Name+" "+view.CandidateText(c))
	if c.Reason != c.Why {
		t.labelled("reason", c.Reason)
	}
	t.causes(d)
	t.contentionParties(d)
	t.labelled("rank", fmt.Sprintf("%d of %d, named by %s%s", at+1, len(d.Candidates)+d.Omitted, strings.Join(c.Plugins, ", "), view.NamedEarlierText(d, c)))
	t.labelled("relief", relief(c)+" ("+c.Why+")")
	if c.Pod != nil {
		t.labelled("pod", view.PodText(c.Pod)+" · UID "+c.Pod.UID)
	}
	for _, a := range c.Answers {
		t.labelled("answer", fmt.Sprintf("%s UTC, %s: %s", view.Clock(a.Time), view.AnswerSource(a), view.AnswerText(a, c.Reason)))
	}
	if c.Code == evict.CodeEvicted || c.Code == evict.CodeInProgress {
		t.aftermath(d, *c)
	} else if c.Reason != d.Reason {
		t.labelled("decision", fmt.Sprintf("%s: %s", view.DecisionText(d), d.Reason))
	}
}
