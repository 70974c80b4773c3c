package agent

import (
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/config"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// moverBudget is how many data movers may run on this node, which shrinks under
// pressure. It is owned by the round's goroutine, except shown.
type moverBudget struct {
	saveTimeout time.Duration // how long a round waits for the disk
	log         *slog.Logger
	file        state.File[vgdp.Budget]
	writer      state.Writer // of file
	budget      vgdp.Budget
	saved       vgdp.Budget
	logged      string // what was logged last

	shown atomic.Pointer[view.DataMovers]
}

// newMoverBudget takes over the budget of an earlier agent, for which it waits no longer
// than wait.
func newMoverBudget(dir string, wait time.Duration, log *slog.Logger) *moverBudget {
	m := &moverBudget{log: log, saveTimeout: saveTimeout, file: state.File[vgdp.Budget]{Path: filepath.Join(dir, "budget.json"), UntilBoot: true}}
	kept, err := state.Read(&m.writer, wait, m.file.Load)
	if err != nil && !errors.Is(err, state.ErrNoState) {
		log.Warn("cannot read the saved data mover budget; it begins as configured", "file", m.file.Path, "error", err)
	}
	m.saved, m.budget = kept, kept
	return m
}

// round decides from the newest sample. protected are the namespaces of Velero's own movers.
func (m *moverBudget) round(s *view.State, c *config.VGDP, protected []string) {
	p := vgdp.NewNodePressure(s.Levels)
	movers := vgdp.Movers(s.Snapshot, protected)
	p.Running, p.Exhaustion = len(movers), s.Snapshot.Exhaustion.Memory()
	p.AtKnee = vgdp.AtKnee(s.Snapshot, s.Levels, movers)
	p.Configured = max(c.Concurrency, p.Running)
	m.budget = m.budget.Next(p)
	err := m.save()
	l := &view.DataMovers{DryRun: c.DryRun, Running: p.Running, Level: p.Level, Absent: p.Absent, Reason: m.budget.Why}
	if p := m.budget.Pressure(s.Levels.Time); p != nil {
		l.Budget, l.StartHoldUntil = p.Budget, p.HoldUntil
	}
	if err != nil {
		l.Problem = err.Error()
	}
	m.shown.Store(l)
	m.logChanges(l)
}

// disable removes the budget.
func (m *moverBudget) disable() {
	m.budget = vgdp.Budget{}
	m.shown.Store(nil)
	if err := m.save(); err != nil {
		m.log.Warn("cannot save that there is no data mover budget; the next agent may find the last one", "error", err)
	}
}

// save saves it if it has changed.
func (m *moverBudget) save() error {
	if reflect.DeepEqual(m.budget, m.saved) {
		return nil
	}
	save, err := m.file.Prepare(m.budget)
	if err == nil {
		err = m.writer.Do(m.saveTimeout, save)
	}
	if err == nil {
		m.saved = m.budget
	}
	return err
}

// pressure is what the Lease carries for the controller; nil: no limit.
func (m *moverBudget) pressure(now time.Time, dryRun bool) *vgdp.Pressure {
	if dryRun {
		return nil
	}
	return m.budget.Pressure(now)
}

func (m *moverBudget) logChanges(l *view.DataMovers) {
	budget := "as configured"
	if l.Budget != nil {
		budget = view.Count(uint64(*l.Budget))
	}
	text := budget + l.Problem
	if text == m.logged || m.logged == "" && l.Budget == nil && l.Problem == "" {
		return
	}
	m.logged = text
	m.log.Info("data mover budget changed", "budget", budget, "reason", l.Reason, "dryRun", l.DryRun)
	if l.Problem != "" {
		m.log.Warn("failed to save the data mover budget; retrying", "error", l.Problem)
	}
}
