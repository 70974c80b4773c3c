package pods

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const marker = "hunter2"

// fill sets every field of a value that can hold a text to one with the
// marker, so that a field which nobody thought of is found too.
func fill(v reflect.Value, depth int) {
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(marker)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		switch v.Addr().Interface().(type) {
		case *resource.Quantity, *metav1.Time, *metav1.MicroTime:
			return
		}
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field, depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(marker))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
	}
}

// texts walks all that can be reached from a value, private fields too, and
// returns where the marker is.
func texts(v reflect.Value, path string, found *[]string) {
	switch v.Kind() {
	case reflect.String:
		if strings.Contains(v.String(), marker) {
			*found = append(*found, path)
		}
	case reflect.Uint8:
		// A text as bytes is looked at as a whole, below.
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			texts(v.Elem(), path, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			texts(v.Field(i), path+"."+v.Type().Field(i).Name, found)
		}
	case reflect.Slice, reflect.Array:
		textsOfList(v, path, found)
	case reflect.Map:
		for _, key := range v.MapKeys() {
			texts(key, path+"{key}", found)
			texts(v.MapIndex(key), path+"{}", found)
		}
	default:
	}
}

func textsOfList(v reflect.Value, path string, found *[]string) {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 && strings.Contains(string(v.Bytes()), marker) {
		*found = append(*found, path)
	}
	for i := range v.Len() {
		texts(v.Index(i), path+"[]", found)
	}
}

// What may be kept of texts that are not the deciding annotations: names, and
// where a pod may run.
func namesThatAreKept() []string {
	return []string{
		".ObjectMeta.Name", ".ObjectMeta.Namespace", ".ObjectMeta.UID", ".ObjectMeta.ResourceVersion",
		".ObjectMeta.OwnerReferences[].APIVersion", ".ObjectMeta.OwnerReferences[].Kind",
		".ObjectMeta.OwnerReferences[].Name", ".ObjectMeta.OwnerReferences[].UID",
		".Spec.NodeName", ".Spec.PriorityClassName",
		".Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[]",
		".Spec.Volumes[].Name", ".Spec.Volumes[].VolumeSource.PersistentVolumeClaim.ClaimName",
		".Spec.InitContainers[].Name", ".Spec.InitContainers[].RestartPolicy",
		".Spec.InitContainers[].Resources.Limits{key}", ".Spec.InitContainers[].Resources.Requests{key}",
		".Spec.Containers[].Name", ".Spec.Containers[].RestartPolicy",
		".Spec.Containers[].Resources.Limits{key}", ".Spec.Containers[].Resources.Requests{key}",
		".Spec.Resources.Limits{key}", ".Spec.Resources.Requests{key}", ".Spec.Overhead{key}",
		".Spec.Tolerations[].Key", ".Spec.Tolerations[].Operator", ".Spec.Tolerations[].Value", ".Spec.Tolerations[].Effect",
		".Status.Phase", ".Status.Reason", ".Status.QOSClass",
	}
}

func TestStrip(t *testing.T) {
	t.Run("keeps names only", stripKeepsNamesOnly)
	t.Run("no secret in store", stripNoSecretInStore)
	t.Run("idempotent copy", stripIdempotentCopy)
	t.Run("truncates at character", stripTruncatesAtCharacter)
	t.Run("refuses non pod", stripRefusesNonPod)
	t.Run("who named node", stripWhoNamedNode)
	t.Run("allocated requests", stripAllocatedRequests)
	t.Run("truncates long text", stripTruncatesLongText)
	t.Run("container started", stripContainerStarted)
	t.Run("kubelet eviction message", stripKubeletEvictionMessage)
	t.Run("volumes without claim", stripVolumesWithoutClaim)
	t.Run("keeps deciding annotations", stripKeepsDecidingAnnotations)
}

func stripKeepsNamesOnly(t *testing.T) {
	var full corev1.Pod
	fill(reflect.ValueOf(&full).Elem(), 0)
	require.NotEmpty(t, full.Spec.Containers[0].Env[0].Value)
	require.NotEmpty(t, full.Spec.Containers[0].Args)
	var before, after []string
	texts(reflect.ValueOf(full), "", &before)
	require.Greater(t, len(before), 500, "the pod is not full")

	texts(reflect.ValueOf(strip(&full)), "", &after)
	for _, path := range after {
		if at := ".Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[]"; strings.HasPrefix(path, at) {
			path = at
		}
		assert.Contains(t, namesThatAreKept(), path)
	}
}

func stripNoSecretInStore(t *testing.T) {
	secret := corev1.Container{
		Name: "a", Image: marker, Command: []string{marker}, Args: []string{"--password=" + marker},
		Env:                    []corev1.EnvVar{{Name: "PASSWORD", Value: marker}},
		EnvFrom:                []corev1.EnvFromSource{{Prefix: marker, SecretRef: &corev1.SecretEnvSource{}}},
		LivenessProbe:          &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{marker}}}},
		Lifecycle:              &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{marker}}}},
		VolumeMounts:           []corev1.VolumeMount{{Name: marker}},
		Resources:              corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: marker}}},
		WorkingDir:             marker,
		TerminationMessagePath: marker,
	}
	pod := made(annotated("kubectl.kubernetes.io/last-applied-configuration", marker), annotated("plimsoll.dev/skip-eviction", "true"), labelled("team", marker), func(p *corev1.Pod) {
		p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{secret}, []corev1.Container{secret}
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Args: []string{marker}}}}
		p.Spec.NodeSelector = map[string]string{"pool": marker}
		p.Spec.ServiceAccountName = marker
		p.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: marker}}}}
		p.Status.Message, p.Status.HostIP = marker, marker
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: marker}}}}
		p.ManagedFields = append(p.ManagedFields, record(fmt.Sprintf(`{"f:metadata":{"f:labels":{"f:%s":{}}}}`, marker), ""))
	})
	w := &Watcher{OptOuts: DefaultOptOuts()}
	store := w.newStore()
	w.pods = store
	require.NoError(t, store.Add(pod))

	var found []string
	texts(reflect.ValueOf(w), "", &found)
	assert.Empty(t, found)
	text, err := json.Marshal(store.List())
	require.NoError(t, err)
	assert.NotContains(t, string(text), marker)
	require.Len(t, w.List(DefaultRules()).Pods, 1)
	assert.Equal(t, "plimsoll.dev/skip-eviction=true", w.List(DefaultRules()).Pods[0].OptedOut)
}

func stripIdempotentCopy(t *testing.T) {
	pod := made(claiming("c"), scratch("e"), requiring(expr(host("In", "h1"))), annotated(configHash, "1"), func(p *corev1.Pod) {
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	})
	once := strip(pod)
	if diff := cmp.Diff(once, strip(once)); diff != "" {
		t.Errorf("stripped twice (-once +twice):\n%s", diff)
	}
	before := once.DeepCopy()
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "changed"
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Gi")
	*pod.Spec.Priority = 7
	*pod.OwnerReferences[0].Controller = false
	pod.DeletionTimestamp.Time = time.Unix(2, 0)
	if diff := cmp.Diff(before, once); diff != "" {
		t.Errorf("it changed with the original:\n%s", diff)
	}
}

func stripTruncatesAtCharacter(t *testing.T) {
	kept := strip(made(annotated(configHash, strings.Repeat("ü", 200)))).Annotations[configHash]
	assert.Equal(t, strings.Repeat("ü", maxValue/2), kept)
}

func stripRefusesNonPod(t *testing.T) {
	_, err := (&Watcher{}).transform(&corev1.Node{})
	assert.ErrorContains(t, err, "*v1.Node")
}

func stripWhoNamedNode(t *testing.T) {
	for what, row := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		named   bool
	}{
		"created, then bound":                {[]metav1.ManagedFieldsEntry{record(recordOfPlaced, ""), record(recordOfStatus, "status")}, false},
		"created with a node":                {[]metav1.ManagedFieldsEntry{record(recordOfStatus, "status"), record(recordOfNamed, "")}, true},
		"no record":                          {nil, false},
		"an empty entry":                     {[]metav1.ManagedFieldsEntry{{}}, false},
		"changes after it was erased":        {[]metav1.ManagedFieldsEntry{record(recordOfLabel, "")}, false},
		"a subresource's entry says nothing": {[]metav1.ManagedFieldsEntry{record(recordOfNamed, "resize")}, false},
		"not JSON":                           {[]metav1.ManagedFieldsEntry{record("?", "")}, false},
		"not the expected form":              {[]metav1.ManagedFieldsEntry{record(`{"f:spec":[1]}`, "")}, false},
	} {
		t.Run(what, func(t *testing.T) {
			assert.Equal(t, row.named, creatorSetNodeName(row.entries))
			assert.Equal(t, row.named, creatorSetNodeName(stripManagedFields(row.entries)))
		})
	}
}

func stripAllocatedRequests(t *testing.T) {
	asked := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi"), corev1.ResourceCPU: resource.MustParse("1")}
	allocated := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("4"), "example.org/gpu": resource.MustParse("0")}
	got := boundByAllocated(asked, allocated)
	assert.Len(t, got, 2, "what is not asked for is not granted")
	assert.True(t, got.Memory().Equal(resource.MustParse("1Gi")))
	assert.True(t, got.Cpu().Equal(resource.MustParse("1")))
}

func stripTruncatesLongText(t *testing.T) {
	longest := strings.Repeat("x", maxValue)
	assert.Equal(t, longest, truncate(longest))
	assert.Equal(t, longest, truncate(longest+"x"))
	assert.Equal(t, "a\xffb", truncate("a\xffb"), "what is not cut stays as it is")
	assert.Equal(t, longest[1:], truncate(longest[1:]+"\u00f6"), "not within a character")
}

func stripContainerStarted(t *testing.T) {
	waiting, was := corev1.ContainerStatus{Name: "c"}, corev1.ContainerStatus{Name: "c", ContainerID: "containerd://1"}
	for want, status := range map[bool][]corev1.PodStatus{
		false: {{}, {ContainerStatuses: []corev1.ContainerStatus{waiting}, InitContainerStatuses: []corev1.ContainerStatus{waiting}}},
		true:  {{ContainerStatuses: []corev1.ContainerStatus{waiting, was}}, {InitContainerStatuses: []corev1.ContainerStatus{was}}},
	} {
		for _, s := range status {
			assert.Equal(t, want, len(stripStarted(&s)) > 0)
		}
	}
}

func stripKubeletEvictionMessage(t *testing.T) {
	evicted := made(func(p *corev1.Pod) {
		p.Status.Reason, p.Status.Message = "Evicted", "The node was low on resource: memory. "
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet}}
	})
	assert.Equal(t, "The node was low on resource: memory. ", kubeletEvictionMessage(evicted))
	evicted.Status.Reason = "Preempting"
	assert.Empty(t, kubeletEvictionMessage(evicted))
}

func stripVolumesWithoutClaim(t *testing.T) {
	assert.Empty(t, stripVolumes([]corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}))
}

func stripKeepsDecidingAnnotations(t *testing.T) {
	got := strip(made(annotated(memoryEnhancement, `{"rss_overuse_threshold":"1.5"}`), annotated(configMirror, "x"))).Annotations
	assert.Equal(t, map[string]string{memoryEnhancement: rssEnhancement("1.5"), configMirror: "x"}, got)
}
