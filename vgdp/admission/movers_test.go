package admission

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// moved is a load of another data mover; by a node-agent of the node, if there is one.
func moved(mover, node string) *Object {
	o := &Object{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "du"}, AcceptedBy: node, Marked: node != "",
		Load: vgdp.Load{Namespace: "velero", Name: "du", Kind: vgdp.DataUpload, Mover: mover},
	}
	if node != "" {
		o.Load.Phase = vgdp.Accepted
	}
	return o
}

func TestOtherMovers(t *testing.T) {
	topology := vgdp.NewTopology([]vgdp.Node{{Features: vgdp.Features{Name: "n1"}, Agents: map[string]vgdp.Agent{"velero": {}}}})
	over, unmarked := moved("velero-tape", "n1"), moved("velero-tape", "n1")
	over.Load.Phase, unmarked.Marked = vgdp.Completed, false
	for _, row := range []struct {
		name    string
		objects []*Object
		want    []OtherMover
	}{
		{"Velero's own are no others", []*Object{moved("", "n1"), moved("velero", "n1"), moved("velero-fs", "n1"), moved("velero-block", "n1")}, nil},
		{"one that waits", []*Object{moved("acme.io/mover", "")}, []OtherMover{{Name: "acme.io/mover", Loads: 1}}},
		{"one that a node-agent accepted", []*Object{moved("velero-tape", "n1"), moved("velero-tape", "")}, []OtherMover{{Name: "velero-tape", Loads: 2, Served: 1}}},
		{"one that the mover of others accepted on a node without a node-agent", []*Object{moved("acme.io/mover", "n2")}, []OtherMover{{Name: "acme.io/mover", Loads: 1}}},
		{"one without the finalizer of node-agents", []*Object{unmarked}, []OtherMover{{Name: "velero-tape", Loads: 1}}},
		{"one that has ended", []*Object{over}, nil},
		{"a long name", []*Object{moved(strings.Repeat("x", 99), "")}, []OtherMover{{Name: strings.Repeat("x", maxMoverName), Loads: 1}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, example := otherMovers(row.objects, acceptedByNodeAgent(topology))
			assert.Equal(t, row.want, got)
			for _, m := range got {
				assert.Equal(t, m.Served > 0, example[m.Name] != nil)
			}
		})
	}
	t.Run("the rest of many have no name", func(t *testing.T) {
		var many []*Object
		for i := range 3 * maxOtherMovers {
			many = append(many, moved(fmt.Sprint("mover-", i), ""))
		}
		got, _ := otherMovers(many, acceptedByNodeAgent(topology))
		require.Len(t, got, maxOtherMovers+1)
		assert.Equal(t, OtherMover{Loads: 2 * maxOtherMovers}, got[0])
	})
}

// unconnected is a reconciler that reaches no API server.
func unconnected(t *testing.T) *Reconciler {
	t.Helper()
	nowhere, err := dynamic.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	require.NoError(t, err)
	return &Reconciler{Dynamic: nowhere, Settings: DefaultSettings, Log: slog.New(slog.DiscardHandler)}
}

// told are the Events of a test.
type told struct{ list []string }

func (e *told) Event(_ runtime.Object, kind, reason, text string) {
	e.list = append(e.list, kind+" "+reason+" "+text)
}

func TestPublishMovers(t *testing.T) {
	var log bytes.Buffer
	events := &told{}
	p := &publisher{log: slog.New(slog.NewTextHandler(&log, nil)), events: events}
	v := &velero{Velero: Velero{Namespace: "velero"}, told: map[string]bool{}}
	publish := func(list ...OtherMover) string {
		log.Reset()
		events.list = nil
		v.others = list
		p.publishMovers(v, map[string]*Object{"m": moved("m", "n1")})
		return log.String()
	}
	assert.Contains(t, publish(OtherMover{Name: "m", Loads: 1}), "another data mover are not held or counted")
	assert.Empty(t, events.list)
	assert.Empty(t, publish(OtherMover{Name: "m", Loads: 9}), "it is said once")
	assert.Empty(t, publish())
	assert.Empty(t, publish(OtherMover{Name: "m", Loads: 1}))
	assert.Contains(t, publish(OtherMover{Name: "m", Loads: 9, Served: 1}), "level=WARN")
	assert.Equal(t, []string{corev1.EventTypeWarning + ` LoadUnknownDataMover not held: Velero's node-agents serve data mover "m", which Plimsoll does not know; upgrade Plimsoll`}, events.list)
	assert.Empty(t, publish(OtherMover{Name: "m", Loads: 9, Served: 2}), "and once that it is served")
	for i := range 2 * maxTold {
		publish(OtherMover{Name: fmt.Sprint(i)})
	}
	assert.Len(t, v.told, maxTold)
}

func TestLogStartedAtOnce(t *testing.T) {
	var log bytes.Buffer
	p := &publisher{log: slog.New(slog.NewTextHandler(&log, nil))}
	v := &velero{direct: map[vgdp.Kind]bool{}}
	for _, row := range []struct {
		direct bool
		want   string
	}{{false, ""}, {true, "kinds=[PodVolumeBackup]"}, {true, ""}, {false, "all can be held"}, {false, ""}} {
		log.Reset()
		v.direct[vgdp.PodVolumeBackup] = row.direct
		p.logStartedAtOnce(v)
		assert.Contains(t, log.String(), row.want)
		assert.Equal(t, row.want == "", log.Len() == 0, log.String())
	}
}

func TestKindsStarted(t *testing.T) {
	newest, oldest := func(vgdp.Kind) bool { return true }, func(k vgdp.Kind) bool { return k.Facts().HasMover }
	r := unconnected(t)
	r.reset()
	v := newVelero(r, Velero{Namespace: "velero"})
	for _, row := range []struct {
		name    string
		accepts func(vgdp.Kind) bool
		want    []vgdp.Kind
	}{
		{"by definitions of the newest none", newest, nil},
		{"by definitions of 1.16", oldest, []vgdp.Kind{vgdp.PodVolumeBackup, vgdp.PodVolumeRestore}},
		{"until it is upgraded", newest, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			v.kindsStarted(row.accepts)
			assert.Equal(t, row.want, v.startedAtOnce())
			assert.Equal(t, len(row.want) > 0, v.lax())
		})
	}
}

// A PodVolumeBackup that runs and was never accepted tells of the node-agent of its node,
// and of no other: loads of newer ones need tickets, or their acceptance is refused.
func TestOlderNodeAgent(t *testing.T) {
	read := func(kind vgdp.Kind, name, spec, status string) *Object {
		return Read(kind, object(t, fmt.Sprintf(`{"apiVersion":"velero.io/v1","kind":%q,"metadata":{"name":%q,"namespace":"velero","uid":%[2]q},"spec":{%s},"status":{%s}}`, kind, name, spec, status)))
	}
	const here, elsewhere, runs = `"node":"n1"`, `"node":"n2"`, `"phase":"InProgress"`
	pvb, pvr, du := vgdp.PodVolumeBackup, vgdp.PodVolumeRestore, vgdp.DataUpload
	waiting := []*Object{
		read(pvb, "here", here, ""), read(pvb, "elsewhere", elsewhere, ""), read(pvr, "restore", "", ""), read(du, "upload", "", ""),
		read(du, "prepared upload", "", `"phase":"Prepared",`+here),
	}
	for _, row := range []struct {
		name string
		runs *Object
		want []string // are started at once
	}{
		{"one runs that was never accepted", read(pvb, "it", here, runs), []string{"it", "here"}},
		{"one runs that was accepted", read(pvb, "it", here, runs+`,"acceptedTimestamp":"2026-03-01T12:00:00Z"`), nil},
		{"it has ended", read(pvb, "it", here, `"phase":"Completed"`), nil},
		{"it does not run yet", read(pvb, "it", elsewhere, ""), nil},
		{"a restore tells of itself alone: its node is unknown", read(pvr, "it", "", runs), []string{"it"}},
		{"restic is started at once by each Velero", read(pvb, "it", here+`,"uploaderType":"restic"`, runs), []string{"it"}},
		{"a DataUpload says nothing", read(du, "it", "", runs+`,"node":"n1"`), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := unconnected(t)
			r.reset()
			v := newVelero(r, Velero{Namespace: "velero"})
			byKind := map[vgdp.Kind][]any{}
			for _, o := range append(slices.Clone(waiting), row.runs) {
				byKind[o.Load.Kind] = append(byKind[o.Load.Kind], o)
			}
			for kind, list := range byKind {
				require.NoError(t, v.loads[kind].Replace(list, ""))
			}
			v.kindsStarted(func(vgdp.Kind) bool { return true })
			var direct []string
			for _, l := range v.current(nil, map[string]*Object{}) {
				if l.Direct {
					direct = append(direct, l.Name)
				}
			}
			assert.ElementsMatch(t, row.want, direct)
			assert.False(t, v.lax(), "of which node-agents read prepareQueueLength it tells nothing")
		})
	}
}

// A node-agent of Velero 1.16 does not read prepareQueueLength, so none keeps an older one
// from its start.
func TestNodeAgentWithoutPrepareLimit(t *testing.T) {
	c := configured(t, `{"loadConcurrency":{"globalConfig":2,"prepareQueueLength":3}}`, noon())
	c.lax = true
	assert.Equal(t, vgdp.Agent{Ready: true, Concurrency: 2}, c.agent(agentOf(noon()), nil))
}

// OADP's names: its operator makes node-agents by Velero's own installer, in openshift-adp,
// with a ConfigMap named after the DataProtectionApplication.
func TestOADP(t *testing.T) {
	pod := func(namespace string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "node-agent-x7k2p", Namespace: namespace, Labels: map[string]string{
				"component": "velero", "name": "node-agent", "role": "node-agent", "openshift.io/node-agent-cm-version": "123",
			}},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
				Name: "node-agent", Command: []string{"/velero"}, Args: []string{"node-agent", "server", "--node-agent-configmap=node-agent-" + namespace},
			}}},
			Status: agentRunning(),
		}
	}
	r := unconnected(t)
	r.reset()
	require.NoError(t, r.cluster.agents.Replace([]any{pod("openshift-adp"), pod("velero")}, ""))
	require.NoError(t, r.cluster.nodes.Replace([]any{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}, ""))
	for _, namespace := range []string{"openshift-adp", "velero"} {
		r.veleros[namespace] = newVelero(r, Velero{Namespace: namespace})
	}
	t.Run("its node-agents and their ConfigMap are found", func(t *testing.T) {
		assert.Equal(t, "node-agent-openshift-adp", configMapOf(Velero{Namespace: "openshift-adp"}, r.cluster.agents.List()))
	})
	t.Run("each Velero of a node has its own node-agent there", func(t *testing.T) {
		for _, namespace := range []string{"openshift-adp", "velero"} {
			agent, there := r.cluster.topology(r.veleros).Agent("n1", namespace)
			assert.True(t, there && agent.Ready, namespace)
		}
	})
	t.Run("the label selects them", func(t *testing.T) {
		key, value, _ := strings.Cut(roleAgent, "=")
		assert.Equal(t, value, pod("openshift-adp").Labels[key])
	})
	t.Run("the content of its ConfigMap is read", func(t *testing.T) {
		live, hints, err := vgdp.ReadNodeAgent("node-agent-dpa", map[string]string{
			"node-agent-config": `{"loadConcurrency":{"globalConfig":10,"perNodeConfig":[{"nodeSelector":{"matchLabels":{"app":"velero"}},"number":1}]}}`,
		})
		require.NoError(t, err)
		assert.Empty(t, hints)
		assert.Zero(t, live.PrepareLimit(), "its operator does not know the key")
	})
}

// Of the limit that this program is told and that of the ConfigMap the lower one holds.
func TestPrepareLimit(t *testing.T) {
	for _, row := range [][3]int{{0, 0, 0}, {4, 0, 4}, {0, 3, 3}, {4, 3, 3}, {2, 3, 2}} {
		t.Run(fmt.Sprintf("%d and %d", row[0], row[1]), func(t *testing.T) {
			r := unconnected(t)
			r.reset()
			v := newVelero(r, Velero{Namespace: "velero", PrepareQueueLength: row[0]})
			r.veleros["velero"] = v
			v.config = configured(t, fmt.Sprintf(`{"loadConcurrency":{"prepareQueueLength":%d}}`, row[1]), noon())
			v.watching = true
			require.NoError(t, v.backups.Replace(nil, ""))
			require.NoError(t, v.movers.Replace(nil, ""))
			for _, s := range v.loads {
				require.NoError(t, s.Replace(nil, ""))
			}
			r.Grace = func() time.Duration { return time.Minute }
			in, _ := r.input(t.Context(), Settings{Enabled: true})
			assert.Equal(t, row[2], in.Veleros["velero"].PrepareLimit)
		})
	}
}

func TestReadFinalizer(t *testing.T) {
	for finalizers, marked := range map[string]bool{`[]`: false, `["velero.io/other"]`: false, `["a/b","` + names.MoverFinalizer + `"]`: true} {
		o := Read(vgdp.DataUpload, object(t, `{"apiVersion":"velero.io/v2alpha1","kind":"DataUpload","metadata":{"name":"du","finalizers":`+finalizers+`},"status":{"acceptedByNode":"n1"}}`))
		assert.Equal(t, marked, o.Marked, finalizers)
		assert.Equal(t, "n1", o.AcceptedBy)
	}
}
