package vgdp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Code is why a data mover load is held, in one word.
type Code string

// The codes.
const (
	CodeLimit         Code = "limit"         // all slots of prepareQueueLength that it may take are taken
	CodeFull          Code = "full"          // the concurrency limit is reached on its nodes
	CodePressure      Code = "pressure"      // its nodes are under pressure
	CodeUnschedulable Code = "unschedulable" // unschedulable: no node is possible
	CodeNotReady      Code = "not-ready"     // no node-agent could accept it now
	CodeBackoff       Code = "backoff"       // no node-agent used its last ticket
	CodeAgent         Code = "node-agent"    // node-agents use an older, lower limit
	CodePostponed     Code = "postponed"     // the backup window of its Backup is over
)

// CodeLeader is why a ticket is revoked, and of no Wait: an earlier leader gave it.
const CodeLeader Code = "earlier-leader"

// Codes are all values of Wait.Code.
func Codes() []Code {
	return []Code{CodeLimit, CodeFull, CodePressure, CodeUnschedulable, CodeNotReady, CodeBackoff, CodeAgent, CodePostponed}
}

// Wait is why a load waits; the zero value: it does not.
type Wait struct {
	Code Code
	// By is the load that it waits for: the one that has had the slot or place for
	// longest. nil: none.
	By *Load
	// Node that it waits for; empty: none.
	Node string
	// Count of slots, or of nodes where it can run, depending on the code.
	Count int
	// Detail from the source of the reason.
	Detail string
	// Since is when pressure first held it, which must be stored, and Until the latest end
	// of that, of the delay after an unused ticket, or of its postponement.
	Since, Until time.Time

	reach *Reach
	kept  bool // a slot is free, and kept for restores
}

// BlockedBy is the name of the object that it waits for; empty: none.
func (w *Wait) BlockedBy() string {
	switch {
	case w.By != nil:
		return fmt.Sprintf("%s %s/%s", w.By.Kind, w.By.Namespace, w.By.Name)
	case w.Node != "":
		return "Node " + w.Node
	}
	return ""
}

// Sentence is the reason for people.
func (w *Wait) Sentence() string {
	switch w.Code {
	case CodeLimit:
		if w.kept {
			return fmt.Sprintf("%d of %d slots of prepareQueueLength are taken and the last one is kept for restores; %s has had one for longest", w.Count-1, w.Count, w.BlockedBy())
		}
		return fmt.Sprintf("all %d slots of prepareQueueLength are taken; %s has had one for longest", w.Count, w.BlockedBy())
	case CodeFull:
		return "the concurrency limit is reached on " + w.where()
	case CodePressure:
		return fmt.Sprintf("pressure on %s: %s; held until %s at the latest", w.where(), w.Detail, utc(w.Until))
	case CodeUnschedulable:
		return "unschedulable: " + w.reach.String()
	case CodeNotReady:
		return "no node-agent can accept it yet: " + w.Detail
	case CodeBackoff:
		return fmt.Sprintf("no node-agent used its last ticket; next ticket at %s", utc(w.Until))
	case CodeAgent:
		return fmt.Sprintf("the node-agent still has prepareQueueLength %d from its start; restart it", w.Count)
	case CodePostponed:
		return fmt.Sprintf("postponed until %s, when the backup window of its Backup opens; %s", utc(w.Until), w.Detail)
	case CodeLeader: // of no Wait
	}
	return ""
}

func (w *Wait) where() string {
	if w.Count == 1 {
		return "node " + w.Node
	}
	return fmt.Sprintf("all %d nodes where it can run (such as %s)", w.Count, w.Node)
}

// String is the number of nodes that each obstacle excludes.
func (r *Reach) String() string {
	words := map[Obstacle]string{
		ObstacleAffinity:    "%d excluded by loadAffinity or operating system",
		ObstacleVolume:      "%d excluded by the volume's topology",
		ObstacleCordoned:    "%d cordoned",
		ObstacleTaint:       "%d tainted",
		ObstacleAgent:       "%d without a ready node-agent",
		ObstacleNodeDeleted: "its node does not exist any more",
	}
	var list []string
	for _, o := range slices.Sorted(maps.Keys(r.Excluded)) {
		text := words[o]
		if strings.Contains(text, "%d") {
			text = fmt.Sprintf(text, r.Excluded[o])
		}
		list = append(list, text)
	}
	if len(list) == 0 {
		return "the cluster has no node"
	}
	return strings.Join(list, ", ")
}
