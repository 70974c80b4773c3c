package agent

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

// measured tells whether there are new levels. A round uses each sample once.
func (a *Agent) measured() bool {
	state := a.state.Load()
	return state != nil && state.Levels != a.judged
}

// soothe throttles data movers, before any pod is evicted.
func (a *Agent) soothe() {
	state, c := a.state.Load(), a.Config.Current()
	if a.cluster == nil || !c.VGDP.Enabled { // standalone, it is unknown which pods they are
		a.movers.off()
	} else {
		a.movers.round(state, c)
	}
	if a.cluster != nil && a.cluster.heart != nil {
		a.cluster.heart.tellLoads(a.movers.pressure(state.Levels.Time, c.VGDP.DryRun))
	}
}

// hear passes verdicts of outer plugins to the recording and the Lease.
func (a *Agent) hear(said []plugins.Verdict) {
	a.said.hear(said)
	if a.cluster != nil && a.cluster.heart != nil {
		a.cluster.heart.tellOuter(said)
	}
}

// answer tells the outer plugins which marks were refused.
func (a *Agent) answer(refused []evict.Refusal) {
	why := map[string]string{}
	for _, r := range refused {
		why[r.Plugin] = r.Why
	}
	a.outer.host.Unmarked(why)
}

// look observes: it gathers the newest levels, the outer plugins' verdicts and
// the present state of the cluster.
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

// look reads from the cluster what this round needs. It reads the Node only
// while a rule is met or the Node is marked, so that calm nodes send no
// requests.
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
		c.status.Reread() // a new Node with the same name: it lacks our conditions
		for _, h := range c.beats() {
			h.beat.Reread() // and it does not own our Lease
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

// errUnmarked: without conditions no pod is evicted.
var errUnmarked = errors.New("conditions.enabled is false")

// mark hands over the conditions and writes the taints. The returned input
// tells whether the API server has acknowledged them.
func (a *Agent) mark(ctx context.Context, in evict.Input, marks evict.Marks) evict.Input {
	c := a.cluster
	if c == nil {
		return in
	}
	unmarked := error(nil)
	if !a.Config.Current().Conditions.Enabled {
		marks, unmarked = evict.Marks{}, errUnmarked
	}
	if !c.adopted { // what an earlier agent wrote is not known yet
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

// hand passes the conditions to the status loop, which writes changes at once.
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

// evictor requests one eviction and returns the answer.
type evictor interface {
	Evict(ctx context.Context, v evict.Victim, dryRun bool) evict.Answer
}

// asks returns the evictor that is configured (eviction.via).
func (c *cluster) asks(via string) evictor {
	if via == evict.ViaController {
		return c.granter
	}
	return c.evictor
}

// asksPerRound is how many requests of a round may be refused.
const asksPerRound = 5

// evict requests evictions of the candidates, one after the other, until enough
// are accepted. It saves each choice before the request, so that a restart does
// not evict a second pod, unless the disk hangs.
func (a *Agent) evict(ctx context.Context, in evict.Input, d *evict.Decision, m evict.Memory) evict.Memory {
	for range asksPerRound + in.Config.Limits.PerRound - 1 {
		i, some := d.Next()
		if !some {
			break
		}
		chosen, v := m.Choose(in, d, i)
		if err := a.save(chosen); err != nil && !d.GoesUnkept(i, time.Since(a.unsaved)) {
			d.Unsaved(err)
			_ = a.save(m) // else the next agent repeats a request that this one never sent
			return m
		}
		now, holds := evict.Still(a.lookAgain(in), m, d, i)
		if !holds {
			d.Outdated()
			_ = a.save(now) // a failure is logged already
			poke(a.risen)   // the next round decides again, at once
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

// lookAgain is the input with the newest levels and pods; it sends no request.
func (a *Agent) lookAgain(in evict.Input) evict.Input {
	in = in.With(a.state.Load().Levels.Beside(outerOf(in.Levels)))
	in.Time, in.Uptime = time.Now().UTC(), uptime()
	now := *in.Cluster
	now.Pods = a.cluster.pods.List(in.Config.Protect)
	in.Cluster = &now
	return in
}

// note stores a new decision and publishes it.
func (a *Agent) note(d evict.Decision) {
	if a.decisions.Add(d) {
		a.tell(d)
		a.records.append(a.decisions.List()[0], a.Log)
	}
}

// keep records the outcome of earlier decisions and saves the state for the
// next round and the next agent.
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
		_ = a.save(m) // repeated each round until it succeeds
	}
}

// uptime is CLOCK_BOOTTIME, which cannot be set and runs through suspend.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // Linux has it since 2.6.39; without it token buckets do not refill
	}
	return time.Duration(t.Nano())
}

// keepWait bounds how long a round waits for the disk: many times what a
// working disk takes, and less than the time to the next round.
const keepWait = time.Second

// save writes the eviction state, and notes since when that fails.
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

// save waits no longer than keepWait for the disk.
func (c *cluster) save(m evict.Memory) error {
	save, err := c.store.Prepare(m)
	if err != nil {
		return err
	}
	return c.writer.Do(keepWait, save)
}
