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

// movers limits the data movers of this node under pressure: how many may run
// (the budget) and how much IO and CPU each may use (throttling). It is owned
// by the round's goroutine, except shown and curbed.
type movers struct {
	log    *slog.Logger
	file   state.File[moversKept]
	writer state.Writer // of file
	book   throttle.Book
	budget vgdp.Budget
	curbs  map[vgdp.Target]vgdp.Curb
	relief []evict.Relief
	saved  moversKept
	said   string // what was logged last

	shown atomic.Pointer[view.Loads]
	// curbed are the cgroups that have a limit of Plimsoll, for the sample loop.
	curbed atomic.Pointer[map[string]bool]
}

// moversKept is the part that is saved across restarts.
type moversKept struct {
	Budget vgdp.Budget      `json:"budget"`
	Curbs  []keptCurb       `json:"curbs,omitempty"`
	Limits []throttle.Limit `json:"limits,omitempty"`
}

type keptCurb struct {
	vgdp.Target
	vgdp.Curb
}

// curbRenewed is how old a saved expiry may be: saving each renewal is not
// worth a write.
const curbRenewed = time.Minute

// newMovers takes over the budget and the limits of an earlier agent.
func newMovers(dir string, host *probes.Host, log *slog.Logger) *movers {
	m := &movers{log: log, file: state.File[moversKept]{Path: filepath.Join(dir, "movers.json")}, curbs: map[vgdp.Target]vgdp.Curb{}}
	var tree throttle.Tree
	tree.IO.Dir, tree.IO.V1 = host.CgroupHierarchy("blkio")
	tree.CPU.Dir, tree.CPU.V1 = host.CgroupHierarchy("cpu")
	m.book = throttle.Book{Files: tree, Keep: func([]throttle.Limit) error { return m.keep() }}
	kept, err := m.file.Load()
	if err != nil && !errors.Is(err, state.ErrNone) {
		log.Warn("cannot read saved limits of data movers; they stay until their pods end", "reason", err)
	}
	m.saved, m.budget, m.book.Limits = kept, kept.Budget, kept.Limits
	for _, c := range kept.Curbs {
		m.curbs[c.Target] = c.Curb
	}
	m.mark()
	return m
}

// round decides from the newest sample and applies the limits.
func (m *movers) round(s *view.State, c *config.Agent) {
	strain := vgdp.NewStrain(s.Levels)
	usage := vgdp.NewUsage(s.Snapshot, s.Levels, m.curbs)
	strain.Running = len(vgdp.Movers(s.Snapshot))
	strain.Configured = max(c.VGDP.Concurrency, strain.Running)
	m.budget, m.curbs = m.budget.Next(strain), vgdp.Throttle(m.curbs, usage)
	in := m.curbs
	if c.VGDP.DryRun {
		in = nil
	}
	err := m.book.Set(throttle.Wanted(in, numbers(s.Snapshot)))
	m.mark()
	m.relief = reliefOf(m.relief, m.inForce(), s.Levels, c.Eviction.ReliefWait)
	err = errors.Join(err, m.remember())
	m.show(s, strain, c.VGDP.DryRun, err)
}

// off removes budget and limits.
func (m *movers) off() {
	m.budget, m.curbs, m.relief = vgdp.Budget{}, map[vgdp.Target]vgdp.Curb{}, nil
	m.shown.Store(nil)
	m.lift()
}

// lift removes every limit from the kernel. It forgets the curbs too, because
// the next agent decides from its own samples.
func (m *movers) lift() {
	clear(m.curbs)
	if len(m.book.Limits) == 0 && len(m.saved.Curbs) == 0 && reflect.DeepEqual(m.saved.Budget, m.budget) {
		return
	}
	err := errors.Join(m.book.Set(nil), m.remember())
	m.mark()
	m.tell(err)
}

// numbers are the device numbers of disks by name.
func numbers(s *snapshot.Snapshot) map[string]string {
	list := make(map[string]string, len(s.Disks))
	for i := range s.Disks {
		list[s.Disks[i].Name] = s.Disks[i].Number
	}
	return list
}

// mark publishes the cgroups that have a limit to the sample loop.
func (m *movers) mark() {
	cgroups := map[string]bool{}
	for _, l := range m.book.Limits {
		cgroups[l.Cgroup] = true
	}
	m.curbed.Store(&cgroups)
}

// now is what is to be saved.
func (m *movers) now() moversKept {
	k := moversKept{Budget: m.budget, Limits: slices.Clone(m.book.Limits)}
	for _, t := range targets(m.curbs) {
		k.Curbs = append(k.Curbs, keptCurb{t, m.curbs[t]})
	}
	return k
}

func targets(curbs map[vgdp.Target]vgdp.Curb) []vgdp.Target {
	return slices.SortedFunc(maps.Keys(curbs), func(a, b vgdp.Target) int {
		return strings.Compare(a.Mover+"\n"+a.Disk, b.Mover+"\n"+b.Disk)
	})
}

// keep saves it.
func (m *movers) keep() error {
	now := m.now()
	save, err := m.file.Prepare(now)
	if err == nil {
		err = m.writer.Do(keepWait, save)
	}
	if err != nil {
		return err
	}
	m.saved = now
	return nil
}

// remember saves it if it has changed enough.
func (m *movers) remember() error {
	now := m.now()
	if reflect.DeepEqual(now.Budget, m.saved.Budget) && slices.EqualFunc(now.Curbs, m.saved.Curbs, sameCurb) && slices.Equal(now.Limits, m.saved.Limits) {
		return nil
	}
	return m.keep()
}

func sameCurb(a, b keptCurb) bool {
	return a.Target == b.Target && a.Percent == b.Percent && a.Expires.Sub(b.Expires).Abs() < curbRenewed
}

// inForce are the targets whose limit is written to the kernel.
func (m *movers) inForce() (list []vgdp.Target) {
	for _, t := range targets(m.curbs) {
		if slices.ContainsFunc(m.book.Limits, func(l throttle.Limit) bool { return l.Written && isOf(l, t) && !l.Foreign }) {
			list = append(list, t)
		}
	}
	return list
}

// isOf tells whether a limit belongs to a target, by its mover and by whether
// it limits the CPU.
func isOf(l throttle.Limit, t vgdp.Target) bool {
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
		r := evict.Relief{Resource: v.Resource, Scope: v.Scope, Since: l.Time, How: fmt.Sprintf("%d data movers are throttled", n)}
		if i := slices.IndexFunc(before, same); i >= 0 {
			r.Since = before[i].Since
		}
		r.Until = r.Since.Add(wait)
		list = append(list, r)
	}
	return list
}

// pressure is what the Lease carries for the controller; nil: no limit.
func (m *movers) pressure(now time.Time, dryRun bool) *vgdp.Pressure {
	if dryRun {
		return nil
	}
	return m.budget.Pressure(now)
}

func (m *movers) show(s *view.State, strain vgdp.Strain, dryRun bool, err error) {
	l := &view.Loads{DryRun: dryRun, Running: strain.Running, Level: strain.Level, Absent: strain.Absent, Why: m.budget.Why}
	if p := m.budget.Pressure(s.Levels.Time); p != nil {
		l.Budget, l.HoldUntil = p.Budget, p.HoldUntil
	}
	running := vgdp.Movers(s.Snapshot)
	for _, t := range targets(m.curbs) {
		c := m.curbs[t]
		shown := view.Throttled{Cgroup: t.Mover, Name: t.Mover, Disk: t.Disk, Percent: c.Percent, May: c.Limits(), Expires: c.Expires}
		if w := running[t.Mover]; w != nil {
			shown.Name = w.Title()
		}
		shown.Foreign = slices.ContainsFunc(m.book.Limits, func(l throttle.Limit) bool { return l.Foreign && isOf(l, t) })
		l.Throttled = append(l.Throttled, shown)
	}
	if err != nil {
		l.Problem = err.Error()
	}
	m.shown.Store(l)
	m.tell(err)
}

// tell logs changes.
func (m *movers) tell(err error) {
	l := m.shown.Load()
	if l == nil {
		l = &view.Loads{}
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
	if text == m.said || m.said == "" && len(slowed) == 0 && l.Budget == nil && err == nil {
		return
	}
	m.said = text
	m.log.Info("data mover limits changed", "budget", budget, "throttled", slowed, "reason", l.Why, "dryRun", l.DryRun)
	if err != nil {
		m.log.Warn("failed to apply data mover limits; retrying", "error", err)
	}
}

// RemoveMoverLimits removes the cgroup limits that this machine's agent put on data
// movers.
func RemoveMoverLimits(c *config.Agent, out io.Writer, log *slog.Logger) error {
	file := state.File[moversKept]{Path: filepath.Join(c.State.Dir, "movers.json")}
	kept, err := file.Load()
	if errors.Is(err, state.ErrNone) || err == nil && len(kept.Limits) == 0 {
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
	clear(m.curbs)
	if err := errors.Join(m.book.Set(nil), m.remember()); err != nil {
		return fmt.Errorf("remove limits of data movers: %w", err)
	}
	for _, l := range kept.Limits {
		fmt.Fprintf(out, "%s: limit removed\n", l.Knob)
	}
	return nil
}
