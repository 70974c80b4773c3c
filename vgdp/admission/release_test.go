package admission

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

func TestLoadRelease(t *testing.T) {
	for name, row := range map[string]struct {
		annotations, spec map[string]any
		want              string
		hidden            bool
	}{
		"nothing of ours": {annotations: map[string]any{"theirs": "x", "plimsoll.dev/priority": "3"}},
		"words": {
			annotations: map[string]any{"theirs": "x", "plimsoll.dev/admitted": "*@1", "plimsoll.dev/started": "n@1", "plimsoll.dev/waiting": "{}", "plimsoll.dev/postponed-until": "", "plimsoll.dev/diagnosis": "{}"},
			spec:        map[string]any{"datamover": "acme.io/m"},
			want:        `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/admitted":null,"plimsoll.dev/started":null,"plimsoll.dev/waiting":null,"plimsoll.dev/postponed-until":null,"plimsoll.dev/diagnosis":null}}}`,
		},
		"hidden": {
			annotations: map[string]any{"plimsoll.dev/held-datamover": "velero"}, spec: map[string]any{"datamover": "plimsoll.dev/held"}, hidden: true,
			want: `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/held-datamover":null}},"spec":{"datamover":"velero"}}`,
		},
		"hidden, and named none": {
			annotations: map[string]any{"plimsoll.dev/held-datamover": ""}, spec: map[string]any{"datamover": "plimsoll.dev/held"}, hidden: true,
			want: `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/held-datamover":null}},"spec":{"datamover":null}}`,
		},
		"hidden, and its record is lost": {
			spec: map[string]any{"datamover": "plimsoll.dev/held"}, hidden: true,
			want: `{"metadata":{"resourceVersion":"7","annotations":{}},"spec":{"datamover":null}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "7", "annotations": row.annotations}, "spec": row.spec}}
			body, hidden, err := ReleasePatch(u)
			require.NoError(t, err)
			assert.Equal(t, row.hidden, hidden)
			if row.want == "" {
				assert.Nil(t, body)
				return
			}
			assert.JSONEq(t, row.want, string(body))
		})
	}
}

func TestStaleRelease(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(ago time.Duration) *metav1.MicroTime { return new(metav1.NewMicroTime(now.Add(-ago))) }
	in := func(d time.Duration) string { return utc(now.Add(d)) }
	fresh := gate.Spec{Limited: true, RenewTime: at(29 * time.Second), LeaseDurationSeconds: 30}
	stale := gate.Spec{Limited: true, RenewTime: at(31 * time.Second), LeaseDurationSeconds: 30}
	moves := fresh
	moves.ProgressTime = at(29 * time.Minute)
	const back = `{"metadata":{"resourceVersion":"7","annotations":{"plimsoll.dev/held-datamover":null}},"spec":{"datamover":"velero"}}`
	for name, row := range map[string]struct {
		gate      *gate.Spec
		age       time.Duration
		spec      map[string]any
		postponed string
		deleted   bool
		want      string
		notHidden bool
	}{
		"a fresh Gate holds it":                  {gate: &fresh, age: time.Minute},
		"the Gate is stale":                      {gate: &stale, age: time.Minute, want: back},
		"there is none":                          {age: time.Minute, want: back},
		"it limits nothing":                      {gate: &gate.Spec{RenewTime: at(0), LeaseDurationSeconds: 30}, want: back},
		"it was never renewed":                   {gate: &gate.Spec{Limited: true}, want: back},
		"it is too old to be held":               {gate: &fresh, age: 30 * time.Minute, want: back},
		"it is old, and others are on their way": {gate: &moves, age: 2 * time.Hour},
		"it is old, and was just postponed":      {gate: &fresh, age: 2 * time.Hour, postponed: in(-29 * time.Minute)},
		"it is postponed":                        {gate: &fresh, age: 2 * time.Hour, postponed: in(10 * time.Hour)},
		"it was postponed":                       {gate: &fresh, age: 2 * time.Hour, postponed: in(-30 * time.Minute), want: back},
		"it is postponed for ever":               {gate: &fresh, age: 25*time.Hour + 30*time.Minute, postponed: in(99 * time.Hour), want: back},
		"it is postponed, the Gate is stale":     {gate: &stale, age: 2 * time.Hour, postponed: in(10 * time.Hour), want: back},
		"it is cancelled":                        {gate: &fresh, spec: map[string]any{"cancel": true}, want: back},
		"it is deleted":                          {gate: &fresh, deleted: true, want: back},
		"it is not hidden, and there is no Gate": {spec: map[string]any{"datamover": "velero"}, notHidden: true},
		"another mover's, and there is no Gate":  {spec: map[string]any{"datamover": "acme.io/m"}, notHidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]any{"plimsoll.dev/held-datamover": "velero", "plimsoll.dev/waiting": "{}", "plimsoll.dev/postponed-until": row.postponed}},
				"spec":     map[string]any{"datamover": "plimsoll.dev/held"},
			}}
			for key, value := range row.spec {
				require.NoError(t, unstructured.SetNestedField(u.Object, value, "spec", key))
			}
			u.SetCreationTimestamp(metav1.NewTime(now.Add(-row.age)))
			if row.deleted {
				u.SetDeletionTimestamp(new(metav1.NewTime(now)))
			}
			var main *gate.Gate
			if row.gate != nil {
				main = &gate.Gate{Spec: *row.gate}
			}
			body, hidden, err := StalePatch(u, main, now)
			require.NoError(t, err)
			assert.Equal(t, !row.notHidden, hidden)
			if row.want == "" {
				assert.Nil(t, body)
				return
			}
			assert.JSONEq(t, row.want, string(body))
		})
	}
}

// A controller that ended between its Gate's last write and the releases hides nothing for
// good.
func TestFindHeld(t *testing.T) {
	for name, row := range map[string]struct {
		limited bool
		of      []Velero
		enabled bool
		mover   string
		loads   int // the answer's code to a list of loads
		found   bool
		again   bool
	}{
		"the Gate limits":                     {limited: true, mover: "velero", loads: http.StatusOK, found: true},
		"it limits nothing, a load is hidden": {mover: "plimsoll.dev/held", loads: http.StatusOK, found: true},
		"it limits nothing, and none is":      {mover: "velero", loads: http.StatusOK},
		"there are no loads":                  {loads: http.StatusNotFound},
		"discover finds it":                   {limited: true, enabled: true, mover: "plimsoll.dev/held", loads: http.StatusOK},
		"discover finds what is named":        {limited: true, enabled: true, of: []Velero{{Namespace: "velero"}}, mover: "plimsoll.dev/held", loads: http.StatusOK},
		"the configuration names another":     {enabled: true, of: []Velero{{Namespace: "other"}}, mover: "plimsoll.dev/held", loads: http.StatusOK, found: true},
		"another, and no load is hidden":      {limited: true, enabled: true, of: []Velero{{Namespace: "other"}}, mover: "velero", loads: http.StatusOK, found: true},
		"loads cannot be listed":              {loads: http.StatusServiceUnavailable, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch path.Base(r.URL.Path) {
				case "gates":
					fmt.Fprintf(w, `{"kind":"GateList","apiVersion":"plimsoll.dev/v1alpha1","items":[{"kind":"Gate","apiVersion":"plimsoll.dev/v1alpha1","metadata":{"name":"holds","namespace":"other"},"spec":{"limited":true}},
						{"kind":"Gate","apiVersion":"plimsoll.dev/v1alpha1","metadata":{"name":"main","namespace":"velero"},"spec":{"limited":%t}}]}`, row.limited)
				case "datadownloads":
					w.WriteHeader(row.loads)
					fmt.Fprintf(w, `{"kind":"DataDownloadList","apiVersion":"velero.io/v2alpha1","items":[{"kind":"DataDownload","apiVersion":"velero.io/v2alpha1","metadata":{"name":"a"},"spec":{"datamover":%q}}]}`, row.mover)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			t.Cleanup(s.Close)
			client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
			require.NoError(t, err)
			settings := DefaultSettings()
			settings.Enabled = row.enabled
			r := &Reconciler{
				Dynamic: client, Core: &oneMap{version: "1", text: `{"loadConcurrency":{"globalConfig":4,"prepareQueueLength":1}}`}, Of: row.of, Abilities: newest, Events: noEvents{},
				Settings: func() Settings { return settings }, Grace: func() time.Duration { return time.Minute }, Log: slog.New(slog.DiscardHandler),
			}
			r.reset()
			assert.Equal(t, !row.again, r.findHeld(t.Context()))
			assert.Equal(t, row.found, r.veleros["velero"] != nil)
			assert.NotContains(t, r.veleros, "other")
			if row.found {
				assert.Equal(t, row.mover == gate.HiddenMover, releasesOne(t, r, row.mover))
			}
		})
	}
}

// releasesOne tells whether a new load in namespace velero is released, whose node-agents
// have a limit, and whose node is under pressure.
func releasesOne(t *testing.T, r *Reconciler, mover string) bool {
	t.Helper()
	v := r.veleros["velero"]
	v.keeper.gates, v.watching = newGates(), true
	for _, of := range r.Of {
		r.veleros[of.Namespace] = newVelero(r, of)
		r.veleros[of.Namespace].keeper.gates, r.veleros[of.Namespace].watching = newGates(), true
	}
	hold := lease.Micro(time.Now().Add(time.Minute))
	require.NoError(t, r.cluster.leases.Replace([]any{&nodeReport{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, NodeReport: lease.NodeReport{HoldUntil: &hold}, Renewed: lease.Micro(time.Now()), LastHeartbeat: time.Now(),
	}}, ""))
	require.NoError(t, r.cluster.nodes.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}, ""))
	require.NoError(t, r.cluster.agents.Replace([]any{agentOf(noon())}, ""))
	require.NoError(t, v.backups.Replace(nil, ""))
	require.NoError(t, v.movers.Replace(nil, ""))
	for kind, l := range v.loads {
		var all []any
		if kind == vgdp.DataDownload {
			all = append(all, object(t, fmt.Sprintf(`{"apiVersion":"velero.io/v2alpha1","kind":"DataDownload","metadata":{"name":"a","namespace":"velero","uid":"a","creationTimestamp":%q},"spec":{"datamover":%q}}`, utc(time.Now()), mover)))
		}
		require.NoError(t, l.Replace(all, ""))
	}
	o, complete := r.observe(t.Context(), r.Settings())
	require.True(t, complete)
	p, err := decide(o)
	require.NoError(t, err)
	assert.False(t, p.desired["velero"].limited)
	assert.Empty(t, p.desired["velero"].away)
	shown := slices.ContainsFunc(reports(&o.Input, &p.Decision, r.veleros, nil), func(p Report) bool { return p.Namespace == "velero" })
	assert.Equal(t, !v.unnamed || mover == gate.HiddenMover, shown, "one that is not named is shown while anything of it is held")
	return len(p.Release) == 1 && kindsOf(p.edits)[KindRelease] > 0
}
