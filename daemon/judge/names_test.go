package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/judgement"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// A recording of 20 s on a node with two disks, a link, two NUMA nodes and a filesystem; a
// pod comes after 5 s, and a disk is plugged in.
func someNames() *recorded {
	r := &recorded{}
	for i := range 20 {
		s := &snapshot.Sample{
			Time:        time.Unix(int64(i), 0),
			Disks:       []snapshot.Disk{{Name: "vda"}, {Name: "vdb"}},
			NICs:        []snapshot.NIC{{Name: "eth1"}},
			NUMANodes:   []snapshot.NUMANode{{ID: 0}, {ID: 1}},
			Filesystems: []snapshot.Filesystem{{Mountpoint: "/data"}},
			Workloads:   []snapshot.Workload{{Cgroup: "/system.slice/backup.service", Name: "backup.service"}},
		}
		if i >= 5 {
			s.Disks = append(s.Disks, snapshot.Disk{Name: "vdc"})
			s.Workloads = append(s.Workloads, snapshot.Workload{Cgroup: "/kubepods/pod1a", PodUID: "1a", Name: "pod 1a"}, snapshot.Workload{Cgroup: "/kubepods/pod2b", PodUID: "2b", Name: "pod 2b"}, snapshot.Workload{Cgroup: "/left/pod2b", PodUID: "2b", Name: "pod 2b"})
			s.Cluster = &snapshot.Cluster{Pods: []snapshot.Pod{{UID: "1a", Namespace: "shop", Name: "writer-7f"}, {UID: "2b", Namespace: "shop", Name: "reader-7f"}}}
		}
		r.samples = append(r.samples, s)
	}
	return r
}

func TestNames(t *testing.T) {
	want := func(of plugins.Resource, scope, culprit string) judgement.Label {
		return judgement.Label{Load: judgement.Span{From: 3, To: 15}, Want: []judgement.Want{{Resource: of, Scope: scope, Culprit: culprit}}}
	}
	usual := func(disk string) judgement.Label {
		return judgement.Label{Usual: map[string]time.Duration{disk: time.Millisecond}}
	}
	presser := want(plugins.CPU, "", "")
	presser.Want[0].Presser, presser.Want[0].Sufferer = "1a", "shop/wirter"
	open := judgement.Label{Load: judgement.Span{From: 3, To: 15}, NotJudged: []judgement.NotJudged{{Resource: plugins.Disk, Scope: "vdq", Sufferer: "3c"}}}
	early := want(plugins.Memory, "", "1a")
	early.Load = judgement.Span{From: 1, To: 4}
	for _, c := range []struct {
		name string
		of   judgement.Label
		want string
	}{
		{"all there", want(plugins.Disk, "vdb", "1a"), ""},
		{"the node", want(plugins.Memory, "", "backup"), ""},
		{"plugged in", want(plugins.Disk, "vdc", ""), ""},
		{"a pod by its name", want(plugins.NetworkIO, "eth1", "shop/writer"), ""},
		{"a pod with two cgroups", want(plugins.Memory, "", "2b"), ""},
		{"a NUMA node", want(plugins.Memory, "NUMA 1", ""), ""},
		{"a filesystem", want(plugins.Filesystem, "/data", ""), ""},
		{"no disk", want(plugins.Disk, "vdd", ""), "l.yaml: want[0].scope: the recording has no disk of that name: it has vda, vdb, vdc"},
		{"a partition", want(plugins.Disk, "vdb1", ""), "l.yaml: want[0].scope: the recording has no disk of that name: it has vda, vdb, vdc"},
		{"no link", want(plugins.NetworkIO, "eth0", ""), "l.yaml: want[0].scope: the recording has no link of that name: it has eth1"},
		{"no NUMA node", want(plugins.Memory, "NUMA 2", ""), "l.yaml: want[0].scope: the recording has no NUMA node of that name: it has NUMA 0, NUMA 1"},
		{"no filesystem", want(plugins.Filesystem, "rootfs space", ""), "l.yaml: want[0].scope: the recording has no filesystem of that name: it has /data"},
		{"no workload", want(plugins.Memory, "", "bakcup"), `l.yaml: want[0].culprit: no workload has "bakcup" in its cgroup, UID or name during the load`},
		{"it came after the load", early, `l.yaml: want[0].culprit: no workload has "1a" in its cgroup, UID or name during the load`},
		{"of two", want(plugins.Memory, "", "kubepods"), `l.yaml: want[0].culprit: 2 workloads have "kubepods" in their cgroup, UID or name: want what one alone has, of /kubepods/pod1a, /kubepods/pod2b`},
		{"of two by their names", want(plugins.Memory, "", "-7f"), `l.yaml: want[0].culprit: 2 workloads have "-7f" in their cgroup, UID or name: want what one alone has, of /kubepods/pod1a, /kubepods/pod2b`},
		{"of more later", want(plugins.Memory, "", "b"), `l.yaml: want[0].culprit: 3 workloads have "b" in their cgroup, UID or name: want what one alone has, of /system.slice/backup.service, /kubepods/pod1a`},
		{"a sufferer", presser, `l.yaml: want[0].sufferer: no workload has "shop/wirter" in its cgroup, UID or name during the load`},
		{"not judged", open, "l.yaml: notJudged[0].scope: the recording has no disk of that name: it has vda, vdb, vdc\n" + `l.yaml: notJudged[0].sufferer: no workload has "3c" in its cgroup, UID or name during the load`},
		{"usual", usual("vdb"), ""},
		{"usual of one that is plugged in", usual("vdc"), "l.yaml: usual.vdc: the recording has no disk of that name: it has vda, vdb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := someNames().names(c.of, "l.yaml")
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

// Where hard is expected, soft alone reaches it neither in number nor in time.
func TestSweptReached(t *testing.T) {
	l := judgement.Label{Load: judgement.Span{From: 10, To: 60}, Want: []judgement.Want{{Span: judgement.Span{From: 20, To: 60}, Resource: plugins.Memory, Level: plugins.Hard}}}
	own := judgement.Rule{Resources: []plugins.Resource{plugins.Memory}, Highest: plugins.Hard}
	for level, met := range map[plugins.Level]int{plugins.Soft: 0, plugins.Hard: 1} {
		s := sweptRule{of: newSwept()}
		s.add(l, judgement.Compare(l, own, []judgement.Spell{{Alarm: judgement.Alarm{Resource: plugins.Memory, Level: level}, Span: judgement.Span{From: 25, To: 70}}}))
		p := s.point(plugins.Memory)
		assert.Equal(t, []int{met, 1, 1 - met}, []int{p.Met.Count, p.Met.Of, p.After.Never}, level)
	}
}

// An interval is rounded outwards: 0 of 26 ends at 13.2 %, 5 of 5 begins at 47.8 %.
func TestRateText(t *testing.T) {
	for want, r := range map[string]judgement.Rate{
		"0/26 (0–14 %)":  judgement.NewRate(0, 26),
		"5/5 (47–100 %)": judgement.NewRate(5, 5),
		"–":              judgement.NewRate(0, 0),
	} {
		assert.Equal(t, want, rateText(r))
	}
}
