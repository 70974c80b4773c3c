package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// answer about a Velero with one slot, which one of three loads has.
func answer(now time.Time) *admission.Preview {
	made := now.Add(-10 * time.Minute)
	object := func(name string, change func(*admission.Object)) *admission.Object {
		o := &admission.Object{
			ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name},
			Load:       vgdp.Load{UID: name, Namespace: "velero", Name: name, Kind: vgdp.PodVolumeBackup, Node: "n1", Created: made},
		}
		change(o)
		return o
	}
	a := &admission.Preview{All: []*admission.Object{
		object("first", func(o *admission.Object) {
			o.Load.Phase, o.Diagnosis = vgdp.Accepted, "Pod velero/first, phase Pending"
		}),
		object("second", func(o *admission.Object) { o.Load.Scheduled = true }),
		object("third", func(o *admission.Object) {
			o.Load.Scheduled, o.Load.Created = true, made.Add(time.Second)
			o.Load.Note = vgdp.Note{Reason: vgdp.CodeLimit, Since: now.Add(-time.Minute), Unused: 2, UnusedAt: now.Add(-30 * time.Second)}
		}),
		object("theirs", func(o *admission.Object) { o.Load.Mover = "theirs" }),
		object("let", func(o *admission.Object) {
			o.Load.Ticket, o.Load.Namespace = &vgdp.Ticket{Epoch: 7, At: now}, "elsewhere"
		}),
	}}
	a.Input = vgdp.Input{
		Time: now, Veleros: map[string]vgdp.Velero{"velero": {Epoch: 7, PrepareLimit: 1}},
		Topology: vgdp.NewTopology([]vgdp.Node{{Features: vgdp.Features{Name: "n1"}, Agents: map[string]vgdp.Agent{"velero": {Ready: true, Concurrency: 1}}}}),
	}
	for _, o := range a.All {
		if o.Load.Namespace == "velero" {
			a.Input.Loads = append(a.Input.Loads, o.Load)
		}
	}
	a.Decision = vgdp.Decide(a.Input)
	a.Report = admission.NewReports(&a.Input, &a.Decision)[0]
	renewed := metav1.NewMicroTime(now.Add(-3 * time.Second))
	a.Gate = &gate.Gate{Spec: gate.Spec{RenewTime: &renewed, LeaseDurationSeconds: 30, Epoch: 7, Limited: true}}
	return a
}

func TestExplainLoadWaits(t *testing.T) {
	now := time.Date(2026, 3, 1, 2, 10, 0, 0, time.UTC)
	a := answer(now)
	told := func(i int) string {
		var b strings.Builder
		require.NoError(t, WriteMoverLoad(&b, loadOf(a.All[i], a), now))
		return b.String()
	}
	assert.Equal(t, `PodVolumeBackup velero/first is Accepted on node n1, 10m0s old. Plimsoll does not hold it.
The Gate is in force, renewed 3s ago, epoch 7.
1 of 1 slots of prepareQueueLength are taken.

Pod velero/first, phase Pending
`, told(0))
	assert.Contains(t, told(1), "second is New on node n1, 10m0s old, with 0 ahead of it: all 1 slots of prepareQueueLength are taken; PodVolumeBackup velero/first has had one for longest.\n")
	assert.Contains(t, told(2), "with 1 ahead of it: no node-agent used its last ticket")
	a.All[2].Load.Note.Unused = 0
	assert.Contains(t, told(2), "The controller wrote: limit, for 1m0s.\n")
	assert.Contains(t, told(3), "Data mover theirs handles it: Plimsoll neither holds nor counts it.\n")
	assert.Contains(t, told(4), "It has its ticket; no node-agent has accepted it yet.\n")
	a.Gate.Spec.LeaseDurationSeconds = 2
	assert.Contains(t, told(1), "The Gate holds nothing, renewed 3s ago.\n")
	a.Gate = nil
	assert.Contains(t, told(1), "There is no Gate in velero: nothing is held there.\n")
	a.Report.ConfigMapError, a.Report.Hints, a.Report.Drift, a.Report.ConfigMap = "no JSON", []string{"x: y"}, 3, "agents"
	a.Report.Nodes = []admission.Node{{Name: "n1", Why: "disk hard"}}
	for _, line := range []string{"in use: no JSON.\n", "In ConfigMap agents: x: y.\n", "3 node-agents started before", "Node n1 is under pressure: disk hard.\n"} {
		assert.Contains(t, told(1), line)
	}
}

func TestExplainLoadWithoutWait(t *testing.T) {
	now := time.Date(2026, 3, 1, 2, 10, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		change func(*vgdp.Load)
		want   string
	}{
		"waits for nothing": {func(*vgdp.Load) {}, "is New on node n1, 10m0s old. It would get its ticket now.\n"},
		"cancelled":         {func(l *vgdp.Load) { l.Cancel = true }, "old. It is cancelled or deleted: Plimsoll does not hold it, and it needs no ticket.\n"},
		"deleted":           {func(l *vgdp.Load) { l.Deleted = true }, "old. It is cancelled or deleted: "},
		"prepared long after it was accepted": {func(l *vgdp.Load) {
			l.Phase, l.AcceptedAt = vgdp.Prepared, now.Add(-6*time.Minute)
		}, "is Prepared on node n1, 10m0s old. Pressure on its node may hold it for 5m0s after it was prepared, which only the controller saw"},
		"prepared, and held": {func(l *vgdp.Load) {
			l.Phase, l.AcceptedAt = vgdp.Prepared, now.Add(-4*time.Minute)
		}, "with 0 ahead of it: pressure on node n1: disk hard; held until "},
	} {
		t.Run(name, func(t *testing.T) {
			a := answer(now)
			o := a.All[1]
			row.change(&o.Load)
			a.Input.Loads = []vgdp.Load{o.Load}
			if o.Load.Phase == vgdp.Prepared {
				a.Input.Pressure = map[string]vgdp.Pressure{"n1": {Why: "disk hard", HoldUntil: now.Add(time.Minute)}}
			}
			a.Decision = vgdp.Decide(a.Input)
			a.Report = admission.NewReports(&a.Input, &a.Decision)[0]
			var b strings.Builder
			require.NoError(t, WriteMoverLoad(&b, loadOf(o, a), now))
			assert.Contains(t, b.String(), row.want)
		})
	}
}

func TestExplainLoadKind(t *testing.T) {
	for said, want := range map[string][]vgdp.Kind{
		"a": admission.Kinds(), "du/a": {vgdp.DataUpload}, "DataDownload/a": {vgdp.DataDownload}, "podvolumebackups/a": {vgdp.PodVolumeBackup}, "PVR/a": {vgdp.PodVolumeRestore},
	} {
		kinds, name, err := kindOf(said)
		require.NoError(t, err)
		assert.Equal(t, want, kinds, said)
		assert.Equal(t, "a", name)
	}
	_, _, err := kindOf("pod/a")
	assert.ErrorIs(t, err, ErrNoMoverLoad)
}
