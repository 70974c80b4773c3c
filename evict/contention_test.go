package evict

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/pods"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// hurting are the contentions of a node: on two disks and for memory, with
// five of each kind.
func hurting() []snapshot.Contention {
	of := func(r snapshot.SharedResource, device string) snapshot.Contention {
		c := snapshot.Contention{Resource: r, Device: device, State: snapshot.ContentionPresent, Coverage: snapshot.Some(0.9), MoreCulprits: 2}
		for _, uid := range []string{"a", "b", "c", "d", "e"} {
			p := snapshot.Party{Cgroup: "/kubepods/" + uid, Name: "pod " + uid, PodUID: uid}
			c.Culprits = append(c.Culprits, snapshot.Culprit{Party: p, Share: 0.2})
			c.Sufferers = append(c.Sufferers, snapshot.Sufferer{Party: p, Waited: 0.1})
		}
		return c
	}
	return []snapshot.Contention{of(snapshot.SharedDisk, "sda"), of(snapshot.SharedDisk, "sdb"), of(snapshot.SharedMemory, "")}
}

func TestDecisionHasContention(t *testing.T) {
	in := round(0, []pods.Pod{pod("a")}, pressing(named("a", 30)), disk(plugins.Soft))
	in.Contention = hurting()
	d, _ := Decide(in)
	require.Len(t, d.Causes, 2)
	memory, sda := d.Causes[0].Contention, d.Causes[1].Contention
	assert.Equal(t, snapshot.SharedMemory, memory.Resource)
	assert.Equal(t, "sda", sda.Device)
	assert.Equal(t, snapshot.Some(0.9), sda.Coverage)
	assert.Len(t, sda.Culprits, 3)
	assert.Len(t, sda.Sufferers, 3)
	assert.Equal(t, 2+2, sda.MoreCulprits)
	assert.Equal(t, 2, sda.MoreSufferers)
	assert.Equal(t, "shop/web-a", sda.Culprits[0].Name, "by the name that the API server has")
	assert.Equal(t, "shop/web-a", sda.Sufferers[0].Name)
	assert.Equal(t, "pod b", sda.Culprits[1].Name, "it lists no such pod")
	assert.Equal(t, hurting(), in.Contention, "what is shown elsewhere is not changed")
}

func TestDecisionOmitsOtherContention(t *testing.T) {
	in := round(0, nil, disk(plugins.Hard))
	d, _ := Decide(in)
	assert.Nil(t, d.Causes[0].Contention, "nothing is known")
	in.Contention = hurting()[1:]
	d, _ = Decide(in)
	assert.Nil(t, d.Causes[0].Contention, "another disk is another matter")

	in = round(0, nil, disk(plugins.Hard))
	in.Contention = hurting()
	ended := then(in, 5, State{})
	ended.Levels.Verdicts = []plugins.Verdict{disk(plugins.None)}
	d, _ = Decide(ended)
	require.Len(t, d.Causes, 1)
	assert.Nil(t, d.Causes[0].Contention, "the level has ended")
	ended.Levels.Verdicts = nil
	d, _ = Decide(ended)
	require.Len(t, d.Causes, 1)
	assert.Nil(t, d.Causes[0].Contention, "the device is gone")
}

func TestDecisionContentionNodeNames(t *testing.T) {
	in := round(0, nil, disk(plugins.Hard))
	in.Cluster, in.Contention = nil, hurting()
	d, _ := Decide(in)
	assert.Equal(t, "pod a", d.Causes[0].Contention.Culprits[0].Name)
}

func TestDecisionContentionSmall(t *testing.T) {
	in := round(0, nil, disk(plugins.Hard))
	in.Contention = hurting()
	with, _ := Decide(in)
	in.Contention = nil
	without, _ := Decide(in)
	size := func(d Decision) int {
		b, err := json.Marshal(d)
		require.NoError(t, err)
		return len(b)
	}
	assert.Less(t, size(with)-size(without), 1024)
}
