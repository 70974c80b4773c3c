package kit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// decodePods decodes pods.
func decodePods(wire [][]byte) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, len(wire))
	for i, b := range wire {
		pods[i] = &corev1.Pod{}
		if err := pods[i].Unmarshal(b); err != nil {
			return nil, fmt.Errorf("pod %d of %d: %w", i+1, len(wire), err)
		}
	}
	return pods, nil
}

func encodePods(pods []*corev1.Pod) ([][]byte, error) {
	wire := make([][]byte, len(pods))
	for i, p := range pods {
		b, err := encode(p)
		if err != nil {
			return nil, fmt.Errorf("pod %d of %d: %w", i+1, len(pods), err)
		}
		wire[i] = b
	}
	return wire, nil
}

func encode(p *corev1.Pod) ([]byte, error) {
	if p == nil {
		return nil, errors.New("nil pod")
	}
	return p.Marshal()
}

func (t Threshold) wire() (*v1alpha1.ThresholdMetResponse, error) {
	candidates, err := encodePods(t.Candidates)
	if err != nil {
		return nil, err
	}
	r := &v1alpha1.ThresholdMetResponse{
		ThresholdValue: t.Limit, ObservedValue: t.Observed, ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN,
		EvictionScope: t.Scope, GracePeriodSeconds: int64((t.Grace + time.Second - 1) / time.Second),
		Condition: t.Condition.wire(t.Level), CandidatePods: candidates,
	}
	if t.Below {
		r.ThresholdOperator = v1alpha1.ThresholdOperator_LESS_THAN
	}
	switch t.Level {
	case None:
	case Soft:
		r.MetType = v1alpha1.ThresholdMetType_SOFT_MET
	case Hard:
		r.MetType = v1alpha1.ThresholdMetType_HARD_MET
	default:
		return nil, fmt.Errorf("level %d: want None, Soft or Hard", t.Level)
	}
	return r, nil
}

func (c *Condition) wire(level Level) *v1alpha1.Condition {
	if c == nil {
		return nil
	}
	w := &v1alpha1.Condition{ConditionName: c.Name, MetCondition: level > None}
	if c.CNR {
		w.ConditionType = v1alpha1.ConditionType_CNR_CONDITION
	}
	effects := c.Effects
	if effects == nil && !c.CNR {
		effects = effectsOf(level)
	}
	for _, e := range effects {
		w.Effects = append(w.Effects, string(e))
	}
	return w
}

// effectsOf is the taint effect of a level: soft prefers other nodes, hard excludes
// new pods.
func effectsOf(level Level) []corev1.TaintEffect {
	switch level {
	case Soft:
		return []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule}
	case Hard:
		return []corev1.TaintEffect{corev1.TaintEffectNoSchedule}
	case None:
	}
	return nil
}

func newAsk(r *v1alpha1.GetTopEvictionPodsRequest) (Ask, error) {
	pods, err := decodePods(r.GetActivePods())
	a := Ask{Pods: pods, N: int(min(r.GetTopN(), 1<<31-1)), Scope: r.GetEvictionScope(), Records: map[string]Record{}}
	for _, e := range r.GetCandidateEvictionRecords() {
		a.Records[e.GetUid()] = Record{
			HasPDB: e.GetHasPdb(), DisruptionsAllowed: int(e.GetDisruptionsAllowed()),
			CurrentHealthy: int(e.GetCurrentHealthy()), DesiredHealthy: int(e.GetDesiredHealthy()), ExpectedPods: int(e.GetExpectedPods()),
		}
	}
	return a, err
}

func (n Named) wire() (*v1alpha1.GetTopEvictionPodsResponse, error) {
	pods, err := encodePods(n.Pods)
	return &v1alpha1.GetTopEvictionPodsResponse{TargetPods: pods, DeletionOptions: deletion(n.Grace)}, err
}

func (e Evictions) wire(plugin string) (*v1alpha1.GetEvictPodsResponse, error) {
	level := Soft
	if slices.ContainsFunc(e.Pods, func(p Eviction) bool { return p.Force }) {
		level = Hard
	}
	r := &v1alpha1.GetEvictPodsResponse{Condition: e.Condition.wire(level)}
	for i, p := range e.Pods {
		b, err := encode(p.Pod)
		if err != nil {
			return nil, fmt.Errorf("pod %d of %d: %w", i+1, len(e.Pods), err)
		}
		r.EvictPods = append(r.EvictPods, &v1alpha1.EvictPod{
			Pod: b, Reason: p.Reason, ForceEvict: p.Force, DeletionOptions: deletion(p.Grace), EvictionPluginName: plugin,
		})
	}
	return r, nil
}

func deletion(grace *int64) *v1alpha1.DeletionOptions {
	if grace == nil {
		return nil
	}
	return &v1alpha1.DeletionOptions{GracePeriodSeconds: *grace}
}
