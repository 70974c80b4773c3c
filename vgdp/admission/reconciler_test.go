package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/abilities"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// loadServer has DataUploads, by name, and Gates whose policies are in force.
type loadServer struct {
	t       *testing.T
	mu      sync.Mutex // several writes come at once
	version int
	loads   map[string]*unstructured.Unstructured
	dryRuns []string // bodies
	writes  []string // bodies
	keeps   bool     // no policy releases hidden loads
}

func (s *loadServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	u := s.loads[path.Base(r.URL.Path)]
	if r.Method != http.MethodPatch || u == nil {
		s.refuse(w, metav1.StatusReasonNotFound, http.StatusNotFound, "not found")
		return
	}
	body, err := io.ReadAll(r.Body)
	assert.NoError(s.t, err)
	var patch map[string]any
	assert.NoError(s.t, json.Unmarshal(body, &patch))
	dry := r.URL.Query().Get("dryRun") != ""
	now := u.DeepCopy()
	merge(now.Object, patch)
	switch phase, _, _ := unstructured.NestedString(now.Object, "status", "phase"); {
	case dry:
		s.dryRuns = append(s.dryRuns, string(body))
		if phase == string(vgdp.Accepted) {
			s.refuse(w, metav1.StatusReasonForbidden, http.StatusForbidden, "policy plimsoll-admit: no ticket")
			return
		}
		if !s.keeps {
			assert.NoError(s.t, unstructured.SetNestedField(now.Object, "velero", "spec", "datamover"))
		}
	default:
		s.version++
		s.writes = append(s.writes, string(body))
		now.SetResourceVersion(strconv.Itoa(s.version))
		s.loads[now.GetName()] = now
	}
	assert.NoError(s.t, json.NewEncoder(w).Encode(now.Object))
}

func (s *loadServer) refuse(w http.ResponseWriter, reason metav1.StatusReason, code int, message string) {
	w.WriteHeader(code)
	assert.NoError(s.t, json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: message}))
}

func (s *loadServer) add(name, phase string) {
	s.version++
	s.loads[name] = object(s.t, fmt.Sprintf(`{"apiVersion":"velero.io/v2alpha1","kind":"DataUpload","metadata":{"name":%q,"namespace":"velero","uid":%q,"resourceVersion":"%d","creationTimestamp":%q,"annotations":{}},"spec":{"datamover":"velero"},"status":{"phase":%q,"node":"n1"}}`,
		name, name, s.version, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), phase))
}

// listed is a reconciler of one Velero that has listed what the server has.
func listed(t *testing.T, s *loadServer) (*Reconciler, *velero, *gates) {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return listedBy(t, s, &rest.Config{Host: web.URL})
}

func listedBy(t *testing.T, s *loadServer, config *rest.Config) (*Reconciler, *velero, *gates) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	core, err := corev1client.NewForConfig(config)
	require.NoError(t, err)
	settings := DefaultSettings()
	settings.Enabled, settings.QuietAbove, settings.DiagnoseAfter = true, 1, 0
	r := &Reconciler{
		Dynamic: client, Core: core, Of: []Velero{{Namespace: "velero"}}, Events: noEvents{}, Log: slog.New(slog.DiscardHandler),
		Settings: func() Settings { return settings }, Grace: func() time.Duration { return time.Minute },
		Abilities: newest,
	}
	r.reset()
	v := newVelero(r, r.Of[0])
	g := newGates()
	v.keeper.gates, v.watching = g, true
	v.config = configured(t, `{"loadConcurrency":{"globalConfig":1,"prepareQueueLength":2}}`, noon())
	r.veleros["velero"] = v
	require.NoError(t, r.cluster.leases.Replace(nil, ""))
	require.NoError(t, r.cluster.nodes.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}, ""))
	require.NoError(t, r.cluster.agents.Replace([]any{&agentPod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "velero"}, Node: "n1", Ready: true}}, ""))
	require.NoError(t, v.backups.Replace(nil, ""))
	require.NoError(t, v.movers.Replace(nil, ""))
	for _, l := range v.loads {
		require.NoError(t, l.Replace(nil, ""))
	}
	learn(t, s, v)
	return r, v, g
}

// twoRounds are at a time from now on, by the clocks of the controller and the API server.
func twoRounds(t *testing.T, r *Reconciler, s *loadServer, g *gates, in time.Duration) {
	t.Helper()
	g.ahead = in
	r.clock.ahead.Store(int64(in))
	for range 2 {
		r.reconcile(t.Context())
		learn(t, s, r.veleros["velero"])
	}
}

func newest(context.Context) abilities.Velero { return abilities.Velero{} }

// learn makes the store know what the server has.
func learn(t *testing.T, s *loadServer, v *velero) {
	t.Helper()
	var all []any
	for _, u := range s.loads {
		all = append(all, u.DeepCopy())
	}
	require.NoError(t, v.loads[vgdp.DataUpload].Replace(all, ""))
}

func TestRound(t *testing.T) {
	s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
	s.add("runs", string(vgdp.InProgress))
	for i := range 5 {
		s.add(fmt.Sprint("new", i), "")
	}
	r, v, g := listed(t, s)
	round := func() int {
		before := len(s.writes)
		r.reconcile(t.Context())
		return len(s.writes) - before
	}
	assert.Zero(t, round(), "a new epoch voids the decision")
	assert.Len(t, r.wake, 1)
	assert.EqualValues(t, 1, v.keeper.epoch)
	progress, _, _ := unstructured.NestedString(g.all[gate.Main].Object, "spec", "progressTime")
	assert.NotEmpty(t, progress, "a load is on its way")

	wrote := round()
	assert.NotZero(t, wrote)
	require.Len(t, s.dryRuns, 2, "one for the Gate, one for what is hidden")
	assert.Contains(t, s.dryRuns[0], `"phase":"Accepted"`)
	assert.Contains(t, s.dryRuns[1], `"cancel":true`)
	assert.Empty(t, v.gateOpen)
	counts := r.Counts().Writes
	assert.NotZero(t, counts[KindHide])
	assert.EqualValues(t, wrote, counts[KindAdmit]+counts[KindHide]+counts[KindNote])
	require.Len(t, r.Reports(), 1)
	assert.True(t, r.Reports()[0].Limited)

	assert.Zero(t, round(), "its own writes are not seen yet")
	assert.Len(t, s.dryRuns, 2, "not again so soon")
	learn(t, s, v)
	assert.Zero(t, round(), "nothing has changed")
	assert.True(t, v.caughtUp())
}

// Where nothing was limited no target was looked up, and no hook was known.
func TestRoundThatBeginsToLimit(t *testing.T) {
	s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
	r, v, g := listed(t, s)
	r.reconcile(t.Context())
	v.desired.limited = false // as if the limit had been gone meanwhile
	require.NoError(t, v.writeGates(t.Context()))
	s.add("new", "")
	s.add("before", "")
	learn(t, s, v)
	goes := func(name string, phase vgdp.Phase) {
		require.NoError(t, unstructured.SetNestedField(s.loads[name].Object, string(phase), "status", "phase"))
		learn(t, s, v)
	}
	goes("before", vgdp.Accepted)
	epoch := v.keeper.epoch
	r.reconcile(t.Context())
	assert.Equal(t, epoch, v.keeper.epoch)
	assert.True(t, v.keeper.main.Spec.Limited)
	assert.Empty(t, s.writes)
	goes("before", vgdp.Completed)
	r.reconcile(t.Context())
	assert.EqualValues(t, 1, r.Counts().Writes[KindAdmit])
	assert.Equal(t, 4, g.writes, "the Gate three times, and once its holds")
	assert.Zero(t, r.Counts().Bypassed["velero"], "it needed no ticket when it was accepted")
	s.add("after", "")
	learn(t, s, v)
	goes("after", vgdp.Accepted)
	r.reconcile(t.Context())
	assert.EqualValues(t, 1, r.Counts().Bypassed["velero"])
}

// A ticket of an epoch that the Gate does not have would be void, and given again in each
// round.
func TestNoTicketWithoutGates(t *testing.T) {
	for name, gates := range map[string]func(*gates) dynamic.ResourceInterface{
		"not read":    func(*gates) dynamic.ResourceInterface { return away{} },
		"not written": func(g *gates) dynamic.ResourceInterface { return readOnly{of: g} },
	} {
		t.Run(name, func(t *testing.T) {
			s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
			for i := range 3 {
				s.add(fmt.Sprint("new", i), "")
			}
			r, v, g := listed(t, s)
			rounds := func(of dynamic.ResourceInterface) {
				v.keeper.gates = of
				for range 3 {
					r.reconcile(t.Context())
					learn(t, s, v)
				}
			}
			rounds(gates(g))
			assert.Zero(t, r.Counts().Writes[KindAdmit]+r.Counts().Writes[KindHide])
			assert.Zero(t, r.Counts().Waits[vgdp.DataUpload].Count)
			assert.Contains(t, r.Reports()[0].Problem, errAway.Error())
			v.ConfigMap = "gone"
			rounds(gates(g))
			assert.Contains(t, r.Reports()[0].ConfigMapError, "get configmaps gone", "the ConfigMap is read all the same")
			rounds(g)
			assert.Empty(t, r.Reports()[0].Problem)
			assert.EqualValues(t, 1, r.Counts().Writes[KindAdmit])
			assert.Contains(t, fmt.Sprint(s.writes), `"plimsoll.dev/admitted":"*@1"`)
		})
	}
}

// A Gate has the lease duration that is configured, also after a reload.
func TestLeaseDurationReloaded(t *testing.T) {
	s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
	r, v, g := listed(t, s)
	twoRounds(t, r, s, g, 0)
	settings := r.Settings()
	assert.EqualValues(t, 30, v.keeper.main.Spec.LeaseDurationSeconds)
	for _, seconds := range []int32{10, 60} {
		settings.LeaseDuration = time.Duration(seconds) * time.Second
		r.Settings = func() Settings { return settings }
		before := g.writes
		twoRounds(t, r, s, g, 0)
		assert.Equal(t, seconds, v.keeper.main.Spec.LeaseDurationSeconds)
		assert.Equal(t, before+1, g.writes, "once")
	}
}

// However slowly reasons may be written, no load waits for pressure longer than it may.
func TestPressureHoldWithoutNotes(t *testing.T) {
	s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
	for i := range 200 {
		s.add(fmt.Sprint("new", i), "")
	}
	r, v, g := listed(t, s)
	v.config = configured(t, `{"loadConcurrency":{"globalConfig":1}}`, noon()) // pressure alone limits
	settings := r.Settings()
	settings.QuietAbove, settings.NotesPerSecond = 1000, 1
	r.Settings = func() Settings { return settings }
	now := metav1.NowMicro()
	require.NoError(t, r.cluster.leases.Replace([]any{&nodeReport{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, NodeReport: lease.NodeReport{HoldUntil: new(metav1.NewMicroTime(now.Add(vgdp.MaxStartHold)))}, Renewed: now, LastHeartbeat: now.Time,
	}}, ""))
	for _, row := range []struct {
		in   time.Duration
		held int
	}{{0, 200}, {vgdp.MaxAcceptHold - 10*time.Second, 200}, {vgdp.MaxAcceptHold + 10*time.Second, 0}} {
		twoRounds(t, r, s, g, row.in)
		assert.Equal(t, row.held, r.Reports()[0].Reasons[vgdp.CodePressure], row.in)
	}
	assert.Less(t, r.Counts().Writes[KindNote], uint64(20))
}

// What is hidden while nothing would release it is released, also where nothing is visible.
func TestHiddenUnreleased(t *testing.T) {
	s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
	for i := range 5 {
		s.add(fmt.Sprint("new", i), "")
	}
	r, _, g := listed(t, s)
	hidden := func(in time.Duration) (n int) {
		twoRounds(t, r, s, g, in)
		for _, u := range s.loads {
			if isHidden(u) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 4, hidden(0))
	s.keeps = true
	assert.Equal(t, 4, hidden(10*time.Second), "an API server that has just started would say so, too")
	assert.Equal(t, notHiddenReason, r.Reports()[0].NotHidden)
	assert.Zero(t, r.Counts().Writes[KindRelease])
	assert.Zero(t, hidden(15*time.Second+maxUnreleased))
	assert.NotZero(t, r.Counts().Writes[KindRelease])
	s.keeps = false
	assert.NotZero(t, hidden(25*time.Second+maxUnreleased), "something would again")
}

func TestReadFacts(t *testing.T) {
	s := &loadServer{t: t, loads: map[string]*unstructured.Unstructured{}}
	r, _, _ := listed(t, s)
	in := &vgdp.Input{Time: noon(), Topology: vgdp.NewTopology(nil)}
	for i := range diagnosesPerRound + 2 {
		in.Loads = append(in.Loads, vgdp.Load{UID: fmt.Sprint(i), Name: fmt.Sprint(i), Namespace: "velero", Kind: vgdp.PodVolumeBackup, Phase: vgdp.Accepted, AcceptedAt: noon().Add(-time.Hour)})
	}
	in.Loads = append(in.Loads, vgdp.Load{UID: "new", Namespace: "velero"})
	assert.Empty(t, r.readFacts(t.Context(), in, 0), "0: never")
	first := r.readFacts(t.Context(), in, time.Minute)
	assert.Len(t, first, diagnosesPerRound, "a few in each round")
	assert.Contains(t, first["0"].Errors[0].Err.Error(), "not found")
	stuck := map[string]vgdp.Stuck{}
	for uid := range first {
		stuck[uid] = vgdp.Stuck{Why: "so"}
	}
	r.recordDiagnoses(&observation{Input: *in}, &plan{stuck: stuck})
	assert.Equal(t, diagnosed{at: noon(), why: "so"}, r.diagnosed[types.UID("0")])
	second := r.readFacts(t.Context(), in, time.Minute)
	assert.Len(t, second, 2, "those that were read are not read again so soon")
	in.Loads = in.Loads[:1]
	in.Loads[0].Phase, in.Time = vgdp.InProgress, noon().Add(4*diagnoseInterval)
	assert.Empty(t, r.readFacts(t.Context(), in, time.Minute), "one that runs without a mover may just be ending")
	in.Time = in.Time.Add(diagnoseInterval)
	assert.Len(t, r.readFacts(t.Context(), in, time.Minute), 1)
	r.diagnosed["0"] = diagnosed{at: in.Time.Add(time.Hour)}
	assert.Len(t, r.readFacts(t.Context(), in, time.Minute), 1, "the API server's clock was set back")
}
