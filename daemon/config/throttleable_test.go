package config

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Who is throttled as a data mover.
func TestThrottleable(t *testing.T) {
	a := Default()
	a.VGDP.DryRun = false
	of := func(uid string, pod *snapshot.Pod) snapshot.WorkloadState {
		return snapshot.WorkloadState{Workload: snapshot.Workload{Kind: snapshot.KindPod, Cgroup: "/" + uid, PodUID: uid}, Pod: pod}
	}
	s := &snapshot.Snapshot{Workloads: []snapshot.WorkloadState{
		of("mover", nil), of("maintenance", nil), of("web", nil), of("not-listed", &snapshot.Pod{Maintenance: true}), of("unknown", nil),
		{Workload: snapshot.Workload{Kind: snapshot.KindService, Cgroup: "/service"}},
	}}
	list := pods.List{Synced: true, Pods: []pods.Pod{
		{UID: "mover", CgroupUID: "mover", QoS: "Burstable", Protections: []pods.Protection{{Code: pods.Mover}}},
		{UID: "maintenance", CgroupUID: "maintenance", QoS: "Guaranteed", Protections: []pods.Protection{{Code: pods.Namespace}}, Maintenance: true},
		{UID: "web", CgroupUID: "web", QoS: "BestEffort"},
	}}
	movers := func() (all []string) {
		for cgroup, w := range a.Throttleable(s, list, func(string) string { return "" }) {
			if w.Mover {
				assert.Equal(t, a.VGDP.DryRun, w.DryRun)
				assert.Equal(t, !a.VGDP.Enabled, w.Exempt != "")
				all = append(all, cgroup)
			}
		}
		return all
	}
	assert.ElementsMatch(t, []string{"/mover", "/maintenance", "/not-listed"}, movers())
	a.VGDP.DryRun = true
	assert.Len(t, movers(), 3)
	a.VGDP.Enabled = false
	assert.Len(t, movers(), 3)
	assert.Len(t, a.Throttleable(s, list, func(string) string { return "" }), 4, "nothing is known of one that is not listed, and a service is no pod")
}
