package agents

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// tell logs state changes of agents and publishes them as Events.
func (r *Reconciler) tell(j *Judgement) {
	if j.Blind != r.memory.Blind {
		r.tellBlind(j)
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		_, was := r.memory.Silent[a.Name]
		_, is := j.Memory.Silent[a.Name]
		switch {
		case is && !was && !a.marked(): // else an earlier leader logged it
			r.Log.Warn("agent is silent", "node", a.Name, "silence", a.Silence.Round(time.Millisecond))
			r.Events.Event(nodeRef(a.Agent), corev1.EventTypeWarning, ReasonSilent,
				fmt.Sprintf("no heartbeat for %s: the agent's conditions become Unknown, its taints stay for at least %s", a.Silence.Round(time.Second), r.Settings().TaintsStay))
		case was && !is:
			r.Log.Info("agent's heartbeat resumed", "node", a.Name)
			r.Events.Event(nodeRef(a.Agent), corev1.EventTypeNormal, ReasonBack, "the agent's heartbeat resumed")
		}
	}
}

func (r *Reconciler) tellBlind(j *Judgement) {
	if !j.Blind {
		r.Log.Info("full disruption ended", "late", j.Late, "of", j.Of)
		return
	}
	r.Log.Warn("full disruption: too many agents are silent; changing no conditions or taints", "late", j.Late, "of", j.Of)
	r.Events.Event(r.About, corev1.EventTypeWarning, ReasonBlind,
		fmt.Sprintf("full disruption: %d of %d agents are silent, so the controller suspects its own view; it changes no conditions or taints and refuses evictions", j.Late, j.Of))
}
