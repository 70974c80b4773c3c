package rawplugin_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/e2e/rawplugin"
	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

var update = flag.Bool("update", false, "write the recordings anew")

const recordingHeader = `# Answers of an eviction plugin that speaks the wire of %s, each the bytes of one message
# in hexadecimal. They were recorded from this repository's own implementation of the
# wire's table (katalyst/v1alpha1) and Kubernetes' encoding of a pod, with the fields of
# that generation alone:
# %s
# go test ./e2e/rawplugin -run TestRecordings -update
`

// What each generation has beside the one before.
var generationFields = map[string]string{
	"2023":  "ThresholdMet takes Empty, and its answer has the fields 1 to 7.",
	"2025":  "ThresholdMet takes the pods, and its answer may name candidates (8).",
	"today": "GetTopEvictionPods is sent eviction records (4); the answers are those of 2025.",
}

func TestRecordings(t *testing.T) {
	for _, generation := range rawplugin.Generations() {
		t.Run(generation, func(t *testing.T) {
			want := fmt.Sprintf(recordingHeader, generation, generationFields[generation])
			for _, a := range answersOf(t, generation) {
				want += strings.TrimSuffix(fmt.Sprintf("%s: %s", a.name, hex.EncodeToString(a.message)), " ") + "\n"
			}
			path := "testdata/" + generation + ".txt"
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
			}
			kept, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, want, string(kept))

			r, err := rawplugin.Recorded(generation)
			require.NoError(t, err)
			for _, a := range answersOf(t, generation) {
				assert.Equal(t, string(a.message), string(r[a.name]), a.name)
			}
			about, err := r.Answer("GetTopEvictionPods pod", "11111111-2222-4333-8444-555555555555")
			require.NoError(t, err)
			var top v1alpha1.GetTopEvictionPodsResponse
			var pod corev1.Pod
			require.NoError(t, proto.Unmarshal(about, &top))
			require.NoError(t, pod.Unmarshal(top.GetTargetPods()[0]))
			assert.EqualValues(t, "11111111-2222-4333-8444-555555555555", pod.UID)
			_, err = r.Answer("GetTopEvictionPods pod", "short")
			require.Error(t, err)
			_, err = r.Answer("Nothing", rawplugin.RecordedUID)
			require.Error(t, err)
		})
	}
	_, err := rawplugin.Recorded("1999")
	require.Error(t, err)
}

type recorded struct {
	name    string
	message []byte
}

func answersOf(t *testing.T, generation string) (list []recorded) {
	t.Helper()
	add := func(name string, m proto.Message) {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		require.NoError(t, err)
		list = append(list, recorded{name, b})
	}
	pod, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "recorded", Name: "recorded", UID: rawplugin.RecordedUID}}).Marshal()
	require.NoError(t, err)
	add("GetInfo", &registration.PluginInfo{Type: "EvictionPlugin", Name: "recorded", SupportedVersions: []string{"v1alpha1"}})
	add("NotifyRegistrationStatus", &registration.RegistrationStatusResponse{})
	add("GetToken", &v1alpha1.GetTokenResponse{})
	add("GetEvictPods", &v1alpha1.GetEvictPodsResponse{})
	add("ThresholdMet none", &v1alpha1.ThresholdMetResponse{MetType: v1alpha1.ThresholdMetType_NOT_MET})
	for name, level := range map[string]v1alpha1.ThresholdMetType{"soft": v1alpha1.ThresholdMetType_SOFT_MET, "hard": v1alpha1.ThresholdMetType_HARD_MET} {
		met := &v1alpha1.ThresholdMetResponse{
			ThresholdValue: 0.8, ObservedValue: 0.9, ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN, MetType: level, EvictionScope: "cpu.load.1min.container",
			Condition: &v1alpha1.Condition{ConditionType: v1alpha1.ConditionType_NODE_CONDITION, Effects: []string{"NoSchedule"}, ConditionName: "RecordedPressure", MetCondition: true},
		}
		if generation != "2023" && level == v1alpha1.ThresholdMetType_HARD_MET {
			met.CandidatePods = [][]byte{pod}
		}
		add("ThresholdMet "+name, met)
	}
	add("GetTopEvictionPods none", &v1alpha1.GetTopEvictionPodsResponse{})
	add("GetTopEvictionPods pod", &v1alpha1.GetTopEvictionPodsResponse{TargetPods: [][]byte{pod}, DeletionOptions: &v1alpha1.DeletionOptions{GracePeriodSeconds: 1}})
	slices.SortFunc(list, func(a, b recorded) int { return strings.Compare(a.name, b.name) })
	return list
}
