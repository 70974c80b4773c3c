package daemon

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// look gathers what a round decides by: the newest levels, each of them used
// once, and the cluster as it is now. False: there is nothing new to decide.
func (a *Agent) look(ctx context.Context) (evict.Input, bool) {
	state := a.state.Load()
	if state == nil || state.Levels == a.before {
		return evict.Input{}, false
	}
	in := evict.Input{
		Time: time.Now().UTC(), Levels: state.Levels, Before: a.before,
		Config: a.Config.Current().Eviction, Memory: a.memory,
	}
	a.before = state.Levels
	if a.cluster != nil {
		in.Cluster, in.Memory = a.cluster.look(ctx, in)
	}
	return in, true
}

// look reads of the cluster what this round needs: of the Node only while
// something is met or marked, so that a calm node asks nothing.
func (c *cluster) look(ctx context.Context, in evict.Input) (*evict.Cluster, evict.Memory) {
	pressed := met(in.Levels)
	if pressed {
		if err := c.pods.Resolve(ctx); err != nil {
			c.log.Debug("volumes are not known", "error", err)
		}
	}
	out := &evict.Cluster{Pods: c.pods.List(in.Config.Protect)}
	c.seen = nil
	if !pressed && len(in.Memory.Marks) == 0 && c.clean {
		return out, in.Memory
	}
	node, err := c.getNode(ctx)
	out.Node = evict.ReadNode(node, err)
	if err != nil {
		return out, in.Memory
	}
	if c.uid != "" && c.uid != string(node.UID) {
		c.status.Reread() // another Node of the same name: its conditions are not ours yet
	}
	c.seen, c.uid = node, string(node.UID)
	if !c.adopted {
		c.adopted = true
		return out, in.Memory.Adopt(in.Time, evict.Owned(node))
	}
	return out, in.Memory
}

func met(l *plugins.Levels) bool {
	for _, v := range l.Verdicts {
		if v.Level > plugins.None {
			return true
		}
	}
	return false
}

// errUnmarked is why nobody is evicted without conditions.
var errUnmarked = errors.New("conditions.enabled is false")

// mark has the conditions written and writes the taints; the input that it
// returns says whether the API server has acknowledged them.
func (a *Agent) mark(ctx context.Context, in evict.Input, marks evict.Marks) evict.Input {
	c := a.cluster
	if c == nil {
		return in
	}
	unmarked := error(nil)
	if !a.Config.Current().Conditions.Enabled {
		marks, unmarked = evict.Marks{}, errUnmarked
	}
	if !c.adopted { // what the agent before this one wrote is not known yet
		in.Cluster.Marked = "the Node was not read yet"
		return in
	}
	c.hand(marks)
	if c.seen != nil {
		_, err := c.tainter.Apply(ctx, c.seen, marks.Taints)
		c.clean = err == nil && len(marks.Taints) == 0
		unmarked = errors.Join(unmarked, err)
	}
	if unmarked != nil {
		in.Cluster.Marked = unmarked.Error()
	}
	return in
}

// hand gives the conditions to the status loop, which writes them; a change at
// once.
func (c *cluster) hand(marks evict.Marks) {
	list := make([]lease.Condition, 0, len(marks.Conditions))
	for _, m := range marks.Conditions {
		list = append(list, lease.Condition(m))
	}
	before := c.conditions.Swap(&list)
	if before == nil {
		close(c.marked)
	} else if !reflect.DeepEqual(*before, list) {
		c.status.Wake()
	}
}

// asksPerRound is how many pods one round asks for when the API server grants
// none.
const asksPerRound = 5

// evict asks for the candidates, one after the other, until one is granted. It
// keeps each choice before it asks.
func (a *Agent) evict(ctx context.Context, in evict.Input, d *evict.Decision, m evict.Memory) evict.Memory {
	for range asksPerRound {
		i, some := d.Next()
		if !some {
			break
		}
		v := d.Victim(i, in.Config.MaxGrace)
		chosen := m.Choose(d, v)
		if err := a.cluster.store.Save(chosen); err != nil {
			d.Unsaved(err)
			return m
		}
		if !evict.Still(a.lookAgain(in), d, v) {
			d.Outdated()
			a.save(m)
			return m
		}
		answer := a.cluster.evictor.Evict(ctx, v, d.DryRun)
		a.Log.Info("asked for an eviction", "pod", v.Namespace+"/"+v.Name, "uid", v.UID, "dryRun", d.DryRun,
			"outcome", answer.Outcome, "code", answer.Code, "answer", answer.Text)
		d.Answered(i, answer)
		m = chosen.Answered(answer, in.Config.Settle)
	}
	d.Postpone()
	return m
}

// lookAgain is the input as it is by now, without asking anybody.
func (a *Agent) lookAgain(in evict.Input) evict.Input {
	in.Time, in.Levels = time.Now().UTC(), a.state.Load().Levels
	now := *in.Cluster
	now.Pods = a.cluster.pods.List(in.Config.Protect)
	in.Cluster = &now
	return in
}

// keep records what was decided and what became of earlier decisions, tells
// it, and remembers it for the next round and the next agent.
func (a *Agent) keep(in evict.Input, d evict.Decision, m evict.Memory) {
	if a.decisions.Add(d) {
		a.tell(d)
	}
	m, id, change := evict.Follow(in, m)
	if change != nil {
		a.decisions.Update(id, change)
	}
	before := a.memory
	a.memory = m
	if a.cluster != nil && !reflect.DeepEqual(before, m) {
		a.save(m)
	}
}

func (a *Agent) save(m evict.Memory) {
	if err := a.cluster.store.Save(m); err != nil {
		a.Log.Warn("what was decided is not kept over a restart", "error", err)
	}
}
