package evict

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// keeping is a round with what the daemon does after it.
func keeping(in Input, a *api, l *Log) (Decision, State) {
	d, m := play(in, a)
	l.Add(d)
	m, changes := Follow(in, m)
	for _, c := range changes {
		l.Update(c.Decision, c.Apply)
	}
	return d, m
}

func TestFollow(t *testing.T) {
	t.Run("termination and pressure", followTerminationAndPressure)
	t.Run("settled decision unchanged", followSettledDecisionUnchanged)
	t.Run("repeats whole change", followRepeatsWholeChange)
	t.Run("dry run not followed", followDryRunNotFollowed)
	t.Run("terminated victim", followTerminatedVictim)
	t.Run("rule that was met", followRuleThatWasMet)
}

func followTerminationAndPressure(t *testing.T) {
	log, a := Log{Max: 10}, api{}
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 20)), disk(plugins.Soft))
	d, m := keeping(in, &a, &log)
	first := d.ID
	of := func(id string) Decision {
		for _, d := range log.List() {
			if d.ID == id {
				return d
			}
		}
		t.Fatalf("no decision %s", id)
		return Decision{}
	}
	in = then(in, 5, m)
	_, m = keeping(in, &a, &log)
	assert.Zero(t, of(first).TerminatedAt, "it is still ending")

	in = then(in, 5, restarted(t, m))
	in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:]
	_, m = keeping(in, &a, &log)
	assert.Equal(t, at(10), of(first).TerminatedAt)
	assert.Nil(t, of(first).After)
	assert.Equal(t, at(10), of(first).Candidates[0].TerminatedAt)
	assert.Len(t, m.Victims, 1)

	in = then(in, 29, restarted(t, m))
	_, m = keeping(in, &a, &log)
	assert.Nil(t, of(first).After, "the node is not given time yet")

	in = then(in, 1, restarted(t, m))
	now := pressing(named("b", 20))
	now.Observed = snapshot.Some(0.2)
	in.Levels.Verdicts = []plugins.Verdict{disk(plugins.None), {Plugin: "third", Scope: "node"}, {Plugin: "memory-stall", Scope: "numa1"}, now}
	d, m = keeping(in, &a, &log)
	require.Equal(t, CodeEvicted, d.Code, "it presses still, so the next one goes in the same round")
	assert.Equal(t, []Cause{causeOf(now), causeOf(in.Levels.Verdicts[0])}, of(first).After, "in the order of the causes")
	assert.Equal(t, at(10), of(first).TerminatedAt)
	assert.Equal(t, "b", m.last().UID)
	assert.Len(t, m.Victims, 1, "what is recorded is forgotten")
	assert.Nil(t, of(d.ID).After)
}

func followSettledDecisionUnchanged(t *testing.T) {
	log, a := Log{Max: 10}, api{}
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
	_, m := keeping(in, &a, &log)
	in.Cluster.Pods.Pods = nil
	in.Levels.Verdicts = []plugins.Verdict{disk(plugins.None)}
	_, m = keeping(then(in, 5, m), &a, &log)
	_, m = keeping(then(in, 35, m), &a, &log)
	assert.Empty(t, m.Victims)
	require.Len(t, log.List(), 1)
	assert.Equal(t, at(5), log.List()[0].TerminatedAt)
	assert.Nil(t, log.List()[0].After, "its cause is judged no more")
	in = then(in, 40, restarted(t, m))
	_, m = Decide(in)
	after, changes := Follow(in, m)
	assert.Empty(t, changes)
	assert.Equal(t, m, after)
}

func followRepeatsWholeChange(t *testing.T) {
	in := round(0, nil, pressing())
	in.State.Victims = []Chosen{{Victim: Victim{UID: "a"}, Decision: "x", Time: at(-50), Outcome: Evicted, TerminatedAt: at(-30)}}
	m, changes := Follow(in, in.State)
	require.Len(t, changes, 1)
	assert.Equal(t, "x", changes[0].Decision)
	assert.Empty(t, m.Victims)
	assert.Len(t, in.State.Victims, 1, "what was given is not changed")
	d := Decision{Causes: []Cause{causeOf(pressing())}}
	for range 2 {
		changes[0].Apply(&d)
		assert.Equal(t, at(-30), d.TerminatedAt)
		assert.Equal(t, d.Causes, d.After)
	}
}

func followDryRunNotFollowed(t *testing.T) {
	in := three(0)
	_, changes := Follow(in, State{})
	assert.Empty(t, changes)
	in.Config.DryRun = true
	in.State.Victims = []Chosen{{Victim: Victim{UID: "a"}, DryRun: true, Outcome: NotFound, TerminatedAt: at(-100)}}
	_, changes = Follow(in, in.State)
	assert.Empty(t, changes)
}

func followTerminatedVictim(t *testing.T) {
	log, a := Log{Max: 10}, api{answer: always(NotFound)}
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)))
	_, m := keeping(in, &a, &log)
	in.Cluster.Pods.Pods = nil
	_, m = keeping(then(in, 5, m), &a, &log)
	assert.Equal(t, at(0), log.List()[len(log.List())-1].TerminatedAt)
	_, m = keeping(then(in, 30, m), &a, &log)
	assert.Empty(t, m.Victims)
	assert.Len(t, log.List()[len(log.List())-1].After, 1)
}

func followRuleThatWasMet(t *testing.T) {
	met := Cause{Plugin: "memory-stall", Scope: "node", Level: plugins.Hard, Observed: snapshot.Some(0.4), Operator: ">=", Threshold: snapshot.Some(0.25), Unit: "ratio"}
	softer := func(list ...plugins.Evidence) plugins.Verdict {
		v := memoryAt(plugins.None)
		v.Observed, v.Operator, v.Threshold, v.Unit, v.Evidence = snapshot.Some(0.02), ">=", snapshot.Some(0.1), "ratio", list
		return v
	}
	of := func(change func(*plugins.Evidence)) plugins.Evidence {
		e := plugins.Evidence{Rule: plugins.Hard, What: "stall", Observed: snapshot.Some(0.05), Operator: ">=", Threshold: 0.25, Unit: "ratio"}
		if change != nil {
			change(&e)
		}
		return e
	}
	for what, row := range map[string]struct {
		verdict             plugins.Verdict
		observed, threshold snapshot.Opt[float64]
		unit                string
	}{
		"the same comparison":         {softer(of(func(e *plugins.Evidence) { e.Rule = plugins.Soft }), of(nil)), snapshot.Some(0.05), snapshot.Some(0.25), "ratio"},
		"only that of another level":  {softer(of(func(e *plugins.Evidence) { e.Rule = plugins.Soft })), snapshot.Opt[float64]{}, snapshot.Some(0.25), "ratio"},
		"only another operator":       {softer(of(func(e *plugins.Evidence) { e.Operator = "<" })), snapshot.Opt[float64]{}, snapshot.Some(0.25), "ratio"},
		"only another threshold":      {softer(of(func(e *plugins.Evidence) { e.Threshold = 0.3 })), snapshot.Opt[float64]{}, snapshot.Some(0.25), "ratio"},
		"only another unit":           {softer(of(func(e *plugins.Evidence) { e.Unit = "bytes" })), snapshot.Opt[float64]{}, snapshot.Some(0.25), "ratio"},
		"one that was not made":       {softer(of(func(e *plugins.Evidence) { e.Observed = snapshot.Opt[float64]{} })), snapshot.Opt[float64]{}, snapshot.Some(0.25), "ratio"},
		"the verdict shows that rule": {func() plugins.Verdict { v := softer(of(nil)); v.Threshold = met.Threshold; return v }(), snapshot.Some(0.02), snapshot.Some(0.25), "ratio"},
	} {
		t.Run(what, func(t *testing.T) {
			now := met.after(row.verdict)
			assert.Equal(t, row.observed, now.Observed)
			assert.Equal(t, row.threshold, now.Threshold)
			assert.Equal(t, ">=", now.Operator)
			assert.Equal(t, row.unit, now.Unit)
			assert.Equal(t, plugins.None, now.Level)
			assert.Equal(t, "memory is none", now.Reason)
		})
	}
	other := softer(of(func(e *plugins.Evidence) { e.Operator = "<" }))
	other.Operator, other.Threshold = "<", met.Threshold
	assert.Equal(t, snapshot.Opt[float64]{}, met.after(other).Observed, "the same number, compared the other way")
	unlike := softer(of(func(e *plugins.Evidence) { e.Unit = "bytes" }))
	unlike.Unit = "bytes"
	assert.Equal(t, "ratio", met.after(unlike).Unit)
}
