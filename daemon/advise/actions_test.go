package advise

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/replay"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
	"github.com/plimsoll-dev/plimsoll/throttle"
)

// evicts is a moment at which a pod is evicted for one scope of a resource, while others
// are throttled.
func evicts(pod string, resource plugins.Resource, scope string, throttles map[throttle.Target]throttle.Throttle) replay.Moment {
	m := replay.Moment{
		Snapshot: &snapshot.Snapshot{Time: time.Unix(1000, 0)}, Throttles: throttles,
		Decision: &replay.Decision{Decision: evict.Decision{
			Causes: []evict.Cause{{Plugin: "p", Scope: scope, Level: plugins.Hard}, {Plugin: "p", Scope: "sdz"}, {Plugin: "q", Scope: "sdy", Level: plugins.Hard}},
			Candidates: []evict.Considered{
				{Code: evict.CodeWouldEvict, Pod: &pods.Pod{UID: pod, Namespace: "shop", Name: pod}, For: evict.VerdictRef{Plugin: "p", Resource: resource}},
				{Code: evict.CodePDB, Pod: &pods.Pod{Namespace: "shop", Name: "kept"}},
			},
		}},
	}
	for _, uid := range []string{"web", "db"} {
		m.Snapshot.Workloads = append(m.Snapshot.Workloads, snapshot.WorkloadState{Workload: snapshot.Workload{Cgroup: "/" + uid, PodUID: uid}})
	}
	return m
}

func TestActionEvictedUnthrottled(t *testing.T) {
	web, inForce := throttle.Target{Cgroup: "/web", Disk: "sda"}, throttle.Throttle{Began: time.Unix(900, 0)}
	for _, c := range []struct {
		name     string
		resource plugins.Resource
		scope    string
		target   throttle.Target
		throttle throttle.Throttle
		want     uint64
	}{
		{"on its disk", plugins.Disk, "sda", web, inForce, 0},
		{"on another disk", plugins.Disk, "sdb", web, inForce, 1},
		{"on a disk without pressure", plugins.Disk, "sda", throttle.Target{Cgroup: "/web", Disk: "sdz"}, inForce, 1},
		{"on a disk of another plugin", plugins.Disk, "sda", throttle.Target{Cgroup: "/web", Disk: "sdy"}, inForce, 1},
		{"on another resource", plugins.Memory, "node", web, inForce, 1},
		{"on memory", plugins.Memory, "node", throttle.Target{Cgroup: "/web", Memory: true}, inForce, 0},
		{"on the CPU", plugins.Memory, "node", throttle.Target{Cgroup: "/web"}, inForce, 1},
		{"on the disk that an outer plugin names", "", "sda", web, inForce, 0},
		{"it did not help", plugins.Disk, "sda", web, throttle.Throttle{UselessUntil: time.Unix(1001, 0)}, 0},
		{"it ended", plugins.Disk, "sda", web, throttle.Throttle{UselessUntil: time.Unix(1000, 0)}, 1},
		{"another pod", plugins.Disk, "sda", throttle.Target{Cgroup: "/db", Disk: "sda"}, inForce, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a actions
			a.watch(evicts("web", c.resource, c.scope, map[throttle.Target]throttle.Throttle{c.target: c.throttle}))
			assert.Equal(t, []Action{{Name: "shop/web", Evicted: 1, EvictedUnthrottled: c.want, Throttled: map[string]uint64{}}}, a.sorted())
		})
	}
}

func TestActions(t *testing.T) {
	var of actions
	throttled := func(list ...replay.Throttling) { of.watch(replay.Moment{Throttled: list}) }
	of.watch(evicts("web", plugins.Disk, "sda", nil))
	throttled(replay.Throttling{Name: "shop/web", Disk: "sda"}, replay.Throttling{Name: "shop/web", Memory: true})
	of.watch(evicts("web", plugins.Disk, "sda", map[throttle.Target]throttle.Throttle{{Cgroup: "/web", Disk: "sda"}: {Began: time.Unix(900, 0)}}))
	throttled(replay.Throttling{Name: "shop/web", Disk: "sda"}, replay.Throttling{Name: "batch/x"})
	of.watch(evicts("db", plugins.Memory, "node", nil))
	a := &Advice{Actions: of.sorted()}
	assert.Equal(t, []Action{
		{Name: "shop/web", Evicted: 2, EvictedUnthrottled: 1, Throttled: map[string]uint64{"sda": 2, "memory": 1}},
		{Name: "shop/db", Evicted: 1, EvictedUnthrottled: 1, Throttled: map[string]uint64{}},
		{Name: "batch/x", Throttled: map[string]uint64{"cpu": 1}},
	}, a.Actions)
	var b bytes.Buffer
	require.NoError(t, WriteText(&b, a))
	assert.Contains(t, b.String(), `
Without a dry run:
WORKLOAD  THROTTLED            EVICTED  NOT THROTTLED BEFORE
shop/web  1 × memory, 2 × sda  2        1
shop/db                        1        1
batch/x   1 × cpu              0        0
`)
	for i := range 30 {
		throttled(replay.Throttling{Name: fmt.Sprintf("many/%02d", i)})
	}
	a.Actions, a.ActionsOmitted = of.sorted(), 7
	b.Reset()
	require.NoError(t, WriteText(&b, a))
	assert.Contains(t, b.String(), "\nand 13 more\n7 more actions, on further workloads.\n")
	for i := range maxWorkloads {
		throttled(replay.Throttling{Name: fmt.Sprintf("job/%05d", i)})
	}
	assert.Len(t, of.sorted(), maxWorkloads)
	assert.EqualValues(t, 33, of.omitted)
	assert.Empty(t, (&actions{}).sorted())
	b.Reset()
	require.NoError(t, WriteText(&b, &Advice{}))
	assert.Contains(t, b.String(), "Without a dry run no pod would have been throttled or evicted.\n")
}
