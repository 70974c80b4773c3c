package conformance

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/names"
)

// maxAnswer is the largest answer that the agent takes, in bytes.
const maxAnswer = 8 << 20

func answerChecks() []check {
	return []check{
		{"answer-size", true, each(tooLarge), "Keep answers below 8 MiB: of a named pod its metadata is enough."},
		{"shown-pods", true, shownPods, "Name only pods of the question that you answer, by their UID; keep no pods from earlier questions."},
		{"level", true, each(unknownLevel), "Send a met_type of 0, 1 or 2: another is taken as not met."},
		{"top-n", false, topNKept, "Name at most topN pods, each once, and none at topN 0."},
		{"numbers", false, each(strangeNumber), "Send finite numbers, and a grace period of 0 s to 24 h: others are taken as absent or cut."},
		{"condition", false, each(strangeCondition), "Use a qualified name without prefix, type 0 or 1, and the effects NoSchedule or PreferNoSchedule (on a CNR <QoS level>/<effect>): hosts ignore others, and refuse NoExecute unless they are configured for it."},
		{"texts", false, each(longText), "Keep scope, reasons and names within 256 bytes: longer ones are cut."},
		{"deletion-grace", false, each(strangeDeletion), "Send no DeletionOptions, or a grace from 1 s to 24 h: 0 removes the object of a pod that may still run, and hosts clip it."},
		{"named-again", false, namedAgain, "Nothing, for a host that keeps named pods, as Plimsoll does for 15 minutes. For one that does not, name a pod in each answer until it is gone."},
		{"error-not-zero", false, errorNotZero, "Return an error with a reason when you cannot measure: zeros are a measurement."},
	}
}

// each checks all answers; flaw returns what is wrong in words.
func each(flaw func(Call) string) func(Observations) (Result, string) {
	return func(o Observations) (Result, string) {
		answers := o.of(func(c Call) bool { return c.Outcome == Answered })
		if len(answers) == 0 {
			return NotApplicable, o.noAnswers()
		}
		wrong, first := 0, ""
		for _, c := range answers {
			if f := flaw(c); f != "" {
				if wrong++; wrong == 1 {
					first = f + " in " + c.Method
				}
			}
		}
		if wrong > 0 {
			return Failed, fmt.Sprintf("%d of %d answers, first %s", wrong, len(answers), first)
		}
		return Passed, fmt.Sprintf("as it should be in %d answers", len(answers))
	}
}

func (o Observations) noAnswers() string {
	if o.GaveUp != "" {
		return o.unasked()
	}
	return "it answered no question"
}

func tooLarge(c Call) string {
	if c.Answer.Bytes > maxAnswer {
		return fmt.Sprintf("%d bytes", c.Answer.Bytes)
	}
	return ""
}

func unknownLevel(c Call) string {
	if _, known := wire.ThresholdMetType_name[c.Answer.Met]; !known {
		return fmt.Sprintf("met_type %d", c.Answer.Met)
	}
	return ""
}

func strangeNumber(c Call) string {
	a := c.Answer
	finite := func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
	_, known := wire.ThresholdOperator_name[a.Operator]
	switch {
	case !finite(a.Observed) || !finite(a.Limit):
		return fmt.Sprintf("observed %g, threshold %g", a.Observed, a.Limit)
	case !known:
		return fmt.Sprintf("threshold_operator %d", a.Operator)
	case a.GraceSeconds < 0 || a.GraceSeconds > maxGraceSeconds:
		return fmt.Sprintf("grace_period_seconds %d", a.GraceSeconds)
	}
	return ""
}

func strangeCondition(c Call) string {
	k := c.Answer.Condition
	if k == nil {
		return ""
	}
	if _, known := wire.ConditionType_name[k.Type]; !known {
		return fmt.Sprintf("condition_type %d", k.Type)
	}
	if len(validation.IsQualifiedName(names.Prefix+k.Name)) > 0 {
		return fmt.Sprintf("name %q", k.Name)
	}
	for _, e := range k.Effects {
		effect := e
		if k.Type == int32(wire.ConditionType_CNR_CONDITION) {
			_, effect, _ = strings.Cut(e, "/")
		}
		if effect != string(corev1.TaintEffectNoSchedule) && effect != string(corev1.TaintEffectPreferNoSchedule) {
			return fmt.Sprintf("effect %q", e)
		}
	}
	return ""
}

func longText(c Call) string {
	if c.Answer.LongText > katalyst.MaxText {
		return fmt.Sprintf("%d bytes", c.Answer.LongText)
	}
	return ""
}

func strangeDeletion(c Call) string {
	if g := c.Answer.DeletionGrace; g != nil {
		return fmt.Sprintf("%d s", *g)
	}
	return ""
}

func shownPods(o Observations) (Result, string) {
	naming := o.of(func(c Call) bool { return c.Outcome == Answered && c.Answer.Entries > 0 })
	if len(naming) == 0 {
		return NotApplicable, o.noNames()
	}
	var strange []Call
	for _, c := range naming {
		if c.Answer.Strange != "" {
			strange = append(strange, c)
		}
	}
	if len(strange) == 0 {
		return Passed, fmt.Sprintf("%d answers name pods, all of them shown", len(naming))
	}
	first := slices.IndexFunc(strange, func(c Call) bool { return strings.Contains(c.Answer.Strange, "earlier question") })
	c := strange[max(0, first)] // a pod that was shown once says most
	return Failed, fmt.Sprintf("%d of %d answers that name pods, such as %s (question: %s): %s", len(strange), len(naming), c.Method, c.Question, c.Answer.Strange)
}

func (o Observations) noNames() string {
	if o.GaveUp != "" {
		return o.unasked()
	}
	return "it named no pod here; give it pods that it names, and a threshold that is met"
}

func topNKept(o Observations) (Result, string) {
	asked := o.of(func(c Call) bool { return c.Method == getTop && c.Outcome == Answered })
	naming := 0
	for _, c := range asked {
		once := slices.Compact(slices.Sorted(slices.Values(c.Answer.Named)))
		switch {
		case uint64(c.Answer.Entries) > c.TopN:
			return Failed, fmt.Sprintf("%d pods at topN %d", c.Answer.Entries, c.TopN)
		case len(once) < len(c.Answer.Named):
			return Failed, fmt.Sprintf("%d pods are named, of them %d different ones", len(c.Answer.Named), len(once))
		case c.Answer.Entries > 0:
			naming++
		}
	}
	if naming == 0 {
		return NotApplicable, o.noNames()
	}
	return Passed, fmt.Sprintf("in %d answers, up to topN %d", len(asked), uint64(math.MaxUint64))
}

// namedAgain tells a plugin with a cooldown, which names a pod once, from one
// that repeats it.
func namedAgain(o Observations) (Result, string) {
	for _, method := range []string{getTop, getEvictPods} {
		answers := o.of(func(c Call) bool {
			return c.Question == Ordinary && c.Method == method && c.Outcome == Answered && (method == getEvictPods || c.TopN == topN)
		})
		first := slices.IndexFunc(answers, func(c Call) bool { return len(c.Answer.Named) > 0 })
		if first < 0 || first == len(answers)-1 {
			continue
		}
		again := 0
		for _, c := range answers[first+1:] {
			if slices.ContainsFunc(c.Answer.Named, func(uid string) bool { return slices.Contains(answers[first].Answer.Named, uid) }) {
				again++
			}
		}
		rest := len(answers) - first - 1
		if again == 0 {
			return Failed, fmt.Sprintf("%s named pods once, and not in the next %d answers: it has a cooldown", method, rest)
		}
		return Passed, fmt.Sprintf("%s named pods of its first answer in %d of the next %d: it has no cooldown", method, again, rest)
	}
	return NotApplicable, o.noNames()
}

func errorNotZero(o Observations) (Result, string) {
	if r := o.WithoutMeasurement; r != nil {
		return withoutMeasurement(o, *r)
	}
	met := o.of(func(c Call) bool { return c.Question == Ordinary && c.Method == thresholdMet })
	for _, c := range met {
		a := c.Answer
		switch {
		case c.Outcome == Refused:
			return Passed, "it could not measure here: " + c.words()
		case c.Outcome == Answered && !a.Empty && a.Observed == 0 && a.Limit == 0:
			return Failed, "ThresholdMet observes 0 against a threshold of 0"
		}
	}
	if len(met) == 0 {
		return NotApplicable, o.unasked()
	}
	return NotApplicable, "it measured each time, or has no threshold; use --unmeasurable to start it where it cannot measure"
}

func withoutMeasurement(o Observations, r Registration) (Result, string) {
	if r.Error != "" {
		return Passed, "where it cannot measure it does not serve: " + r.Error
	}
	calls := o.of(func(c Call) bool { return c.Question == Unmeasurable && c.Method == thresholdMet })
	switch {
	case len(calls) == 0:
		return NotApplicable, o.unasked()
	case calls[0].Outcome == Refused:
		return Passed, "where it cannot measure: " + calls[0].words()
	}
	return Failed, fmt.Sprintf("where it cannot measure: %s, observed %g, met_type %d", calls[0].words(), calls[0].Answer.Observed, calls[0].Answer.Met)
}
