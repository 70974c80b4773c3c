package v1alpha1_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

// table is the contract with plugins that are deployed. A pod is written as the
// type that their own files declare.
const table = `
GetTokenResponse: 1 token string
Condition: 1 condition_type enum, 2 effects repeated string, 3 condition_name string, 4 met_condition bool
GetThresholdMetRequest: 1 active_pods repeated Pod
ThresholdMetResponse: 1 threshold_value double, 2 observed_value double, 3 threshold_operator enum, 4 met_type enum, 5 eviction_scope string, 6 grace_period_seconds int64, 7 condition Condition, 8 candidate_pods repeated Pod
GetTopEvictionPodsRequest: 1 active_pods repeated Pod, 2 topN uint64, 3 eviction_scope string, 4 candidate_eviction_records repeated EvictionRecord
GetTopEvictionPodsResponse: 1 target_pods repeated Pod, 2 deletion_options DeletionOptions
GetEvictPodsRequest: 1 active_pods repeated Pod
GetEvictPodsResponse: 1 evict_pods repeated EvictPod, 2 condition Condition
EvictPod: 1 pod Pod, 2 reason string, 3 deletion_options DeletionOptions, 4 force_evict bool, 5 eviction_plugin_name string
DeletionOptions: 1 grace_period_seconds int64
EvictionRecord: 1 uid string, 2 has_pdb bool, 3 buckets Buckets, 4 disruptions_allowed int32, 5 current_healthy int32, 6 desired_healthy int32, 7 expected_pods int32
Buckets: 1 list repeated Bucket
Bucket: 1 time int64, 2 duration int64, 3 count int64
Empty:
ConditionType: 0 NODE_CONDITION, 1 CNR_CONDITION
ThresholdOperator: 0 LESS_THAN, 1 GREATER_THAN
ThresholdMetType: 0 NOT_MET, 1 SOFT_MET, 2 HARD_MET
evictionplugin.v1alpha1.EvictionPlugin: GetToken(Empty) GetTokenResponse, ThresholdMet(GetThresholdMetRequest) ThresholdMetResponse, GetTopEvictionPods(GetTopEvictionPodsRequest) GetTopEvictionPodsResponse, GetEvictPods(GetEvictPodsRequest) GetEvictPodsResponse
`

func TestWireNumbersAndTypes(t *testing.T) {
	want := strings.Split(strings.TrimSpace(table), "\n")
	got := described(v1alpha1.File_evictionplugin_proto)
	slices.Sort(want)
	slices.Sort(got)
	assert.Empty(t, cmp.Diff(want, got))
}

// described is a file as table writes it.
func described(f protoreflect.FileDescriptor) []string {
	var lines []string
	for i := range f.Messages().Len() {
		m := f.Messages().Get(i)
		lines = append(lines, line(m.Name(), m.Fields(), field))
	}
	for i := range f.Enums().Len() {
		e := f.Enums().Get(i)
		lines = append(lines, line(e.Name(), e.Values(), func(v protoreflect.EnumValueDescriptor) string {
			return fmt.Sprintf("%d %s", v.Number(), v.Name())
		}))
	}
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		lines = append(lines, line(s.FullName(), s.Methods(), func(m protoreflect.MethodDescriptor) string {
			return fmt.Sprintf("%s(%s) %s", m.Name(), m.Input().Name(), m.Output().Name())
		}))
	}
	return lines
}

func line[T any](name any, list interface {
	Len() int
	Get(int) T
}, say func(T) string,
) string {
	said := make([]string, list.Len())
	for i := range said {
		said[i] = say(list.Get(i))
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s", name, strings.Join(said, ", ")))
}

func field(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch {
	case f.Message() != nil:
		kind = string(f.Message().Name())
	case f.Kind() == protoreflect.BytesKind:
		kind = "Pod"
	}
	if f.IsList() {
		kind = "repeated " + kind
	}
	return fmt.Sprintf("%d %s %s", f.Number(), f.Name(), kind)
}

// Kubernetes' own generated code encodes a list of pods in PodList, as field 2.
// Only that number tells it from a field of ours.
func TestWirePodsAsBytes(t *testing.T) {
	list := corev1.PodList{Items: []corev1.Pod{pod("a"), {}, pod("b")}}
	theirs, err := list.Marshal()
	require.NoError(t, err)
	require.Equal(t, protowire.Number(1), number(theirs))
	theirs = theirs[protowire.ConsumeFieldValue(1, protowire.BytesType, theirs[1:])+1:] // the list's metadata

	encoded := make([][]byte, len(list.Items))
	for i := range list.Items {
		encoded[i], err = list.Items[i].Marshal()
		require.NoError(t, err)
	}
	for n, m := range map[protowire.Number]proto.Message{
		1: &v1alpha1.GetThresholdMetRequest{ActivePods: encoded},
		8: &v1alpha1.ThresholdMetResponse{CandidatePods: encoded},
	} {
		ours, err := proto.Marshal(m)
		require.NoError(t, err)
		assert.Equal(t, renumbered(t, theirs, n), ours, "field %d", n)
	}
	for _, m := range []proto.Message{
		&v1alpha1.GetTopEvictionPodsRequest{ActivePods: encoded},
		&v1alpha1.GetTopEvictionPodsResponse{TargetPods: encoded},
		&v1alpha1.GetEvictPodsRequest{ActivePods: encoded},
	} {
		ours, err := proto.Marshal(m)
		require.NoError(t, err)
		assert.Equal(t, renumbered(t, theirs, 1), ours, "%T", m)
	}
}

func TestWirePodRoundTrip(t *testing.T) {
	want := pod("a")
	encoded, err := want.Marshal()
	require.NoError(t, err)
	sent, err := proto.Marshal(&v1alpha1.EvictPod{Pod: encoded, Reason: "why", ForceEvict: true})
	require.NoError(t, err)

	var received v1alpha1.EvictPod
	require.NoError(t, proto.Unmarshal(sent, &received))
	var got corev1.Pod
	require.NoError(t, got.Unmarshal(received.GetPod()))
	assert.Empty(t, cmp.Diff(want, got))
	assert.Equal(t, "why", received.GetReason())
	assert.True(t, received.GetForceEvict())
}

// What a plugin of another make sends, byte by byte, with a field that this
// version does not know.
func TestWireHandwrittenAnswer(t *testing.T) {
	answer := []byte{
		0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, // 1: 1.0
		0x11, 0, 0, 0, 0, 0, 0, 0x00, 0x40, // 2: 2.0
		0x18, 1, // 3: GREATER_THAN
		0x20, 2, // 4: HARD_MET
		0x2a, 3, 's', 'd', 'a', // 5
		0x30, 30, // 6
		0x3a, 10, 0x08, 1, 0x12, 2, 'e', 'f', 0x1a, 0, 0x20, 1, // 7
		0x9a, 0x06, 1, 'x', // 99
	}
	var got v1alpha1.ThresholdMetResponse
	require.NoError(t, proto.Unmarshal(answer, &got))
	assert.InDelta(t, 1, got.GetThresholdValue(), 0)
	assert.InDelta(t, 2, got.GetObservedValue(), 0)
	assert.Equal(t, v1alpha1.ThresholdOperator_GREATER_THAN, got.GetThresholdOperator())
	assert.Equal(t, v1alpha1.ThresholdMetType_HARD_MET, got.GetMetType())
	assert.Equal(t, "sda", got.GetEvictionScope())
	assert.EqualValues(t, 30, got.GetGracePeriodSeconds())
	assert.Equal(t, v1alpha1.ConditionType_CNR_CONDITION, got.GetCondition().GetConditionType())
	assert.Equal(t, []string{"ef"}, got.GetCondition().GetEffects())
	assert.True(t, got.GetCondition().GetMetCondition())
}

// A plugin of before takes no pods when asked for its threshold.
func TestWireRequestToOlderPlugin(t *testing.T) {
	question, err := proto.Marshal(&v1alpha1.GetThresholdMetRequest{ActivePods: [][]byte{{1, 2}}})
	require.NoError(t, err)
	require.NoError(t, proto.Unmarshal(question, &v1alpha1.Empty{}))
}

func pod(name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: "6a0b5f0e-0001",
			Labels:      map[string]string{"app": name, "tier": "web", "a": "b"},
			Annotations: map[string]string{"katalyst.kubewharf.io/qos_level": "reclaimed_cores"},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Priority: new(int32(-5)), Containers: []corev1.Container{{
			Name: "c", Image: "registry/x:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
}

func number(b []byte) protowire.Number {
	n, _, _ := protowire.ConsumeTag(b)
	return n
}

// renumbered is a message that has field 2 only, with another number for it.
func renumbered(t *testing.T, b []byte, n protowire.Number) []byte {
	t.Helper()
	var out []byte
	for len(b) > 0 {
		was, kind, size := protowire.ConsumeTag(b)
		require.Equal(t, protowire.Number(2), was)
		value, rest := protowire.ConsumeBytes(b[size:])
		require.Positive(t, rest)
		out = protowire.AppendBytes(protowire.AppendTag(out, n, kind), value)
		b = b[size+rest:]
	}
	return out
}

// The document for plugin authors has the same table.
func TestWireTableOfDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/write-a-plugin.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| ([A-Z]\w+) \| (\d .*) \|$`)
	aside := regexp.MustCompile(` \([^)]*\)`)
	var got []string
	for _, m := range row.FindAllStringSubmatch(string(document), -1) {
		got = append(got, m[1]+": "+strings.ReplaceAll(aside.ReplaceAllString(m[2], ""), " · ", ", "))
	}
	var want []string
	for l := range strings.Lines(table) {
		l = strings.TrimSpace(l)
		if name, fields, _ := strings.Cut(l, ": "); fields != "" && !strings.Contains(fields, "_MET") &&
			!slices.Contains([]string{"ConditionType", "ThresholdOperator"}, name) && !strings.Contains(name, ".") &&
			!slices.Contains([]string{"Buckets", "Bucket"}, name) {
			want = append(want, l)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	assert.Empty(t, cmp.Diff(want, got))
}
