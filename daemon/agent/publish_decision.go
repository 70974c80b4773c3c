package agent

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll/evict"
)

// Reasons of Plimsoll's Events.
const (
	eventEvicted    = "PressureEviction"
	eventInProgress = "PressureEvictionInProgress"
	eventWouldEvict = "PressureEvictionDryRun"
	eventDecision   = "PressureDecision"
)

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

// eventOf is the reason of the Event of a candidate that is, or would be, evicted.
func eventOf(code evict.Code) string {
	switch code {
	case evict.CodeInProgress:
		return eventInProgress
	case evict.CodeWouldEvict:
		return eventWouldEvict
	default:
		return eventEvicted
	}
}
