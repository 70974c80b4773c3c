package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// group is a directory of resctrl. A control group's counters include those of
// its monitoring groups (Documentation/filesystems/resctrl.rst), so the control
// groups together are the total.
type group struct {
	dir     string
	monitor bool
}

// reading has all counters at one time.
type reading struct {
	at     time.Time
	groups map[group]map[string]uint64 // bytes by domain, since the group was created
}

// traffic of a domain in bytes per second.
type traffic struct {
	domain string
	rate   float64
}

func (m *memBandwidth) read(ctx context.Context) (reading, error) {
	r := reading{at: m.now(), groups: map[group]map[string]uint64{}}
	list, err := m.groups()
	for _, g := range list {
		if err := ctx.Err(); err != nil {
			return reading{}, err
		}
		r.groups[g] = counters(g.dir)
	}
	return r, err
}

// groups returns all control groups, the root first, each with its monitoring
// groups.
func (m *memBandwidth) groups() ([]group, error) {
	entries, err := os.ReadDir(m.resctrl)
	if err != nil {
		return nil, err
	}
	control := []string{m.resctrl}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(m.resctrl, e.Name(), "schemata")); err == nil {
			control = append(control, filepath.Join(m.resctrl, e.Name()))
		}
	}
	var list []group
	for _, dir := range control {
		list = append(list, group{dir: dir})
		monitors, err := os.ReadDir(filepath.Join(dir, "mon_groups"))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // or it was removed
			return nil, err
		}
		for _, e := range monitors {
			list = append(list, group{filepath.Join(dir, "mon_groups", e.Name()), true})
		}
	}
	return list, nil
}

// counters returns a group's counters by domain, without those that read
// Unavailable or Error, as they do while the hardware has no counter available.
func counters(dir string) map[string]uint64 {
	files, err := filepath.Glob(filepath.Join(dir, "mon_data/mon_L3_*/mbm_total_bytes"))
	if err != nil {
		return nil
	}
	list := map[string]uint64{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
			list[filepath.Base(filepath.Dir(file))] = n
		}
	}
	return list
}

// rate returns a group's rate in a domain between the last two readings.
func (m *memBandwidth) rate(g group, domain string) (float64, bool) {
	was, before := m.before.groups[g][domain]
	now, after := m.newest.groups[g][domain]
	seconds := m.newest.at.Sub(m.before.at).Seconds()
	if !before || !after || now < was || seconds <= 0 { // a decreased counter is another group's
		return 0, false
	}
	return float64(now-was) / seconds, true
}

// domains returns the rates of all control groups together, without groups that
// were read only once.
func (m *memBandwidth) domains() []traffic {
	sum := map[string]float64{}
	for g, in := range m.newest.groups {
		for domain := range in {
			if rate, ok := m.rate(g, domain); ok && !g.monitor {
				sum[domain] += rate
			}
		}
	}
	var list []traffic
	for domain, rate := range sum {
		list = append(list, traffic{domain, rate})
	}
	return list
}

// owner returns the pod of all processes of a group; nil if they are of
// several.
func (m *memBandwidth) owner(g group, pods []*corev1.Pod) (*corev1.Pod, error) {
	tasks, err := os.ReadFile(filepath.Join(g.dir, "tasks"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the group was removed
	}
	if err != nil {
		return nil, err
	}
	var of *corev1.Pod
	for task := range strings.FieldsSeq(string(tasks)) {
		cgroup, err := os.ReadFile(filepath.Join(m.procfs, task, "cgroup"))
		if err != nil {
			continue // the process has ended
		}
		p := named(string(cgroup), pods)
		if p == nil || of != nil && of != p {
			return nil, nil // a shared group shows the traffic of no single pod
		}
		of = p
	}
	return of, nil
}

// named returns the pod whose UID is in a cgroup's name. The first name counts: a
// container may give cgroups below its own any name.
func named(cgroup string, pods []*corev1.Pod) (of *corev1.Pod) {
	first := len(cgroup)
	for _, p := range pods {
		uid := string(p.UID)
		for _, name := range []string{"pod" + uid, "pod" + strings.ReplaceAll(uid, "-", "_")} {
			if i := strings.Index(cgroup, name); i >= 0 && i < first {
				first, of = i, p
			}
		}
	}
	return of
}
