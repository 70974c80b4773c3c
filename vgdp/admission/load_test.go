package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON([]byte(text)))
	return u
}

func TestALoadIsReadAsItsKindHasIt(t *testing.T) {
	du := Read(vgdp.DataUpload, object(t, `{"apiVersion":"velero.io/v2alpha1","kind":"DataUpload","metadata":{"name":"du","namespace":"velero","uid":"u","resourceVersion":"5",
"creationTimestamp":"2026-03-01T11:00:00Z","labels":{"velero.io/backup-name":"short"},"ownerReferences":[{"kind":"Backup","name":"the-whole-name","apiVersion":"velero.io/v1","uid":"x"},{"kind":"Other","name":"else","apiVersion":"v1","uid":"y"}],
"annotations":{"plimsoll.dev/held-datamover":"","plimsoll.dev/admitted":"*@7","plimsoll.dev/priority":"3","plimsoll.dev/waiting":"{\"reason\":\"limit\"}"}},
"spec":{"datamover":"plimsoll.dev/held","csiSnapshot":{"storageClass":"fast"}},"status":{"phase":"Accepted","acceptedTimestamp":"2026-03-01T11:30:00Z","nodeOS":"linux"}}`))
	assert.Equal(t, "the-whole-name", du.Backup)
	assert.Equal(t, "fast", du.Class)
	assert.NoError(t, du.Odd)
	assert.Equal(t, vgdp.Load{
		UID: "u", Namespace: "velero", Name: "du", Kind: vgdp.DataUpload, Phase: vgdp.Accepted, Created: du.Load.Created, AcceptedAt: time.Date(2026, 3, 1, 11, 30, 0, 0, time.UTC),
		Held: true, Backup: "Backup the-whole-name", Priority: new(int32(3)), Ticket: &vgdp.Ticket{Epoch: 7}, Note: vgdp.Note{Reason: vgdp.CodeLimit},
	}, du.Load)
	pvb := Read(vgdp.PodVolumeBackup, object(t, `{"apiVersion":"velero.io/v1","kind":"PodVolumeBackup","metadata":{"name":"a","annotations":{"plimsoll.dev/priority":"high","plimsoll.dev/waiting":"odd","plimsoll.dev/admitted":"n1"}},
"spec":{"node":"n1","cancel":true,"pod":{"namespace":"shop","name":"cart"}}}`))
	assert.Equal(t, "n1", pvb.Load.Node)
	assert.True(t, pvb.Load.Cancel)
	assert.Nil(t, pvb.Load.Ticket, "no ticket that the policies would take")
	assert.Zero(t, pvb.Load.Note)
	assert.ErrorContains(t, pvb.Odd, `got "high"`)
	assert.Equal(t, types.NamespacedName{Namespace: "shop", Name: "cart"}, pvb.Target)
	pvr := Read(vgdp.PodVolumeRestore, object(t, `{"apiVersion":"velero.io/v1","kind":"PodVolumeRestore","metadata":{"name":"a","labels":{"velero.io/restore-name":"r"}},
"spec":{"uploaderType":"restic","pod":{"namespace":"shop","name":"cart"}},"status":{"node":"n2","phase":7}}`))
	assert.Equal(t, "restic", pvr.Load.Mover, "what restic restores nobody accepts, so it is left alone")
	assert.Equal(t, "Restore r", pvr.Load.Backup)
	assert.Equal(t, "n2", pvr.Load.Node)
	assert.Empty(t, pvr.Load.Phase, "of a wrong type is left out")
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"X","metadata":{"annotations":{"plimsoll.dev/priority":"9"}},"spec":{"pod":3}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(text) != nil {
			return
		}
		for _, kind := range Kinds() {
			_ = Read(kind, u)
		}
	})
}

func TestSinceWhenALoadIsAsItIsIsRemembered(t *testing.T) {
	with := func(phase vgdp.Phase, ticket *vgdp.Ticket) *Object {
		return &Object{Load: vgdp.Load{Phase: phase, Ticket: ticket}}
	}
	was, is := with(vgdp.Accepted, nil), with(vgdp.Prepared, &vgdp.Ticket{Epoch: 7})
	remember(was, is, noon())
	assert.Equal(t, noon(), is.Load.PreparedAt)
	assert.Equal(t, noon(), is.Load.Ticket.At)
	later := with(vgdp.Prepared, &vgdp.Ticket{Epoch: 7})
	remember(is, later, noon().Add(time.Minute))
	assert.Equal(t, noon(), later.Load.PreparedAt)
	assert.Equal(t, noon(), later.Load.Ticket.At)
	another := with(vgdp.InProgress, &vgdp.Ticket{Epoch: 8})
	remember(later, another, noon().Add(time.Hour))
	assert.Equal(t, noon().Add(time.Hour), another.Load.Ticket.At)
	assert.Zero(t, another.Load.PreparedAt)
}

func TestANodeAgentSaysWhichConfigurationItReads(t *testing.T) {
	for _, args := range [][]string{{"--node-agent-configmap=a"}, {"--node-agent-configmap", "a"}, {"--x", "y", "--node-agent-configmap=a", "--z"}} {
		assert.Equal(t, "a", option(args, "--node-agent-configmap"), args)
	}
	for _, args := range [][]string{nil, {"--node-agent-configmap"}, {"--node-agent-configmaps=a"}} {
		assert.Empty(t, option(args, "--node-agent-configmap"), args)
	}
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	assert.True(t, readAgent(p).Ready)
	p.DeletionTimestamp = new(metav1.Now())
	assert.False(t, readAgent(p).Ready)
}

func TestPressureIsThatOfAgentsThatAreHeard(t *testing.T) {
	until := lease.Micro(noon().Add(time.Minute))
	r := &report{NodeReport: lease.NodeReport{Pressure: map[string]string{"memory": "soft", "disk": "hard"}, Budget: new(1), HoldUntil: &until}, Heard: noon(), Renewed: lease.Micro(noon())}
	p := r.pressure(noon().Add(39*time.Second), noon().Add(39*time.Second), 40*time.Second)
	require.NotNil(t, p)
	assert.Equal(t, vgdp.Pressure{Budget: new(1), HoldUntil: until.Time, Why: "disk hard, memory soft"}, *p)
	assert.Nil(t, r.pressure(noon().Add(40*time.Second), noon(), 40*time.Second), "who is silent has Velero's own limits")
	assert.Nil(t, (&report{NodeReport: lease.NodeReport{Pressure: map[string]string{"disk": "soft"}}, Heard: noon()}).pressure(noon(), noon(), time.Minute), "a level alone limits nothing")
	beat := *r
	beat.Heard, beat.Renewed = noon().Add(time.Second), lease.Micro(noon().Add(time.Second))
	assert.False(t, renewReport(r, &beat), "a beat is no news")
	assert.Equal(t, noon().Add(time.Second), beat.Heard)
	again := *r
	again.Heard = noon().Add(time.Hour)
	again.Budget = nil
	assert.True(t, renewReport(r, &again))
	assert.Equal(t, noon(), again.Heard, "a write that renews nothing is no sign of life")
}

// The node's clock, and this machine's against the API server's, may be off by
// anything: what is held is held for as long as the node says that it is.
func TestAHoldLastsAsLongAsTheNodeSaysWhateverItsClock(t *testing.T) {
	for _, skew := range []time.Duration{0, 61 * time.Second, -61 * time.Second, time.Hour, -time.Hour} {
		for _, ahead := range []time.Duration{0, 20 * time.Minute, -20 * time.Minute} {
			until := lease.Micro(noon().Add(skew + 20*time.Second))
			r := &report{NodeReport: lease.NodeReport{HoldUntil: &until}, Renewed: lease.Micro(noon().Add(skew)), Heard: noon()}
			at := func(d time.Duration) *vgdp.Pressure {
				return r.pressure(noon().Add(d), noon().Add(d+ahead), 40*time.Second)
			}
			assert.Equal(t, noon().Add(20*time.Second+ahead), at(0).HoldUntil, "skew %s", skew)
			assert.Equal(t, noon().Add(20*time.Second+ahead), at(5*time.Second).HoldUntil, "skew %s", skew)
			assert.Zero(t, at(20*time.Second).HoldUntil, "skew %s", skew)
		}
	}
	for what, until := range map[string]time.Duration{"a clock that was set, or a lie": 100 * time.Hour, "more than an agent ever holds": vgdp.LongestHoldOff + time.Second} {
		later := lease.Micro(noon().Add(until))
		r := &report{NodeReport: lease.NodeReport{HoldUntil: &later}, Renewed: lease.Micro(noon()), Heard: noon()}
		assert.Equal(t, noon().Add(vgdp.LongestHoldOff), r.pressure(noon(), noon(), time.Minute).HoldUntil, what)
	}
}
