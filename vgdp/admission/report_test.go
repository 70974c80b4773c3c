package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func TestReportOfOwnVelero(t *testing.T) {
	on := func(name string) vgdp.Node {
		return vgdp.Node{Features: vgdp.Features{Name: name}, Agents: map[string]vgdp.Agent{"a": {}}}
	}
	ticket := &vgdp.Ticket{Epoch: 7}
	in := &vgdp.Input{
		Time: noon(), Veleros: map[string]vgdp.Velero{"a": {Epoch: 7, PrepareLimit: 3}, "b": {Epoch: 2}},
		Topology: vgdp.NewTopology([]vgdp.Node{on("n1"), on("n2"), {Features: vgdp.Features{Name: "n3"}}}),
		Pressure: map[string]vgdp.Pressure{"n2": {Why: "disk hard", Budget: new(1)}, "n1": {HoldUntil: noon()}, "n3": {Why: "memory hard"}},
		Loads: []vgdp.Load{
			{Namespace: "a", Kind: vgdp.DataUpload, Hidden: true},
			{Namespace: "a", Kind: vgdp.DataUpload, Phase: vgdp.New, Ticket: ticket},
			{Namespace: "a", Kind: vgdp.DataUpload, Phase: vgdp.Accepted, Hidden: true},
			{Namespace: "a", Kind: vgdp.DataDownload, Phase: vgdp.InProgress},
			{Namespace: "b", Kind: vgdp.DataUpload, Phase: vgdp.New},
			{Namespace: "a", Kind: vgdp.DataUpload, Phase: vgdp.Accepted, Mover: "theirs"},
			{Namespace: "b", Kind: vgdp.DataDownload, Phase: vgdp.Prepared, Mover: "theirs"},
		},
	}
	d := &vgdp.Decision{Limited: map[string]bool{"a": true}}
	for i := range maxWaiting + 5 {
		l := &vgdp.Load{Namespace: "a", Name: "waits", Kind: vgdp.DataUpload, Created: noon().Add(-time.Minute), Backup: "Backup x"}
		d.Waiting = append(d.Waiting, vgdp.Waiting{Load: l, Wait: vgdp.Wait{Code: []vgdp.Code{vgdp.CodeLimit, vgdp.CodeFull}[i%2], Node: "n1", Count: 1}})
	}
	of := map[string]Report{}
	for _, r := range NewReports(in, d) {
		of[r.Namespace] = r
	}
	require.Len(t, of, 2)
	a := of["a"]
	assert.True(t, a.Limited)
	assert.EqualValues(t, 7, a.Epoch)
	assert.Equal(t, 3, a.PrepareLimit)
	assert.Equal(t, 2, a.Slots, "one is accepted, one has a ticket")
	assert.Equal(t, 1, a.Hidden, "one is held and new")
	assert.Equal(t, map[vgdp.Kind]map[vgdp.Phase]int{
		vgdp.DataUpload: {vgdp.New: 2, vgdp.Accepted: 1}, vgdp.DataDownload: {vgdp.InProgress: 1},
	}, a.Phases)
	assert.Equal(t, map[vgdp.Code]int{vgdp.CodeLimit: 503, vgdp.CodeFull: 502}, a.Reasons, "all are counted")
	require.Len(t, a.Waiting, maxWaiting)
	assert.Equal(t, vgdp.New, a.Waiting[0].Phase)
	assert.InDelta(t, 60, a.Waiting[0].WaitSeconds, 0)
	assert.Equal(t, []Node{{Name: "n1", HoldUntil: noon()}, {Name: "n2", Budget: new(1), Why: "disk hard"}}, a.Nodes)
	assert.Equal(t, map[vgdp.Kind]map[vgdp.Phase]int{vgdp.DataUpload: {vgdp.New: 1}}, of["b"].Phases)
	assert.False(t, of["b"].Limited)
	assert.Zero(t, of["b"].Slots)
	assert.Empty(t, of["b"].Nodes)
	w := vgdp.Waiting{Load: &vgdp.Load{Phase: vgdp.Prepared, Created: noon()}}
	assert.Equal(t, vgdp.Prepared, NewWaitingLoad(&w, noon()).Phase)
}
