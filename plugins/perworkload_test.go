package plugins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestNodePressureNotPerWorkload(t *testing.T) {
	for p, perWorkload := range map[Inner]bool{
		DefaultMemoryStall(): false, DefaultOOMStorm(): true, DefaultRSSOveruse(): true,
		DefaultCPUSuppression(): true, DefaultReclaimedOvercommit(): true, DefaultNUMAMemory(): false,
	} {
		history := &snapshot.History{Window: 10 * time.Second, Keep: time.Minute, MaxGap: 3 * time.Second}
		list := p.Threshold(View{Snapshot: history.Add(&snapshot.Sample{Monotonic: time.Second, NUMANodes: []snapshot.NUMANode{{}}, Cluster: snapshot.NewCluster(nil, snapshot.Reclaimable{}, nil)})})
		require.NotEmpty(t, list, p.Name())
		for _, v := range list {
			assert.Equal(t, perWorkload, v.PerWorkload, p.Name())
			v.Level = Hard
			l := &Levels{Verdicts: []Verdict{v, {Resource: Disk, Level: Soft}, {Resource: v.Resource}}}
			want := map[Resource]Level{Disk: Soft}
			if !perWorkload {
				want[v.Resource] = Hard
			}
			assert.Equal(t, want, l.NodePressure(), p.Name())
		}
	}
}
