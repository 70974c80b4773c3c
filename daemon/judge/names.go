package judge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// names is an error for each name of a label that its recording does not have, or not for
// one thing alone: by a misspelt one a judge that is right would count as wrong, and by a
// part of all names one that names any.
func (r *recorded) names(l judgement.Label, file string) error {
	var wrong []error
	must := func(why, key string, args ...any) {
		if why != "" {
			wrong = append(wrong, fmt.Errorf("%s: %s: %s", file, fmt.Sprintf(key, args...), why))
		}
	}
	for _, disk := range slices.Sorted(maps.Keys(l.Usual)) {
		must(noScope(r.samples[:1], plugins.Disk, disk), "usual.%s", disk)
	}
	for i, w := range l.Want {
		must(noScope(r.samples, w.Resource, w.Scope), "want[%d].scope", i)
		must(r.noWorkload(l.Load, w.Culprit), "want[%d].culprit", i)
		must(r.noWorkload(l.Load, w.Presser), "want[%d].presser", i)
		must(r.noWorkload(l.Load, w.Sufferer), "want[%d].sufferer", i)
	}
	for i, n := range l.NotJudged {
		must(noScope(r.samples, n.Resource, n.Scope), "notJudged[%d].scope", i)
		must(r.noWorkload(l.Load, n.Sufferer), "notJudged[%d].sufferer", i)
	}
	return errors.Join(wrong...)
}

// noScope is why a scope is of none of the samples; empty: it is of one, or the node.
func noScope(list []*snapshot.Sample, of plugins.Resource, scope string) string {
	if scope == "" || slices.ContainsFunc(list, func(s *snapshot.Sample) bool {
		_, names := scopes(of, s)
		return slices.Contains(names, scope)
	}) {
		return ""
	}
	what, names := scopes(of, list[len(list)-1])
	why := fmt.Sprintf("the recording has no %s of that name", what)
	if len(names) > 0 {
		why += ": it has " + strings.Join(names, ", ")
	}
	return why
}

// scopes of a resource in a sample, as rules name them, and what they are.
func scopes(of plugins.Resource, s *snapshot.Sample) (what string, names []string) {
	switch of {
	case plugins.Disk:
		what = "disk"
		for i := range s.Disks {
			names = append(names, s.Disks[i].Name)
		}
	case plugins.NetworkIO:
		what = "link"
		for i := range s.NICs {
			names = append(names, s.NICs[i].Name)
		}
	case plugins.Memory:
		what = "NUMA node"
		for i := range s.NUMANodes {
			names = append(names, fmt.Sprintf("NUMA %d", s.NUMANodes[i].ID))
		}
	case plugins.Filesystem:
		what = "filesystem"
		for i := range s.Filesystems {
			names = append(names, s.Filesystems[i].Mountpoint)
		}
		if s.Rootfs != nil {
			names = append(names, "rootfs space", "rootfs inodes")
		}
	case plugins.CPU:
		what = "CPU"
	}
	return what, names
}

// noWorkload is why a part of a name is not that of one workload that was there during the
// load; empty: it is, or none is meant.
func (r *recorded) noWorkload(load judgement.Span, part string) string {
	if part == "" {
		return ""
	}
	var most []string
	for _, s := range r.samples {
		if at := s.Time.Sub(r.samples[0].Time).Seconds(); at < load.From || at > load.To {
			continue
		}
		if found := withName(s, part); len(found) > len(most) {
			most = found
		}
	}
	switch len(most) {
	case 0:
		return fmt.Sprintf("no workload has %q in its cgroup, UID or name during the load", part)
	case 1:
		return ""
	}
	return fmt.Sprintf("%d workloads have %q in their cgroup, UID or name: want what one alone has, of %s", len(most), part, strings.Join(most[:2], ", "))
}

// withName are the workloads with a part of a name, each by its cgroup, and a pod once.
func withName(s *snapshot.Sample, part string) (cgroups []string) {
	pods := map[string]bool{}
	titled := map[string]bool{}
	if s.Cluster != nil {
		for i := range s.Cluster.Pods {
			p := &s.Cluster.Pods[i]
			titled[p.UID] = strings.Contains(p.Namespace+"/"+p.Name, part)
		}
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if strings.Contains(w.Cgroup, part) || strings.Contains(w.PodUID, part) || strings.Contains(w.Name, part) || titled[w.PodUID] {
			if w.PodUID == "" || !pods[w.PodUID] {
				cgroups = append(cgroups, w.Cgroup)
			}
			pods[w.PodUID] = true
		}
	}
	return cgroups
}
