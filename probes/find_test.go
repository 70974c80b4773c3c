package probes

import "slices"

// disk, nic and workload find an object of a sample by name; nil when there is
// none.
func (s *Sample) disk(name string) *Disk {
	return find(s.Disks, func(d *Disk) bool { return d.Name == name })
}

func (s *Sample) nic(name string) *NIC {
	return find(s.NICs, func(n *NIC) bool { return n.Name == name })
}

func (s *Sample) workload(cgroup string) *Workload {
	return find(s.Workloads, func(w *Workload) bool { return w.Cgroup == cgroup })
}

func find[T any](list []T, is func(*T) bool) *T {
	i := slices.IndexFunc(list, func(e T) bool { return is(&e) })
	if i < 0 {
		return nil
	}
	return &list[i]
}
