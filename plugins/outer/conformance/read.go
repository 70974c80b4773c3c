package conformance

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// shown is the pods of a question by UID, and those of earlier ones.
type shown struct{ now, before map[string]bool }

// read reduces an answer to what is kept of it.
func read(message proto.Message, s shown) Answer {
	a := Answer{Bytes: proto.Size(message)}
	switch m := message.(type) {
	case *wire.ThresholdMetResponse:
		a.Met, a.Operator = int32(m.GetMetType()), int32(m.GetThresholdOperator())
		a.Observed, a.Limit, a.GraceSeconds = m.GetObservedValue(), m.GetThresholdValue(), m.GetGracePeriodSeconds()
		a.Scope, a.Empty = katalyst.Clip(m.GetEvictionScope()), a.Bytes == 0
		a.text(m.GetEvictionScope())
		a.condition(m.GetCondition())
		for _, pod := range m.GetCandidatePods() {
			a.pod(pod, s)
		}
	case *wire.GetTopEvictionPodsResponse:
		for _, pod := range m.GetTargetPods() {
			a.pod(pod, s)
		}
		a.deletion(m.GetDeletionOptions())
	case *wire.GetEvictPodsResponse:
		a.condition(m.GetCondition())
		for _, e := range m.GetEvictPods() {
			a.pod(e.GetPod(), s)
			a.text(e.GetReason())
			a.deletion(e.GetDeletionOptions())
		}
	}
	return a
}

func (a *Answer) text(s string) { a.LongText = max(a.LongText, len(s)) }

func (a *Answer) condition(c *wire.Condition) {
	if c == nil || c.GetConditionName() == "" && len(c.GetEffects()) == 0 {
		return
	}
	a.text(c.GetConditionName())
	a.Condition = &Condition{Name: katalyst.Clip(c.GetConditionName()), Type: int32(c.GetConditionType())}
	for i, e := range c.GetEffects() {
		if i == maxKept {
			break
		}
		a.text(e)
		a.Condition.Effects = append(a.Condition.Effects, katalyst.Clip(e))
	}
}

// maxGraceSeconds is the longest grace that the agent takes.
const maxGraceSeconds = 24 * 60 * 60

func (a *Answer) deletion(o *wire.DeletionOptions) {
	if seconds := o.GetGracePeriodSeconds(); o != nil && a.DeletionGrace == nil && (seconds <= 0 || seconds > maxGraceSeconds) {
		a.DeletionGrace = &seconds
	}
}

// maxKept is how many pods and effects of one answer are kept.
const maxKept = 512

func (a *Answer) pod(raw []byte, s shown) {
	a.Entries++
	var m metav1.PartialObjectMetadata // its metadata has the same field number as a pod's
	err := m.Unmarshal(raw)
	uid := string(m.UID)
	strange := ""
	switch {
	case err != nil:
		strange = "bytes that are no pod"
	case uid == "" && !s.now[uid]:
		strange = fmt.Sprintf("a pod without UID (%q)", katalyst.Clip(m.Namespace+"/"+m.Name))
	case uid == "": // it was shown such pods, and may name them
	case !s.now[uid] && s.before[uid]:
		strange = fmt.Sprintf("%q, which was in an earlier question and not in this one", katalyst.Clip(uid))
	case !s.now[uid]:
		strange = fmt.Sprintf("%q, which was in no question", katalyst.Clip(uid))
	case len(a.Named) < maxKept:
		a.Named = append(a.Named, uid)
	}
	if a.Strange == "" {
		a.Strange = strange
	}
}
