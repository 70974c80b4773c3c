package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	wire "github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// messageLimit is what a gRPC server accepts by default, in bytes; the agent
// stays hostMargin below it.
const (
	messageLimit = 4 << 20
	hostMargin   = 64 << 10
)

// pod is a pod of a question.
type pod struct {
	uid   string
	bytes []byte
}

func encode(pods []*corev1.Pod) ([]pod, error) {
	list := make([]pod, 0, len(pods))
	for _, p := range pods {
		b, err := p.Marshal()
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		list = append(list, pod{string(p.UID), b})
	}
	return list, nil
}

// MadePods is the pods of a node that is made up: of two QoS classes, of
// ReplicaSets, and one of a DaemonSet.
func MadePods(start time.Time) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, 12)
	for i := range 12 {
		owner, class := "ReplicaSet", corev1.PodQOSBurstable
		if i%3 == 0 {
			class = corev1.PodQOSBestEffort
		}
		if i == 11 {
			owner = "DaemonSet"
		}
		name := fmt.Sprintf("app-%d-6d4cf56db6-x%02d", i%4, i)
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: fmt.Sprintf("team-%d", i%2), Name: name, UID: madeUID(i),
				Labels:            map[string]string{"app": fmt.Sprintf("app-%d", i%4)},
				CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)),
				OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "app", UID: madeUID(1000 + i), Controller: new(true)}},
			},
			Spec: corev1.PodSpec{NodeName: "node-1", Priority: new(int32(i * 10)), Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, QOSClass: class, StartTime: new(metav1.NewTime(start.Add(-time.Hour))),
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
		if class == corev1.PodQOSBurstable {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("100m")}
		}
		pods = append(pods, p)
	}
	return pods
}

func madeUID(i int) types.UID {
	return types.UID(fmt.Sprintf("7c0f1e5a-0000-4000-8000-%012d", i))
}

// filledTo adds pods until a question with them has just so many bytes.
func filledTo(pods []pod, bytes int) []pod {
	const each = 16 << 10
	list := slices.Clone(pods)
	size := 0
	for _, p := range list {
		size += fieldBytes(len(p.bytes))
	}
	filler := func(n int) pod {
		uid := fmt.Sprintf("7c0f1e5a-0000-4000-9000-%012d", len(list))
		meta := text(nil, 1, fmt.Sprintf("filler-%d", len(list)))
		meta = text(text(meta, 3, "filler"), 5, uid)
		annotation := text(text(nil, 1, "example.com/notes"), 2, strings.Repeat("x", n))
		return pod{uid, text(nil, 1, string(text(meta, 12, string(annotation))))}
	}
	for ; size+2*each < bytes; size += fieldBytes(len(list[len(list)-1].bytes)) {
		list = append(list, filler(each-1024))
	}
	for n := bytes - size; n > 0; n-- { // the last one by trial: each length in it has a length of its own
		if last := filler(n); size+fieldBytes(len(last.bytes)) <= bytes {
			return append(list, last)
		}
	}
	return list
}

// fieldBytes is how many bytes a field of active_pods takes.
func fieldBytes(n int) int { return protowire.SizeTag(1) + protowire.SizeBytes(n) }

func text(b []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), value)
}

// unknownFields are fields of each wire type that no version has yet.
func unknownFields() []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 7)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 1001, protowire.Fixed64Type), 7)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 1002, protowire.Fixed32Type), 7)
	return text(b, 1003, "of a later version")
}

// withUnknownFields adds fields that no version has to each pod.
func withUnknownFields(pods []pod) []pod {
	list := make([]pod, len(pods))
	for i, p := range pods {
		list[i] = pod{p.uid, slices.Concat(p.bytes, unknownFields())}
	}
	return list
}

// withUnknownValues adds a phase and a QoS class that no version has; a field
// that is repeated counts as its last.
func withUnknownValues(pods []pod) []pod {
	status := text(text(nil, 1, "Hibernating"), 9, "Diamond")
	list := make([]pod, len(pods))
	for i, p := range pods {
		list[i] = pod{p.uid, text(slices.Clip(p.bytes), 3, string(status))}
	}
	return list
}

// withoutUID has pods without UID, without metadata and without anything before
// the ordinary ones.
func withoutUID(pods []pod) []pod {
	named := text(nil, 1, string(text(text(nil, 1, "fair-unidentified"), 3, "default")))
	return slices.Concat([]pod{{bytes: named}, {bytes: []byte{}}, {bytes: text(nil, 1, "")}}, pods)
}

// strangeRecords are records as no API server has them.
func strangeRecords(pods []pod) []*wire.EvictionRecord {
	list := []*wire.EvictionRecord{{}, {Uid: "of no pod", HasPdb: true, DisruptionsAllowed: -1, CurrentHealthy: -1}}
	for _, p := range pods {
		list = append(list, &wire.EvictionRecord{Uid: p.uid, HasPdb: true, ExpectedPods: -1, Buckets: &wire.Buckets{List: []*wire.Bucket{{Time: -1, Duration: -1, Count: -1}}}})
	}
	return list
}
