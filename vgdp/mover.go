package vgdp

import "github.com/plimsoll-dev/plimsoll/snapshot"

// Movers counts the pods of data movers on this node. A pod that is being prepared counts
// as well: it will move data at once.
func Movers(s *snapshot.Snapshot) (n int) {
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Kind == snapshot.KindPod && w.Pod != nil && w.Pod.Mover {
			n++
		}
	}
	return n
}
