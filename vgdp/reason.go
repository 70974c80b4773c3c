package vgdp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Code is why a load waits, in one word.
type Code string

// The codes.
const (
	CodeLimit    Code = "limit"      // as many are prepared as may be
	CodeFull     Code = "full"       // as many run where it can run as may
	CodePressure Code = "pressure"   // the nodes where it can run suffer
	CodeNoNode   Code = "no-node"    // no node will do
	CodeNotYet   Code = "not-yet"    // it could not be accepted
	CodeRetry    Code = "retry"      // nobody used its last ticket
	CodeAgent    Code = "node-agent" // node-agents run with an older, lower limit
)

// Codes are all words that Wait.Code may have.
func Codes() []Code {
	return []Code{CodeLimit, CodeFull, CodePressure, CodeNoNode, CodeNotYet, CodeRetry, CodeAgent}
}

// Wait is why a load waits; the zero value: it does not.
type Wait struct {
	Code Code
	// By is a load that it waits for: the one that has had its slot or its place
	// for longest. nil: none.
	By *Load
	// Node where that is; empty: not about one.
	Node string
	// Count of what the code counts: slots, or nodes where it can run.
	Count int
	// Detail in the words of who told it.
	Detail string
	// Since is when it first waited for pressure, which must be kept, and Until
	// when pressure, or the delay after an unused ticket, has no say any more.
	Since, Until time.Time

	reach *Reach
}

// BlockedBy is the name of what it waits for; empty: nothing that has one.
func (w *Wait) BlockedBy() string {
	switch {
	case w.By != nil:
		return fmt.Sprintf("%s %s/%s", w.By.Kind, w.By.Namespace, w.By.Name)
	case w.Node != "":
		return "Node " + w.Node
	}
	return ""
}

// Sentence says it for people.
func (w *Wait) Sentence() string {
	switch w.Code {
	case CodeLimit:
		return fmt.Sprintf("all %d slots of prepareQueueLength are taken; %s has had one for longest", w.Count, w.BlockedBy())
	case CodeFull:
		return "the concurrency limit is reached on " + w.where()
	case CodePressure:
		return fmt.Sprintf("pressure on %s: %s; held until %s at the latest", w.where(), w.Detail, w.Until.UTC().Format(time.RFC3339))
	case CodeNoNode:
		return "unschedulable: " + w.reach.String()
	case CodeNotYet:
		return "no node-agent can accept it yet: " + w.Detail
	case CodeRetry:
		return fmt.Sprintf("no node-agent used its last ticket; next ticket at %s", w.Until.UTC().Format(time.RFC3339))
	case CodeAgent:
		return fmt.Sprintf("the node-agent still has prepareQueueLength %d from its start; restart it", w.Count)
	}
	return ""
}

func (w *Wait) where() string {
	if w.Count == 1 {
		return "node " + w.Node
	}
	return fmt.Sprintf("all %d nodes where it can run (such as %s)", w.Count, w.Node)
}

// String says what excludes how many nodes.
func (r *Reach) String() string {
	words := map[Obstacle]string{
		ObstacleAffinity: "%d excluded by loadAffinity or operating system",
		ObstacleVolume:   "%d excluded by the volume's topology",
		ObstacleCordoned: "%d cordoned",
		ObstacleTaint:    "%d tainted",
		ObstacleAgent:    "%d without a ready node-agent",
		ObstacleGone:     "its node does not exist any more",
	}
	var list []string
	for _, o := range slices.Sorted(maps.Keys(r.Missed)) {
		text := words[o]
		if strings.Contains(text, "%d") {
			text = fmt.Sprintf(text, r.Missed[o])
		}
		list = append(list, text)
	}
	if len(list) == 0 {
		return "the cluster has no node"
	}
	return strings.Join(list, ", ")
}
