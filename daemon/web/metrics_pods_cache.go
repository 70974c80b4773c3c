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

// nameAll makes the labels of chosen workloads that are new or were renamed. The
// caller holds mu.
func (p *PodSeries) nameAll(s *view.State) {
	var unnamed []*snapshot.WorkloadState
	for i := range s.Snapshot.Workloads {
		w := &s.Snapshot.Workloads[i]
		e, in := p.entries[keyOf(w)]
		if !in {
			continue
		}
		if wanted := nameOf(w.PodUID, w.Cgroup, s.Cluster); e.prefixes == nil || e.desired != wanted {
			// All old names are released first: another workload may take one.
			p.releaseName(keyOf(w), e)
			e.desired = wanted
			unnamed = append(unnamed, w)
		}
	}
	for _, w := range unnamed {
		p.assignName(keyOf(w), p.entries[keyOf(w)])
	}
}

// assignName makes the labels, unique for each workload: a pod may leave a second
// cgroup behind, and Prometheus refuses duplicate series.
func (p *PodSeries) assignName(key workloadKey, e *podEntry) {
	e.assigned = e.desired
	if _, taken := p.owners[e.assigned]; taken {
		e.assigned.cgroup = key.cgroup
	}
	p.owners[e.assigned] = key
	e.labels = e.assigned.labels()
	var parts []string
	for i := range p.families {
		for _, v := range p.families[i].of {
			text := p.families[i].name + e.labels
			if v.resource != "" {
				text += `,resource="` + v.resource + `"`
			}
			parts = append(parts, text+"} ")
		}
	}
	e.prefixes, e.devices = parts, nil
}

// releaseName releases a name.
func (p *PodSeries) releaseName(key workloadKey, e *podEntry) {
	if p.owners[e.assigned] == key {
		delete(p.owners, e.assigned)
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

// row is a workload with its text. The caller holds mu.
func (p *PodSeries) row(e *podEntry, w *snapshot.WorkloadState) podRow {
	if !p.sameDevices(e.devices, w.IO) {
		e.devices = p.deviceEntries(e, w.IO)
	}
	return podRow{workload: w, prefixes: e.prefixes, devices: e.devices}
}

func (p *PodSeries) sameDevices(have []podDevice, want []snapshot.WorkloadIO) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if have[i].number != want[i].Number || have[i].name != p.device(want[i].Number) {
			return false
		}
	}
	return true
}

// device is the disk's name, or the number of an unknown one.
func (p *PodSeries) device(number string) string {
	if d, known := p.devices[number]; known {
		return d.Name
	}
	return number
}

// deviceEntries makes the text for devices and reuses what is cached.
func (p *PodSeries) deviceEntries(e *podEntry, list []snapshot.WorkloadIO) []podDevice {
	devices := make([]podDevice, len(list))
	for i := range list {
		number := list[i].Number
		name := p.device(number)
		if was := slices.IndexFunc(e.devices, func(d podDevice) bool { return d.number == number && d.name == name }); was >= 0 {
			devices[i] = e.devices[was]
			continue
		}
		label := string(appendPair([]byte{','}, "device", name)) + "} "
		devices[i] = podDevice{number: number, name: name, prefixes: make([]string, len(p.disks))}
		for f := range p.disks {
			devices[i].prefixes[f] = p.disks[f].name + e.labels + label
		}
	}
	return devices
}
