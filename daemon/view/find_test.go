package view_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func TestFindWorkloads(t *testing.T) {
	s := scenes.Contended()
	var db *snapshot.WorkloadState
	for i := range s.Snapshot.Workloads {
		if w := &s.Snapshot.Workloads[i]; s.WorkloadName(w) == "velero/backup-nightly-20260301-node-agent-7xk2v" {
			db = w
		}
	}
	require.NotNil(t, db, "the API server's name of a pod is its name")
	for what, name := range map[string]string{"cgroup": db.Cgroup, "name": s.WorkloadName(db), "UID": db.PodUID} {
		assert.Equal(t, []*snapshot.WorkloadState{db}, s.FindWorkloads(name), what)
	}
	assert.Empty(t, s.FindWorkloads(""))
	assert.Empty(t, s.FindWorkloads("velero"))
	t.Run("a name that two have gives both, a cgroup one", func(t *testing.T) {
		two := scenes.Calm()
		two.Snapshot.Workloads[1].Name, two.Snapshot.Workloads[1].PodUID = two.Snapshot.Workloads[0].Name, ""
		assert.Len(t, two.FindWorkloads(two.Snapshot.Workloads[0].Name), 2)
		assert.Len(t, two.FindWorkloads(two.Snapshot.Workloads[0].Cgroup), 1)
	})
}

func TestSearch(t *testing.T) {
	s := scenes.Contended()
	decisions := scenes.ContendedDecisions(s)
	f := s.Search("VELERO/", decisions)
	require.Len(t, f.Workloads, 1)
	assert.Empty(t, f.Disks)
	assert.Len(t, s.Search("shop/cart", nil).Workloads, 13)
	assert.Len(t, s.Search("nvme", decisions).Disks, 1)
	assert.NotEmpty(t, s.Search("eth", nil).NICs)
	assert.NotEmpty(t, s.Search("/", nil).Filesystems)
	for _, text := range []string{decisions[0].ID, "await over 60s", "disk-contention nvme0n1"} {
		assert.Len(t, s.Search(text, decisions).Decisions, 1, text)
	}
	none := s.Search("no such thing", decisions)
	assert.Equal(t, view.Found{}, none)
}

func TestDecisionsAbout(t *testing.T) {
	list := scenes.Decisions(false)
	evicted, some := list[1].FirstEvicted()
	require.True(t, some)
	ids := func(list []evict.Decision) (ids []string) {
		for _, d := range list {
			ids = append(ids, d.ID)
		}
		return ids
	}
	about := view.DecisionsAbout(list, evicted.Cgroup, "")
	assert.Contains(t, ids(about), list[1].ID)
	assert.NotContains(t, ids(about), list[0].ID, "which names no pod")
	assert.Equal(t, ids(about), ids(view.DecisionsAbout(list, "", evicted.Pod.Namespace+"/"+evicted.Pod.Name)), "by name once the cgroup is gone")
	assert.Empty(t, view.DecisionsAbout(list, "", ""))

	s := scenes.Contended()
	contended := scenes.ContendedDecisions(s)
	sufferer := contended[0].Causes[0].Contention.Sufferers[0]
	assert.Len(t, view.DecisionsAbout(contended, sufferer.Cgroup, ""), 1, "as a sufferer")
	assert.Len(t, view.DecisionsOn(contended, "nvme0n1"), 1)
	assert.Empty(t, view.DecisionsOn(contended, "sdb"))
}

// What a disk was merely asked for is the least that it carries.
func TestKneesAtLeast(t *testing.T) {
	s := scenes.Contended()
	read, write := plugins.Carry{IOPS: 3000, BytesPerSecond: 12e6, FullIOPS: true}, plugins.Carry{IOPS: 40, BytesPerSecond: 125e6, FullBytes: true}
	s.Levels.Disks = []plugins.DiskCapacity{{Device: "vda", Knee: plugins.Knee{Read: read, Write: write}}}
	list := s.Knees("vda")
	require.Len(t, list, 2)
	assert.Equal(t, "3000 requests/s, at least 12.0 MB/s", list[0].Text)
	assert.Equal(t, "at least 40 requests/s, 125 MB/s", list[1].Text)
}
