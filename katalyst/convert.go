package katalyst

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	maxGrace = 24 * time.Hour // of a threshold
	// MaxRefused is how many refused candidates are recorded; a hostile plugin
	// may name thousands.
	MaxRefused = 10
	maxEffects = 8
)

// The kinds of refused or clipped parts of an answer.
const (
	RefusedNumber    = "number"
	RefusedEnum      = "enum"
	RefusedText      = "text"
	RefusedCondition = "condition"
	RefusedEffect    = "effect"
	RefusedNoExecute = "no-execute"
	RefusedNotShown  = "pod-not-shown"
	RefusedTooMany   = "too-many-pods"
	RefusedPod       = "pod-unreadable"
	RefusedGraceZero = "grace-zero"
)

// Refusals returns all words with which Converter.Refuse is called.
func Refusals() []string {
	return []string{
		RefusedNumber, RefusedEnum, RefusedText, RefusedCondition, RefusedEffect, RefusedNoExecute, RefusedNotShown, RefusedTooMany,
		RefusedPod, RefusedGraceZero,
	}
}

// Converter converts one plugin's answers to verdicts; nothing else does. It
// refuses and counts what is not valid.
type Converter struct {
	Plugin string
	// NoExecute are the conditions, as plugin/condition, that may have a taint
	// with NoExecute, ForceGraceZero the plugins that may have pods deleted
	// without termination grace.
	NoExecute, ForceGraceZero []string
	// Shown are the pods of the request.
	Shown VisiblePods
	// Refuse counts a part of an answer that is refused or clipped, by a word of
	// Refusals.
	Refuse func(what string)
}

// Threshold converts the answer of ThresholdMet, without pods. Observed and
// threshold are for display only: plugins swap them, or send 1 and 1.
func (c Converter) Threshold(r *wire.ThresholdMetResponse) plugins.Verdict {
	v := plugins.Verdict{Plugin: c.Plugin, Scope: c.text(r.GetEvictionScope()), Level: c.level(r.GetMetType())}
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
		c.Refuse(RefusedEnum)
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

// Top adds the pods named for a threshold: at most n of them, and none at soft. Some
// plugins name more than they were asked for, which Katalyst takes.
func (c Converter) Top(v *plugins.Verdict, r *wire.GetTopEvictionPodsResponse, n int) {
	if v.Level < plugins.Hard {
		n = 0
	}
	grace := c.deletionGrace(r.GetDeletionOptions())
	taken, refused := 0, 0
	for _, raw := range r.GetTargetPods() {
		o := c.candidate(raw, "named by "+c.Plugin+" for "+v.Scope)
		o.GraceSeconds = grace
		if o.Refused == "" && taken == n {
			c.Refuse(RefusedTooMany)
			o.Refused = fmt.Sprintf("the plugin named more than the %d pods that it may name", n)
		}
		if o.Refused == "" {
			taken++
		} else if refused++; refused > MaxRefused {
			continue
		}
		v.Candidates = append(v.Candidates, o)
	}
}

// Named converts the answer of GetEvictPods: pods to evict whatever the
// threshold.
func (c Converter) Named(r *wire.GetEvictPodsResponse) plugins.Verdict {
	v := plugins.Verdict{Plugin: c.Plugin, Scope: plugins.ScopeNamed, Reason: "the plugin named no pod to evict"}
	forced, soft, refused := 0, 0, 0
	for _, e := range r.GetEvictPods() {
		o := c.candidate(e.GetPod(), c.text(e.GetReason()))
		o.Forced, o.GraceSeconds = e.GetForceEvict(), c.deletionGrace(e.GetDeletionOptions())
		switch {
		case o.Refused != "":
			if refused++; refused > MaxRefused {
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
func (c Converter) candidate(raw []byte, why string) plugins.Candidate {
	id, err := identifyPod(raw)
	o := plugins.Candidate{PodUID: c.text(id.uid), Name: c.text(id.namespace + "/" + id.name), Why: why}
	if o.Why == "" {
		o.Why = "named by " + c.Plugin
	}
	switch _, there := c.Shown.wire[id.uid]; {
	case err != nil || id.uid == "":
		c.Refuse(RefusedPod)
		o.Refused = "the plugin named a pod without UID"
	case !there:
		c.Refuse(RefusedNotShown)
		o.Refused = "this pod was not in the request to the plugin"
	}
	return o
}

// condition maps the plugin's condition to the Node's. A condition that is not
// met marks nothing while the level is soft or hard; at none it is shown as
// clear, whatever its own state.
func (c Converter) condition(v *plugins.Verdict, o *wire.Condition) {
	if o.GetConditionName() == "" || v.Level > plugins.None && !o.GetMetCondition() {
		return
	}
	if len(validation.IsQualifiedName(names.Prefix+o.GetConditionName())) > 0 {
		c.Refuse(RefusedCondition)
		return
	}
	v.Condition = o.GetConditionName()
	switch o.GetConditionType() {
	case wire.ConditionType_NODE_CONDITION:
	case wire.ConditionType_CNR_CONDITION:
		v.CNR = true
	default:
		c.Refuse(RefusedEnum)
		v.Condition = ""
		return
	}
	if len(o.GetEffects()) == 0 { // as in Katalyst
		v.Effects = []string{plugins.NoEffect}
	}
	for i, e := range o.GetEffects() {
		if i == maxEffects {
			c.Refuse(RefusedEffect)
			break
		}
		if c.effect(v, e) && !slices.Contains(v.Effects, e) {
			v.Effects = append(v.Effects, e)
		}
	}
}

// effect reports whether a plugin may set an effect.
func (c Converter) effect(v *plugins.Verdict, effect string) bool {
	name := effect
	if v.CNR {
		qos, of, found := strings.Cut(effect, "/")
		if !found || len(validation.IsQualifiedName(qos)) > 0 {
			c.Refuse(RefusedEffect)
			return false
		}
		name = of
	}
	switch corev1.TaintEffect(name) {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
		return true
	case corev1.TaintEffectNoExecute:
		if slices.Contains(c.NoExecute, c.Plugin+"/"+v.Condition) {
			return true
		}
		c.Refuse(RefusedNoExecute)
		return false
	}
	c.Refuse(RefusedEffect)
	return false
}

func (c Converter) level(t wire.ThresholdMetType) plugins.Level {
	switch t {
	case wire.ThresholdMetType_NOT_MET:
		return plugins.None
	case wire.ThresholdMetType_SOFT_MET:
		return plugins.Soft
	case wire.ThresholdMetType_HARD_MET:
		return plugins.Hard
	}
	c.Refuse(RefusedEnum)
	return plugins.None
}

// number is absent for NaN and infinities.
func (c Converter) number(f float64) snapshot.Opt[float64] {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		c.Refuse(RefusedNumber)
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(f)
}

func (c Converter) grace(seconds int64) int64 {
	if seconds < 0 || seconds > int64(maxGrace/time.Second) {
		c.Refuse(RefusedNumber)
		seconds = max(0, min(seconds, int64(maxGrace/time.Second)))
	}
	return seconds
}

// deletionGrace is absent without options. With 0 the API server removes the
// object while the pod may still run, so it needs permission.
func (c Converter) deletionGrace(o *wire.DeletionOptions) snapshot.Opt[int64] {
	seconds := o.GetGracePeriodSeconds()
	switch {
	case o == nil:
		return snapshot.Opt[int64]{}
	case seconds < 0 || seconds > int64(maxGrace/time.Second):
		c.Refuse(RefusedNumber)
	case seconds == 0 && !slices.Contains(c.ForceGraceZero, c.Plugin):
		c.Refuse(RefusedGraceZero)
	case seconds == 0:
		return snapshot.Some[int64](0)
	}
	return snapshot.Some(max(1, min(seconds, int64(maxGrace/time.Second))))
}

func (c Converter) text(s string) string {
	out := Clip(s)
	if out != s {
		c.Refuse(RefusedText)
	}
	return out
}
