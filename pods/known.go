package pods

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ForRules returns the pods as rules see them: those that have not terminated, one for
// each cgroup. It is meaningful only if Synced.
func (l List) ForRules() []snapshot.Pod {
	byCgroup := l.byCgroup
	if byCgroup == nil {
		byCgroup = indexByCgroup(l.Pods)
	}
	known := make([]snapshot.Pod, 0, len(l.Pods))
	for i := range l.Pods {
		p := &l.Pods[i]
		if byCgroup[p.CgroupUID] == i && p.Phase != "Succeeded" && p.Phase != "Failed" {
			known = append(known, p.known())
		}
	}
	return known
}

func (p *Pod) known() snapshot.Pod {
	return snapshot.Pod{
		UID: p.CgroupUID, Namespace: p.Namespace, Name: p.Name, QoS: p.QoS, LowQoS: p.LowQoS, Priority: p.Priority,
		CPURequestMillicores: p.CPURequestMillicores, MemoryRequestBytes: p.MemoryRequestBytes,
		StorageRequestBytes: p.StorageRequestBytes,
		CPULimitMillicores:  p.CPULimitMillicores, MemoryLimitBytes: p.MemoryLimitBytes,
		Mover: p.IsMover(), Maintenance: p.Maintenance, Terminating: !p.TerminatesBy.IsZero(), RSSOveruse: p.RSSOveruse,
	}
}

// IsMover reports whether it is a data mover pod of Velero.
func (p *Pod) IsMover() bool {
	return slices.ContainsFunc(p.Protections, func(o Protection) bool { return o.Code == Mover })
}
