package vgdp

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The times after which a load counts as stuck.
const (
	// UnnoticedAfter: node-agents resync all that they watch once a minute.
	UnnoticedAfter = 2 * time.Minute
	// UnstartedAfter: node-agents try a prepared load every 5 s.
	UnstartedAfter = 10 * time.Minute
)

// Stuck is why a load will not continue by itself.
type Stuck struct {
	Why string
	// Touch is the object to write to, so that Velero reconciles it: pod or load; empty:
	// that does not help.
	Touch string
}

// StuckAt says whether a load is stuck, given its objects. room tells whether its node
// has capacity for one more, and held whether Plimsoll holds it. The zero value: it is
// not stuck.
func StuckAt(now time.Time, l *Load, f *Facts, room, held bool) Stuck {
	node := l.Node
	if f.Pod != nil && f.Pod.Spec.NodeName != "" {
		node = f.Pod.Spec.NodeName
	}
	switch {
	case (l.preparing() || l.running()) && node != "" && f.AgentMissing:
		return Stuck{Why: fmt.Sprintf("no node-agent is ready on node %s, and no other one continues it", node)}
	case l.Phase == Accepted && f.Pod != nil && CannotRun(f.Pod) != "":
		return Stuck{Why: CannotRun(f.Pod)}
	case l.Phase == Accepted && f.Pod != nil && ranFor(now, f.Pod) >= UnnoticedAfter:
		// Velero acts on changes of pods, not on those that exist when it starts.
		return Stuck{Why: "its pod runs, but the node-agent was restarted meanwhile and has not noticed", Touch: "pod"}
	case l.Phase == Prepared && !held && room && now.Sub(l.prepared()) >= UnstartedAfter:
		return Stuck{Why: fmt.Sprintf("it is prepared and node %s has capacity, but the node-agent does not start it", node), Touch: "load"}
	case l.running() && lost(f):
		return Stuck{Why: "its pod was deleted and the node-agent has not noticed; cancel the data mover load"}
	}
	return Stuck{}
}

// lost tells whether its pod was deleted, and not by its node-agent, which would have
// deleted the claim as well.
func lost(f *Facts) bool {
	claims := f.Kind == DataUpload || f.Kind == DataDownload
	return f.Pod == nil && (!claims || f.PVC != nil && f.PVC.DeletionTimestamp == nil)
}

func ranFor(now time.Time, p *corev1.Pod) time.Duration {
	if p.Status.Phase != corev1.PodRunning {
		return 0
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return now.Sub(c.LastTransitionTime.Time)
		}
	}
	if p.Status.StartTime == nil {
		return 0
	}
	return now.Sub(p.Status.StartTime.Time)
}
