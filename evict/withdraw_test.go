package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
)

// requesting is a round that requests an eviction of a, and what stands after it.
func requesting(t *testing.T, in Input) (Decision, State) {
	t.Helper()
	in.Config.Via = ViaRequest
	a := api{answer: always(InProgress)}
	d, m := play(in, &a)
	require.Equal(t, []string{"a"}, a.uids())
	return d, restarted(t, m)
}

func TestWithdrawals(t *testing.T) {
	in := round(0, []pods.Pod{pod("a"), pod("b")}, pressing(named("a", 30), named("b", 20)))
	in.Config.Via = ViaRequest
	excluded := map[string]Standing{"memory-stall": {Excluded: "not listed"}}
	unknown := map[string]Standing{"memory-stall": {Excluded: "not registered", Unknown: true}}
	uids := func(list []Victim) []string {
		all := []string{}
		for _, v := range list {
			all = append(all, v.UID)
		}
		return all
	}
	for name, c := range map[string]struct {
		second int
		change func(*Input, *State)
		want   []string
	}{
		"the pressure stays":         {5, func(*Input, *State) {}, []string{}},
		"relief comes first":         {5, func(in *Input, _ *State) { in.Levels.Verdicts[0].MetLevel = plugins.None }, []string{"a"}},
		"another threshold is met":   {5, func(in *Input, _ *State) { in.Levels.Verdicts = []plugins.Verdict{disk(plugins.Hard, named("a", 1))} }, []string{"a"}},
		"it counts as refused":       {120, func(*Input, *State) {}, []string{"a"}},
		"the pod is gone":            {5, func(in *Input, _ *State) { in.Cluster.Pods.Pods = in.Cluster.Pods.Pods[1:] }, []string{"a"}},
		"it terminates":              {5, func(in *Input, _ *State) { in.Cluster.Pods.Pods[0].TerminatesBy = at(30) }, []string{"a"}},
		"a dry run begins":           {5, func(in *Input, _ *State) { in.Config.DryRun = true }, []string{"a"}},
		"evictions are switched off": {5, func(in *Input, _ *State) { in.Config.Enabled = false }, []string{"a"}},
		"its plugin is excluded":     {5, func(in *Input, _ *State) { in.Standings = excluded }, []string{"a"}},
		"its plugin only marks":      {5, func(in *Input, _ *State) { in.Levels.Verdicts[0].Beside = plugins.BesideMark }, []string{"a"}},
		"its plugin only reports":    {5, func(in *Input, _ *State) { in.Levels.Verdicts[0].Beside = plugins.BesideReport }, []string{"a"}},
		"its plugin is not known":    {5, func(in *Input, _ *State) { in.Standings = unknown }, []string{}},
		"nor heard":                  {5, func(in *Input, _ *State) { in.Standings, in.Levels.Verdicts = unknown, nil }, []string{}},
		"and relief comes first": {5, func(in *Input, _ *State) {
			in.Standings, in.Levels.Verdicts[0].MetLevel = unknown, plugins.None
		}, []string{"a"}},
		"and for too long":       {120, func(in *Input, _ *State) { in.Standings, in.Levels.Verdicts = unknown, nil }, []string{"a"}},
		"and in a dry run":       {5, func(in *Input, _ *State) { in.Standings, in.Config.DryRunPlugins = unknown, []string{"*"} }, []string{"a"}},
		"its verdict is missing": {5, func(in *Input, _ *State) { in.Levels.Verdicts = nil }, []string{"a"}},
		"its plugin may yet act": {5, func(in *Input, _ *State) {
			in.Levels.Verdicts[0].Beside = plugins.BesideReport
			in.Standings = map[string]Standing{"memory-stall": {Beside: plugins.BesideReport, Unknown: true}}
		}, []string{}},
		"the agent evicts itself": {5, func(in *Input, _ *State) { in.Config.Via = ViaDirect }, []string{"a"}},
		"the answer was lost":     {5, func(_ *Input, m *State) { m.Victims[0].Outcome = UnknownOutcome }, []string{}},
		"the agent was killed":    {5, func(_ *Input, m *State) { m.Victims[0].Outcome = "" }, []string{}},
		"the state has no victim": {5, func(_ *Input, m *State) { m.Victims = nil }, []string{"a"}},
		"it was forced":           {5, func(in *Input, m *State) { m.Victims[0].Met, in.Levels.Verdicts[0].MetLevel = nil, plugins.None }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			in := in
			in.Cluster = &Cluster{Pods: pods.List{Pods: []pods.Pod{pod("a"), pod("b")}, Synced: true}}
			_, m := requesting(t, in)
			require.Len(t, m.Requests, 1)
			in = then(in, c.second, m)
			in.Levels.Verdicts = []plugins.Verdict{pressing(named("a", 30), named("b", 20))}
			c.change(&in, &m)
			in.State = m
			_, m = Decide(in)
			m, list, _ := Withdrawals(in, m)
			assert.Equal(t, c.want, uids(list))
			again, list, _ := Withdrawals(in, m)
			assert.Equal(t, c.want, uids(list), "until it has succeeded")
			assert.Equal(t, m, again)
			_, list, _ = Withdrawals(in, m.Withdrawn("a"))
			assert.Empty(t, list)
		})
	}
	t.Run("relief came first", func(t *testing.T) {
		log := Log{Max: 10}
		d, m := requesting(t, in)
		log.Add(d)
		in := then(in, 5, m)
		in.Levels.Verdicts = []plugins.Verdict{pressing(named("a", 30), named("b", 20))}
		in.Levels.Verdicts[0].MetLevel = plugins.None
		_, m = Decide(in)
		m, list, changes := Withdrawals(in, m)
		assert.Equal(t, []Victim{{UID: "a", Namespace: "shop", Name: "web-a", GraceSeconds: 20}}, list)
		for _, c := range changes {
			log.Update(c.Decision, c.Apply)
		}
		d = log.List()[0]
		assert.Equal(t, CodeEnded, d.Code)
		assert.Equal(t, "the EvictionRequest is withdrawn: no rule that may evict asks for it any more", d.Candidates[0].Reason)
		assert.Empty(t, m.Victims)
		m = m.Withdrawn("a")
		in = then(in, int(DefaultConfig().Cooldown/time.Second), m)
		in.Levels.Verdicts = []plugins.Verdict{pressing(named("a", 30))}
		_, m = requesting(t, in)
		assert.Len(t, m.Requests, 1, "it may be requested again")
	})
	t.Run("a dry run requests nothing", func(t *testing.T) {
		in := in
		in.Config.DryRun = true
		_, m := requesting(t, in)
		assert.Empty(t, m.Requests)
	})
	t.Run("a restart, and the plugin that forced it has not registered yet", func(t *testing.T) {
		forced, a := round(0, []pods.Pod{pod("a")}, forcing("a")), api{answer: always(InProgress)}
		forced.Config.Via = ViaRequest
		for what, row := range map[string]struct {
			standing Standing
			want     []string
		}{
			"not registered":         {Standing{Excluded: "not registered", Unknown: true}, []string{}},
			"not searched":           {Standing{Beside: plugins.BesideReport, Unknown: true}, []string{}},
			"excluded":               {Standing{Excluded: "not listed"}, []string{"a"}},
			"a rival's for a report": {Standing{Beside: plugins.BesideReport}, []string{"a"}},
		} {
			in := forced
			in.Levels, in.State = RecallNamed(in)
			_, m := play(in, &a)
			require.Len(t, m.Requests, 1)
			m.Named = append(m.Named, NamedPod{Plugin: "p", Scope: plugins.ScopeNamed, UID: "b", At: in.Time})
			in = then(in, 5, restarted(t, m))
			in.Cluster = &Cluster{Pods: pods.List{Pods: []pods.Pod{pod("a"), pod("b")}, Synced: true}}
			in.Before, in.Levels.Verdicts = nil, nil
			require.Equal(t, []string{"p"}, NamingPlugins(in))
			in.Standings = map[string]Standing{"p": row.standing}
			in.Levels, in.State = RecallNamed(in)
			asked := len(a.asked)
			_, m = both(t, in, &a)
			assert.Len(t, a.asked, asked+a.dryRuns, "no other pod is evicted for it: "+what)
			a.dryRuns = 0
			_, list, _ := Withdrawals(in, m)
			assert.Equal(t, row.want, uids(list), what)
			in.State.Named = nil
			assert.Equal(t, []string{"p"}, NamingPlugins(in), "that of the request")
		}
	})
	t.Run("refused for every pod", func(t *testing.T) {
		a := api{answer: always(Braked)}
		d, m := play(in, &a)
		assert.Equal(t, CodeBrake, d.Code)
		require.Equal(t, []string{"a"}, a.uids(), "the next one is not asked for in vain")
		d, m = play(then(in, 9, restarted(t, m)), &a)
		assert.Equal(t, "the API server refused evictions for memory-stall at hard; not requested again until 2026-03-01 12:00:10 UTC: so it says", d.Reason)
		require.Len(t, a.asked, 1)
		_, list, _ := Withdrawals(in, m)
		assert.Empty(t, list, "none was stored")
	})
}
