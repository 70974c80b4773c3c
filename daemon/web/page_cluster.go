package web

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// pageCluster is the agent's state in its cluster, and the desired conditions.
type pageCluster struct {
	Facts      []fact
	Conditions []conditionRow
	None       string // why there is no condition
	Beats      []beatRow
	// Throttled pods, and culprits that are not throttled.
	Throttled, NotThrottled []string
}

type conditionRow struct{ Type, Status, Class, Reason, Message string }

func newPageCluster(s *view.State) *pageCluster {
	c := s.Cluster
	if c == nil {
		return nil
	}
	p := &pageCluster{Facts: []fact{podsFact(c), apiServerFact(s, c)}, None: noConditions(c)}
	if c.DataMovers != nil {
		p.Facts = append(p.Facts, dataMoversFact(c.DataMovers))
	}
	p.addThrottles(c.Throttles)
	if c.Heartbeat != nil {
		p.Facts, p.Beats = append(p.Facts, heartbeatFact(s, "Heartbeat", c.Heartbeat)), beatRows(c.Heartbeat)
	}
	if c.NodeLease != nil {
		p.Facts = append(p.Facts, heartbeatFact(s, "Node Lease", c.NodeLease))
	}
	for _, m := range c.Conditions {
		p.Conditions = append(p.Conditions, conditionRow{
			Type: view.Printable(m.Type), Status: view.Printable(string(m.Status)), Class: conditionClass(m),
			Reason: view.Printable(m.Reason), Message: view.Printable(m.Message),
		})
	}
	return p
}

// noConditions is why there is none.
func noConditions(c *view.Cluster) string {
	switch {
	case c.ConditionsOff:
		return "None: conditions.enabled is false."
	case c.DryRun:
		return "None in a dry run."
	case c.Conditions == nil:
		return "None yet: waiting for the first round."
	}
	return "None: no rule that marks the Node is in force."
}

// beatRow is one attempt to renew the Lease.
type beatRow struct{ Time, Took, Class, Outcome, Error string }

func beatRows(h *view.Heartbeat) []beatRow {
	rows := make([]beatRow, 0, len(h.Last))
	for _, b := range h.Last {
		r := beatRow{Time: view.Clock(b.Time), Took: view.Seconds(b.DurationSeconds), Class: "none", Outcome: string(b.Outcome), Error: view.Printable(b.Error)}
		if !b.Outcome.Good() {
			r.Class = "soft"
		}
		rows = append(rows, r)
	}
	return rows
}

// heartbeatFact is when a Lease was last renewed, as of the newest sample.
func heartbeatFact(s *view.State, name string, h *view.Heartbeat) fact {
	of := "longest gap " + view.Seconds(h.LongestGapSeconds) + ", " + view.Count(h.Dials) + " connections" + inParentheses(h.Error)
	if h.Renewed.IsZero() {
		return fact{name, highlightIf(cell{Text: "no renewal yet"}, h.Error != ""), of}
	}
	age := s.Age(h.Renewed)
	return fact{name, highlightIf(cell{Text: "renewed " + view.Age(age) + " ago"}, age > h.Duration), of}
}

// dataMoversFact is the state of data movers, and why they are limited.
func dataMoversFact(l *view.DataMovers) fact {
	of := "limited by Velero's configuration only"
	switch {
	case l.Reason != "":
		of = view.Printable(l.Reason)
	case l.Absent != "":
		of = "pressure on this node unknown: " + view.Printable(l.Absent)
	}
	return fact{"Data movers", highlightIf(cell{Text: l.Text()}, l.Budget != nil || l.Problem != ""), of + inParentheses(l.Problem)}
}

func podsFact(c *view.Cluster) fact {
	if !c.PodsSynced {
		why := "not listed yet" + inParentheses(c.StaleReason)
		return fact{"Pods of this node", cellOf(snapshot.Opt[uint64]{}, view.Count, snapshot.Absent{"pods": why}, "pods"), "not listed yet: evictions paused"}
	}
	return fact{"Pods of this node", cell{Text: view.Count(uint64(c.Pods))}, "listed by the API server"}
}

func apiServerFact(s *view.State, c *view.Cluster) fact {
	switch {
	case !c.StaleSince.IsZero():
	case c.PodsSynced:
		return fact{"API server", cell{Text: "connected"}, "the list of pods is up to date"}
	default:
		return fact{"API server", cell{Text: "no answer yet"}, "the pods of this node are not listed yet"}
	}
	return fact{"API server", highlightIf(cell{Text: "no connection for " + view.Age(s.Age(c.StaleSince))}, true), "since " + view.Clock(c.StaleSince) + " UTC" + inParentheses(c.StaleReason)}
}

// conditionClass is the colour of a condition; the text has the same
// information.
func conditionClass(c evict.Condition) string {
	switch {
	case c.Status == corev1.ConditionUnknown:
		return unknownClass
	case c.Status == corev1.ConditionTrue && c.Reason == "Hard":
		return "hard"
	case c.Status == corev1.ConditionTrue:
		return "soft"
	}
	return "none"
}

func inParentheses(why string) string {
	if why == "" {
		return ""
	}
	return " (" + view.Printable(why) + ")"
}

func (p *pageCluster) addThrottles(l *view.Throttles) {
	if l == nil {
		return
	}
	p.Throttled = l.All()
	for _, e := range l.Exempt {
		p.NotThrottled = append(p.NotThrottled, e.Text())
	}
	if l.Problem != "" {
		p.NotThrottled = append(p.NotThrottled, "limits could not be changed: "+view.Printable(l.Problem))
	}
}
