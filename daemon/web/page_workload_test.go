package web

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// TestWorkloadForOthers: who waits because of others is said only where it counts.
func TestWorkloadForOthers(t *testing.T) {
	const db = "payments-production-eu-west-1/payments-db-postgresql-primary-with-a-name-as-long-as-helm-makes-them-0"
	const others, maybe = "It waits because of others.", "It waits; see below whether because of others."
	for name, c := range map[string]struct {
		change func(*snapshot.Sufferer)
		want   string
		class  string
	}{
		"long enough":         {func(*snapshot.Sufferer) {}, others, contendedClass},
		"too short":           {func(p *snapshot.Sufferer) { p.Waited = 0.01 }, maybe, unknownClass},
		"of the lowest class": {func(p *snapshot.Sufferer) { p.LowestClass = true }, maybe, unknownClass},
		"share unknown":       {func(p *snapshot.Sufferer) { p.Share = snapshot.Opt[float64]{} }, maybe, unknownClass},
	} {
		s := scenes.Contended()
		uid := s.FindWorkloads(db)[0].PodUID
		for i := range s.Snapshot.Contention {
			k := &s.Snapshot.Contention[i]
			k.Culprits = slices.DeleteFunc(slices.Clone(k.Culprits), func(p snapshot.Culprit) bool { return p.PodUID == uid })
			k.Sufferers = slices.Clone(k.Sufferers)
			for j := range k.Sufferers {
				if p := &k.Sufferers[j]; p.PodUID == uid {
					p.LastingSeconds = snapshot.Some(20.0)
					c.change(p)
				}
			}
		}
		d := newWorkloadPage(s, s.FindWorkloads(db)[0])
		assert.Equal(t, c.want, d.Summary, name)
		assert.Equal(t, c.class, d.Class, name)
	}
}

func TestWorkloadPriorityIsWhole(t *testing.T) {
	w := &snapshot.WorkloadState{Pod: &snapshot.Pod{QoS: "Burstable", Priority: 1049000}}
	list := workloadLimits(w, workloadRow{})
	assert.Equal(t, "priority 1049000", list[len(list)-1].Of)
}
