package probes

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// disk, nic and workload find an object of a sample by name; nil when there is
// none.
func diskOf(s *snapshot.Sample, name string) *snapshot.Disk {
	return find(s.Disks, func(d *snapshot.Disk) bool { return d.Name == name })
}

func nicOf(s *snapshot.Sample, name string) *snapshot.NIC {
	return find(s.NICs, func(n *snapshot.NIC) bool { return n.Name == name })
}

func workloadOf(s *snapshot.Sample, cgroup string) *snapshot.Workload {
	return find(s.Workloads, func(w *snapshot.Workload) bool { return w.Cgroup == cgroup })
}

func find[T any](list []T, is func(*T) bool) *T {
	i := slices.IndexFunc(list, func(e T) bool { return is(&e) })
	if i < 0 {
		return nil
	}
	return &list[i]
}
