package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-dev/plimsoll/katalyst"
	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// what is observed of a plugin that was started and is without flaw.
func flawless() Observations {
	o := Observations{
		Socket: "/d/a.sock", Started: true, CallLimit: DefaultTimeout,
		First:  Registration{Type: wire.PluginType, Name: "a", Versions: []string{wire.Version}, Token: "empty"},
		Rounds: []time.Duration{time.Millisecond}, Terminated: &End{Ended: true, Status: "exit status 0"},
	}
	o.AfterNewHost, o.AfterRestart, o.AfterKill = new(o.First), new(o.First), new(o.First)
	for _, q := range []Question{Ordinary, Empty, Huge, AtLimit, UnknownFields, UnknownValues, NoUID, UnknownScope, Concurrent, Resumed, NewHost, Restarted, Killed} {
		for _, m := range []string{getEvictPods, thresholdMet} {
			o.Calls = append(o.Calls, Call{Question: q, Method: m, Outcome: Answered, Took: time.Millisecond, Answer: Answer{Limit: 1}})
		}
	}
	o.Calls = append(o.Calls,
		Call{Question: NoMessage, Method: thresholdMet, Outcome: Refused},
		Call{Question: UnknownMethod, Method: noMethod, Outcome: Unimplemented},
		Call{Question: Stopped, Method: thresholdMet, Outcome: Late, Took: time.Hour})
	return o
}

func TestEvaluate(t *testing.T) {
	ask := func(q Question, outcome Outcome) func(*Observations) {
		return func(o *Observations) {
			for i := range o.Calls {
				if o.Calls[i].Question == q {
					o.Calls[i].Outcome = outcome
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Observations)
		check  string
		want   Result
	}{
		{"hidden socket", func(o *Observations) { o.Socket = "/d/.a.sock" }, "socket", Failed},
		{"long path", func(o *Observations) { o.Socket = strings.Repeat("/d", 60) }, "socket", Failed},
		{"status fails", func(o *Observations) { o.First.StatusError = "Unimplemented" }, "registration-status", Failed},
		{"endpoint outside", func(o *Observations) { o.First.Endpoint = "/other/b.sock" }, "registration", Failed},
		{"endpoint inside", func(o *Observations) { o.First.Endpoint = "/d/b.sock" }, "registration", Passed},
		{"no answer", ask(Ordinary, Late), "answers", Failed},
		{"a slow call", func(o *Observations) { o.Calls[0].Took = DefaultTimeout }, "call-time", Failed},
		{"a slow round", func(o *Observations) { o.Rounds = append(o.Rounds, roundLimit) }, "round-time", Failed},
		{"a connection that ended", func(o *Observations) { o.Endings = []string{"between two calls"} }, "connection", Failed},
		{"an error to an ordinary question is no flaw", ask(Ordinary, Refused), "answers", Passed},
		{"an error to no pods where it always errs", func(o *Observations) { ask(Ordinary, Refused)(o); ask(Empty, Refused)(o) }, "no-pods", Passed},
		{"an error to pods without UID", ask(NoUID, Refused), "pods-without-uid", Passed},
		{"ended by a broken message", ask(NoMessage, Broken), "broken-message", Failed},
		{"an unknown method answered", ask(UnknownMethod, Answered), "unknown-method", Failed},
		{"not resumed", ask(Resumed, Late), "stopped", Failed},
		{"nothing after the stop", func(o *Observations) { o.Calls = o.of(func(c Call) bool { return c.Question != Resumed }) }, "stopped", Failed},
		{"not stopped", func(o *Observations) { o.Calls = o.of(func(c Call) bool { return c.Question != Stopped }) }, "stopped", NotApplicable},
		{"does not end", func(o *Observations) { o.Terminated = &End{Took: endTime} }, "ends", Failed},
		{"leaves its socket", func(o *Observations) { o.Terminated.SocketStays = true }, "socket-removed", Failed},
		{"does not start again", func(o *Observations) { o.AfterRestart.Error = "no socket" }, "restart", Failed},
		{"another name", func(o *Observations) { o.AfterKill.Name = "b" }, "restart-after-kill", Failed},
		{"not started here", func(o *Observations) { o.Started, o.Terminated, o.AfterRestart = false, nil, nil }, "restart", NotApplicable},
		{"another level for a new host", func(o *Observations) {
			for i := range o.Calls {
				if o.Calls[i].Question == NewHost {
					o.Calls[i].Answer.Met = 2
				}
			}
		}, "stateless", Failed},
		{"zero where it cannot measure", func(o *Observations) {
			o.WithoutMeasurement = &Registration{}
			o.Calls = append(o.Calls, Call{Question: Unmeasurable, Method: thresholdMet, Outcome: Answered})
		}, "error-not-zero", Failed},
		{"does not start where it cannot measure", func(o *Observations) { o.WithoutMeasurement = &Registration{Error: "exit status 1"} }, "error-not-zero", Passed},
		{"not a number", func(o *Observations) { o.Calls[0].Answer.Observed = math.NaN() }, "numbers", Failed},
		{"a long eviction grace period", func(o *Observations) { o.Calls[0].Answer.GraceSeconds = math.MaxInt64 }, "numbers", Failed},
		{"a CNR effect", func(o *Observations) {
			o.Calls[0].Answer.Condition = &Condition{Name: "A", Type: 1, Effects: []string{"reclaimed_cores/NoSchedule"}}
		}, "condition", Passed},
		{"not a qualified name", func(o *Observations) { o.Calls[0].Answer.Condition = &Condition{Name: "a b"} }, "condition", Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := flawless()
			before := Evaluate(o).Find(c.check)
			require.NotEqual(t, Failed, before.Result, before.Observation)
			c.change(&o)
			r := Evaluate(o)
			got := r.Find(c.check)
			assert.Equal(t, c.want, got.Result, got.Observation)
			assert.Equal(t, c.want != Failed || !got.Required, r.Works)
			assert.Equal(t, c.want == Failed, got.ToDo != "")
			assert.NotEmpty(t, got.Observation)
		})
	}
	t.Run("no flaw", func(t *testing.T) {
		r := Evaluate(flawless())
		assert.True(t, r.Works)
		assert.Zero(t, r.Count(Failed, false), "%+v", r.Checks)
	})
}

func TestQuestionSizes(t *testing.T) {
	pods, err := encode(MadePods(time.Unix(1e9, 0)))
	require.NoError(t, err)
	for _, want := range []int{messageLimit, messageLimit - 1, messageLimit - hostMargin, 100_000} {
		filled := filledTo(pods, want)
		assert.Equal(t, want, proto.Size(&wire.GetThresholdMetRequest{ActivePods: bytesOf(filled)}))
		uids := map[string]bool{}
		for _, p := range filled {
			uids[p.uid] = true
		}
		assert.Len(t, uids, len(filled), "each pod has a UID of its own")
	}
}

func TestOutputs(t *testing.T) {
	o := flawless()
	o.First.Name = "a\x1b[2J<&>"
	o.AfterNewHost, o.AfterRestart, o.AfterKill = &o.First, &o.First, &o.First
	o.Terminated.SocketStays = true
	o.First.Refusal = "type"
	r := Evaluate(o)
	t.Run("text", func(t *testing.T) {
		var b bytes.Buffer
		require.NoError(t, r.WriteText(&b))
		assert.Contains(t, b.String(), "FAILED  required  registration")
		assert.Contains(t, b.String(), "FAILED  advisory  socket-removed")
		assert.Contains(t, b.String(), "To do: Serve pluginregistration.Registration")
		assert.Contains(t, b.String(), "A host cannot work with this plugin")
		assert.NotContains(t, b.String(), "\x1b", "what a plugin writes commands no terminal")
	})
	t.Run("JSON", func(t *testing.T) {
		var b bytes.Buffer
		require.NoError(t, r.WriteJSON(&b))
		var back Report
		require.NoError(t, json.Unmarshal(b.Bytes(), &back))
		assert.Equal(t, r, back)
	})
	t.Run("JUnit", func(t *testing.T) {
		var b bytes.Buffer
		require.NoError(t, r.WriteJUnit(&b))
		var back suiteXML
		require.NoError(t, xml.Unmarshal(b.Bytes(), &back))
		assert.Equal(t, len(r.Checks), back.Tests)
		assert.Len(t, back.Cases, len(r.Checks))
		assert.Equal(t, 1, back.Failures, "an advisory check is no failure of the suite")
		for _, c := range back.Cases {
			switch c.Name {
			case "registration":
				require.NotNil(t, c.Failure)
				assert.Equal(t, r.Find(c.Name).Observation, c.Failure.Message)
			case "socket-removed":
				require.NotNil(t, c.Skipped)
				assert.Contains(t, c.Skipped.Message, "failed, advisory: ")
			}
		}
	})
}

// A pod that was shown once says that the plugin keeps pods.
func TestShownBefore(t *testing.T) {
	pods, err := encode(MadePods(time.Unix(1e9, 0)))
	require.NoError(t, err)
	answer := &wire.GetTopEvictionPodsResponse{TargetPods: bytesOf(pods[:3])}
	a := read(answer, shown{map[string]bool{pods[0].uid: true}, map[string]bool{pods[0].uid: true, pods[1].uid: true}})
	assert.Equal(t, []string{pods[0].uid}, a.Named)
	assert.Equal(t, 3, a.Entries)
	assert.Contains(t, a.Strange, pods[1].uid+`", which was in an earlier question`)
	a = read(answer, shown{map[string]bool{pods[0].uid: true, pods[1].uid: true}, nil})
	assert.Contains(t, a.Strange, pods[2].uid+`", which was in no question`)
}

func FuzzRead(f *testing.F) {
	for _, m := range []proto.Message{
		&wire.ThresholdMetResponse{EvictionScope: "a", Condition: &wire.Condition{Effects: []string{"b"}}, CandidatePods: [][]byte{{0xff}}},
		&wire.GetTopEvictionPodsResponse{TargetPods: [][]byte{nil}, DeletionOptions: &wire.DeletionOptions{GracePeriodSeconds: -1}},
		&wire.GetEvictPodsResponse{EvictPods: []*wire.EvictPod{{Pod: []byte{0x0a, 0x00}}}},
	} {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []proto.Message{&wire.ThresholdMetResponse{}, &wire.GetTopEvictionPodsResponse{}, &wire.GetEvictPodsResponse{}} {
			if proto.Unmarshal(b, m) != nil {
				continue
			}
			a := read(m, shown{map[string]bool{"a": true}, map[string]bool{"a": true, "b": true}})
			assert.LessOrEqual(t, len(a.Named), a.Entries)
			assert.LessOrEqual(t, len(a.Scope), katalyst.MaxText)
			assert.Equal(t, a.Strange == "", len(a.Named) == a.Entries)
			e := Evaluate(Observations{Calls: []Call{{Question: Ordinary, Method: getTop, Outcome: Answered, Answer: a}}})
			assert.NotEmpty(t, e.Checks)
		}
	})
}
