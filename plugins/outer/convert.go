package outer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/plugins"
	wire "github.com/plimsoll-dev/plimsoll/plugins/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// conditionPrefix is added to every condition of a plugin: the kubelet's own
// MemoryPressure is another condition.
const conditionPrefix = "plimsoll.dev/"

const (
	maxGrace = 24 * time.Hour // of a threshold
	// maxRefused is how many refused candidates are recorded; a hostile plugin
	// may name thousands.
	maxRefused = 10
	maxEffects = 8
)

// Kinds of refused or clipped parts of an answer, for the counts.
const (
	refusedNumber    = "number"
	refusedEnum      = "enum"
	refusedText      = "text"
	refusedCondition = "condition"
	refusedEffect    = "effect"
	refusedNoExecute = "no-execute"
	refusedNotShown  = "pod-not-shown"
	refusedTooMany   = "too-many-pods"
	refusedPod       = "pod-unreadable"
	refusedGraceZero = "grace-zero"
	refusedUnmarked  = "too-many-conditions"
)

// Refusals returns all words that Counts.Refused may have.
func Refusals() []string {
	return []string{
		refusedNumber, refusedEnum, refusedText, refusedCondition, refusedEffect, refusedNoExecute, refusedNotShown, refusedTooMany,
		refusedPod, refusedGraceZero, refusedUnmarked,
	}
}

// converter converts one plugin's answers to verdicts; nothing else does. It
// refuses and counts what is not valid.
type converter struct {
	plugin string
	config Config
	shown  visiblePods
	refuse func(what string)
	now    time.Time
}

// threshold converts the answer of ThresholdMet, without pods. Observed and
// threshold are for display only: plugins swap them, or send 1 and 1.
func (c converter) threshold(r *wire.ThresholdMetResponse) plugins.Verdict {
	v := plugins.Verdict{Plugin: c.plugin, Scope: c.text(r.GetEvictionScope()), Level: c.level(r.GetMetType())}
	switch v.Scope {
	case "":
		v.Scope = "node"
	case plugins.ScopeNamed: // reserved for GetEvictPods
		v.Scope += " (threshold)"
	}
	v.MetLevel = v.Level
	v.Observed, v.Threshold = c.number(r.GetObservedValue()), c.number(r.GetThresholdValue())
	switch r.GetThresholdOperator() {
	case wire.ThresholdOperator_LESS_THAN:
		v.Operator = "<"
	case wire.ThresholdOperator_GREATER_THAN:
		v.Operator = ">"
	default:
		c.refuse(refusedEnum)
	}
	v.GraceSeconds = c.grace(r.GetGracePeriodSeconds())
	c.condition(&v, r.GetCondition())
	v.Reason = fmt.Sprintf("the plugin reports %s: %s, observed %s, threshold %s %s",
		metText(v.Level), v.Scope, amount(v.Observed), v.Operator, amount(v.Threshold))
	return v
}

func metText(l plugins.Level) string {
	if l == plugins.None {
		return "threshold not met"
	}
	return l.String() + " threshold met"
}

func amount(o snapshot.Opt[float64]) string {
	f, ok := o.Get()
	if !ok {
		return "unknown"
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// top adds the pods named for a threshold: at most n of them, and none at soft.
func (c converter) top(v *plugins.Verdict, r *wire.GetTopEvictionPodsResponse, n int) {
	if v.Level < plugins.Hard {
		n = 0
	}
	grace := c.deletionGrace(r.GetDeletionOptions())
	taken, refused := 0, 0
	for _, raw := range r.GetTargetPods() {
		o := c.candidate(raw, "named by "+c.plugin+" for "+v.Scope)
		o.GraceSeconds = grace
		if o.Refused == "" && taken == n {
			c.refuse(refusedTooMany)
			o.Refused = fmt.Sprintf("the plugin named more pods than the %d it was asked for", n)
		}
		if o.Refused == "" {
			taken++
		} else if refused++; refused > maxRefused {
			continue
		}
		v.Candidates = append(v.Candidates, o)
	}
}

// named converts the answer of GetEvictPods: pods to evict whatever the
// threshold.
func (c converter) named(r *wire.GetEvictPodsResponse) plugins.Verdict {
	v := plugins.Verdict{Plugin: c.plugin, Scope: plugins.ScopeNamed, Reason: "the plugin named no pod to evict"}
	forced, soft, refused := 0, 0, 0
	for _, e := range r.GetEvictPods() {
		o := c.candidate(e.GetPod(), c.text(e.GetReason()))
		o.Forced, o.GraceSeconds = e.GetForceEvict(), c.deletionGrace(e.GetDeletionOptions())
		switch {
		case o.Refused != "":
			if refused++; refused > maxRefused {
				continue
			}
		case slices.ContainsFunc(v.Candidates, func(p plugins.Candidate) bool { return p.PodUID == o.PodUID }):
			continue
		case o.Forced:
			forced++
		default:
			soft++
		}
		v.Candidates = append(v.Candidates, o)
	}
	switch {
	case forced > 0:
		v.Level = plugins.Hard
	case soft > 0 || r.GetCondition().GetMetCondition():
		v.Level = plugins.Soft
	}
	if forced+soft > 0 {
		v.Reason = fmt.Sprintf("the plugin named pods to evict: %d forced, %d optional", forced, soft)
	}
	v.MetLevel, v.Named = v.Level, len(v.Candidates) > 0
	c.condition(&v, r.GetCondition())
	return v
}

// candidate converts a named pod. It reads the pod's identity only: the host
// has its own copy.
func (c converter) candidate(raw []byte, why string) plugins.Candidate {
	id, err := identifyPod(raw)
	o := plugins.Candidate{PodUID: c.text(id.uid), Name: c.text(id.namespace + "/" + id.name), Why: why}
	if o.Why == "" {
		o.Why = "named by " + c.plugin
	}
	switch _, there := c.shown.at[id.uid]; {
	case err != nil || id.uid == "":
		c.refuse(refusedPod)
		o.Refused = "the plugin named a pod without UID"
	case !there:
		c.refuse(refusedNotShown)
		o.Refused = "this pod was not in the request to the plugin"
	}
	return o
}

// condition maps the plugin's condition to the Node's. A condition that is not
// met marks nothing while the level is soft or hard; at none it is shown as
// clear, whatever its own state.
func (c converter) condition(v *plugins.Verdict, o *wire.Condition) {
	if o.GetConditionName() == "" || v.Level > plugins.None && !o.GetMetCondition() {
		return
	}
	if len(validation.IsQualifiedName(conditionPrefix+o.GetConditionName())) > 0 {
		c.refuse(refusedCondition)
		return
	}
	v.Condition = o.GetConditionName()
	switch o.GetConditionType() {
	case wire.ConditionType_NODE_CONDITION:
	case wire.ConditionType_CNR_CONDITION:
		v.CNR = true
	default:
		c.refuse(refusedEnum)
		v.Condition = ""
		return
	}
	if len(o.GetEffects()) == 0 { // as in Katalyst
		v.Effects = []string{plugins.NoEffect}
	}
	for i, e := range o.GetEffects() {
		if i == maxEffects {
			c.refuse(refusedEffect)
			break
		}
		if c.effect(v, e) && !slices.Contains(v.Effects, e) {
			v.Effects = append(v.Effects, e)
		}
	}
}

// effect reports whether a plugin may set an effect.
func (c converter) effect(v *plugins.Verdict, effect string) bool {
	name := effect
	if v.CNR {
		qos, of, found := strings.Cut(effect, "/")
		if !found || len(validation.IsQualifiedName(qos)) > 0 {
			c.refuse(refusedEffect)
			return false
		}
		name = of
	}
	switch corev1.TaintEffect(name) {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
		return true
	case corev1.TaintEffectNoExecute:
		if slices.Contains(c.config.NoExecute, c.plugin+"/"+v.Condition) {
			return true
		}
		c.refuse(refusedNoExecute)
		return false
	}
	c.refuse(refusedEffect)
	return false
}

func (c converter) level(t wire.ThresholdMetType) plugins.Level {
	switch t {
	case wire.ThresholdMetType_NOT_MET:
		return plugins.None
	case wire.ThresholdMetType_SOFT_MET:
		return plugins.Soft
	case wire.ThresholdMetType_HARD_MET:
		return plugins.Hard
	}
	c.refuse(refusedEnum)
	return plugins.None
}

// number is absent for NaN and infinities.
func (c converter) number(f float64) snapshot.Opt[float64] {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		c.refuse(refusedNumber)
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(f)
}

func (c converter) grace(seconds int64) int64 {
	if seconds < 0 || seconds > int64(maxGrace/time.Second) {
		c.refuse(refusedNumber)
		seconds = max(0, min(seconds, int64(maxGrace/time.Second)))
	}
	return seconds
}

// deletionGrace is absent without options. With 0 the API server removes the
// object while the pod may still run, so it needs permission.
func (c converter) deletionGrace(o *wire.DeletionOptions) snapshot.Opt[int64] {
	seconds := o.GetGracePeriodSeconds()
	switch {
	case o == nil:
		return snapshot.Opt[int64]{}
	case seconds < 0 || seconds > int64(maxGrace/time.Second):
		c.refuse(refusedNumber)
	case seconds == 0 && !slices.Contains(c.config.ForceGraceZero, c.plugin):
		c.refuse(refusedGraceZero)
	case seconds == 0:
		return snapshot.Some[int64](0)
	}
	return snapshot.Some(max(1, min(seconds, int64(maxGrace/time.Second))))
}

func (c converter) text(s string) string {
	out := clip(s)
	if out != s {
		c.refuse(refusedText)
	}
	return out
}

type podID struct{ uid, namespace, name string }

// identifyPod reads a pod's metadata and skips all else.
func identifyPod(raw []byte) (podID, error) {
	var m metav1.PartialObjectMetadata // its metadata has the same field number as a pod's
	if err := m.Unmarshal(raw); err != nil {
		return podID{}, fmt.Errorf("pod: %w", err)
	}
	return podID{string(m.UID), m.Namespace, m.Name}, nil
}
