package admission

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// readServer answers reads of the objects that it has, by path, and counts them.
type readServer struct {
	t       *testing.T
	mu      sync.Mutex // guards the others
	objects map[string]string
	refused string // kinds of objects that may not be read
	asked   map[string]int
	url     string
}

func (s *readServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	kind := strings.Split(r.URL.Path, "/")
	resource := kind[len(kind)-2]
	code, reason := http.StatusNotFound, metav1.StatusReasonNotFound
	switch text, there := s.objects[r.URL.Path]; {
	case s.refused != "" && strings.Contains(s.refused, resource):
		code, reason = http.StatusForbidden, metav1.StatusReasonForbidden
	case there:
		_, err := io.WriteString(w, text)
		assert.NoError(s.t, err)
		return
	}
	w.WriteHeader(code)
	assert.NoError(s.t, json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Details: &metav1.StatusDetails{Kind: resource}}))
}

// put objects as YAML, separated by a line with three dashes.
func (s *readServer) put(text string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for document := range strings.SplitSeq(text, "\n---\n") {
		body, err := yaml.YAMLToJSON([]byte(document))
		require.NoError(s.t, err)
		var u unstructured.Unstructured
		require.NoError(s.t, u.UnmarshalJSON(body))
		path := map[string]string{
			"PersistentVolumeClaim": "/api/v1/namespaces/" + u.GetNamespace() + "/persistentvolumeclaims/",
			"PersistentVolume":      "/api/v1/persistentvolumes/",
			"StorageClass":          "/apis/storage.k8s.io/v1/storageclasses/",
			"Pod":                   "/api/v1/namespaces/" + u.GetNamespace() + "/pods/",
			"Gate":                  "/apis/plimsoll.dev/v1alpha1/namespaces/velero/gates/",
		}[u.GetKind()] + u.GetName()
		s.objects[path] = string(body)
	}
}

// placed is a reconciler of one Velero with a limit, with these nodes, node-agents and
// other pods of its namespace, all as YAML, and the objects that can be read.
func placed(t *testing.T, nodeAgent, nodes, pods, objects string) (*Reconciler, *readServer) {
	t.Helper()
	s := &readServer{t: t, objects: map[string]string{}, asked: map[string]int{}}
	s.put(objects)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.url = web.URL
	how := &rest.Config{Host: web.URL, QPS: -1}
	client, err := dynamic.NewForConfig(how)
	require.NoError(t, err)
	core, err := corev1client.NewForConfig(how)
	require.NoError(t, err)
	storage, err := storagev1client.NewForConfig(how)
	require.NoError(t, err)
	settings := DefaultSettings()
	settings.Enabled = true
	r := &Reconciler{
		Dynamic: client, Core: core, Classes: storage, Of: []Velero{{Namespace: "velero"}}, Events: noEvents{}, Log: slog.New(slog.DiscardHandler),
		Settings: func() Settings { return settings }, Grace: func() time.Duration { return time.Minute },
	}
	r.reset()
	v := newVelero(r, r.Of[0])
	v.watching, v.desired.limited = true, true
	v.config = configured(t, nodeAgent, noon())
	r.veleros["velero"] = v
	require.NoError(t, r.cluster.leases.Replace(nil, ""))
	require.NoError(t, r.cluster.nodes.Replace(listOf[corev1.Node](t, nodes), ""))
	var agents, others []any
	for _, p := range listOf[corev1.Pod](t, pods) {
		if p.(*corev1.Pod).Labels["role"] == "node-agent" {
			agents = append(agents, p)
		} else {
			others = append(others, p)
		}
	}
	require.NoError(t, r.cluster.agents.Replace(agents, ""))
	require.NoError(t, v.movers.Replace(others, ""))
	require.NoError(t, v.backups.Replace(nil, ""))
	for _, l := range v.loads {
		require.NoError(t, l.Replace(nil, ""))
	}
	return r, s
}

func listOf[T any](t *testing.T, text string) (list []any) {
	t.Helper()
	if text == "" {
		return nil
	}
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := new(T)
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), o))
		list = append(list, o)
	}
	return list
}

// with loads, as YAML of their own kinds.
func with(t *testing.T, r *Reconciler, text string) {
	t.Helper()
	byKind := map[vgdp.Kind][]any{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		body, err := yaml.YAMLToJSON([]byte(document))
		require.NoError(t, err)
		u := object(t, string(body))
		u.SetNamespace("velero")
		byKind[vgdp.Kind(u.GetKind())] = append(byKind[vgdp.Kind(u.GetKind())], u)
	}
	for kind, list := range byKind {
		require.NoError(t, r.veleros["velero"].loads[kind].Replace(list, ""))
	}
}

// look observes, and returns the loads by name with the nodes that each can run on.
func look(t *testing.T, r *Reconciler, now time.Time) (vgdp.Input, map[string]*vgdp.Load, map[string][]string) {
	t.Helper()
	r.clock.set(now, time.Now(), time.Now())
	in, _ := r.input(t.Context(), r.Settings())
	loads, nodes := map[string]*vgdp.Load{}, map[string][]string{}
	for i := range in.Loads {
		l := &in.Loads[i]
		loads[l.Name], nodes[l.Name] = l, in.Topology.ReachOf(l).Nodes
	}
	return in, loads, nodes
}

// nodesOf are Nodes with labels and taints, one a line: NAME label=value… taint:key=value:effect…
func nodesOf(lines ...string) string {
	var all []string
	for _, line := range lines {
		words := strings.Fields(line)
		labels, taints := []string{"kubernetes.io/hostname: " + words[0]}, []string{}
		for _, w := range words[1:] {
			if taint, is := strings.CutPrefix(w, "taint:"); is {
				key, rest, _ := strings.Cut(taint, "=")
				value, effect, _ := strings.Cut(rest, ":")
				taints = append(taints, fmt.Sprintf("{key: %s, value: %q, effect: %s}", key, value, effect))
				continue
			}
			key, value, _ := strings.Cut(w, "=")
			labels = append(labels, fmt.Sprintf("%s: %q", key, value))
		}
		all = append(all, fmt.Sprintf("metadata: {name: %s, labels: {%s}}\nspec: {taints: [%s]}", words[0], strings.Join(labels, ", "), strings.Join(taints, ", ")))
	}
	return strings.Join(all, "\n---\n")
}

// agentsOn are pods of node-agents on nodes, with more of their specification.
func agentsOn(spec string, nodes ...string) string {
	var all []string
	for _, node := range nodes {
		all = append(all, fmt.Sprintf("metadata: {name: node-agent-%s, namespace: velero, uid: %s, labels: {role: node-agent}}\nspec: {nodeName: %s, containers: [], %s}\nstatus: {phase: Running, conditions: [{type: Ready, status: 'True'}]}", node, node, node, spec))
	}
	return strings.Join(all, "\n---\n")
}

func upload(name, claim, class string) string {
	return fmt.Sprintf("{apiVersion: velero.io/v2alpha1, kind: DataUpload, metadata: {name: %s, uid: %s}, spec: {sourceNamespace: shop, sourcePVC: %s, csiSnapshot: {storageClass: %q}}}", name, name, claim, class)
}

func download(name, claim, more string) string {
	return fmt.Sprintf("{apiVersion: velero.io/v2alpha1, kind: DataDownload, metadata: {name: %s, uid: %s}, spec: {targetVolume: {namespace: shop, pvc: %s, pv: ''}, %s}}", name, name, claim, more)
}

func claimYAML(name, class, volume, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s, namespace: shop, annotations: {%s}}\nspec: {storageClassName: %s, volumeName: %q}", name, more, class, volume)
}

func volumeYAML(name, fsType, zone string) string {
	affinity := ""
	if zone != "" {
		affinity = fmt.Sprintf("\n  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [%s]}]}]}}", zone)
	}
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s}\nspec:\n  csi: {driver: d, volumeHandle: h, fsType: %q}%s", name, fsType, affinity)
}

func classYAML(name, mode, more string) string {
	return fmt.Sprintf("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: d, volumeBindingMode: %s, %s}", name, mode, more)
}

const (
	immediate = "Immediate"
	delayed   = "WaitForFirstConsumer"
)

func documents(list ...string) string { return strings.Join(list, "\n---\n") }

// What Velero 1.18 writes into the pod, and what the scheduler then does with it.
func TestPlaceOfLoads(t *testing.T) {
	const config = `{"loadConcurrency":{"prepareQueueLength":9},"backupPVC":{"mapped":{"storageClass":"copies"}},"loadAffinity":[
{"nodeSelector":{"matchLabels":{"disk":"fast"}},"storageClass":"fast"},{"nodeSelector":{"matchLabels":{"disk":"slow"}},"storageClass":"slow"},
{"nodeSelector":{"matchLabels":{"disk":"copies"}},"storageClass":"copies"},{"nodeSelector":{"matchExpressions":[{"key":"disk","operator":"Exists"}]}}]}`
	nodes := nodesOf("a disk=fast zone=1", "b disk=slow zone=1", "c disk=copies zone=2", "d zone=2", "w disk=fast zone=1 kubernetes.io/os=windows taint:os=windows:NoSchedule")
	objects := documents(
		classYAML("fast", immediate, "allowedTopologies: [{matchLabelExpressions: [{key: zone, values: ['9']}]}]"), classYAML("slow", immediate, ""), classYAML("mapped", delayed, ""), classYAML("free", delayed, ""), classYAML("plain", immediate, ""),
		classYAML("late", delayed, "allowedTopologies: [{matchLabelExpressions: [{key: zone, values: ['1']}]}]"),
		classYAML("copies", delayed, "allowedTopologies: [{matchLabelExpressions: [{key: zone, values: ['2', '3']}]}]"),
		claimYAML("to-fast", "fast", "", ""), claimYAML("to-slow", "slow", "", ""), claimYAML("to-other", "plain", "", ""), claimYAML("to-late", "late", "", ""),
		claimYAML("to-late-d", "late", "", "volume.kubernetes.io/selected-node: d"), claimYAML("to-late-b", "late", "", "volume.kubernetes.io/selected-node: b"),
		claimYAML("of-zone-1", "free", "pv-zone-1", ""), claimYAML("mapped-zone-1", "mapped", "pv-zone-1", ""), claimYAML("of-mapped", "mapped", "pv-zone-2", ""), claimYAML("at-once-zone-1", "plain", "pv-zone-1", ""),
		claimYAML("on-w", "fast", "pv-linux", "volume.kubernetes.io/selected-node: w"), claimYAML("ntfs", "fast", "pv-ntfs", ""), claimYAML("unbound", "fast", "", ""),
		volumeYAML("pv-zone-1", "", "'1'"), volumeYAML("pv-zone-2", "", "'2'"), volumeYAML("pv-linux", "ext4", ""), volumeYAML("pv-ntfs", "NTFS", ""),
	)
	r, _ := placed(t, config, nodes, documents(agentsOn("tolerations: []", "a", "b", "c", "d"), agentsOn("os: {name: windows}", "w")), objects)
	rows := map[string]struct {
		load string
		want []string
	}{
		"a restore to a class of its own":                         {download("x", "to-fast", ""), []string{"a"}},
		"to another one":                                          {download("x", "to-slow", ""), []string{"b"}},
		"to one without an entry":                                 {download("x", "to-other", ""), []string{"a", "b", "c"}},
		"of a volume of Windows":                                  {download("x", "to-fast", "nodeOS: windows"), []string{"w"}},
		"without a system":                                        {download("x", "to-fast", "nodeOS: auto"), []string{"a"}},
		"bound with its pod: loadAffinity does not count":         {download("x", "to-late", ""), []string{"a", "b"}},
		"bound with its pod, whose node is chosen":                {download("x", "to-late-b", ""), []string{"b"}},
		"and one where no volume of the class can be":             {download("x", "to-late-d", ""), nil},
		"a backup of a class of its own":                          {upload("x", "unbound", "fast"), []string{"a"}},
		"a copy of another class, in zones of both":               {upload("x", "of-mapped", "mapped"), []string{"c"}},
		"and in none of both":                                     {upload("x", "mapped-zone-1", "mapped"), nil},
		"of a volume in a zone":                                   {upload("x", "of-zone-1", "free"), []string{"a", "b"}},
		"of a class that is in a zone":                            {upload("x", "gone", "late"), []string{"a", "b"}},
		"that is bound at once: Velero does not ask for its zone": {upload("x", "at-once-zone-1", "plain"), []string{"a", "b", "c"}},
		"of a volume that Windows has":                            {upload("x", "on-w", "fast"), []string{"w"}},
		"of a file system of Windows":                             {upload("x", "ntfs", "fast"), []string{"w"}},
		"whose claim is gone":                                     {upload("x", "gone", "slow"), []string{"b"}},
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Run(name, func(t *testing.T) {
			r.targets = newTargets(r.Core, r.Classes, r.Log)
			with(t, r, rows[name].load)
			_, loads, nodes := look(t, r, noon())
			require.Len(t, loads, 1)
			assert.Empty(t, loads["x"].NotReady)
			assert.Equal(t, rows[name].want, nodes["x"])
			for _, s := range r.veleros["velero"].loads {
				require.NoError(t, s.Replace(nil, ""))
			}
		})
	}
}

// restorePVC.ignoreDelayBinding: Velero does not wait for the restored pod.
func TestPlaceIgnoresDelayBinding(t *testing.T) {
	objects := documents(classYAML("late", delayed, ""), claimYAML("to", "late", "", "volume.kubernetes.io/selected-node: b"))
	for _, ignore := range []bool{false, true} {
		r, _ := placed(t, fmt.Sprintf(`{"loadConcurrency":{"prepareQueueLength":9},"restorePVC":{"ignoreDelayBinding":%t},"loadAffinity":[{"nodeSelector":{"matchLabels":{"disk":"fast"}}}]}`, ignore),
			nodesOf("a disk=fast", "b"), agentsOn("", "a", "b"), objects)
		with(t, r, download("x", "to", ""))
		_, _, nodes := look(t, r, noon())
		assert.Equal(t, map[bool][]string{false: {"b"}, true: {"a"}}[ignore], nodes["x"])
	}
}

// Four loads, and nodes that only pods with the node-agents' tolerations run on.
func TestPlaceTolerations(t *testing.T) {
	nodes := nodesOf("a taint:CriticalAddonsOnly=true:NoSchedule taint:kubernetes.azure.com/scalesetpriority=spot:NoSchedule", "b taint:dedicated=db:NoSchedule")
	objects := documents(classYAML("c", immediate, ""), claimYAML("to", "c", "", ""))
	loads := documents(upload("u1", "gone", "c"), upload("u2", "gone", "c"))
	restores := documents(download("d1", "to", ""), download("d2", "to", ""))
	for tolerations, want := range map[string]int{
		"[{key: CriticalAddonsOnly, operator: Exists}, {key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}, {key: dedicated, operator: Exists}]": 4,
		"[{operator: Exists}]": 1, // which the movers do not inherit: one is tried without a node
	} {
		r, _ := placed(t, `{"loadConcurrency":{"globalConfig":9,"prepareQueueLength":9}}`, nodes, agentsOn("tolerations: "+tolerations, "a", "b"), objects)
		with(t, r, documents(loads, restores))
		in, _, reach := look(t, r, noon())
		assert.Len(t, vgdp.Decide(in).Admit, want)
		if want == 4 {
			assert.Equal(t, map[string][]string{"u1": {"a"}, "u2": {"a"}, "d1": {"a"}, "d2": {"a"}}, reach)
		}
	}
	t.Run("of the newest node-agent", func(t *testing.T) {
		old, now := agentPodOf("old", 0, "CriticalAddonsOnly"), agentPodOf("new", time.Hour, "")
		windows := agentPodOf("windows", 2*time.Hour, "kubernetes.azure.com/scalesetpriority")
		windows.Windows = true
		all := inheritedTolerations([]*agentPod{now, old, windows})
		assert.Empty(t, all[agentsOf{"velero", false}])
		assert.Len(t, all[agentsOf{"velero", true}], 1)
		assert.Len(t, inheritedTolerations([]*agentPod{old})[agentsOf{"velero", false}], 1)
	})
}

func agentPodOf(name string, age time.Duration, key string) *agentPod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "velero", CreationTimestamp: metav1.NewTime(noon().Add(age))}}
	if key != "" {
		p.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}, {Key: "other"}}
	}
	return readAgent(p)
}

// What may not be read, by an older role, excludes no node and delays no load.
func TestPlaceWithoutRights(t *testing.T) {
	const config = `{"loadConcurrency":{"globalConfig":9,"prepareQueueLength":9},"loadAffinity":[{"nodeSelector":{"matchLabels":{"disk":"fast"}}}]}`
	for name, in := range map[string]time.Duration{"later": classInterval + 2*time.Second, "clock set back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			objects := documents(classYAML("late", delayed, ""), claimYAML("to", "late", "", ""), claimYAML("of", "late", "pv", ""), volumeYAML("pv", "", "'1'"))
			r, s := placed(t, config, nodesOf("a disk=fast zone=1", "b disk=fast zone=2", "c zone=1"), agentsOn("", "a", "b", "c"), objects)
			s.refused = "storageclasses"
			with(t, r, documents(download("back", "to", ""), upload("up", "of", "late")))
			input, _, nodes := look(t, r, noon())
			assert.Equal(t, map[string][]string{"back": {"a", "b", "c"}, "up": {"a", "b"}}, nodes, "its pod may follow the restored one; nothing says that its volume is in a zone")
			assert.Len(t, vgdp.Decide(input).Admit, 2)
			s.refused = ""
			_, _, nodes = look(t, r, noon().Add(in))
			assert.Equal(t, map[string][]string{"back": {"a", "b", "c"}, "up": {"a"}}, nodes, "the right was given")
		})
	}
}

// Of many the restores come first, and all get their turn without waiting for time.
func TestPlaceLookUpsInOrder(t *testing.T) {
	r, s := placed(t, `{"loadConcurrency":{"globalConfig":9,"prepareQueueLength":9}}`, nodesOf("a"), agentsOn("", "a"), documents(classYAML("c", immediate, ""), claimYAML("to", "c", "", "")))
	var all []string
	for i := range 2 * targetsPerRound {
		all = append(all, upload(fmt.Sprint("up", i), "gone", "c"))
	}
	with(t, r, documents(append(all, download("back", "to", ""))...))
	_, loads, _ := look(t, r, noon())
	assert.Empty(t, loads["back"].NotReady)
	count := func() (n int) {
		_, loads, _ = look(t, r, noon())
		for _, l := range loads {
			if l.NotReady != "" {
				assert.Equal(t, notLookedUp, l.NotReady)
				n++
			}
		}
		return n
	}
	assert.Len(t, r.wake, 1, "the others are looked up at once")
	for rounds := 1; count() > 0; rounds++ {
		require.Less(t, rounds, len(all), "each looks up some, however slow the machine is")
	}
	assert.Equal(t, 1, s.asked["/apis/storage.k8s.io/v1/storageclasses/c"])
	assert.Equal(t, 1, s.asked["/api/v1/namespaces/shop/persistentvolumeclaims/to"], "it binds at once: nothing about it will change")
}

// A claim that waits for its pod is looked at each second, by restores.
func TestPlaceFollowsRestoredPod(t *testing.T) {
	r, s := placed(t, `{"loadConcurrency":{"prepareQueueLength":9}}`, nodesOf("a", "b"), agentsOn("", "a", "b"), documents(classYAML("late", delayed, ""), claimYAML("to", "late", "", "")))
	with(t, r, download("x", "to", ""))
	_, _, nodes := look(t, r, noon())
	assert.Equal(t, []string{"a", "b"}, nodes["x"])
	s.put(claimYAML("to", "late", "", "volume.kubernetes.io/selected-node: b"))
	_, _, nodes = look(t, r, noon().Add(restoreInterval+2*time.Second))
	assert.Equal(t, []string{"b"}, nodes["x"])
}

// A preview has no Gates to renew. Else most loads of many would wait for what only bounds a
// round.
func TestPreviewLooksUpAll(t *testing.T) {
	r, s := placed(t, `{}`, nodesOf("n1"), agentsOn("", "n1"), claimYAML("c", "fast", "", ""))
	r.Abilities, r.Of[0].PrepareQueueLength = newest, 1
	var err error
	r.Leases, err = coordinationv1client.NewForConfig(&rest.Config{Host: s.url})
	require.NoError(t, err)
	for _, path := range []string{
		"/api/v1/nodes", "/api/v1/namespaces/velero/pods", "/apis/coordination.k8s.io/v1/namespaces/plimsoll-node-lease/leases", "/apis/velero.io/v1/namespaces/velero/backups",
		"/apis/velero.io/v1/namespaces/velero/podvolumebackups", "/apis/velero.io/v1/namespaces/velero/podvolumerestores", "/apis/velero.io/v2alpha1/namespaces/velero/datadownloads",
	} {
		s.objects[path] = `{"kind": "List", "apiVersion": "v1", "items": []}`
	}
	var loads []string
	for i := range targetsPerRound + 1 {
		loads = append(loads, strings.Replace(upload(fmt.Sprint("a", i), "c", ""), "name:", "namespace: velero, name:", 1))
	}
	list, err := yaml.YAMLToJSON([]byte("{kind: List, apiVersion: v1, items: [" + strings.Join(loads, ", ") + "]}"))
	require.NoError(t, err)
	s.objects["/apis/velero.io/v2alpha1/namespaces/velero/datauploads"] = string(list)
	s.put("apiVersion: plimsoll.dev/v1alpha1\nkind: Gate\nmetadata: {name: main, namespace: velero}\nspec: {limited: true, epoch: 1}")
	p, err := r.Preview(t.Context(), "velero")
	require.NoError(t, err)
	require.Len(t, p.Decision.Waiting, targetsPerRound, "all but the one that has its turn")
	for _, w := range p.Decision.Waiting {
		assert.NotEqual(t, notLookedUp, w.Wait.Detail, w.Name)
	}
}
