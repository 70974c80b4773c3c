package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/throttle"
)

// moverLimits limits the data movers of this node under pressure: how many may run
// (the budget) and how much IO and CPU each may use (throttling). It is owned
// by the round's goroutine, except shown and curbed.
type moverLimits struct {
	saveTimeout time.Duration // how long a round waits for the disk
	log         *slog.Logger
	file        state.File[savedMovers]
	writer      state.Writer // of file
	limits      throttle.Journal
	budget      vgdp.Budget
	throttles   map[vgdp.Target]vgdp.MoverLimit
	relief      []evict.Relief
	saved       savedMovers
	logged      string // what was logged last

	shown atomic.Pointer[view.DataMovers]
	// throttledCgroups are the cgroups that have a limit of Plimsoll, for the sample loop.
	throttledCgroups atomic.Pointer[map[string]bool]
}

// savedMovers is the part that is saved across restarts.
type savedMovers struct {
	Budget    vgdp.Budget      `json:"budget"`
	Throttles []savedThrottle  `json:"curbs,omitempty"`
	Limits    []throttle.Limit `json:"limits,omitempty"`
}

type savedThrottle struct {
	vgdp.Target
	vgdp.MoverLimit
}

// expirySlack is how old a saved expiry may be: saving each renewal is not
// worth a write.
const expirySlack = time.Minute

// newMovers takes over the budget and the limits of an earlier agent.
func newMovers(dir string, host *probes.Host, log *slog.Logger) *moverLimits {
	m := &moverLimits{log: log, saveTimeout: saveTimeout, file: state.File[savedMovers]{Path: filepath.Join(dir, "movers.json")}, throttles: map[vgdp.Target]vgdp.MoverLimit{}}
	var tree throttle.Tree
	tree.IO.Dir, tree.IO.V1 = host.CgroupHierarchy("blkio")
	tree.CPU.Dir, tree.CPU.V1 = host.CgroupHierarchy("cpu")
	m.limits = throttle.Journal{Files: tree, Save: func([]throttle.Limit) error { return m.save() }}
	kept, err := m.file.Load()
	if err != nil && !errors.Is(err, state.ErrNoState) {
		log.Warn("cannot read saved limits of data movers; they stay until their pods end, or until io.max and cpu.max are reset by hand (docs/vgdp.md)", "file", m.file.Path, "error", err)
	}
	m.saved, m.budget, m.limits.Limits = kept, kept.Budget, kept.Limits
	for _, c := range kept.Throttles {
		m.throttles[c.Target] = c.MoverLimit
	}
	m.publishCgroups()
	return m
}

// round decides from the newest sample and applies the limits.
func (m *moverLimits) round(s *view.State, c *config.Agent) {
	strain := vgdp.NewNodePressure(s.Levels)
	usage := vgdp.NewUsage(s.Snapshot, s.Levels, m.throttles)
	strain.Running = len(vgdp.Movers(s.Snapshot))
	strain.Configured = max(c.VGDP.Concurrency, strain.Running)
	m.budget, m.throttles = m.budget.Next(strain), vgdp.Throttle(m.throttles, usage)
	in := m.throttles
	if c.VGDP.DryRun {
		in = nil
	}
	err := m.limits.Set(throttle.Limits(in, deviceNumbers(s.Snapshot)))
	m.publishCgroups()
	m.relief = reliefOf(m.relief, m.inForce(), s.Levels, c.Eviction.ReliefWait)
	err = errors.Join(err, m.saveIfChanged())
	m.show(s, strain, c.VGDP.DryRun, err)
}

// disable removes budget and limits.
func (m *moverLimits) disable() {
	m.budget, m.throttles, m.relief = vgdp.Budget{}, map[vgdp.Target]vgdp.MoverLimit{}, nil
	m.shown.Store(nil)
	m.lift()
}

// lift removes every limit from the kernel. It forgets the curbs too, because
// the next agent decides from its own samples.
func (m *moverLimits) lift() {
	clear(m.throttles)
	if len(m.limits.Limits) == 0 && len(m.saved.Throttles) == 0 && reflect.DeepEqual(m.saved.Budget, m.budget) {
		return
	}
	err := errors.Join(m.limits.Set(nil), m.saveIfChanged())
	m.publishCgroups()
	m.logChanges(err)
}

// deviceNumbers are the device numbers of disks by name.
func deviceNumbers(s *snapshot.Snapshot) map[string]string {
	list := make(map[string]string, len(s.Disks))
	for i := range s.Disks {
		list[s.Disks[i].Name] = s.Disks[i].Number
	}
	return list
}

// publishCgroups publishes the cgroups that have a limit to the sample loop.
func (m *moverLimits) publishCgroups() {
	cgroups := map[string]bool{}
	for _, l := range m.limits.Limits {
		cgroups[l.Cgroup] = true
	}
	m.throttledCgroups.Store(&cgroups)
}

// toSave is what is to be saved.
func (m *moverLimits) toSave() savedMovers {
	k := savedMovers{Budget: m.budget, Limits: slices.Clone(m.limits.Limits)}
	for _, t := range targets(m.throttles) {
		k.Throttles = append(k.Throttles, savedThrottle{t, m.throttles[t]})
	}
	return k
}

func targets(curbs map[vgdp.Target]vgdp.MoverLimit) []vgdp.Target {
	return slices.SortedFunc(maps.Keys(curbs), func(a, b vgdp.Target) int {
		return strings.Compare(a.Mover+"\n"+a.Disk, b.Mover+"\n"+b.Disk)
	})
}

// save saves it.
func (m *moverLimits) save() error {
	now := m.toSave()
	save, err := m.file.Prepare(now)
	if err == nil {
		err = m.writer.Do(m.saveTimeout, save)
	}
	if err != nil {
		return err
	}
	m.saved = now
	return nil
}

// saveIfChanged saves it if it has changed enough.
func (m *moverLimits) saveIfChanged() error {
	now := m.toSave()
	if reflect.DeepEqual(now.Budget, m.saved.Budget) && slices.EqualFunc(now.Throttles, m.saved.Throttles, sameThrottle) && slices.Equal(now.Limits, m.saved.Limits) {
		return nil
	}
	return m.save()
}

func sameThrottle(a, b savedThrottle) bool {
	return a.Target == b.Target && a.Percent == b.Percent && a.Expires.Sub(b.Expires).Abs() < expirySlack
}

// inForce are the targets whose limit is written to the kernel.
func (m *moverLimits) inForce() (list []vgdp.Target) {
	for _, t := range targets(m.throttles) {
		if slices.ContainsFunc(m.limits.Limits, func(l throttle.Limit) bool { return l.Written && limitMatches(l, t) && !l.Foreign }) {
			list = append(list, t)
		}
	}
	return list
}

// limitMatches tells whether a limit belongs to a target, by its mover and by whether
// it limits the CPU.
func limitMatches(l throttle.Limit, t vgdp.Target) bool {
	return l.Cgroup == t.Mover && (l.Name == throttle.CPU) == (t.Disk == "")
}

// reliefOf is the relief expected from the limits in force, by resource and
// scope. It keeps the time at which a relief began.
func reliefOf(before []evict.Relief, curbs []vgdp.Target, l *plugins.Levels, wait time.Duration) (list []evict.Relief) {
	for _, v := range l.Verdicts {
		n := 0
		for _, t := range curbs {
			if t.Disk == "" && (v.Resource == plugins.Memory || v.Resource == plugins.NetworkIO) || v.Resource == plugins.Disk && t.Disk == v.Scope {
				n++
			}
		}
		same := func(r evict.Relief) bool { return r.Resource == v.Resource && r.Scope == v.Scope }
		if n == 0 || v.Level == plugins.None || slices.ContainsFunc(list, same) {
			continue
		}
		r := evict.Relief{Resource: v.Resource, Scope: v.Scope, Since: l.Time, Action: fmt.Sprintf("%d data movers are throttled", n)}
		if i := slices.IndexFunc(before, same); i >= 0 {
			r.Since = before[i].Since
		}
		r.Until = r.Since.Add(wait)
		list = append(list, r)
	}
	return list
}

// pressure is what the Lease carries for the controller; nil: no limit.
func (m *moverLimits) pressure(now time.Time, dryRun bool) *vgdp.Pressure {
	if dryRun {
		return nil
	}
	return m.budget.Pressure(now)
}

func (m *moverLimits) show(s *view.State, strain vgdp.NodePressure, dryRun bool, err error) {
	l := &view.DataMovers{DryRun: dryRun, Running: strain.Running, Level: strain.Level, Absent: strain.Absent, Reason: m.budget.Why}
	if p := m.budget.Pressure(s.Levels.Time); p != nil {
		l.Budget, l.StartHoldUntil = p.Budget, p.HoldUntil
	}
	running := vgdp.Movers(s.Snapshot)
	for _, t := range targets(m.throttles) {
		c := m.throttles[t]
		shown := view.Throttled{Cgroup: t.Mover, Name: t.Mover, Disk: t.Disk, Percent: c.Percent, Limit: c.Limits(), Expires: c.Expires}
		if w := running[t.Mover]; w != nil {
			shown.Name = w.Title()
		}
		shown.Foreign = slices.ContainsFunc(m.limits.Limits, func(l throttle.Limit) bool { return l.Foreign && limitMatches(l, t) })
		l.Throttled = append(l.Throttled, shown)
	}
	if err != nil {
		l.Problem = err.Error()
	}
	m.shown.Store(l)
	m.logChanges(err)
}

// logChanges logs changes.
func (m *moverLimits) logChanges(err error) {
	l := m.shown.Load()
	if l == nil {
		l = &view.DataMovers{}
	}
	slowed := make([]string, 0, len(l.Throttled))
	for _, t := range l.Throttled {
		slowed = append(slowed, t.Text())
	}
	budget := "as configured"
	if l.Budget != nil {
		budget = view.Count(uint64(*l.Budget))
	}
	text := fmt.Sprint(slowed, budget, l.DryRun, err)
	if text == m.logged || m.logged == "" && len(slowed) == 0 && l.Budget == nil && err == nil {
		return
	}
	m.logged = text
	m.log.Info("data mover limits changed", "budget", budget, "throttled", slowed, "reason", l.Reason, "dryRun", l.DryRun)
	if err != nil {
		m.log.Warn("failed to apply data mover limits; retrying", "error", err)
	}
}

// RemoveMoverLimits removes the cgroup limits that this machine's agent put on data
// movers.
func RemoveMoverLimits(c *config.Agent, out io.Writer, log *slog.Logger) error {
	file := state.File[savedMovers]{Path: filepath.Join(c.State.Dir, "movers.json")}
	kept, err := file.Load()
	if errors.Is(err, state.ErrNoState) || err == nil && len(kept.Limits) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the limits of data movers, which stay until their pods end: %w", err)
	}
	host, err := probes.NewHost(probes.Paths{Procfs: c.Paths.Procfs, Sysfs: c.Paths.Sysfs, Cgroupfs: c.Paths.Cgroupfs, Rootfs: c.Paths.Rootfs}, c.Workloads.Roots)
	if err != nil {
		return err
	}
	m := newMovers(c.State.Dir, host, log)
	clear(m.throttles)
	if err := errors.Join(m.limits.Set(nil), m.saveIfChanged()); err != nil {
		return fmt.Errorf("remove limits of data movers: %w", err)
	}
	for _, l := range kept.Limits {
		fmt.Fprintf(out, "%s: limit removed\n", l.Knob)
	}
	return nil
}
