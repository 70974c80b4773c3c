package vgdp

import (
	"slices"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Movers are the pods of data movers on this node, by their cgroups. A pod that is being
// prepared is one as well: it will move data at once. Any user can create a pod with a
// mover's label, so only those in the namespaces where the administrator protects all pods
// are, which is where Velero is.
func Movers(s *snapshot.Snapshot, protected []string) map[string]bool {
	movers := map[string]bool{}
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Kind == snapshot.KindPod && w.Pod != nil && w.Pod.Mover && slices.Contains(protected, w.Pod.Namespace) {
			movers[w.Cgroup] = true
		}
	}
	return movers
}
