package agent

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/state"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// savedThrottles is the part that is saved across restarts.
type savedThrottles struct {
	Boot      string           `json:"boot,omitempty"`
	Throttles []savedThrottle  `json:"throttles,omitempty"`
	Limits    []throttle.Limit `json:"limits,omitempty"`
}

type savedThrottle struct {
	throttle.Target
	throttle.Throttle
	// Told: it was announced, DryRun: as one of a dry run, and Name is its pod's.
	Told   bool   `json:"told,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"`
	Name   string `json:"name,omitempty"`
}

// expirySlack is how old a saved expiry may be: saving each renewal is not
// worth a write.
const expirySlack = time.Minute

// throttlesFile is the file in the directory of the state.
const throttlesFile = "throttles.json"

// newThrottles takes over the throttles of an earlier agent of this boot. If the disk has not
// answered in time, or the lock is not known, a later round does. It touches no limit.
func newThrottles(dir, boot string, lock *StateLock, host *probes.Host, log *slog.Logger) *throttles {
	m := emptyThrottles(dir, boot, host, log)
	m.lock, m.late = lock, state.Begin(&m.writer, lock.wait(), m.file.Load)
	if taken, _ := m.takeAnswer(); !taken {
		m.publishCgroups()
		log.Warn("cannot read the saved limits of throttled pods: the disk of the state directory hangs; no pod is throttled until it answers", "file", m.file.Path)
	}
	return m
}

// emptyThrottles are none, in a directory that may have some.
func emptyThrottles(dir, boot string, host *probes.Host, log *slog.Logger) *throttles {
	m := &throttles{log: log, boot: boot, saveTimeout: saveTimeout, file: state.File[savedThrottles]{Path: filepath.Join(dir, throttlesFile), UntilBoot: true}, list: map[throttle.Target]throttle.Throttle{}, told: map[throttle.Target]announced{}}
	m.tree.IO.Dir, m.tree.IO.V1 = host.CgroupHierarchy("blkio")
	m.tree.CPU.Dir, m.tree.CPU.V1 = host.CgroupHierarchy("cpu")
	m.tree.Memory.Dir, m.tree.Memory.V1 = host.CgroupHierarchy("memory")
	m.journal = throttle.Journal{Files: m.tree, Timeout: saveTimeout, Save: m.saveLimits}
	return m
}

// take takes over what an earlier agent saved.
func (m *throttles) take(kept savedThrottles) {
	m.saved = kept
	if kept.Boot != "" && m.boot != "" && kept.Boot != m.boot { // its limits ended with their cgroups
		kept = savedThrottles{}
	}
	m.journal.Limits = kept.Limits
	for _, c := range kept.Throttles {
		m.list[c.Target] = c.Throttle
		if c.Told {
			m.told[c.Target] = announced{c.DryRun, c.Name}
		}
	}
	m.publishCgroups()
}

// takeAnswer takes over what an earlier agent saved, if the disk has just answered and no other
// agent has the directory. An error that it could not be read is logged.
func (m *throttles) takeAnswer() (taken bool, err error) {
	if !m.lock.mayUse() {
		return false, nil
	}
	select {
	case saved := <-m.late:
		m.late = nil
		m.take(saved.Value)
		if saved.Err == nil || errors.Is(saved.Err, state.ErrNoState) {
			return true, nil
		}
		m.log.Warn("cannot read the saved limits of throttled pods; they stay until their pods end, until the next boot, or until io.max, cpu.max and memory.high are reset by hand (docs/throttle.md)", "file", m.file.Path, "error", saved.Err)
		return true, saved.Err
	default:
		return false, nil
	}
}

// read takes over what the disk had not told when the agent started, and reports whether
// it is known by now.
func (m *throttles) read() bool {
	if m.late == nil {
		return true
	}
	if taken, err := m.takeAnswer(); taken && err == nil {
		m.log.Info("the disk of the state directory answers; the limits that an earlier agent left are known, and pods may be throttled", "limits", len(m.journal.Limits))
	}
	return m.late == nil
}

// toSave is what is to be saved.
func (m *throttles) toSave() savedThrottles {
	k := savedThrottles{Boot: m.boot, Limits: slices.Clone(m.journal.Limits)}
	for _, t := range targets(m.list) {
		as, told := m.told[t]
		k.Throttles = append(k.Throttles, savedThrottle{Target: t, Throttle: m.list[t], Told: told, DryRun: as.dryRun, Name: as.name})
	}
	return k
}

// save saves it.
func (m *throttles) save() error {
	now := m.toSave()
	save, err := m.file.Prepare(now)
	if err != nil {
		return err
	}
	m.queued = &now
	err = m.writer.Do(m.saveTimeout, func() error {
		failed := save()
		if failed == nil {
			m.inFile.Store(&now)
		}
		m.ended.Store(&now)
		return failed
	})
	m.answered()
	return err
}

// answered takes what came of the saves by now, and reports whether that is known of the newest.
func (m *throttles) answered() bool {
	known := m.ended.Load() == m.queued
	if holds := m.inFile.Load(); holds != nil {
		m.saved = *holds
	}
	return known
}

// saveUnless saves it, unless the same is saved. Where the same is being saved, it does not begin
// again: the answer would come no sooner.
func (m *throttles) saveUnless(same func(savedThrottles) bool) error {
	answered := m.answered()
	switch {
	case answered && same(m.saved):
		return nil
	case !answered && same(*m.queued):
		return state.ErrTimeout
	}
	return m.save()
}

// saveLimits saves it if the limits are not those of the file, which may be of an earlier boot.
func (m *throttles) saveLimits(limits []throttle.Limit) error {
	return m.saveUnless(func(s savedThrottles) bool { return s.Boot == m.boot && slices.Equal(limits, s.Limits) })
}

// saveIfChanged saves it if it has changed enough.
func (m *throttles) saveIfChanged() error {
	now := m.toSave()
	return m.saveUnless(func(s savedThrottles) bool {
		return slices.EqualFunc(now.Throttles, s.Throttles, sameThrottle) && slices.Equal(now.Limits, s.Limits)
	})
}

func sameThrottle(a, b savedThrottle) bool {
	return a.Target == b.Target && a.Told == b.Told && a.DryRun == b.DryRun && a.Percent == b.Percent && a.Resized == b.Resized && a.NotResized == b.NotResized && a.UselessUntil.Equal(b.UselessUntil) && a.Expires.Sub(b.Expires).Abs() < expirySlack
}
