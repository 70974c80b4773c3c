package fleet

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// tell says in the log and in Events what is new.
func (r *Reconciler) tell(j *Judgement) {
	if j.Blind != r.memory.Blind {
		r.tellBlind(j)
	}
	for i := range j.Agents {
		a := &j.Agents[i]
		_, was := r.memory.Silent[a.Name]
		_, is := j.Memory.Silent[a.Name]
		switch {
		case is && !was && !a.marked(): // a leader before this one said it else
			r.Log.Warn("agent is silent", "node", a.Name, "silence", a.Silence.Round(time.Millisecond))
			r.Events.Event(nodeRef(a.Agent), corev1.EventTypeWarning, ReasonSilent,
				fmt.Sprintf("not heard for %s: its conditions are Unknown, its taints stay for %s at least", a.Silence.Round(time.Second), r.Settings().TaintsStay))
		case was && !is:
			r.Log.Info("agent is heard again", "node", a.Name)
			r.Events.Event(nodeRef(a.Agent), corev1.EventTypeNormal, ReasonBack, "the agent is heard again")
		}
	}
}

func (r *Reconciler) tellBlind(j *Judgement) {
	if !j.Blind {
		r.Log.Info("agents are heard again", "late", j.Late, "of", j.Of)
		return
	}
	r.Log.Warn("many agents are not heard: nothing is marked or lifted", "late", j.Late, "of", j.Of)
	r.Events.Event(r.About, corev1.EventTypeWarning, ReasonBlind,
		fmt.Sprintf("%d of %d agents are not heard: that is taken for the controller's own blindness, nothing is marked or lifted, no eviction is granted", j.Late, j.Of))
}
