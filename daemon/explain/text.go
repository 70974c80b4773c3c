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
	casesShown     = 4
)

// Newest writes the newest decisions of a list, newest first.
func Newest(w io.Writer, list []evict.Decision, now time.Time) error {
	t := text{now: now}
	if len(list) == 0 {
		t.line("No decision yet: no level has changed since the agent started.")
	}
	for i := range list[:min(decisionsShown, len(list))] {
		t.overview(&list[i])
	}
	t.more(len(list)-decisionsShown, "decisions")
	if at := newestEviction(list); at >= decisionsShown {
		t.overview(&list[at])
	}
	if len(names(list)) > 0 {
		t.line("")
		t.line("Details: plimsoll explain eviction POD, NAMESPACE/POD, UID or DECISION")
	}
	return t.to(w)
}

// Named writes what the decisions that About found meant for a name, or the
// whole decision if the name is its ID.
func Named(w io.Writer, found []evict.Decision, name string, now time.Time) error {
	t := text{now: now}
	shown := 0
	for i := range found {
		d := &found[i]
		if d.ID == name {
			t.whole(d)
			continue
		}
		if shown++; shown > casesShown {
			continue
		}
		for _, at := range places(d, name) {
			t.candidate(d, at)
		}
	}
	t.more(shown-casesShown, "decisions about it")
	return t.to(w)
}

// newestEviction is the index of the newest decision that evicts; -1: none.
func newestEviction(list []evict.Decision) int {
	return slices.IndexFunc(list, func(d evict.Decision) bool {
		_, some := d.Going()
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

// fact writes an indented line with a label; an empty fact writes none.
func (t *text) fact(name, fact string) {
	if fact != "" {
		t.line("  %-11s %s", name, fact)
	}
}

func (t *text) more(n int, what string) {
	if n > 0 {
		t.line("")
		t.line("and %d older %s; -o json prints all", n, what)
	}
}

func (t *text) to(w io.Writer) error {
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
		t.fact("cause", fmt.Sprintf("%s %s since %s: %s", view.CauseTitle(c), c.Level, view.Clock(c.Since), c.Reason))
		for _, e := range c.Credit {
			t.fact("credit", e.Name+" is terminating: its use counts as released until "+view.Clock(e.Until))
		}
		if c.Contention != nil {
			t.fact("contention", view.ContentionSentence(c.Contention, "the time"))
		}
	}
}

// parties are culprits and sufferers, as far as the decision has them.
func (t *text) parties(d *evict.Decision) {
	for _, c := range d.Causes {
		if c.Contention == nil {
			continue
		}
		on := view.ContentionTitle(c.Contention)
		t.fact("used by", on+": "+view.CulpritsText(c.Contention))
		t.fact("waiting", on+": "+view.SufferersText(c.Contention))
	}
}

// afterwards is when the pod terminated and how the pressure changed.
func (t *text) afterwards(d *evict.Decision) {
	t.fact("terminated", view.GoneText(d))
	for _, fell := range view.FellText(d) {
		t.fact("pressure", fell)
	}
	if d.Code == evict.CodeEvicted && len(d.After) == 0 {
		t.fact("pressure", "not known until the pod has terminated and the cooldown has passed")
	}
}

// overview writes a decision in a few lines.
func (t *text) overview(d *evict.Decision) {
	t.head(d, view.DecisionText(d))
	t.causes(d)
	t.fact("decision", d.Reason)
	t.afterwards(d)
	if all := len(d.Candidates) + d.Omitted; all > 0 {
		t.fact("skipped", counts(d))
	}
}

// counts is how many candidates were skipped, by reason, in their order.
func counts(d *evict.Decision) string {
	n := map[evict.Code]int{}
	var order []evict.Code
	for _, c := range d.Candidates {
		if c.Code == evict.CodeEvicted || c.Code == evict.CodeWouldEvict {
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

// whole writes a decision with all its candidates.
func (t *text) whole(d *evict.Decision) {
	t.head(d, view.DecisionText(d))
	t.causes(d)
	t.parties(d)
	t.fact("decision", d.Reason)
	t.afterwards(d)
	for i := range d.Candidates {
		c := &d.Candidates[i]
		t.line("  %2d. %s: %s", i+1, c.Name, view.CandidateText(c))
		t.line("      relief %s (%s)%s", view.Quantity(c.Relief, c.Unit), c.Why, podFacts(c))
		if c.Because != c.Why {
			t.line("      %s", c.Because)
		}
		for _, a := range c.Answers {
			t.line("      %s, %s: %s", view.Answerer(a), view.Clock(a.Time), view.AnswerText(a, c.Because))
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

// candidate writes what a decision meant for one candidate.
func (t *text) candidate(d *evict.Decision, at int) {
	c := &d.Candidates[at]
	t.head(d, c.Name+" "+view.CandidateText(c))
	if c.Because != c.Why {
		t.fact("reason", c.Because)
	}
	t.causes(d)
	t.parties(d)
	t.fact("rank", fmt.Sprintf("%d of %d, named by %s", at+1, len(d.Candidates)+d.Omitted, strings.Join(c.Plugins, ", ")))
	t.fact("relief", fmt.Sprintf("%s (%s)", view.Quantity(c.Relief, c.Unit), c.Why))
	if c.Pod != nil {
		t.fact("pod", view.PodText(c.Pod)+" · UID "+c.Pod.UID)
	}
	for _, a := range c.Answers {
		t.fact("answer", fmt.Sprintf("%s UTC, %s: %s", view.Clock(a.Time), view.Answerer(a), view.AnswerText(a, c.Because)))
	}
	if c.Code == evict.CodeEvicted {
		t.afterwards(d)
	} else if c.Because != d.Reason {
		t.fact("decision", fmt.Sprintf("%s: %s", view.DecisionText(d), d.Reason))
	}
}
