package web

import (
	"cmp"
	"slices"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// workloadKey is the identity of a workload: a path may be reused.
type workloadKey struct {
	cgroup string
	inode  uint64
}

func keyOf(w *snapshot.WorkloadState) workloadKey { return workloadKey{w.Cgroup, w.Inode} }

// podName identifies a workload in labels: namespace and pod where the API
// server has it, otherwise the UID of a pod, or the cgroup of another workload.
type podName struct{ namespace, pod, uid, cgroup string }

func nameOf(podUID, cgroup string, c *view.Cluster) podName {
	if podUID == "" {
		return podName{cgroup: cmp.Or(cgroup, "/")}
	}
	if c != nil && c.PodOf != nil {
		if pod, known := c.PodOf(podUID); known {
			return podName{namespace: pod.Namespace, pod: pod.Name}
		}
	}
	return podName{uid: podUID}
}

// podEntry is the cache of a chosen workload. Its slices are replaced, never
// changed: scrapes read them without a lock.
type podEntry struct {
	// desired is its name; called is the one in its labels, the same unless
	// another workload has it.
	desired, assigned podName
	labels            string // common to all its series, without the closing brace
	prefixes          []string
	devices           []podDevice
}

// podDevice is the text before a workload's values on one device.
type podDevice struct {
	number, name string
	prefixes     []string // one for each podDiskFamily
}

// podCache has the chosen workloads with the text before their values.
type podCache struct {
	metrics podMetrics
	entries map[workloadKey]*podEntry
	owners  map[podName]workloadKey
}

// has reports whether a workload is among the chosen.
func (c *podCache) has(key workloadKey) bool { return c.entries[key] != nil }

// keep makes these the chosen workloads, and drops the others.
func (c *podCache) keep(chosen []workloadKey) {
	in := make(map[workloadKey]*podEntry, len(chosen))
	for _, key := range chosen {
		e, was := c.entries[key]
		if !was {
			e = &podEntry{}
		}
		in[key] = e
	}
	for key, e := range c.entries {
		if _, stays := in[key]; !stays {
			c.releaseName(key, e)
		}
	}
	c.entries = in
}

// nameAll makes the labels of chosen workloads that are new or were renamed.
func (c *podCache) nameAll(s *view.State) {
	var unnamed []*snapshot.WorkloadState
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		e, in := c.entries[keyOf(w)]
		if !in {
			continue
		}
		if wanted := nameOf(w.PodUID, w.Cgroup, s.Cluster); e.prefixes == nil || e.desired != wanted {
			// All old names are released first: another workload may take one.
			c.releaseName(keyOf(w), e)
			e.desired = wanted
			unnamed = append(unnamed, w)
		}
	}
	for _, w := range unnamed {
		c.assignName(keyOf(w), c.entries[keyOf(w)])
	}
}

// assignName makes the labels, unique for each workload: a pod may leave a second
// cgroup behind, and Prometheus refuses duplicate series.
func (c *podCache) assignName(key workloadKey, e *podEntry) {
	e.assigned = e.desired
	if _, taken := c.owners[e.assigned]; taken {
		e.assigned.cgroup = key.cgroup
	}
	c.owners[e.assigned] = key
	e.labels = e.assigned.labels()
	var parts []string
	for i := range c.metrics.families {
		for _, v := range c.metrics.families[i].of {
			text := c.metrics.families[i].name + e.labels
			if v.resource != "" {
				text += `,resource="` + v.resource + `"`
			}
			parts = append(parts, text+"} ")
		}
	}
	e.prefixes, e.devices = parts, nil
}

// releaseName releases a name.
func (c *podCache) releaseName(key workloadKey, e *podEntry) {
	if c.owners[e.assigned] == key {
		delete(c.owners, e.assigned)
	}
}

// labels are the non-empty ones, without the closing brace: {uid="…"
func (n podName) labels() string {
	b := []byte{}
	for _, l := range [][2]string{{"workload_namespace", n.namespace}, {"workload_pod", n.pod}, {"uid", n.uid}, {"cgroup", n.cgroup}} {
		if l[1] == "" {
			continue
		}
		b = appendPair(append(b, ','), l[0], l[1])
	}
	b[0] = '{' // every workload has a name
	return string(b)
}

// row is a workload with its text.
func (c *podCache) row(e *podEntry, w *snapshot.WorkloadState, disks podDisks) podRow {
	if !sameDevices(e.devices, w.IO, disks) {
		e.devices = c.deviceEntries(e, w.IO, disks)
	}
	return podRow{workload: w, prefixes: e.prefixes, devices: e.devices}
}

func sameDevices(have []podDevice, want []snapshot.WorkloadIO, disks podDisks) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if have[i].number != want[i].Number || have[i].name != disks.name(want[i].Number) {
			return false
		}
	}
	return true
}

// deviceEntries makes the text for devices and reuses what is cached.
func (c *podCache) deviceEntries(e *podEntry, list []snapshot.WorkloadIO, disks podDisks) []podDevice {
	devices := make([]podDevice, len(list))
	for i := range list {
		number := list[i].Number
		name := disks.name(number)
		if was := slices.IndexFunc(e.devices, func(d podDevice) bool { return d.number == number && d.name == name }); was >= 0 {
			devices[i] = e.devices[was]
			continue
		}
		label := string(appendPair([]byte{','}, "device", name)) + "} "
		devices[i] = podDevice{number: number, name: name, prefixes: make([]string, len(c.metrics.disks))}
		for f := range c.metrics.disks {
			devices[i].prefixes[f] = c.metrics.disks[f].name + e.labels + label
		}
	}
	return devices
}
