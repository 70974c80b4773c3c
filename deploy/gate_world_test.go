package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/matrix"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// What becomes of a load's write.
const (
	passes  = "passes"
	held    = "held"    // by plimsoll-admit or plimsoll-start
	refused = "refused" // by plimsoll-load-annotations
)

// kinds of loads; how a node-agent accepts each on a node, as Velero 1.18.3 does
// (pkg/controller), and starts it.
var kinds = map[string]struct {
	resource      schema.GroupVersionResource
	accept, start string
}{
	"DataUpload":       {schema.GroupVersionResource{Group: "velero.io", Version: "v2alpha1", Resource: "datauploads"}, `{"metadata":{"labels":{"velero.io/expose-on-going":"true"}},"status":{"phase":"Accepted","acceptedByNode":"NODE"}}`, `{"status":{"phase":"InProgress","node":"NODE"}}`},
	"DataDownload":     {schema.GroupVersionResource{Group: "velero.io", Version: "v2alpha1", Resource: "datadownloads"}, `{"metadata":{"labels":{"velero.io/expose-on-going":"true"}},"status":{"phase":"Accepted","acceptedByNode":"NODE"}}`, `{"status":{"phase":"InProgress","node":"NODE"}}`},
	"PodVolumeBackup":  {schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "podvolumebackups"}, `{"metadata":{"labels":{"velero.io/expose-on-going":"true"}},"spec":{"node":"NODE"},"status":{"phase":"Accepted"}}`, `{"spec":{"node":"NODE"},"status":{"phase":"InProgress"}}`},
	"PodVolumeRestore": {schema.GroupVersionResource{Group: "velero.io", Version: "v1", Resource: "podvolumerestores"}, `{"metadata":{"labels":{"velero.io/expose-on-going":"true"}},"status":{"phase":"Accepted","node":"NODE"}}`, `{"status":{"phase":"InProgress","node":"NODE"}}`},
}

// gateFixture is a namespace of Velero's behind the policies.
type gateFixture struct {
	t  *testing.T
	c  *cluster.Cluster
	ns string
	// mutating policies in the version that this Kubernetes serves; nil: it serves none.
	mutating []byte
	// velero and controller may do everything, and differ by name.
	velero, controller dynamic.Interface
}

func newGateFixture(t *testing.T, c *cluster.Cluster) *gateFixture {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), RBAC, GateCRD, Gate,
		velero.DataUploads, velero.DataDownloads, velero.PodVolumeBackups, velero.PodVolumeRestores))
	q := &gateFixture{t: t, c: c, ns: c.Namespace(t)}
	for _, policies := range [][]byte{GateMutating, GateMutatingV1beta1} {
		if q.mutating == nil && c.ApplyServed(t, policies) {
			q.mutating = policies
		}
	}
	as := func(name string) dynamic.Interface {
		config := rest.CopyConfig(c.Admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters"}}
		client, err := dynamic.NewForConfig(config)
		require.NoError(t, err)
		return client
	}
	q.velero = as("system:serviceaccount:velero:velero")
	q.controller = as("system:serviceaccount:plimsoll-system:plimsoll-controller")
	return q
}

// newMutatingFixture is one that has the mutating policies, or the test is skipped.
func newMutatingFixture(t *testing.T) *gateFixture {
	t.Helper()
	q := newGateFixture(t, plane(t))
	if q.mutating == nil {
		t.Skip("this Kubernetes serves no MutatingAdmissionPolicy v1 or v1beta1")
	}
	if q.v1beta1() {
		t.Attr(matrix.Smaller, "by MutatingAdmissionPolicy v1beta1 alone, if the API servers run with "+strings.Join(mutatingV1beta1, " "))
	}
	return q
}

// v1beta1 tells whether this Kubernetes serves mutating policies as v1beta1 alone.
func (q *gateFixture) v1beta1() bool { return bytes.Equal(q.mutating, GateMutatingV1beta1) }

// in a subtest.
func (q *gateFixture) in(t *testing.T) *gateFixture {
	of := *q
	of.t = t
	return &of
}

// lease is how long the Gates of tests hold, fresh is one that was just renewed.
const lease = 10 * time.Minute

func fresh(change func(*gate.Spec)) gate.Spec {
	at := metav1.NowMicro()
	s := gate.Spec{RenewTime: &at, LeaseDurationSeconds: int32(lease / time.Second), Epoch: 7, Limited: true}
	if change != nil {
		change(&s)
	}
	return s
}

func stale(s *gate.Spec) { s.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-lease - time.Minute)} }

// gate writes one.
func (q *gateFixture) gate(name string, spec gate.Spec) {
	q.t.Helper()
	require.NoError(q.t, q.tryGate(name, spec))
}

func (q *gateFixture) tryGate(name string, spec gate.Spec) error {
	raw, err := json.Marshal(gate.Gate{
		TypeMeta:   metav1.TypeMeta{APIVersion: "plimsoll.dev/v1alpha1", Kind: "Gate"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: q.ns}, Spec: spec,
	})
	require.NoError(q.t, err)
	_, err = q.controller.Resource(gate.Resource()).Namespace(q.ns).Patch(q.t.Context(), name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: "plimsoll-controller"})
	return err
}

func (q *gateFixture) noGate(name string) {
	q.t.Helper()
	err := q.controller.Resource(gate.Resource()).Namespace(q.ns).Delete(q.t.Context(), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(q.t, err)
	}
}

// load makes one as Velero does; a name that ends in a dash is a prefix.
func (q *gateFixture) load(kind, name, mover string) (*unstructured.Unstructured, error) {
	u := new(unstructured.Unstructured)
	k := kinds[kind]
	u.Object = map[string]any{}
	u.SetGroupVersionKind(k.resource.GroupVersion().WithKind(kind))
	if u.SetName(name); strings.HasSuffix(name, "-") {
		u.SetName("")
		u.SetGenerateName(name)
	}
	require.NoError(q.t, unstructured.SetNestedMap(u.Object, required(kind), "spec"))
	if mover != "" {
		require.NoError(q.t, unstructured.SetNestedField(u.Object, mover, "spec", "datamover"))
	}
	var made *unstructured.Unstructured
	err := q.discovered(func() (err error) {
		made, err = q.velero.Resource(k.resource).Namespace(q.ns).Create(q.t.Context(), u, metav1.CreateOptions{})
		return err
	})
	return made, err
}

// discovered writes again as long as the API server has not fetched the schema of
// the kind: until then its mutating policies refuse it with 503.
func (q *gateFixture) discovered(write func() error) (err error) {
	q.t.Helper()
	eventually(q.t, "the API server knows the schema of the kind", func() error {
		if err = write(); apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "There can be a delay between when CustomResourceDefinitions") {
			return err
		}
		return nil
	})
	return err
}

// required fields of a load.
func required(kind string) map[string]any {
	target := map[string]any{"namespace": "shop", "pv": "pv", "pvc": "pvc"}
	pod := map[string]any{"kind": "Pod", "namespace": "shop", "name": "cart"}
	switch kind {
	case "DataUpload":
		return map[string]any{"backupStorageLocation": "default", "operationTimeout": "4h", "snapshotType": "CSI", "sourceNamespace": "shop", "sourcePVC": "pvc"}
	case "DataDownload":
		return map[string]any{"backupStorageLocation": "default", "operationTimeout": "4h", "snapshotID": "s", "sourceNamespace": "shop", "targetVolume": target}
	case "PodVolumeBackup":
		return map[string]any{"backupStorageLocation": "default", "node": "n1", "pod": pod, "repoIdentifier": "r", "volume": "v"}
	default:
		return map[string]any{"backupStorageLocation": "default", "pod": pod, "repoIdentifier": "r", "snapshotID": "s", "sourceNamespace": "shop", "volume": "v"}
	}
}

func (q *gateFixture) get(kind, name string) *unstructured.Unstructured {
	q.t.Helper()
	u, err := q.velero.Resource(kinds[kind].resource).Namespace(q.ns).Get(q.t.Context(), name, metav1.GetOptions{})
	require.NoError(q.t, err)
	return u
}

// patch a load by JSON merge patch.
func (q *gateFixture) patch(by dynamic.Interface, kind, name, patch string, dry ...string) error {
	return q.discovered(func() error {
		ctx, cancel := deadline.Context(q.t.Context(), 30*time.Second)
		defer cancel()
		_, err := by.Resource(kinds[kind].resource).Namespace(q.ns).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry})
		return err
	})
}

// annotate as the controller.
func (q *gateFixture) annotate(kind, name, key, value string) {
	q.t.Helper()
	require.NoError(q.t, q.patch(q.controller, kind, name, annotation(key, value)))
}

func annotation(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
}

// phase is written by whom no policy knows.
func (q *gateFixture) phase(kind, name, phase string) {
	q.t.Helper()
	require.NoError(q.t, q.patch(q.velero, kind, name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase)))
}

// accepts tells what becomes of a node-agent's try, which changes nothing.
func (q *gateFixture) accepts(kind, name, node string) string {
	return q.became(q.patch(q.velero, kind, name, strings.ReplaceAll(kinds[kind].accept, "NODE", node), metav1.DryRunAll))
}

func (q *gateFixture) starts(kind, name, node string) string {
	return q.became(q.patch(q.velero, kind, name, strings.ReplaceAll(kinds[kind].start, "NODE", node), metav1.DryRunAll))
}

func (q *gateFixture) became(err error) string {
	q.t.Helper()
	switch {
	case err == nil:
		return passes
	case apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "'plimsoll-admit'") || strings.Contains(err.Error(), "'plimsoll-start'")):
		return held
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'plimsoll-load-annotations'"):
		return refused
	}
	require.NoError(q.t, err)
	return ""
}

// until the API server's policies have seen what was just written.
func (q *gateFixture) until(want string, ask func() string) {
	q.t.Helper()
	eventually(q.t, "the policies know the Gate", func() error {
		if got := ask(); got != want {
			return fmt.Errorf("it %s", got)
		}
		return nil
	})
}

// object of a manifest, cluster-wide.
type object struct {
	resource schema.GroupVersionResource
	name     string
}

// objects of manifests, none of which is in a namespace.
func objects(t *testing.T, manifests ...[]byte) (all []object) {
	t.Helper()
	for document := range strings.SplitSeq(string(bytes.Join(manifests, []byte("\n---\n"))), "\n---\n") {
		var o metav1.PartialObjectMetadata
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		all = append(all, object{resource, o.Name})
	}
	return all
}
