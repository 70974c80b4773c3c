package agent

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/evict"
)

// Reasons of Plimsoll's Events.
const (
	eventEvicted    = "PressureEviction"
	eventWouldEvict = "PressureEvictionDryRun"
	eventDecision   = "PressureDecision"
)

// publishDecision publishes a decision to the log, the metrics and, in a cluster, the
// Events of the pod and the Node.
func (a *Agent) publishDecision(d evict.Decision) {
	a.counters.Count(&d)
	for _, c := range d.Causes {
		a.Log.Info("decision", "id", d.ID, "plugin", c.Plugin, "scope", c.Scope, "level", c.Level.String(), "reason", c.Reason,
			"outcome", string(d.Code), "because", d.Reason, "candidates", len(d.Candidates))
	}
	if a.cluster == nil {
		return
	}
	reason := eventDecision
	for _, c := range d.Evicted() {
		reason = eventEvicted
		if d.DryRun {
			reason = eventWouldEvict
		}
		a.cluster.events.Pod(evict.Victim{UID: c.Pod.UID, Namespace: c.Pod.Namespace, Name: c.Pod.Name},
			corev1.EventTypeWarning, reason, fmt.Sprintf("%s %s: %s", a.cluster.node, d.Level(), decisionText(d)))
	}
	a.cluster.events.Node(a.cluster.uid, reason, decisionText(d))
}

// decisionText is a decision in one line: its reason and its causes.
func decisionText(d evict.Decision) string {
	var text strings.Builder
	text.WriteString(d.Reason)
	for _, c := range d.Causes {
		fmt.Fprintf(&text, " [%s %s %s: %s]", c.Plugin, c.Scope, c.Level, c.Reason)
	}
	text.WriteString(" (decision " + d.ID + ")")
	return text.String()
}
