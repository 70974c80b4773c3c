package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// throttles slows down the pods of this node that cause a pressure. Agent.throttling guards
// it, except shown, cgroups, and what the writer sets.
type throttles struct {
	saveTimeout time.Duration // how long a round waits for the disk
	boot        string        // boot ID; empty: unknown
	booted      time.Time     // when that was, by the wall clock; zero: not known yet
	log         *slog.Logger
	file        state.File[savedThrottles]
	writer      state.Writer // of file
	lock        *StateLock   // of the directory of file
	// late brings what an earlier agent saved, once the disk answers; nil: it is known. Until
	// then no limit is touched, since it would look like another program's.
	late    <-chan state.Answer[savedThrottles]
	journal throttle.Journal
	tree    throttle.Tree // of the journal
	resizes resizes
	list    map[throttle.Target]throttle.Throttle
	// devices are the numbers of disks by name, and titles the names of workloads by
	// cgroup, both of the newest sample.
	devices, titles map[string]string
	relief          []evict.Relief
	pressures       map[pressure]relieved
	last            resizeInput    // of the last round
	saved           savedThrottles // what the file holds, as far as that is known
	// queued is the newest save. The writer sets ended, the save that ended last, and inFile, the last
	// that succeeded: a save that takes longer than a round waits counts in a later one.
	queued        *savedThrottles
	ended, inFile atomic.Pointer[savedThrottles]
	logged        string // the problem that was logged last
	told          map[throttle.Target]announced
	// event tells the owner of a pod; nil: there is no cluster.
	event func(pod evict.Victim, kind, reason, text string)
	// ofNamespace is the label of a namespace.
	ofNamespace func(namespace string) string

	shown atomic.Pointer[view.Throttles]
	// cgroups that have a limit of Plimsoll, and of what, for the sample loop.
	cgroups atomic.Pointer[map[string][]snapshot.SharedResource]
}

// pressure on a resource, as verdicts tell it.
type pressure struct {
	resource plugins.Resource
	scope    string
}

// relieved tells since when pods are throttled for a pressure, at the highest level that it has
// reached; zero: not yet.
type relieved struct {
	level plugins.Level
	since time.Time
}

// announced is a throttle that was announced, whether as a dry run, and by which name.
type announced struct {
	dryRun bool
	name   string
}

// expire removes what an earlier agent left, once all of it has expired: this agent may end
// before its first round.
func (m *throttles) expire(now, booted time.Time) {
	if !m.read() {
		return
	}
	m.list = throttle.Unexpired(m.list, now, booted)
	if len(m.list) > 0 || len(m.journal.Limits) == 0 {
		return
	}
	err := errors.Join(m.journal.Set(nil), m.saveIfChanged())
	if gone := m.journal.Restored; len(gone) > 0 {
		m.log.Info("removed limits of throttled pods, which an earlier agent left and did not renew", "limits", gone)
	}
	m.publishCgroups()
	m.logProblem(err)
}

// needPods says whether a round may throttle any, so that calm nodes list none.
func (m *throttles) needPods(s *view.State) bool {
	return m.late != nil || anyMet(s.Levels) || throttle.RunsOut(s.Snapshot, s.Levels) || len(m.list) > 0
}

// round decides from the newest sample and applies the limits, but those of the API.
func (m *throttles) round(s *view.State, c *config.Agent, list pods.List) {
	if !m.read() {
		return
	}
	workloads := c.Throttleable(s.Snapshot, list, m.ofNamespace)
	m.devices, m.titles = deviceNumbers(s.Snapshot), titles(s.Snapshot)
	in := throttle.NewInput(s.Snapshot, s.Levels, workloads, m.list)
	m.followClock(in.Booted)
	in.Resizing = m.resizes.resizing
	in.Unwritten, in.Pending = m.unwritten(workloads)
	m.list = throttle.Next(m.list, in)
	m.last = resizeInput{in.Time, m.booted, workloads, podsOf(s.Snapshot, list)}
	err := errors.Join(m.setCgroups(workloads), m.resizes.failed)
	m.publishCgroups()
	m.relief = m.reliefOf(s.Levels, workloads, c.Eviction.ReliefWait)
	m.announce(s, workloads)
	err = errors.Join(err, m.saveIfChanged())
	m.show(in, c, err)
}

// followClock moves the times that are kept here with a wall clock that was set.
func (m *throttles) followClock(booted time.Time) {
	by := throttle.ClockSet(&m.booted, booted)
	for i := range m.relief {
		m.relief[i].Since = m.relief[i].Since.Add(by)
	}
	for p, of := range m.pressures {
		if !of.since.IsZero() {
			m.pressures[p] = relieved{of.level, of.since.Add(by)}
		}
	}
	m.resizes.moveTimes(by)
}

// setCgroups writes the limits of cgroups, but of pods that are resized. A pod keeps the limits
// that it has while it, or the label of its namespace, is not listed yet: whether it may get
// one is not known.
func (m *throttles) setCgroups(workloads map[string]throttle.Workload) error {
	written := map[throttle.Target]throttle.Throttle{}
	for t, c := range m.list {
		w, listed := workloads[t.Cgroup]
		resized := t.Resource() == snapshot.SharedCPU && (c.UndecidedResize(t, &w) || m.resizes.holds(t.Cgroup))
		if !w.DryRun && !resized && (listed && !w.Unlisted || slices.ContainsFunc(m.limitsOf(t), isKept)) {
			written[t] = c
		}
	}
	return m.journal.Set(throttle.Limits(written, m.devices, m.tree.IOCgroups))
}

// resize applies the limits of the API that the last round wants. It takes lock, but waits for
// the API server without it. due: another round is, as it changed what is known.
func (m *throttles) resize(ctx context.Context, lock sync.Locker) (due bool) {
	lock.Lock()
	next, list, last, known := m.resizes.clone(), maps.Clone(m.list), m.last, m.late == nil
	lock.Unlock()
	if !known || !next.round(ctx, list, last) {
		return false
	}
	lock.Lock()
	defer lock.Unlock()
	next.moveTimes(throttle.ClockSet(&last.booted, m.booted))
	m.resizes = next
	for t, c := range m.list {
		if w, of := last.workloads[t.Cgroup], list[t]; c.UndecidedResize(t, &w) || c.Resized && of.NotResized != "" {
			c.Resized, c.NotResized = of.Resized, of.NotResized
			m.list[t] = c
		}
	}
	return true
}

// podsOf returns the listed pod of a cgroup.
func podsOf(s *snapshot.Snapshot, list pods.List) podOf {
	return func(cgroup string) (throttle.Container, bool) {
		i := slices.IndexFunc(s.Workloads, func(w snapshot.WorkloadState) bool { return w.Cgroup == cgroup })
		if i < 0 {
			return throttle.Container{}, false
		}
		p, listed := list.ByCgroupUID(s.Workloads[i].PodUID)
		return throttle.Container{Namespace: p.Namespace, Pod: p.Name, UID: p.UID}, listed
	}
}

// limits are all of ours.
func (m *throttles) limits() []throttle.Limit {
	return slices.Concat(m.journal.Limits, m.resizes.journal.Limits)
}

// lift removes every limit from the kernel and the API. It forgets the throttles too, because the
// next agent decides from its own samples. For the API it takes no longer than ctx.
func (m *throttles) lift(ctx context.Context) {
	if !m.read() {
		return
	}
	told := maps.Clone(m.told)
	clear(m.list)
	clear(m.told)
	m.relief = nil
	if len(m.limits()) == 0 && len(m.saved.Throttles) == 0 {
		return
	}
	err := errors.Join(m.journal.Set(nil), m.resizes.lift(ctx), m.saveIfChanged())
	m.publishCgroups()
	m.logProblem(err)
	for _, t := range targets(told) {
		if !m.limited(t) {
			m.log.Info("pod no longer throttled", "pod", cmp.Or(told[t].name, m.titles[t.Cgroup], t.Cgroup), "disk", t.Disk, "reason", released(t, "the agent ends, or there is no cluster"), "resource", t.Resource(), "dryRun", told[t].dryRun)
		}
	}
}

// disable removes every limit where no pod is known.
func (m *throttles) disable() {
	m.lift(context.Background())
	m.shown.Store(nil)
}

// deviceNumbers are the device numbers of disks by name.
func deviceNumbers(s *snapshot.Snapshot) map[string]string {
	list := make(map[string]string, len(s.Disks))
	for i := range s.Disks {
		list[s.Disks[i].Name] = s.Disks[i].Number
	}
	return list
}

// titles are the names of workloads by cgroup.
func titles(s *snapshot.Snapshot) map[string]string {
	list := make(map[string]string, len(s.Workloads))
	for i := range s.Workloads {
		list[s.Workloads[i].Cgroup] = s.Workloads[i].Title()
	}
	return list
}

// publishCgroups publishes the cgroups that have a limit of Plimsoll to the sample loop.
func (m *throttles) publishCgroups() {
	cgroups := map[string][]snapshot.SharedResource{}
	for _, l := range m.limits() {
		if of := l.Resource(); l.InForce() && !slices.Contains(cgroups[l.Cgroup], of) {
			cgroups[l.Cgroup] = append(cgroups[l.Cgroup], of)
		}
	}
	m.cgroups.Store(&cgroups)
}

// holdsMemory tells whether the memory of a cgroup is limited.
func (m *throttles) holdsMemory() bool {
	for _, of := range *m.cgroups.Load() {
		if slices.Contains(of, snapshot.SharedMemory) {
			return true
		}
	}
	return false
}

func targets[T any](list map[throttle.Target]T) []throttle.Target {
	return slices.SortedFunc(maps.Keys(list), throttle.Target.Compare)
}

// inForce are the targets whose limit is written.
func (m *throttles) inForce() (list []throttle.Target) {
	for _, t := range targets(m.list) {
		if m.limited(t) {
			list = append(list, t)
		}
	}
	return list
}

// limited tells whether a limit of a target is in force.
func (m *throttles) limited(t throttle.Target) bool {
	return slices.ContainsFunc(m.limitsOf(t), throttle.Limit.InForce)
}

// pending tells whether the limit in force of a target is an earlier one, since the newest could not
// be written.
func (m *throttles) pending(t throttle.Target) bool {
	unread := slices.Concat(m.journal.Unread, m.resizes.journal.Unread)
	return m.limited(t) && slices.ContainsFunc(m.limitsOf(t), func(l throttle.Limit) bool {
		return isUnwritten(l) && isKept(l) || slices.Contains(unread, l.Knob)
	})
}

// unwritten are the targets without a limit in force, though they are to have one, and pending those
// with an earlier one.
func (m *throttles) unwritten(workloads map[string]throttle.Workload) (none, pending map[throttle.Target]bool) {
	none, pending = map[throttle.Target]bool{}, map[throttle.Target]bool{}
	for t, c := range m.list {
		if c.InForce() && !workloads[t.Cgroup].DryRun {
			none[t], pending[t] = !m.limited(t), m.pending(t)
		}
	}
	return none, pending
}

// isKept tells whether a limit is the agent's, and not being removed.
func isKept(l throttle.Limit) bool { return !l.Restores() }

func foreign(l throttle.Limit) bool { return l.Foreign }

// limitsOf are the limits of a target.
func (m *throttles) limitsOf(t throttle.Target) (list []throttle.Limit) {
	for _, l := range m.limits() {
		if l.Cgroup == t.Cgroup && l.Resource() == t.Resource() && (t.Disk == "" || l.Device == m.devices[t.Disk]) {
			list = append(list, l)
		}
	}
	return list
}

// followPressures takes the levels that were reached. What becomes hard waits for throttles anew:
// soft may have lasted for long.
func (m *throttles) followPressures(l *plugins.Levels) {
	now := map[pressure]relieved{}
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		if p := (pressure{v.Resource, v.Scope}); v.Level > now[p].level {
			now[p] = relieved{level: v.Level}
		}
	}
	for p := range now {
		if before := m.pressures[p]; before.level >= now[p].level {
			now[p] = before
		}
	}
	m.pressures = now
}

// reliefUntil is until when evictions wait for throttles that relieve a pressure from now on at
// the latest: as long as one may become tighter, counted from the first of them. Another pod
// that becomes a culprit postpones no eviction further, or pods could do that by turns for ever.
func (m *throttles) reliefUntil(p pressure, now time.Time, wait time.Duration) time.Time {
	of := m.pressures[p]
	if of.since.IsZero() {
		of.since = now
		m.pressures[p] = of
	}
	return of.since.Add(throttle.TriesFor + wait)
}

// reliefOf is the relief expected from the limits in force, by resource and scope: for
// wait, and as long as one of them may still become tighter, within bounds. It keeps the time at
// which a relief began.
func (m *throttles) reliefOf(l *plugins.Levels, workloads map[string]throttle.Workload, wait time.Duration) (list []evict.Relief) {
	m.followPressures(l)
	inForce := m.inForce()
	for i := range l.Verdicts {
		v := &l.Verdicts[i]
		same := func(r evict.Relief) bool { return r.Resource == v.Resource && r.Scope == v.Scope }
		relieving, tries := m.relieve(inForce, workloads, v, l.Time)
		if len(relieving) == 0 || v.Level == plugins.None || slices.ContainsFunc(list, same) {
			continue
		}
		r := evict.Relief{Resource: v.Resource, Scope: v.Scope, Since: l.Time, Action: "throttled: " + m.name(relieving)}
		if i := slices.IndexFunc(m.relief, same); i >= 0 {
			r.Since = m.relief[i].Since
		}
		r.Until = r.Since.Add(wait)
		if tries && r.Until.Before(l.Time.Add(wait)) {
			r.Until = l.Time.Add(wait)
		}
		if last := m.reliefUntil(pressure{v.Resource, v.Scope}, l.Time, wait); r.Until.After(last) {
			r.Until = last
		}
		list = append(list, r)
	}
	return list
}

// relieve returns the limits that relieve what a verdict is about; tries: one of them may
// still become tighter.
func (m *throttles) relieve(inForce []throttle.Target, workloads map[string]throttle.Workload, v *plugins.Verdict, now time.Time) (list []throttle.Target, tries bool) {
	for _, t := range inForce {
		if w := workloads[t.Cgroup]; w.Relieves(t, v) {
			c := m.list[t]
			list, tries = append(list, t), tries || c.Tries(now)
		}
	}
	return list, tries
}

// maxNamed bounds the pods in the reason of a decision.
const maxNamed = 3

// name the pods of some targets, with their limits.
func (m *throttles) name(list []throttle.Target) string {
	var texts []string
	for _, t := range list[:min(len(list), maxNamed)] {
		shown := m.throttled(t, throttle.Workload{})
		texts = append(texts, view.Printable(shown.Name)+" ("+shown.Limited()+")")
	}
	if more := len(list) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// throttled is a throttle for people, with the limit in force.
func (m *throttles) throttled(t throttle.Target, w throttle.Workload) view.Throttled {
	c := m.list[t]
	if m.pending(t) {
		c = c.AsWritten(m.limitsOf(t))
	}
	return view.Throttled{
		Cgroup: t.Cgroup, Name: m.titles[t.Cgroup], Disk: t.Disk, Memory: t.Memory, Percent: c.Allowed(), Limit: c.Limits(), Reason: c.Why,
		Expires: c.Expires, Until: c.Until(&w), Mover: w.Mover, DryRun: w.DryRun, Resized: c.Resized, NotResized: c.NotResized,
	}
}

func (m *throttles) show(in throttle.Input, c *config.Agent, err error) {
	v := &view.Throttles{DryRun: c.Throttle.DryRun || !c.Throttle.Enabled}
	for _, t := range targets(m.list) {
		of, w, limits := m.list[t], in.Workloads[t.Cgroup], m.limitsOf(t)
		if !of.InForce() {
			continue
		}
		shown := m.throttled(t, w)
		shown.Foreign = slices.ContainsFunc(limits, foreign)
		switch {
		case w.DryRun || shown.Foreign || m.limited(t):
			v.Throttled = append(v.Throttled, shown)
		case !w.Unlisted:
			v.Exempt = append(v.Exempt, view.NotThrottled{Cgroup: t.Cgroup, Name: shown.Name, Disk: t.Disk, Memory: t.Memory, Reason: notWritten(limits, err)})
		}
	}
	for _, e := range throttle.Exempted(m.list, in) {
		v.Exempt = append(v.Exempt, view.NotThrottled{Cgroup: e.Cgroup, Name: m.titles[e.Cgroup], Disk: e.Disk, Memory: e.Memory, Reason: e.Why})
	}
	if err != nil {
		v.Problem = err.Error()
	}
	m.shown.Store(v)
	m.logProblem(err)
}

// notWritten is why a throttle has no limit.
func notWritten(limits []throttle.Limit, err error) string {
	switch {
	case len(limits) > 0:
		return "its limit could not be written"
	case err != nil:
		return "its limit could not be written, or its cgroup has one that is as tight"
	}
	return "its cgroup has a limit that is as tight, or its disk is gone"
}

func (m *throttles) logProblem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != m.logged && text != "" {
		m.log.Warn("failed to apply the limits of throttled pods; retrying", "error", err)
	}
	m.logged = text
}

// Reasons of the Events about a throttled pod.
const (
	eventThrottled = "Throttled"
	eventReleased  = "ThrottleReleased"
)

// announce tells in the log, and the owners by Events, which throttles began and ended.
// A dry run is told in the log alone, and a limit that could not be written not at all.
func (m *throttles) announce(s *view.State, workloads map[string]throttle.Workload) {
	for _, t := range targets(m.list) {
		now, dryRun := m.list[t], workloads[t.Cgroup].DryRun
		if was, told := m.told[t]; now.InForce() && (dryRun || m.limited(t)) && (!told || was.dryRun && !dryRun) {
			m.told[t] = announced{dryRun, m.titles[t.Cgroup]}
			shown := m.throttled(t, workloads[t.Cgroup])
			m.tell(s, t, dryRun, eventThrottled, shown.Sentence())
		}
	}
	for _, t := range targets(m.told) {
		now, was := m.list[t], m.told[t]
		onlyDryRun := workloads[t.Cgroup].DryRun && !was.dryRun && !m.limited(t)
		if now.InForce() && !onlyDryRun {
			continue
		}
		why := "the pressure is over, or it may not be throttled any more"
		switch {
		case onlyDryRun:
			why = "it is a dry run now"
		case now.UselessUntil.After(s.Levels.Time):
			why = now.NotAgain()
		case !slices.ContainsFunc(s.Snapshot.Workloads, func(w snapshot.WorkloadState) bool { return w.Cgroup == t.Cgroup }):
			why = "its pod has ended"
		}
		m.tell(s, t, was.dryRun, eventReleased, released(t, why))
		delete(m.told, t)
	}
}

// released is the text about a throttle that has ended.
func released(t throttle.Target, why string) string {
	of := "the CPU"
	switch {
	case t.Disk != "":
		of = t.Disk
	case t.Memory:
		of = "memory"
	}
	return "no longer throttled on " + of + ": " + why
}

func (m *throttles) tell(s *view.State, t throttle.Target, dryRun bool, reason, text string) {
	pod := evict.Victim{} // it may have ended
	for i := range s.Snapshot.Workloads {
		if w := &s.Snapshot.Workloads[i]; w.Cgroup == t.Cgroup && w.Pod != nil {
			pod = evict.Victim{UID: w.Pod.UID, Namespace: w.Pod.Namespace, Name: w.Pod.Name}
		}
	}
	about := []any{"pod", cmp.Or(m.told[t].name, m.titles[t.Cgroup], t.Cgroup), "disk", t.Disk, "reason", text, "resource", t.Resource(), "dryRun", dryRun, "afterSample", time.Since(s.Snapshot.Time).Round(time.Millisecond)}
	if reason == eventThrottled {
		m.log.Info("pod throttled", about...)
	} else {
		m.log.Info("pod no longer throttled", about...)
	}
	if m.event != nil && !dryRun && pod.UID != "" {
		m.event(pod, corev1.EventTypeNormal, reason, text)
	}
}
