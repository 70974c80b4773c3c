// Command membandwidth is an outer plugin: it reports when the traffic between
// a socket's last-level cache and memory nears the memory's bandwidth, and
// names the pods whose monitoring groups cause most of it. The kernel counts
// this on CPUs that support it (Intel RDT, AMD QoS): resctrl.
//
// It reads /sys/fs/resctrl if that is mounted, and mounts nothing: the
// administrator mounts it and creates the groups (a container runtime or the
// kubelet can give each pod one). The bandwidth cannot be read: --limit sets
// it, for one socket, and is required.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

func main() {
	m := &memBandwidth{now: time.Now}
	flag.StringVar(&m.procfs, "path.procfs", "/proc", "mountpoint of the host's procfs")
	flag.StringVar(&m.resctrl, "path.resctrl", "/sys/fs/resctrl", "mountpoint of resctrl")
	flag.Float64Var(&m.limit, "limit", 0, "memory bandwidth of one socket in bytes per second, such as 100e9")
	flag.Float64Var(&m.soft, "soft", 0.80, "share of --limit from which the node is tainted")
	flag.Float64Var(&m.hard, "hard", 0.95, "share of --limit from which pods are evicted")
	kit.Main("memory-bandwidth", m)
}

// minShare is the share of a socket's traffic from which a pod is named.
const minShare = 0.20

// memBandwidth is the plugin's configuration and its last two readings, from
// which it takes rates.
type memBandwidth struct {
	procfs, resctrl string
	limit           float64
	soft, hard      float64
	now             func() time.Time

	before, newest reading
	levels         map[string]kit.Level // by domain
}

// Threshold judges the busiest domain: a socket's cache, as resctrl names it.
func (m *memBandwidth) Threshold(ctx context.Context, _ []*corev1.Pod) (kit.Threshold, error) {
	if m.limit <= 0 {
		return kit.Threshold{}, errors.New("--limit is not set: the memory bandwidth is unknown")
	}
	if err := m.checkResctrl(); err != nil {
		return kit.Threshold{}, err
	}
	now, err := m.read(ctx)
	if err != nil {
		return kit.Threshold{}, err
	}
	m.before, m.newest = m.newest, now
	used := m.domains()
	if len(used) == 0 {
		return kit.Threshold{}, errors.New("no rate yet: it needs two readings of a counter")
	}
	busiest := slices.MaxFunc(used, func(a, b traffic) int {
		return cmp.Or(cmp.Compare(a.rate, b.rate), strings.Compare(b.domain, a.domain))
	})
	return m.judge(busiest), nil
}

func (m *memBandwidth) judge(t traffic) kit.Threshold {
	share := t.rate / m.limit
	said := kit.Threshold{Observed: share, Limit: m.soft, Scope: t.domain, Condition: &kit.Condition{Name: "MemoryBandwidthPressure"}}
	over := func(level kit.Level, threshold float64) bool {
		return share >= threshold || m.levels[t.domain] >= level && share >= 0.9*threshold
	}
	switch {
	case over(kit.Hard, m.hard):
		said.Level, said.Limit = kit.Hard, m.hard
	case over(kit.Soft, m.soft):
		said.Level = kit.Soft
	}
	m.levels = map[string]kit.Level{t.domain: said.Level}
	return said
}

// checkResctrl returns an error if resctrl cannot be read.
func (m *memBandwidth) checkResctrl() error {
	if _, err := os.Stat(filepath.Join(m.resctrl, "info")); err == nil {
		return nil
	}
	known, err := os.ReadFile(filepath.Join(m.procfs, "filesystems"))
	switch {
	case err != nil:
		return err
	case !slices.Contains(strings.Fields(string(known)), "resctrl"):
		return errors.New("resctrl unavailable: this kernel, CPU or virtual machine does not count memory traffic")
	}
	return fmt.Errorf("resctrl is not mounted on %s: the kernel supports it; mount it with mount -t resctrl", m.resctrl)
}

// Top names pods that have a monitoring group of their own, by its traffic in
// the domain.
func (m *memBandwidth) Top(_ context.Context, ask kit.Ask) (kit.Named, error) {
	if ask.N == 0 {
		return kit.Named{}, nil
	}
	rates, err := m.rates(ask)
	if err != nil {
		return kit.Named{}, err
	}
	total := 0.0
	for _, t := range m.domains() {
		if t.domain == ask.Scope {
			total = t.rate
		}
	}
	var list []*corev1.Pod
	for p, rate := range rates {
		if rate >= minShare*total && rate > 0 {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rates[b], rates[a]), cmp.Compare(a.UID, b.UID))
	})
	return kit.Named{Pods: list[:min(ask.N, len(list))]}, nil
}

// rates returns the pods' traffic in a domain.
func (m *memBandwidth) rates(ask kit.Ask) (map[*corev1.Pod]float64, error) {
	rates := map[*corev1.Pod]float64{}
	for g := range m.newest.groups {
		rate, ok := m.rate(g, ask.Scope)
		if !ok || !g.monitor {
			continue
		}
		p, err := m.owner(g, ask.Pods)
		if err != nil {
			return nil, err
		}
		if p != nil {
			rates[p] += rate
		}
	}
	return rates, nil
}
