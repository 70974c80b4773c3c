package agents

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// publishChanges logs state changes of agents and publishes them as Events.
func (r *Reconciler) publishChanges(j *Judgement) {
	if j.FullDisruption != r.state.FullDisruption {
		r.publishDisruption(j)
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		_, was := r.state.Silent[a.Name]
		_, is := j.Next.Silent[a.Name]
		switch {
		case is && !was && !a.allUnknown(): // else an earlier leader logged it
			r.Log.Warn("agent is silent", "node", a.Name, "silence", a.Silence.Round(time.Millisecond))
			r.Events.Event(nodeRef(a.Agent), corev1.EventTypeWarning, ReasonSilent,
				fmt.Sprintf("no heartbeat for %s: the agent's conditions become Unknown, its taints stay for at least %s", a.Silence.Round(time.Second), r.Settings().TaintsStay))
		case was && !is:
			r.Log.Info("agent's heartbeat resumed", "node", a.Name)
			r.Events.Event(nodeRef(a.Agent), corev1.EventTypeNormal, ReasonHeartbeatResumed, "the agent's heartbeat resumed")
		}
	}
}

func (r *Reconciler) publishDisruption(j *Judgement) {
	if !j.FullDisruption {
		r.Log.Info("full disruption ended", "late", j.Late, "of", j.Total)
		return
	}
	r.Log.Warn("full disruption: too many agents are late or silent; changing no condition or taint and refusing evictions; check the controller's connection to the API server", "late", j.Late, "of", j.Total)
	r.Events.Event(r.About, corev1.EventTypeWarning, ReasonFullDisruption,
		fmt.Sprintf("full disruption: %d of %d agents are late or silent, so the controller suspects its own connection; it changes no condition or taint and refuses evictions", j.Late, j.Total))
}
