package conformance

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// check is a Check before it is evaluated.
type check struct {
	name     string
	required bool
	evaluate func(Observations) (Result, string)
	toDo     string
}

// Evaluate turns what was seen into a report.
func Evaluate(o Observations) Report {
	r := Report{Plugin: o.First.Name, Socket: o.Socket, Works: true, Calls: len(o.Calls)}
	for _, c := range slices.Concat(registrationChecks(), questionChecks(), answerChecks(), lifeChecks()) {
		result, seen := c.evaluate(o)
		one := Check{Name: c.name, Required: c.required, Result: result, Observation: seen}
		if result == Failed {
			one.ToDo = c.toDo
			r.Works = r.Works && !c.required
		}
		r.Checks = append(r.Checks, one)
	}
	return r
}

func registrationChecks() []check {
	return []check{
		{"socket", true, socket, "Bind a name that begins with a dot, listen, then rename it to one that does not, of at most 107 bytes with its directory."},
		{"registration", true, registrationOf, "Serve pluginregistration.Registration (v1) on the socket: GetInfo answers with type EvictionPlugin, a name of up to 128 letters, digits, and . _ - /, version v1alpha1, and an empty endpoint (the socket itself)."},
		{"registration-status", false, registrationStatus, "Answer NotifyRegistrationStatus: it tells the plugin whether it is registered, and why not."},
		{"methods", true, methods, "Serve evictionplugin.v1alpha1.EvictionPlugin on the same socket, with ThresholdMet, GetEvictPods or both; GetTopEvictionPods too if pods are to be evicted at hard."},
	}
}

func socket(o Observations) (Result, string) {
	switch name := filepath.Base(o.Socket); {
	case strings.HasPrefix(name, "."):
		return Failed, fmt.Sprintf("%q begins with a dot, so that no host finds it", name)
	case len(o.Socket) > 107:
		return Failed, fmt.Sprintf("its path has %d bytes", len(o.Socket))
	case o.Started:
		return Passed, fmt.Sprintf("%q, %.1f s after the start; process %d of user %d listens", name, o.First.SecondsToServe, o.First.Process, o.First.User)
	default:
		return Passed, fmt.Sprintf("process %d of user %d listens", o.First.Process, o.First.User)
	}
}

func registrationOf(o Observations) (Result, string) {
	r := o.First
	switch {
	case r.Error != "":
		return Failed, r.Error
	case r.Refusal != "":
		return Failed, r.Refusal
	case r.EndpointError != "":
		return Failed, fmt.Sprintf("endpoint %q: %s", r.Endpoint, r.EndpointError)
	case r.Endpoint != "" && !strings.HasPrefix(filepath.Clean(r.Endpoint), filepath.Dir(o.Socket)+"/"):
		return Failed, fmt.Sprintf("endpoint %q is outside the directory of the socket", r.Endpoint)
	}
	return Passed, fmt.Sprintf("type %s, name %q, versions %q", r.Type, r.Name, r.Versions)
}

func registrationStatus(o Observations) (Result, string) {
	switch {
	case o.First.Error != "":
		return NotApplicable, o.unasked()
	case o.First.StatusError != "":
		return Failed, "NotifyRegistrationStatus: " + o.First.StatusError
	}
	return Passed, "NotifyRegistrationStatus was answered"
}

func methods(o Observations) (Result, string) {
	var served, missing, unknown []string
	for _, m := range []string{getEvictPods, thresholdMet, getTop} {
		calls := o.of(func(c Call) bool { return c.Method == m && c.Question != NoMessage })
		switch {
		case slices.ContainsFunc(calls, func(c Call) bool { return c.Outcome == Answered || c.Outcome == Refused }):
			served = append(served, m)
		case slices.ContainsFunc(calls, func(c Call) bool { return c.Outcome == Unimplemented }):
			missing = append(missing, m)
		default:
			unknown = append(unknown, m)
		}
	}
	seen := fmt.Sprintf("implemented: %s; not implemented: %s; GetToken: %s", list(served), list(missing), orNone(o.First.Token))
	switch {
	case slices.Contains(served, getEvictPods), slices.Contains(served, thresholdMet):
		return Passed, seen
	case slices.Contains(unknown, getEvictPods), slices.Contains(unknown, thresholdMet):
		return NotApplicable, o.unasked()
	}
	return Failed, seen
}

func questionChecks() []check {
	const survive = "Answer, or return an error; then continue to answer."
	return []check{
		{"answers", true, answers, "Answer each call within the limit; do slow work outside of the calls."},
		{"call-time", true, callTime, "A call may take 10 s; later it is cancelled and has failed. Do slow work outside of the calls."},
		{"round-time", false, roundTime, "A round of the agent waits 3 s for all calls together; a later answer is used by the next round only."},
		{"connection", true, keepsConnection, "Never end the process or the connection because of a question: a plugin is registered as long as its connection lasts."},
		{"no-pods", true, question(Empty, true), "Answer a question without pods: a node without pods, or a host without a cluster, has none."},
		{"huge", true, question(Huge, true), "Accept questions up to 4 MiB, the default of gRPC servers."},
		{"4-MiB", false, question(AtLimit, true), "Accept questions of 4 MiB exactly, and better larger ones: other hosts do not keep below it."},
		{"unknown-fields", true, question(UnknownFields, true), "Ignore protobuf fields that you do not know: later versions of Kubernetes and of hosts add some."},
		{"unknown-values", true, question(UnknownValues, true), "Accept phases, QoS classes and records that you do not know, and name no pod because of them."},
		{"pods-without-uid", true, question(NoUID, false), survive},
		{"unknown-scope", true, question(UnknownScope, false), survive},
		{"broken-message", true, question(NoMessage, false), survive},
		{"unknown-method", false, unknownMethod, "Return UNIMPLEMENTED for methods that do not exist, as gRPC servers do: later hosts may call more."},
		{"concurrent-calls", false, question(Concurrent, true), "Answer calls that come at the same time, one after the other if need be: two hosts may ask one plugin."},
	}
}

// question is the check that a question is answered; mustAnswer: an error is
// no answer if the same method answers an ordinary question.
func question(q Question, mustAnswer bool) func(Observations) (Result, string) {
	return func(o Observations) (Result, string) {
		calls := o.of(func(c Call) bool { return c.Question == q })
		if len(calls) == 0 {
			return NotApplicable, o.unasked()
		}
		answered, refused := 0, ""
		for _, c := range calls {
			switch {
			case c.Outcome == Late || c.Outcome == Broken:
				return Failed, c.words()
			case c.Outcome == Refused && mustAnswer && o.answers(c.Method):
				return Failed, c.words() + ", while it answers an ordinary question"
			case c.Outcome == Refused:
				refused = c.words()
			default:
				answered++
			}
		}
		if refused != "" {
			return Passed, fmt.Sprintf("%d of %d calls answered, the others with an error: %s", answered, len(calls), refused)
		}
		return Passed, fmt.Sprintf("%d calls answered", answered)
	}
}

func answers(o Observations) (Result, string) {
	calls := o.of(func(c Call) bool { return c.Question == Ordinary })
	if len(calls) == 0 {
		return NotApplicable, o.unasked()
	}
	count := map[Outcome]int{}
	for _, c := range calls {
		if count[c.Outcome]++; c.Outcome == Late {
			return Failed, c.words()
		}
	}
	return Passed, fmt.Sprintf("%d calls of ordinary questions: %d answered, %d not implemented, %d with an error", len(calls), count[Answered], count[Unimplemented], count[Refused])
}

func callTime(o Observations) (Result, string) {
	var took []time.Duration
	for _, c := range o.Calls {
		if c.Question != Stopped && c.Outcome != Broken {
			took = append(took, c.Took)
		}
	}
	if len(took) == 0 {
		return NotApplicable, o.unasked()
	}
	seen := fmt.Sprintf("%d calls: %s", len(took), percentiles(took))
	if slices.Max(took) >= o.CallLimit {
		return Failed, seen + fmt.Sprintf("; limit %s", o.CallLimit)
	}
	return Passed, seen
}

// roundLimit is how long a round of the agent waits for a plugin.
const roundLimit = 3 * time.Second

func roundTime(o Observations) (Result, string) {
	if len(o.Rounds) == 0 {
		return NotApplicable, o.unasked()
	}
	seen := fmt.Sprintf("%d rounds: %s", len(o.Rounds), percentiles(o.Rounds))
	if slices.Max(o.Rounds) >= roundLimit {
		return Failed, seen
	}
	return Passed, seen
}

func percentiles(took []time.Duration) string {
	took = slices.Sorted(slices.Values(took))
	at := func(p int) time.Duration { return took[(len(took)-1)*p/100].Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, max %s", at(50), at(99), at(100))
}

func keepsConnection(o Observations) (Result, string) {
	switch {
	case o.First.Error != "":
		return NotApplicable, o.unasked()
	case len(o.Endings) > 0:
		return Failed, fmt.Sprintf("it ended its connection %d times, first %s", len(o.Endings), o.Endings[0])
	}
	return Passed, "it ended no connection"
}

func unknownMethod(o Observations) (Result, string) {
	calls := o.of(func(c Call) bool { return c.Question == UnknownMethod })
	switch {
	case len(calls) == 0:
		return NotApplicable, o.unasked()
	case calls[0].Outcome != Unimplemented:
		return Failed, calls[0].words()
	}
	return Passed, "UNIMPLEMENTED"
}

// of returns the calls that are wanted.
func (o Observations) of(wanted func(Call) bool) []Call {
	var list []Call
	for _, c := range o.Calls {
		if wanted(c) {
			list = append(list, c)
		}
	}
	return list
}

// answers reports whether the method answers ordinary questions.
func (o Observations) answers(method string) bool {
	return slices.ContainsFunc(o.Calls, func(c Call) bool {
		return c.Question == Ordinary && c.Method == method && c.Outcome == Answered
	})
}

// unasked is why a question was not asked.
func (o Observations) unasked() string {
	if o.GaveUp != "" {
		return "not asked: " + o.GaveUp
	}
	return "not asked: the plugin gave no occasion"
}

func (c Call) words() string {
	if c.Outcome == Answered {
		return fmt.Sprintf("%s was answered (question: %s)", c.Method, c.Question)
	}
	return fmt.Sprintf("%s (question: %s): %s after %s: %s", c.Method, c.Question, c.Outcome, c.Took.Round(time.Millisecond), c.Error)
}

func list(words []string) string { return orNone(strings.Join(words, ", ")) }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
