package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

func lifeChecks() []check {
	return []check{
		{"stopped", true, stopped, "After the process was stopped for a moment, answer over the same connection again: a node under pressure does that to it."},
		{"host-restart", true, after(NewHost, func(o Observations) *Registration { return o.AfterNewHost }), "Accept a new connection and a new registration at any time: hosts restart."},
		{"stateless", false, stateless, "Nothing, for a host that keeps what you said. For others, answer by what is measured now, not by what a host was told before."},
		{"ends", false, ends, "End within 10 s of SIGTERM."},
		{"socket-removed", false, socketRemoved, "Remove the socket at the end; a host tries one that is left, in vain."},
		{"restart", true, after(Restarted, func(o Observations) *Registration { return o.AfterRestart }), "Start again in the same directory, with the same name."},
		{"restart-after-kill", true, after(Killed, func(o Observations) *Registration { return o.AfterKill }), "At the start, remove the socket that a killed instance left."},
	}
}

const notStarted = "a running plugin is not ended; give the command that starts it"

func stopped(o Observations) (Result, string) {
	calls := o.of(func(c Call) bool { return c.Question == Stopped })
	switch {
	case !o.Started:
		return NotApplicable, notStarted
	case len(calls) == 0:
		return NotApplicable, o.unasked()
	}
	result, seen := question(Resumed, true)(o)
	if result == NotApplicable { // it was stopped, and did not come back
		result = Failed
	}
	return result, fmt.Sprintf("stopped for %s: %s; then: %s", calls[0].Took.Round(100*time.Millisecond), calls[0].Outcome, seen)
}

// after checks that a plugin works again, under the same name.
func after(q Question, of func(Observations) *Registration) func(Observations) (Result, string) {
	return func(o Observations) (Result, string) {
		r := of(o)
		switch {
		case r == nil && !o.Started && q != NewHost:
			return NotApplicable, notStarted
		case r == nil:
			return NotApplicable, o.unasked()
		case r.Error != "":
			return Failed, r.Error
		case r.Refusal != o.First.Refusal || r.EndpointError != o.First.EndpointError:
			return Failed, "it was registered before, and is refused now: " + cmp.Or(r.Refusal, r.EndpointError)
		case r.Name != o.First.Name:
			return Failed, fmt.Sprintf("its name was %q and is %q", o.First.Name, r.Name)
		}
		result, seen := question(q, true)(o)
		return result, "registered again; " + seen
	}
}

func ends(o Observations) (Result, string) {
	switch e := o.Terminated; {
	case !o.Started:
		return NotApplicable, notStarted
	case e == nil:
		return NotApplicable, o.unasked()
	case !e.Ended:
		return Failed, fmt.Sprintf("it did not end within %s of SIGTERM", e.Took.Round(time.Second))
	default:
		return Passed, fmt.Sprintf("%s after SIGTERM (%s)", e.Took.Round(10*time.Millisecond), e.Status)
	}
}

func socketRemoved(o Observations) (Result, string) {
	switch e := o.Terminated; {
	case !o.Started:
		return NotApplicable, notStarted
	case e == nil:
		return NotApplicable, o.unasked()
	case !e.Ended:
		return NotApplicable, "it did not end"
	case e.SocketStays:
		return Failed, "the socket is still there after the end"
	}
	return Passed, "the socket is gone after the end"
}

// stateless compares what two hosts were told.
func stateless(o Observations) (Result, string) {
	if o.AfterNewHost == nil {
		return NotApplicable, o.unasked()
	}
	compared := false
	for _, method := range []string{thresholdMet, getTop, getEvictPods} {
		before := o.of(func(c Call) bool {
			return (c.Question == Ordinary || c.Question == Resumed) && c.Method == method && c.Outcome == Answered && (method != getTop || c.TopN == topN)
		})
		now := o.of(func(c Call) bool { return c.Question == NewHost && c.Method == method && c.Outcome == Answered })
		if len(before) == 0 || len(now) == 0 {
			continue
		}
		compared = true
		first, then := before[0].Answer, now[0].Answer
		if first.Met != then.Met {
			return Failed, fmt.Sprintf("ThresholdMet: met_type %d at first, %d for a new host; it changes with what is measured, or with what was asked", first.Met, then.Met)
		}
		if !slices.Equal(first.Named, then.Named) {
			return Failed, fmt.Sprintf("%s named %d pods at first and %d for a new host, not the same ones", method, len(first.Named), len(then.Named))
		}
	}
	if !compared {
		return NotApplicable, "no method answered both hosts"
	}
	return Passed, "a new host was told what the first one was told"
}
