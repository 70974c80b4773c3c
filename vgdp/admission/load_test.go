package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
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

func TestReadLoad(t *testing.T) {
	du := Read(vgdp.DataUpload, object(t, `{"apiVersion":"velero.io/v2alpha1","kind":"DataUpload","metadata":{"name":"du","namespace":"velero","uid":"u","resourceVersion":"5",
"creationTimestamp":"2026-03-01T11:00:00Z","labels":{"velero.io/backup-name":"short"},"ownerReferences":[{"kind":"Backup","name":"the-whole-name","apiVersion":"velero.io/v1","uid":"x"},{"kind":"Other","name":"else","apiVersion":"v1","uid":"y"}],
"annotations":{"plimsoll.dev/held-datamover":"","plimsoll.dev/admitted":"*@7","plimsoll.dev/priority":"3","plimsoll.dev/waiting":"{\"reason\":\"limit\"}"}},
"spec":{"datamover":"plimsoll.dev/held","csiSnapshot":{"storageClass":"fast"}},"status":{"phase":"Accepted","acceptedTimestamp":"2026-03-01T11:30:00Z","nodeOS":"linux"}}`))
	assert.Equal(t, "the-whole-name", du.Backup)
	assert.Equal(t, "fast", du.Class)
	assert.NoError(t, du.AnnotationErr)
	assert.Equal(t, vgdp.Load{
		UID: "u", Namespace: "velero", Name: "du", Kind: vgdp.DataUpload, Phase: vgdp.Accepted, Created: du.Load.Created, AcceptedAt: time.Date(2026, 3, 1, 11, 30, 0, 0, time.UTC),
		Hidden: true, Backup: "Backup the-whole-name", Priority: new(int32(3)), Ticket: &vgdp.Ticket{Epoch: 7}, Note: vgdp.Note{Reason: vgdp.CodeLimit},
	}, du.Load)
	pvb := Read(vgdp.PodVolumeBackup, object(t, `{"apiVersion":"velero.io/v1","kind":"PodVolumeBackup","metadata":{"name":"a","annotations":{"plimsoll.dev/priority":"high","plimsoll.dev/waiting":"odd","plimsoll.dev/admitted":"n1"}},
"spec":{"node":"n1","cancel":true,"pod":{"namespace":"shop","name":"cart"}}}`))
	assert.Equal(t, "n1", pvb.Load.Node)
	assert.True(t, pvb.Load.Cancel)
	assert.Nil(t, pvb.Load.Ticket, "no ticket that the policies would take")
	assert.Zero(t, pvb.Load.Note)
	assert.ErrorContains(t, pvb.AnnotationErr, `got "high"`)
	assert.Equal(t, types.NamespacedName{Namespace: "shop", Name: "cart"}, pvb.Target)
	pvr := Read(vgdp.PodVolumeRestore, object(t, `{"apiVersion":"velero.io/v1","kind":"PodVolumeRestore","metadata":{"name":"a","labels":{"velero.io/restore-name":"r"}},
"spec":{"uploaderType":"restic","pod":{"namespace":"shop","name":"cart"}},"status":{"node":"n2","phase":7}}`))
	assert.True(t, pvr.Load.Direct, "what restic restores is never accepted")
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

func TestCarryOverTimes(t *testing.T) {
	with := func(phase vgdp.Phase, ticket *vgdp.Ticket) *Object {
		return &Object{Load: vgdp.Load{Phase: phase, Ticket: ticket}}
	}
	was, is := with(vgdp.Accepted, nil), with(vgdp.Prepared, &vgdp.Ticket{Epoch: 7})
	carryOver(was, is, noon())
	assert.Equal(t, noon(), is.Load.PreparedAt)
	assert.Equal(t, noon(), is.Load.Ticket.At)
	later := with(vgdp.Prepared, &vgdp.Ticket{Epoch: 7})
	carryOver(is, later, noon().Add(time.Minute))
	assert.Equal(t, noon(), later.Load.PreparedAt)
	assert.Equal(t, noon(), later.Load.Ticket.At)
	another := with(vgdp.InProgress, &vgdp.Ticket{Epoch: 8})
	carryOver(later, another, noon().Add(time.Hour))
	assert.Equal(t, noon().Add(time.Hour), another.Load.Ticket.At)
	assert.Zero(t, another.Load.PreparedAt)
}

func TestNodeAgentConfigMapOption(t *testing.T) {
	for _, args := range [][]string{
		{"--node-agent-configmap=a"},
		{"--node-agent-configmap", "a"},
		{"--x", "y", "--node-agent-configmap=a", "--z"},
		{"--node-agent-configmap=b", "--node-agent-configmap", "a"}, // as Velero's flags: the last one
	} {
		assert.Equal(t, "a", option(args, "--node-agent-configmap"), args)
	}
	for _, args := range [][]string{nil, {"--node-agent-configmap"}, {"--node-agent-configmaps=a"}} {
		assert.Empty(t, option(args, "--node-agent-configmap"), args)
	}
}

func TestReportPressureOfLiveAgents(t *testing.T) {
	until := lease.Micro(noon().Add(time.Minute))
	r := &nodeReport{NodeReport: lease.NodeReport{Pressure: map[string]string{"memory": "soft", "disk": "hard"}, DataMoverBudget: new(1), HoldUntil: &until}, LastHeartbeat: noon(), Renewed: lease.Micro(noon())}
	p := r.pressure(noon().Add(39*time.Second), noon().Add(39*time.Second), 40*time.Second)
	require.NotNil(t, p)
	assert.Equal(t, vgdp.Pressure{Budget: new(1), HoldUntil: until.Time, Why: "disk hard, memory soft"}, *p)
	assert.Nil(t, r.pressure(noon().Add(40*time.Second), noon(), 40*time.Second), "who is silent has Velero's own limits")
	assert.Nil(t, (&nodeReport{NodeReport: lease.NodeReport{Pressure: map[string]string{"disk": "soft"}}, LastHeartbeat: noon()}).pressure(noon(), noon(), time.Minute), "a level alone limits nothing")
	beat := *r
	beat.LastHeartbeat, beat.Renewed = noon().Add(time.Second), lease.Micro(noon().Add(time.Second))
	assert.False(t, reportChanged(r, &beat), "a beat is no news")
	assert.Equal(t, noon().Add(time.Second), beat.LastHeartbeat)
	again := *r
	again.LastHeartbeat = noon().Add(time.Hour)
	again.DataMoverBudget = nil
	assert.True(t, reportChanged(r, &again))
	assert.Equal(t, noon(), again.LastHeartbeat, "a write that renews nothing is no sign of life")
}

// The node's clock, and this machine's against the API server's, may be off by
// anything: what is held is held for as long as the node says that it is.
func TestReportHoldIgnoresNodeClock(t *testing.T) {
	for _, skew := range []time.Duration{0, 61 * time.Second, -61 * time.Second, time.Hour, -time.Hour} {
		for _, ahead := range []time.Duration{0, 20 * time.Minute, -20 * time.Minute} {
			until := lease.Micro(noon().Add(skew + 20*time.Second))
			r := &nodeReport{NodeReport: lease.NodeReport{HoldUntil: &until}, Renewed: lease.Micro(noon().Add(skew)), LastHeartbeat: noon()}
			at := func(d time.Duration) *vgdp.Pressure {
				return r.pressure(noon().Add(d), noon().Add(d+ahead), 40*time.Second)
			}
			assert.Equal(t, noon().Add(20*time.Second+ahead), at(0).HoldUntil, "skew %s", skew)
			assert.Equal(t, noon().Add(20*time.Second+ahead), at(5*time.Second).HoldUntil, "skew %s", skew)
			assert.Zero(t, at(20*time.Second).HoldUntil, "skew %s", skew)
		}
	}
	for what, until := range map[string]time.Duration{"a clock that was set, or a lie": 100 * time.Hour, "more than an agent ever holds": vgdp.MaxStartHold + time.Second} {
		later := lease.Micro(noon().Add(until))
		r := &nodeReport{NodeReport: lease.NodeReport{HoldUntil: &later}, Renewed: lease.Micro(noon()), LastHeartbeat: noon()}
		assert.Equal(t, noon().Add(vgdp.MaxStartHold), r.pressure(noon(), noon(), time.Minute).HoldUntil, what)
	}
}

func TestReadRestoreLoad(t *testing.T) {
	dd := Read(vgdp.DataDownload, object(t, `{"apiVersion":"velero.io/v2alpha1","kind":"DataDownload","metadata":{"name":"dd","namespace":"velero","deletionTimestamp":"2026-03-01T11:00:00Z",
"labels":{"velero.io/backup-name":"b","velero.io/restore-name":"r"},"annotations":{"plimsoll.dev/diagnosis":"no node","plimsoll.dev/started":"n1@7"}},
"spec":{"nodeOS":"windows","targetVolume":{"namespace":"shop","pvc":"data"}},"status":{"nodeOS":"linux"}}`))
	assert.Equal(t, "windows", dd.OS)
	assert.Equal(t, types.NamespacedName{Namespace: "shop", Name: "data"}, dd.Target)
	assert.True(t, dd.Load.Deleted)
	assert.Empty(t, dd.Backup, "of a restore")
	assert.Equal(t, "Restore r", dd.Load.Backup)
	assert.Equal(t, "no node", dd.Diagnosis)
	assert.Equal(t, &vgdp.Ticket{Node: "n1", Epoch: 7}, dd.Load.Started)
	assert.Nil(t, dd.Load.Priority)
	assert.NoError(t, dd.AnnotationErr)

	kopia := Read(vgdp.PodVolumeBackup, object(t, `{"apiVersion":"velero.io/v1","kind":"PodVolumeBackup","metadata":{"name":"a","labels":{"velero.io/backup-name":"b"},"annotations":{"plimsoll.dev/waiting":"{\"since\":\"2026-03-01T11:00:00Z\",\"reason\":7}"}},
"spec":{"uploaderType":"kopia","cancel":"yes"},"status":{"acceptedTimestamp":"noon"}}`))
	assert.Empty(t, kopia.Load.Mover)
	assert.Equal(t, "b", kopia.Backup)
	assert.Equal(t, "Backup b", kopia.Load.Backup)
	assert.Zero(t, kopia.Load.Note, "what is partly read is written anew")
	assert.False(t, kopia.Load.Cancel)
	assert.Zero(t, kopia.Load.AcceptedAt)
}

func TestLoadIsNewOrEnded(t *testing.T) {
	for phase, want := range map[vgdp.Phase][2]bool{
		"": {true, false}, vgdp.New: {true, false}, vgdp.Accepted: {}, vgdp.Prepared: {}, vgdp.InProgress: {}, vgdp.Canceling: {},
		vgdp.Completed: {false, true}, vgdp.Failed: {false, true}, vgdp.Canceled: {false, true},
	} {
		l := &vgdp.Load{Phase: phase}
		assert.Equal(t, want, [2]bool{isNew(l), ended(l)}, phase)
	}
}

func TestCarryOverStartTicket(t *testing.T) {
	was, is := &Object{}, &Object{Load: vgdp.Load{Started: &vgdp.Ticket{Node: "n1", Epoch: 7}}}
	carryOver(was, is, noon())
	assert.Equal(t, noon(), is.Load.Started.At)
	for want, ticket := range map[time.Duration]*vgdp.Ticket{0: {Node: "n1", Epoch: 7}, time.Minute: {Node: "n2", Epoch: 7}, time.Hour: {Node: "n1", Epoch: 8}} {
		later := &Object{Load: vgdp.Load{Started: ticket}}
		carryOver(is, later, noon().Add(want))
		assert.Equal(t, noon().Add(want), later.Load.Started.At)
	}
}

func TestReportChanged(t *testing.T) {
	until, later := lease.Micro(noon()), lease.Micro(noon().Add(time.Second))
	with := func(budget *int, until *metav1.MicroTime) *nodeReport {
		return &nodeReport{NodeReport: lease.NodeReport{DataMoverBudget: budget, HoldUntil: until}}
	}
	was := with(new(1), &until)
	for what, row := range map[string]struct {
		is   *nodeReport
		news bool
	}{
		"the same":          {with(new(1), new(until)), false},
		"another budget":    {with(new(2), &until), true},
		"no budget":         {with(nil, &until), true},
		"a later hold":      {with(new(1), &later), true},
		"the hold is over":  {with(new(1), nil), true},
		"another pressure":  {&nodeReport{NodeReport: lease.NodeReport{DataMoverBudget: new(1), HoldUntil: &until, Pressure: map[string]string{"disk": "hard"}}}, false},
		"it cannot be read": {&nodeReport{ParseErr: assert.AnError}, true},
	} {
		assert.Equal(t, row.news, reportChanged(was, row.is), what)
	}
	assert.False(t, reportChanged(with(nil, nil), with(nil, nil)))
	assert.True(t, reportChanged(with(nil, nil), with(new(0), nil)))

	odd := with(new(1), nil)
	odd.ParseErr, odd.LastHeartbeat = assert.AnError, noon()
	assert.Nil(t, odd.pressure(noon(), noon(), time.Minute), "what cannot be read limits nothing")
	shrunk := with(new(1), nil)
	shrunk.LastHeartbeat = noon()
	assert.Equal(t, &vgdp.Pressure{Budget: new(1), Why: "pressure is over, data mover budget is growing back"}, shrunk.pressure(noon(), noon(), time.Minute))
}

func TestTrimBackupAndLease(t *testing.T) {
	b, err := trimBackup(object(t, `{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"b","labels":{"velero.io/schedule-name":"nightly"}},
"spec":{"itemOperationTimeout":"4h0m0s","hooks":{"resources":[{"post":[{}]},{"pre":[{}]}]}}}`))
	require.NoError(t, err)
	assert.True(t, b.Scheduled)
	assert.True(t, b.Hooks)
	assert.Equal(t, 4*time.Hour, b.Timeout)
	again, err := trimBackup(b)
	require.NoError(t, err)
	assert.Same(t, b, again)
	plain, err := trimBackup(object(t, `{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"b"},"spec":{"itemOperationTimeout":"soon","hooks":{"resources":["odd",{"pre":[]},{"pre":7}]}}}`))
	require.NoError(t, err)
	assert.Equal(t, &parentBackup{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, plain)
	for _, change := range []func(*parentBackup){func(p *parentBackup) { p.Scheduled = false }, func(p *parentBackup) { p.Hooks = false }, func(p *parentBackup) { p.Timeout = 0 }} {
		is := *b
		assert.False(t, backupChanged(b, &is))
		change(&is)
		assert.True(t, backupChanged(b, &is))
	}

	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{lease.NodeAnnotation: `{"budget":2}`}}}
	r, err := trimReport(l)
	require.NoError(t, err)
	assert.True(t, r.Renewed.IsZero())
	l.Spec.RenewTime = new(lease.Micro(noon()))
	r, err = trimReport(l)
	require.NoError(t, err)
	assert.True(t, r.Renewed.Time.Equal(noon()))
	assert.Equal(t, 2, *r.DataMoverBudget)
	kept, err := trimReport(r)
	require.NoError(t, err)
	assert.Same(t, r, kept)

	started := metav1.NewTime(noon())
	a := readAgent(&corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Command: []string{"velero"}, Args: []string{"--node-agent-configmap=own"}}, {Name: "sidecar"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}}, {}}},
	})
	assert.Equal(t, "own", a.ConfigMap)
	assert.Equal(t, noon(), a.Started)
	for _, trim := range []func(any) error{
		func(o any) error { _, err := trimNode(o); return err }, func(o any) error { _, err := trimMover(o); return err },
		func(o any) error { _, err := trimBackup(o); return err }, func(o any) error { _, err := trimReport(o); return err },
	} {
		assert.Error(t, trim(&corev1.Secret{}))
	}
}
