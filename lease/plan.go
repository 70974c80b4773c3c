package lease

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherWriterGone is for how long Ready must be as another client wrote it before the agent
// takes it over: a kubelet writes it every 5 to 7.5 min by default, where nothing changes
// (nodeStatusReportFrequency).
const otherWriterGone = 20 * time.Minute

// longestUnseen bounds what counts of the time between two looks at the Node: while the API
// server does not answer, the other client cannot write either. It is longer than
// lease.interval can be.
const longestUnseen = 6 * time.Minute

// seenReady is Ready as the agent saw it last, written by any client and by the agent itself,
// and for how long it was so: the times in it are those of another machine's clock, which may
// be off.
type seenReady struct {
	is        corev1.NodeCondition // empty: there is none
	at        time.Time            // of the last look
	unchanged time.Duration
}

func (r *seenReady) see(k *nodeConditions, now time.Time) {
	var is corev1.NodeCondition
	if ready := k.find(string(corev1.NodeReady)); ready != nil {
		is = *ready
	}
	r.unchanged += min(now.Sub(r.at), longestUnseen)
	if !equality.Semantic.DeepEqual(is, r.is) {
		r.is, r.unchanged = is, 0
	}
	r.at = now
}

// nodeConditions is the Node's conditions when it was last read or written.
type nodeConditions struct {
	// conditions of the Node, ours and others'.
	conditions []corev1.NodeCondition
	// version is the Node's resourceVersion.
	version string
}

func nodeConditionsOf(node *corev1.Node) *nodeConditions {
	return &nodeConditions{conditions: node.Status.Conditions, version: node.ResourceVersion}
}

// change is one write of a Node's conditions.
type change struct {
	why     Write // empty: nothing to write
	set     []corev1.NodeCondition
	removed []corev1.NodeConditionType
	// version is the resourceVersion that the Node must have; empty: any.
	version string
}

// plan returns how to write the agent's own conditions. Those with our prefix that are not
// wanted are removed, and no others: managed fields are not proof, since any client that may
// write the Node can change them.
func plan(k *nodeConditions, want []Condition, now time.Time, reportEvery time.Duration) change {
	c := k.update(want, now, reportEvery)
	for _, is := range k.conditions {
		wanted := func(w Condition) bool { return w.Type == string(is.Type) }
		if IsOurs(is.Type) && !slices.ContainsFunc(want, wanted) {
			c.why, c.removed = Changed, append(c.removed, is.Type)
		}
	}
	if c.why == "" {
		return change{}
	}
	return c
}

// planReady returns how to write Ready, if it is wanted. unchanged is for how long the agent has
// seen Ready as it is. other is Ready as another client, such as a kubelet, wrote it, while the
// agent leaves it to that client: two that write it would overwrite each other for ever. Unknown
// is the node lifecycle controller's, and the agent's to change. Ready is never removed: it
// becomes Unknown when the Node's Lease expires.
func planReady(k *nodeConditions, want []Condition, unchanged time.Duration, now time.Time, reportEvery time.Duration) (c change, other *corev1.NodeCondition) {
	if len(want) == 0 {
		return change{}, nil
	}
	is := k.find(want[0].Type)
	if is != nil && is.Reason != want[0].Reason && is.Status != corev1.ConditionUnknown && unchanged < otherWriterGone {
		return change{}, is
	}
	if c = k.update(want, now, reportEvery); c.why == "" {
		return change{}, nil
	}
	c.version = k.version // that client may write at the same moment
	return c, nil
}

// update sets conditions, and tells why that is to be written, if it is. A condition's
// lastTransitionTime changes only with its status, its lastHeartbeatTime with every write.
func (k *nodeConditions) update(want []Condition, now time.Time, reportEvery time.Duration) (c change) {
	stamp := metav1.NewTime(now.UTC().Truncate(time.Second))
	changed, due := false, false
	given := map[string]bool{}
	for _, w := range want {
		if given[w.Type] {
			continue // a list has each type once
		}
		given[w.Type] = true
		is := corev1.NodeCondition{
			Type: corev1.NodeConditionType(w.Type), Status: w.Status, Reason: w.Reason, Message: w.Message,
			LastHeartbeatTime: stamp, LastTransitionTime: stamp,
		}
		was := k.find(w.Type)
		if was != nil && was.Status == w.Status && !was.LastTransitionTime.IsZero() {
			is.LastTransitionTime = was.LastTransitionTime
		}
		changed = changed || was == nil || was.Status != w.Status || was.Reason != w.Reason
		due = due || was == nil || overdue(was.LastHeartbeatTime.Time, now, reportEvery)
		c.set = append(c.set, is)
	}
	switch {
	case changed:
		c.why = Changed
	case due:
		c.why = Report
	}
	return c
}

// overdue reports whether a heartbeat is old. One ahead of our clock counts as old,
// or no status would be written after the clock was set back.
func overdue(last, now time.Time, reportEvery time.Duration) bool {
	return now.Sub(last) >= reportEvery || last.Sub(now) > time.Second
}

func (k *nodeConditions) find(conditionType string) *corev1.NodeCondition {
	i := slices.IndexFunc(k.conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == conditionType })
	if i < 0 {
		return nil
	}
	return &k.conditions[i]
}

// body is the change as a strategic merge patch, which leaves all other conditions as they are.
func (c change) body() ([]byte, error) {
	list := []map[string]any{}
	for _, is := range c.set {
		list = append(list, map[string]any{
			"type": is.Type, "status": is.Status, "reason": is.Reason, "message": is.Message,
			"lastHeartbeatTime": is.LastHeartbeatTime, "lastTransitionTime": is.LastTransitionTime,
		})
	}
	for _, t := range c.removed {
		list = append(list, map[string]any{"type": t, "$patch": "delete"})
	}
	patch := map[string]any{"status": map[string]any{"conditions": list}}
	if c.version != "" {
		patch["metadata"] = map[string]string{"resourceVersion": c.version}
	}
	return json.Marshal(patch)
}
