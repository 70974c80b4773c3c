package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/store"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// backupRepository as Velero 1.18 writes it.
func backupRepository(t *testing.T, change map[string]any) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(`{"apiVersion":"velero.io/v1","kind":"BackupRepository",
		"metadata":{"name":"shop-default-kopia-x","namespace":"velero","resourceVersion":"7"},
		"spec":{"backupStorageLocation":"default","maintenanceFrequency":"1h0m0s","repositoryType":"kopia","volumeNamespace":"shop"},
		"status":{"phase":"Ready","lastMaintenanceTime":"2026-03-01T10:00:00Z"}}`), &u.Object))
	merge(u.Object, change)
	return u
}

func postponedTo(text string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"plimsoll.dev/postponed-maintenance": text}}}
}

func TestRepository(t *testing.T) {
	last := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	whole := vgdp.Repository{
		Namespace: "velero", Name: "shop-default-kopia-x", Key: vgdp.RepositoryKey{VolumeNamespace: "shop", Location: "default"},
		FrequencyText: "1h0m0s", Frequency: time.Hour, Last: last,
	}
	with := func(change func(*vgdp.Repository)) vgdp.Repository {
		r := whole
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		change map[string]any
		want   vgdp.Repository
	}{
		"as Velero makes it": {nil, whole},
		"postponed": {postponedTo(`{"was":"30m","set":"1h0m0s"}`), with(func(r *vgdp.Repository) {
			r.Postponed = &vgdp.Postponed{Was: "30m", Set: "1h0m0s"}
		})},
		"an annotation that is none": {postponedTo(`[]`), with(func(r *vgdp.Repository) { r.Postponed = &vgdp.Postponed{} })},
		"no frequency":               {map[string]any{"spec": map[string]any{"maintenanceFrequency": "often"}}, with(func(r *vgdp.Repository) { r.FrequencyText, r.Frequency = "often", 0 })},
		"never maintained":           {map[string]any{"status": map[string]any{"lastMaintenanceTime": nil}}, with(func(r *vgdp.Repository) { r.Last = time.Time{} })},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, readRepository(backupRepository(t, c.change)).Of)
		})
	}
	was, is := readRepository(backupRepository(t, nil)), readRepository(backupRepository(t, map[string]any{"status": map[string]any{"message": "x"}}))
	assert.False(t, repositoryChanged(was, is), "what decides is unchanged")
	assert.True(t, repositoryChanged(was, readRepository(backupRepository(t, postponedTo(`{}`)))))
	assert.True(t, repositoryChanged(was, readRepository(backupRepository(t, map[string]any{"status": map[string]any{"lastMaintenanceTime": "2026-03-01T11:00:00Z"}}))))
}

func TestRepositoryReleasePatch(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]any
		want   string
	}{
		"nothing of ours": {},
		"postponed": {
			postponedTo(`{"was":"30m","set":"1h0m0s"}`),
			`{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/postponed-maintenance":null}},"spec":{"maintenanceFrequency":"30m"}}`,
		},
		"a user changed the frequency": {
			postponedTo(`{"was":"30m","set":"2h0m0s"}`),
			`{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/postponed-maintenance":null}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := ReleaseRepositoryPatch(backupRepository(t, c.change))
			require.NoError(t, err)
			if c.want == "" {
				assert.Nil(t, body)
				return
			}
			assert.JSONEq(t, c.want, string(body))
		})
	}
}

func TestFrequencyPatch(t *testing.T) {
	of := readRepository(backupRepository(t, nil)).Of
	body, err := frequencyPatch("7", &vgdp.FrequencyWrite{Repository: &of, Text: "2h30m0s", Postponed: &vgdp.Postponed{Was: "1h0m0s", Set: "2h30m0s"}})
	require.NoError(t, err)
	u := backupRepository(t, nil)
	var patch map[string]any
	require.NoError(t, json.Unmarshal(body, &patch))
	merge(u.Object, patch)
	is := readRepository(u).Of
	assert.Equal(t, "2h30m0s", is.FrequencyText)
	assert.Equal(t, &vgdp.Postponed{Was: "1h0m0s", Set: "2h30m0s"}, is.Postponed, "what is written is read")
}

func TestMaintenances(t *testing.T) {
	r := &Reconciler{Log: slog.New(slog.DiscardHandler), Settings: DefaultSettings}
	r.reset()
	v := &velero{Velero: Velero{Namespace: "velero"}}
	v.repositories = store.New("repositories", r.wake, trimRepository, nil)
	v.backups = store.New("backups", r.wake, trimBackup, nil)
	v.movers = store.New("movers", r.wake, trimMover, nil)
	r.veleros["velero"] = v
	require.NoError(t, v.repositories.Update(backupRepository(t, nil)))
	require.NoError(t, v.repositories.Update(backupRepository(t, map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"volumeNamespace": "cart"}})))
	for name, phase := range map[string]corev1.PodPhase{"runs": corev1.PodRunning, "done": corev1.PodSucceeded, "broke": corev1.PodFailed} {
		require.NoError(t, v.movers.Update(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "velero", Labels: map[string]string{names.MaintenanceLabel: "a"}},
			Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: phase},
		}))
	}
	backup := func(name, phase, location string, spec map[string]any) {
		spec["storageLocation"] = location
		require.NoError(t, v.backups.Update(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "velero"}, "spec": spec, "status": map[string]any{"phase": phase},
		}}))
	}
	backup("elsewhere", "InProgress", "vault", map[string]any{})
	backup("over", "Completed", "default", map[string]any{})
	backup("without-it", "InProgress", "default", map[string]any{"includedNamespaces": []any{"s*"}, "excludedNamespaces": []any{"shop"}})
	node := func(name string, change func(*vgdp.Node)) vgdp.Node {
		n := vgdp.Node{Features: vgdp.Features{Name: name}}
		change(&n)
		return n
	}
	in := &vgdp.Input{
		Time: noon(), Veleros: map[string]vgdp.Velero{"velero": {}}, Pressure: map[string]vgdp.Pressure{"n2": {Why: "disk soft"}},
		Topology: vgdp.NewTopology([]vgdp.Node{
			node("n1", func(n *vgdp.Node) {
				n.Taints = []corev1.Taint{{Key: "plimsoll.dev/disk", Effect: corev1.TaintEffectPreferNoSchedule}}
			}),
			node("n2", func(*vgdp.Node) {}), node("cordoned", func(n *vgdp.Node) { n.Unschedulable = true }),
			node("tainted", func(n *vgdp.Node) { n.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}} }),
			node("windows", func(n *vgdp.Node) { n.Labels = map[string]string{corev1.LabelOSStable: "windows"} }),
		}),
	}
	m := maintainer{r}.maintenances(in, Settings{Enabled: true, Maintenance: true})
	assert.True(t, m.Enabled)
	assert.Equal(t, []string{"n1", "n2"}, m.Nodes)
	assert.Equal(t, map[string]string{"n2": "disk soft"}, m.Pressed)
	assert.Equal(t, []vgdp.MaintenancePod{{Namespace: "velero", Node: "n1"}}, m.Running)
	assert.Empty(t, m.InUse)
	require.Len(t, m.Repositories, 2)
	assert.Equal(t, "a", m.Repositories[0].Name)
	backup("nightly", "InProgress", "default", map[string]any{"includedNamespaces": []any{"*"}})
	in.Loads = []vgdp.Load{Read(vgdp.PodVolumeBackup, &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "pvb", "namespace": "velero", "creationTimestamp": noon().Format(time.RFC3339)},
		"spec":     map[string]any{"backupStorageLocation": "default", "pod": map[string]any{"namespace": "cart"}}, "status": map[string]any{"phase": "InProgress"},
	}}).Load}
	assert.Equal(t, map[string]map[vgdp.RepositoryKey]string{"velero": {
		{VolumeNamespace: "shop", Location: "default"}: "Backup nightly is running",
		{VolumeNamespace: "cart", Location: "default"}: "Backup nightly is running",
	}}, maintainer{r}.maintenances(in, Settings{}).InUse)
	for _, s := range []Settings{{Enabled: true}, {Maintenance: true}} {
		assert.False(t, maintainer{r}.maintenances(in, s).Enabled)
	}
}

func TestLoadRepository(t *testing.T) {
	for kind, spec := range map[vgdp.Kind]map[string]any{
		vgdp.DataUpload:       {"sourceNamespace": "shop"},
		vgdp.DataDownload:     {"sourceNamespace": "shop", "targetVolume": map[string]any{"namespace": "new"}},
		vgdp.PodVolumeBackup:  {"pod": map[string]any{"namespace": "shop"}},
		vgdp.PodVolumeRestore: {"sourceNamespace": "shop", "pod": map[string]any{"namespace": "new"}},
	} {
		spec["backupStorageLocation"] = "default"
		l := Read(kind, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}, "spec": spec}}).Load
		assert.Equal(t, vgdp.RepositoryKey{VolumeNamespace: "shop", Location: "default"}, l.Repository, kind)
	}
}

func TestGateMaintenance(t *testing.T) {
	g := newGates()
	k := g.keeper()
	away := func(nodes ...string) desiredGates { return desiredGates{away: nodes} }
	for i, row := range []struct {
		wish   desiredGates
		writes int
		nodes  []string
	}{
		{away(), 0, nil},
		{away("n1", "n2"), 1, []string{"n1", "n2"}},
		{away("n1", "n2"), 1, []string{"n1", "n2"}},
		{away("n2"), 2, []string{"n2"}},
		{away(), 3, nil},
		{away(), 3, nil},
	} {
		require.NoError(t, k.writeHolds(t.Context(), row.wish))
		assert.Equal(t, row.writes, g.writes, i)
		if row.nodes == nil && k.holds == nil {
			continue
		}
		assert.ElementsMatch(t, row.nodes, namesOf(k.holds.Spec.Maintenance), i)
		for _, until := range k.holds.Spec.Maintenance {
			assert.WithinDuration(t, time.Now().Add(k.lease), until.Time, 5*time.Second, "it ends with the lease")
		}
	}
	require.NoError(t, k.writeHolds(t.Context(), away("n1")))
	k.awayWritten = k.awayWritten.Add(-k.lease / 2)
	was := g.writes
	require.NoError(t, k.writeHolds(t.Context(), away("n1")))
	assert.Equal(t, was+1, g.writes, "it is renewed")
	next := g.keeper() // of the next leader
	require.NoError(t, next.read(t.Context()))
	require.NoError(t, next.writeHolds(t.Context(), away("n3")))
	assert.ElementsMatch(t, []string{"n3"}, namesOf(next.holds.Spec.Maintenance))
}

func TestMaintenanceReport(t *testing.T) {
	r := &Reconciler{Log: slog.New(slog.DiscardHandler)}
	r.reset()
	for _, namespace := range []string{"a", "b"} {
		r.veleros[namespace] = &velero{repositories: store.New("repositories", r.wake, trimRepository, nil)}
	}
	require.NoError(t, r.veleros["a"].repositories.Replace(nil, ""))
	d := &vgdp.MaintenanceDecision{Postponed: []vgdp.PostponedMaintenance{{Namespace: "a", Repository: "x", Why: "in use"}, {Namespace: "other", Repository: "y"}}}
	list := []Report{{Namespace: "a"}, {Namespace: "b"}}
	maintainer{r}.addMaintenances(list, d)
	assert.Equal(t, d.Postponed[:1], list[0].Maintenances)
	assert.Equal(t, 1, list[0].MaintenanceCount)
	assert.Empty(t, list[0].MaintenanceProblem)
	assert.Contains(t, list[1].MaintenanceProblem, "are not listed")
}

func TestFrequencyWritesRecorded(t *testing.T) {
	var said bytes.Buffer
	r := &Reconciler{Log: slog.New(slog.NewTextHandler(&said, nil))}
	r.reset()
	of := readRepository(backupRepository(t, nil)).Of
	postpone := &vgdp.FrequencyWrite{Repository: &of, Text: "2h0m0s", Postponed: &vgdp.Postponed{Was: "1h0m0s", Set: "2h0m0s"}, Why: "Backup nightly is running"}
	maintainer{r}.recordFrequency(t.Context(), postpone, nil)
	maintainer{r}.recordFrequency(t.Context(), &vgdp.FrequencyWrite{Repository: &of, Text: "1h0m0s"}, nil)
	refused := errors.New("refused")
	for range 3 {
		maintainer{r}.recordFrequency(t.Context(), postpone, refused)
	}
	maintainer{r}.recordFrequency(t.Context(), postpone, apierrors.NewConflict(schema.GroupResource{}, "x", refused))
	lines := said.String()
	assert.Contains(t, lines, `msg="maintenance of backup repository postponed" repository=velero/shop-default-kopia-x reason="Backup nightly is running" frequency=2h0m0s was=1h0m0s`)
	assert.Contains(t, lines, `msg="maintenance frequency of backup repository handed back" repository=velero/shop-default-kopia-x frequency=1h0m0s`)
	assert.Equal(t, 1, bytes.Count(said.Bytes(), []byte("retrying")), "a lasting failure is logged once")
	c := r.Counts()
	assert.Equal(t, map[Kind]uint64{KindPostpone: 1, KindHandBack: 1}, map[Kind]uint64(c.Writes))
	assert.EqualValues(t, 3, c.Failures)
	assert.EqualValues(t, 1, c.Conflicts)
}

// frequencyWrites has a Velero with the repository a, and counts what is written to it. The
// function writes the decisions about all there were at its last call.
func frequencyWrites(t *testing.T, status int) (r *Reconciler, v *velero, writes *atomic.Int64, write func()) {
	t.Helper()
	writes = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writes.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status != http.StatusOK {
			assert.NoError(t, json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: int32(status), Message: "a policy is against it"}))
			return
		}
		u := backupRepository(t, postponedTo(`{"was":"1h0m0s","set":"2h0m0s"}`))
		u.SetResourceVersion("9")
		assert.NoError(t, json.NewEncoder(w).Encode(u.Object))
	}))
	t.Cleanup(s.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	r = &Reconciler{Dynamic: client, Settings: DefaultSettings, Log: slog.New(slog.DiscardHandler)}
	r.reset()
	v = newVelero(r, Velero{Namespace: "velero"})
	r.veleros["velero"] = v
	require.NoError(t, v.repositories.Update(backupRepository(t, nil)))
	of := readRepository(backupRepository(t, nil)).Of
	d := &vgdp.MaintenanceDecision{Writes: []vgdp.FrequencyWrite{{Repository: &of, Text: "2h0m0s", Postponed: &vgdp.Postponed{Was: "1h0m0s", Set: "2h0m0s"}}}}
	return r, v, writes, func() { maintainer{r}.writeFrequencies(t.Context(), d) }
}

// What an administrator writes after the decision stays.
func TestFrequencyChangedMeanwhile(t *testing.T) {
	r, v, writes, write := frequencyWrites(t, http.StatusOK)
	require.NoError(t, v.repositories.Update(backupRepository(t, map[string]any{"metadata": map[string]any{"resourceVersion": "8"}, "spec": map[string]any{"maintenanceFrequency": "24h"}})))
	write()
	assert.Zero(t, writes.Load())
	assert.EqualValues(t, 1, r.Counts().Conflicts)
	require.NoError(t, v.repositories.Update(backupRepository(t, map[string]any{"metadata": map[string]any{"resourceVersion": "8"}, "status": map[string]any{"message": "x"}})))
	write()
	assert.EqualValues(t, 1, writes.Load(), "what was decided about is unchanged")
}

// Repositories that are behind what was written delay no decision about loads.
func TestRepositoriesBehind(t *testing.T) {
	r, v, writes, write := frequencyWrites(t, http.StatusOK)
	for range 3 {
		write()
		assert.True(t, r.caughtUp())
	}
	assert.EqualValues(t, 1, writes.Load(), "it is not written again")
	require.NoError(t, v.repositories.Update(backupRepository(t, map[string]any{"metadata": map[string]any{"resourceVersion": "9"}})))
	write()
	assert.EqualValues(t, 2, writes.Load())
}

// A repository that the API server refuses to change is left alone for a while.
func TestRepositoryRefused(t *testing.T) {
	_, v, writes, write := frequencyWrites(t, http.StatusForbidden)
	for range 3 {
		write()
	}
	assert.EqualValues(t, 1, writes.Load())
	require.NoError(t, v.repositories.Update(backupRepository(t, map[string]any{"metadata": map[string]any{"resourceVersion": "8"}})))
	write()
	assert.EqualValues(t, 2, writes.Load(), "it has changed")
}
