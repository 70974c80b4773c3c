package daemon

import (
	"context"
	"errors"
	"reflect"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// measured: there is something new to decide by. What the inner plugins said is
// used once.
func (a *Agent) measured() bool {
	state := a.state.Load()
	return state != nil && state.Levels != a.judged
}

// soothe has data movers give way before anybody is evicted.
func (a *Agent) soothe() {
	state, c := a.state.Load(), a.Config.Current()
	if a.cluster == nil || !c.VGDP.Enabled { // without a cluster nobody knows which pods they are
		a.movers.off()
	} else {
		a.movers.round(state, c)
	}
	if a.cluster != nil && a.cluster.heart != nil {
		a.cluster.heart.tellLoads(a.movers.pressure(state.Levels.Time, c.VGDP.DryRun))
	}
}

// hear hands on what outer plugins said, for the recording and the Lease.
func (a *Agent) hear(said []plugins.Verdict) {
	a.said.hear(said)
	if a.cluster != nil && a.cluster.heart != nil {
		a.cluster.heart.tellOuter(said)
	}
}

// answer tells outer plugins' side what was refused of that.
func (a *Agent) answer(refused []evict.Refusal) {
	why := map[string]string{}
	for _, r := range refused {
		why[r.Plugin] = r.Why
	}
	a.outer.host.Unmarked(why)
}

// look gathers what a round decides by: the newest levels with what the outer
// plugins said, and the cluster as it is now.
func (a *Agent) look(ctx context.Context, said []plugins.Verdict) evict.Input {
	state := a.state.Load()
	levels := state.Levels.Beside(said)
	c := a.Config.Current()
	in := evict.Input{
		Time: time.Now().UTC(), Uptime: uptime(), Boot: a.boot, Rules: plugins.Rules(c.Plugins.Inner), Levels: levels, Before: a.before,
		Config: c.Eviction, Memory: a.memory, Contention: state.Snapshot.Contention, Relief: a.movers.relief,
	}
	a.before, a.judged = levels, state.Levels
	if a.cluster != nil {
		in.Cluster, in.Memory = a.cluster.look(ctx, in)
		in.Memory = a.cluster.cnr.adopt(ctx, in)
	}
	return in
}

// look reads of the cluster what this round needs: of the Node only while
// something is met or marked, so that a calm node asks nothing.
func (c *cluster) look(ctx context.Context, in evict.Input) (*evict.Cluster, evict.Memory) {
	pressed := met(in.Levels) || len(in.Memory.Forced) > 0
	if pressed {
		if err := c.pods.Resolve(ctx, evict.Named(in)); err != nil {
			c.log.Debug("cannot resolve the volumes of pods", "error", err)
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
		for _, h := range c.beats() {
			h.beat.Reread() // nor does it own our Lease
		}
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
		in.Cluster.Marked = "the Node is not read yet"
		return in
	}
	c.hand(marks)
	c.cnr.mark(ctx, in.Time, marks.CNR)
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

// evictor asks for one eviction and says what was answered.
type evictor interface {
	Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer
}

// asks is who evicts, as it is configured.
func (c *cluster) asks(via string) evictor {
	if via == evict.ViaController {
		return c.granter
	}
	return c.evictor
}

// asksPerRound is how many pods one round asks for, beside those that the API
// server grants.
const asksPerRound = 5

// evict asks for the candidates, one after the other, until enough are granted.
// It keeps each choice before it asks, unless the disk does not take it.
func (a *Agent) evict(ctx context.Context, in evict.Input, d *evict.Decision, m evict.Memory) evict.Memory {
	for range asksPerRound + in.Config.Limits.PerRound - 1 {
		i, some := d.Next()
		if !some {
			break
		}
		chosen, v := m.Choose(in, d, i)
		if err := a.save(chosen); err != nil && !d.GoesUnkept(i, time.Since(a.unsaved)) {
			d.Unsaved(err)
			_ = a.save(m) // or the next agent asks for a pod that this one did not
			return m
		}
		now, holds := evict.Still(a.lookAgain(in), m, d, i)
		if !holds {
			d.Outdated()
			_ = a.save(now) // it was said already that it is not kept
			poke(a.risen)   // the next round decides anew, at once
			return now
		}
		answer := a.cluster.asks(in.Config.Via).Evict(ctx, v, d.DryRun)
		a.Log.Info("requested eviction", "pod", v.Namespace+"/"+v.Name, "uid", v.UID, "dryRun", d.DryRun,
			"outcome", answer.Outcome, "code", answer.Code, "answer", answer.Text)
		d.Answered(i, answer)
		m = chosen.Answered(answer, in.Config)
		d.More(in, m)
	}
	d.Postpone()
	return m
}

// lookAgain is the input as it is by now, without asking anybody.
func (a *Agent) lookAgain(in evict.Input) evict.Input {
	in = in.With(a.state.Load().Levels.Beside(outerOf(in.Levels)))
	in.Time, in.Uptime = time.Now().UTC(), uptime()
	now := *in.Cluster
	now.Pods = a.cluster.pods.List(in.Config.Protect)
	in.Cluster = &now
	return in
}

// note keeps what was decided, and tells it.
func (a *Agent) note(d evict.Decision) {
	if a.decisions.Add(d) {
		a.tell(d)
		a.records.append(a.decisions.List()[0], a.Log)
	}
}

// keep records what became of earlier decisions, and remembers all for the next
// round and the next agent.
func (a *Agent) keep(in evict.Input, m evict.Memory) {
	m, changes := evict.Follow(in, m)
	for _, c := range changes {
		if d, changed := a.decisions.Update(c.Decision, c.Make); changed {
			a.records.append(d, a.Log)
		}
	}
	before := a.memory
	a.memory = m
	if a.cluster != nil && (!a.unsaved.IsZero() || !reflect.DeepEqual(before, m)) {
		_ = a.save(m) // until it is
	}
}

// uptime is CLOCK_BOOTTIME: nobody can set it, and it runs through suspend.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // Linux has it since 2.6.39: then budgets stay as they are
	}
	return time.Duration(t.Nano())
}

// keepWait is how long a round waits for what is to be kept: many times what a
// disk takes that answers, and short enough that a round ends before the next.
const keepWait = time.Second

// save what the next agent must know, and since when that cannot be done.
func (a *Agent) save(m evict.Memory) error {
	err := a.cluster.save(m)
	switch {
	case err == nil:
		a.unsaved = time.Time{}
	case a.unsaved.IsZero():
		a.unsaved = time.Now()
		a.Log.Warn("cannot save eviction state", "error", err)
	}
	return err
}

// save waits for a disk that hangs no longer than keepWait.
func (c *cluster) save(m evict.Memory) error {
	save, err := c.store.Prepare(m)
	if err != nil {
		return err
	}
	return c.writer.Do(keepWait, save)
}
