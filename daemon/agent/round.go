package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/process"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/katalyst"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
)

// hasNewLevels tells whether there are new levels. A round uses each sample once.
func (a *Agent) hasNewLevels() bool {
	state := a.state.Load()
	return state != nil && state.Levels != a.lastJudged
}

// throttle throttles pods that cause a pressure, before any pod is evicted for it, by the
// newest sample that is not used yet; again: by one that is, too. It returns the newest state,
// and the relief that is expected from the limits that are in force then.
func (a *Agent) throttle(again bool) (*view.State, []evict.Relief) {
	a.throttling.Lock()
	defer a.throttling.Unlock()
	state, c := a.state.Load(), a.Config.Current()
	switch {
	case a.throttlingEnded || state == a.throttled && !again:
	case a.cluster == nil: // standalone, it is unknown which pods may be throttled
		a.throttles.disable()
	default:
		var list pods.List
		if a.throttles.needPods(state) {
			list = a.cluster.pods.List(c.Eviction.Protect)
		}
		a.throttles.round(state, c, list)
	}
	a.throttled = state
	return state, slices.Clone(a.throttles.relief)
}

// resize throttles the CPU of pods in the API. No throttle waits for it.
func (a *Agent) resize(ctx context.Context) {
	a.resizing.Lock()
	defer a.resizing.Unlock()
	if a.throttles.resize(ctx, &a.throttling) {
		a.throttle(true)
	}
}

// endTimeout bounds the removal of all limits at the end, but the last save.
const endTimeout = process.StopTimeout - saveTimeout - 500*time.Millisecond

// endThrottles removes every limit; none is made after it. It gives up on what hangs.
func (a *Agent) endThrottles() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	a.resizing.Lock()
	defer a.resizing.Unlock()
	a.throttling.Lock()
	defer a.throttling.Unlock()
	a.throttlingEnded = true
	if _, other := a.lock.known(); other != nil {
		return // the limits are that agent's
	}
	a.throttles.lift(ctx)
	c := *a.Config.Current()
	if a.lock != nil {
		c.State.Dir = a.lock.dir // that of the start
	}
	command := ReleaseCommand(&c)
	if left := a.throttles.limits(); len(left) > 0 {
		a.Log.Warn("gave up removing limits of throttled pods; the next agent removes them; if none is started, run the command on this machine as root", "limits", left, "command", command)
	}
	if a.throttles.late != nil {
		a.Log.Warn("cannot remove limits of throttled pods that an earlier agent left: the disk of the state directory hangs; the next agent removes them; if none is started, run the command on this machine as root when the disk answers", "command", command)
	}
}

// ReleaseCommand removes on this machine what an agent with this configuration has left.
func ReleaseCommand(c *config.Agent) string {
	node, err := NodeName(c)
	if err != nil {
		node = "NODE"
	}
	command := "plimsoll release --kubeconfig FILE --node " + node
	if c.Kubernetes.Standalone {
		command = "plimsoll release --config FILE --node " + node
	}
	if c.State.Dir != config.Default().State.Dir {
		command += " --state.dir " + c.State.Dir
	}
	return command
}

// adoptResizes takes over the resizes that an earlier agent recorded on the Node.
func (a *Agent) adoptResizes() {
	a.throttling.Lock()
	defer a.throttling.Unlock()
	a.throttles.resizes.adopt(a.cluster.nodeRead, a.Log)
}

// budgetMovers decides how many data movers may run on this node.
func (a *Agent) budgetMovers() {
	state, c := a.state.Load(), a.Config.Current()
	if a.cluster == nil || !c.VGDP.Enabled {
		a.movers.disable()
	} else {
		a.movers.round(state, &c.VGDP, c.Eviction.Protect.Namespaces)
	}
	if a.cluster != nil && a.cluster.heartbeat != nil {
		a.cluster.heartbeat.report.SetBudget(a.movers.pressure(state.Levels.Time, c.VGDP.DryRun))
	}
}

// recordVerdicts passes verdicts of outer plugins to the recording and the Lease.
func (a *Agent) recordVerdicts(said []plugins.Verdict) {
	a.outerVerdicts.set(said)
	if a.cluster != nil && a.cluster.heartbeat != nil {
		a.cluster.heartbeat.report.SetOuter(said, reportValid(a.Config.Current().Eviction.Round))
	}
}

// reportRefusals tells the outer plugins which marks were refused.
func (a *Agent) reportRefusals(refused []evict.Refusal) {
	why := map[string]string{}
	for _, r := range refused {
		why[r.Plugin] = r.Why
	}
	a.outer.host.Unmarked(why)
}

// observe observes: it gathers the newest levels, the outer plugins' verdicts and
// the present state of the cluster.
func (a *Agent) observe(ctx context.Context, said []plugins.Verdict) evict.Input {
	a.adoptState()
	state, relief := a.throttle(false)
	levels := state.Levels.With(said)
	c := a.Config.Current()
	a.observed = c
	in := evict.Input{
		Time: time.Now().UTC(), Uptime: uptime(), Boot: a.boot, Rules: plugins.Rules(c.Plugins.Inner), Levels: levels, Before: a.lastDecided,
		Config: c.Eviction, State: a.savedState, Contention: state.Snapshot.Contention, Relief: relief,
	}
	a.lastDecided, a.lastJudged = levels, state.Levels
	if a.cluster != nil {
		in.Cluster, in.State = a.cluster.observe(ctx, in)
		a.adoptResizes()
		in.State = a.cluster.cnr.adopt(ctx, in)
	}
	in.Standings = a.outer.standings(evict.NamingPlugins(in))
	return in
}

// observe reads from the cluster what this round needs. It reads the Node only
// while a rule is met or the Node is marked, so that calm nodes send no
// requests.
func (c *cluster) observe(ctx context.Context, in evict.Input) (*evict.Cluster, evict.State) {
	c.checkServed(ctx, in.Config.Via)
	pressed := anyMet(in.Levels) || len(in.State.Named) > 0
	if pressed {
		if err := c.pods.Resolve(ctx, evict.CandidatePods(in)); err != nil {
			c.log.Debug("cannot resolve the volumes of pods", "error", err)
		}
	}
	out := &evict.Cluster{Pods: c.pods.List(in.Config.Protect)}
	c.nodeRead = nil
	if !pressed && len(in.State.Marks) == 0 && c.unmarked {
		return out, in.State
	}
	node, err := c.getNode(ctx)
	out.Node = evict.ReadNode(node, err)
	if err != nil {
		return out, in.State
	}
	if c.uid != "" && c.uid != string(node.UID) {
		c.status.Reread() // a new Node with the same name: it lacks our conditions
		for _, h := range c.heartbeats() {
			h.beat.Reread() // and it does not own our Lease
		}
	}
	c.nodeRead, c.uid = node, string(node.UID)
	if !c.adopted {
		c.adopted = true
		return out, in.State.Adopt(in.Time, evict.Owned(node))
	}
	return out, in.State
}

func anyMet(l *plugins.Levels) bool {
	for _, v := range l.Verdicts {
		if v.Level > plugins.None {
			return true
		}
	}
	return false
}

// errConditionsDisabled: without conditions no pod is evicted.
var errConditionsDisabled = errors.New("conditions.enabled is false")

// writeMarks hands over the conditions and writes the taints. The returned input
// tells whether the API server has acknowledged them.
func (a *Agent) writeMarks(ctx context.Context, in evict.Input, marks evict.Marks) evict.Input {
	c := a.cluster
	if c == nil {
		return in
	}
	unmarked := error(nil)
	if !a.Config.Current().Conditions.Enabled {
		marks, unmarked = evict.Marks{}, errConditionsDisabled
	}
	if !c.adopted { // what an earlier agent wrote is not known yet
		in.Cluster.Unmarked = "the Node is not read yet"
		return in
	}
	c.setConditions(marks)
	c.cnr.mark(ctx, in.Time, marks.CNR)
	if c.nodeRead != nil {
		_, err := c.tainter.Apply(ctx, c.nodeRead, marks.Taints)
		c.unmarked = err == nil && len(marks.Taints) == 0
		unmarked = errors.Join(unmarked, err)
	}
	if unmarked != nil {
		in.Cluster.Unmarked = unmarked.Error()
	}
	return in
}

// setConditions passes the conditions to the status loop, which writes changes at once.
func (c *cluster) setConditions(marks evict.Marks) {
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

// evictorFor returns the evictor that is configured (eviction.via).
func (c *cluster) evictorFor(via string) agents.Evictor {
	switch via {
	case evict.ViaController:
		if c.heartbeat == nil {
			return withoutLease{c.evictor}
		}
		return c.requester
	case evict.ViaRequest:
		return c.requests
	}
	return c.evictor
}

// checkServed logs once that eviction.via asks for what the API server does not serve.
func (c *cluster) checkServed(ctx context.Context, via string) {
	if via != evict.ViaRequest {
		c.servedKnown = false
		return
	}
	if c.servedKnown {
		return
	}
	switch err := c.requests.Served(ctx); {
	case err == nil:
		c.servedKnown = true
	case errors.Is(err, kube.ErrNotServed):
		c.servedKnown = true
		c.log.Error("eviction.via is request, and no pod can be evicted", "error", err)
	default: // the API server did not answer; it is asked again in the next round
		c.log.Debug("cannot tell whether the API server serves EvictionRequests", "error", err)
	}
}

// withdraw withdraws the EvictionRequests that are wanted no longer. What fails is tried
// again in the next round.
func (a *Agent) withdraw(ctx context.Context, in evict.Input, m evict.State) evict.State {
	if a.cluster == nil {
		return m
	}
	m, list, changes := evict.Withdrawals(in, m)
	a.changeDecisions(changes)
	for _, v := range list {
		if err := a.cluster.requests.Withdraw(ctx, v); err != nil {
			a.Log.Warn("cannot withdraw an EvictionRequest; trying again in the next round", "pod", v.Namespace+"/"+v.Name, "uid", v.UID, "error", err)
			break // the others would have to wait as long
		}
		a.Log.Info("withdrew EvictionRequest", "pod", v.Namespace+"/"+v.Name, "uid", v.UID)
		m = m.Withdrawn(v.UID)
	}
	return m
}

// maxRefusedPerRound is how many requests of a round may be refused.
const maxRefusedPerRound = 5

// evict requests evictions of the candidates, one after the other, until enough
// are accepted. It saves each choice before the request, so that a restart does
// not evict a second pod, unless the disk hangs.
func (a *Agent) evict(ctx context.Context, in evict.Input, d *evict.Decision, m evict.State) evict.State {
	for left := maxRefusedPerRound + in.Config.Limits.PerRound - 1; left > 0; {
		i, some := d.Next()
		if !some {
			break
		}
		chosen, v := m.RecordChoice(in, d, i)
		if err := a.writeState(chosen); err != nil && !d.EvictUnsaved(i, time.Since(a.unsaved.Load().start)) {
			d.StateNotSaved(err)
			_ = a.writeState(m) // else the next agent repeats a request that this one never sent
			return m
		}
		now, holds := evict.Recheck(a.recheckInput(in), m, d, i)
		if !holds || a.Config.Current() != a.observed { // a reload may have switched eviction off
			_ = a.writeState(now) // a failure is logged already
			if d.Candidates[i].Code != evict.CodeNext {
				continue // this pod alone is skipped, and no request was sent
			}
			d.Outdated()
			wake(a.levelRose) // the next round decides again, at once
			return now
		}
		left--
		answer := a.cluster.evictorFor(in.Config.Via).Evict(ctx, v, d.DryRun)
		a.Log.Info("requested eviction", "pod", v.Namespace+"/"+v.Name, "uid", v.UID, "dryRun", d.DryRun,
			"outcome", answer.Outcome, "code", answer.Code, "answer", answer.Text)
		d.RecordAnswer(i, answer)
		m = chosen.RecordAnswer(answer, in.Config)
		d.More(in, m)
	}
	d.Postpone()
	return m
}

// recheckInput is the input with the newest levels, pods and standings; it sends no request.
func (a *Agent) recheckInput(in evict.Input) evict.Input {
	in = in.WithLevels(a.state.Load().Levels.With(outerOf(in.Levels)))
	in.Time, in.Uptime = time.Now().UTC(), uptime()
	now := *in.Cluster
	now.Pods = a.cluster.pods.List(in.Config.Protect)
	in.Cluster = &now
	in.Standings = a.outer.standings(evict.NamingPlugins(in))
	return in
}

// logDecision stores a new decision and publishes it.
func (a *Agent) logDecision(d evict.Decision) {
	if a.decisions.Add(d) {
		a.publishDecision(d)
		a.records.append(a.decisions.List()[0], a.Log)
	}
}

// saveState records the outcome of earlier decisions and saves the state for the
// next round and the next agent.
func (a *Agent) saveState(in evict.Input, m evict.State) {
	m, changes := evict.Follow(in, m)
	a.changeDecisions(changes)
	before := a.savedState
	a.savedState = m
	due := a.unsaved.Load() != nil || time.Since(a.savedAt) >= saveInterval
	if a.cluster != nil && (due || !reflect.DeepEqual(before, m)) {
		_ = a.writeState(m) // repeated each round until it succeeds
	}
}

// saveLast saves the eviction state once more at the end, where the last save has failed. What
// the disk does not write in time is left to flush.
func (a *Agent) saveLast() {
	if a.cluster == nil || a.unsaved.Load() == nil {
		return
	}
	a.adoptState()
	if err := a.writeState(a.savedState); err != nil && (a.cluster.late != nil || !errors.Is(err, state.ErrTimeout)) {
		a.Log.Warn("the newest eviction state is not saved: the next agent knows an older one, and may evict one more; make the disk of the state directory writable before it starts", "file", a.cluster.store.Path, "error", err)
	}
}

// adoptState takes over the eviction state of an earlier agent where the disk has answered late.
func (a *Agent) adoptState() {
	if a.cluster == nil || a.cluster.late == nil {
		return
	}
	if saved, loaded := a.takeState(); loaded {
		a.savedState = a.savedState.AdoptSaved(saved)
		a.Log.Info("the disk of the state directory answers; the saved eviction state is taken over")
	}
}

// saveInterval is how often the state is written although it has not changed: that the disk
// takes no writes must be known before a pod is to be evicted.
const saveInterval = 5 * time.Minute

// changeDecisions updates stored decisions.
func (a *Agent) changeDecisions(changes []evict.Change) {
	for _, c := range changes {
		if d, changed := a.decisions.Update(c.Decision, c.Apply); changed {
			a.records.append(d, a.Log)
		}
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

// saveTimeout bounds how long a round waits for the disk: many times what a
// working disk takes, and less than the time to the next round.
const saveTimeout = time.Second

// unsaved is since when the eviction state cannot be saved, and why.
type unsaved struct {
	start time.Time
	why   string
}

// since is how long it has not been saved; 0 where it is.
func (u *unsaved) since() (seconds float64, why string) {
	if u == nil {
		return 0, ""
	}
	return time.Since(u.start).Seconds(), u.why
}

// writeState writes the eviction state, and notes since when that fails.
func (a *Agent) writeState(m evict.State) error {
	err := a.cluster.writeState(m)
	was := a.unsaved.Load()
	switch {
	case err == nil:
		a.savedAt = time.Now()
		a.unsaved.Store(nil)
	case was == nil:
		a.unsaved.Store(&unsaved{time.Now(), err.Error()})
		a.Log.Warn("cannot save the eviction state: until it is saved a pod is evicted only after a minute, or at once where memory is below its floor, and a restarted agent may evict one more; make the disk of the state directory writable", "file", a.cluster.store.Path, "error", err)
	default:
		a.unsaved.Store(&unsaved{was.start, err.Error()})
	}
	if was != nil && err == nil {
		a.Log.Info("the eviction state is saved again", "file", a.cluster.store.Path, "after", time.Since(was.start).Round(time.Second))
	}
	return err
}

const (
	// maxMessageBytes is the 4 MiB that a gRPC server accepts, less what a request
	// carries besides the pods.
	maxMessageBytes = 4<<20 - 64<<10
	// hardDeadline is how long a round waits for outer plugins while an inner
	// plugin is at hard; later answers are used in the next round.
	hardDeadline = 200 * time.Millisecond
	// answerMaxRounds is for how many rounds a plugin's last answer is used, but no
	// shorter than answerMinAge.
	answerMaxRounds = 3
	answerMinAge    = 15 * time.Second
)

// askPlugins asks the outer plugins. A level that rises meanwhile ends the waiting, so
// that the round can act on it.
func (a *Agent) askPlugins(ctx context.Context) []plugins.Verdict {
	c := a.Config.Current()
	r := outer.Round{Time: time.Now().UTC(), Unevictable: a.unevictable, Graces: a.outer, MaxAge: max(answerMinAge, answerMaxRounds*c.Eviction.Round), EvictAge: c.Eviction.OldestMeasurement()}
	if a.cluster != nil {
		if !a.cluster.pods.Synced() {
			return nil // without the pods no answer can be used
		}
		for _, p := range a.cluster.pods.Encoded(maxMessageBytes) {
			r.Pods = append(r.Pods, katalyst.Pod{UID: p.UID, Wire: p.Bytes, Annotations: p.Annotations})
		}
		r.Disruptions = func(ctx context.Context, uids []string) map[string]katalyst.Disruption {
			known := map[string]katalyst.Disruption{}
			for uid, d := range a.cluster.disruptions.Of(ctx, r.Time, uids) {
				known[uid] = katalyst.Disruption(d)
			}
			return known
		}
	}
	wait := c.Plugins.Deadline
	if slices.ContainsFunc(a.state.Load().Levels.Verdicts, func(v plugins.Verdict) bool { return v.MetLevel == plugins.Hard }) {
		wait = min(wait, hardDeadline)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case <-ctx.Done():
		case <-a.levelRose:
			cancel()
		}
	}()
	defer func() { cancel(); <-heard }() // otherwise it would take the loop's next signal
	return a.outer.host.Ask(ctx, r)
}

// reportContention passes the contention of the newest state on to the Lease.
func (a *Agent) reportContention() {
	if a.cluster == nil || a.cluster.heartbeat == nil {
		return
	}
	state := a.state.Load()
	if slices.ContainsFunc(state.Snapshot.Contention, func(c snapshot.Contention) bool { return c.State == snapshot.ContentionPresent }) {
		state = state.WithCluster(a.viewCluster(), nil) // for the names of pods
	}
	a.cluster.heartbeat.setContention(contentionReport(state), reportValid(a.Config.Current().Eviction.Round))
}

// publishDecision publishes a decision to the log, the metrics and, in a cluster, the
// Events of the pod and the Node.
func (a *Agent) publishDecision(d evict.Decision) {
	a.counters.Count(&d)
	for _, c := range d.Causes {
		a.Log.Info("decision", "id", d.ID, "plugin", c.Plugin, "scope", c.Scope, "level", c.Level.String(), "reason", c.Reason,
			"outcome", string(d.Code), "because", d.Reason, "candidates", len(d.Candidates))
	}
	if a.cluster == nil {
		return
	}
	reason := eventDecision
	for _, c := range d.Evicted() {
		reason = eventOf(c.Code)
		a.cluster.events.Pod(evict.Victim{UID: c.Pod.UID, Namespace: c.Pod.Namespace, Name: c.Pod.Name},
			corev1.EventTypeWarning, reason, fmt.Sprintf("%s %s: %s", a.cluster.node, d.Level(), decisionText(d)))
	}
	a.cluster.events.Node(a.cluster.uid, reason, decisionText(d))
}
