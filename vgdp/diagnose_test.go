package vgdp

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func warning(uid types.UID, kind, reason, message string) corev1.Event {
	return corev1.Event{InvolvedObject: corev1.ObjectReference{UID: uid}, Type: kind, Reason: reason, Message: message}
}

// everything there is about a load, with a word for each part.
func everything(kind Kind) *Facts {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid")}
	}
	pod := &corev1.Pod{ObjectMeta: meta("pod"), Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{
		Phase: corev1.PodPending, Message: "m1",
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "r1", Message: "m2"}},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("pvc"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound, Reason: "r2", Message: "m3"}}
	return &Facts{
		Kind: kind, Pod: pod, PVC: claim, PV: volume, AgentMissing: true,
		Snapshot: &Snapshot{UID: "vs-uid", Namespace: "ns", Name: "vs", Content: "vsc", Error: "e1"},
		Content:  &SnapshotContent{Name: "vsc", Handle: "h", Error: "e2", Ready: true},
		Events: []corev1.Event{
			warning("pod-uid", corev1.EventTypeWarning, "r3", "m4"), warning("pod-uid", corev1.EventTypeNormal, "not", "this"),
			warning("old-uid", corev1.EventTypeWarning, "nor", "this"), warning("pvc-uid", corev1.EventTypeWarning, "r4", "m5"), warning("vs-uid", corev1.EventTypeWarning, "r5", "m6"),
		},
		Errors: []ReadError{{"pv", "gone", errors.New("not found")}},
	}
}

func TestDiagnosisText(t *testing.T) {
	assert.Equal(t, []string{
		"begin diagnose CSI exposer",
		"error getting backup pv gone, err: not found",
		"Pod ns/pod, phase Pending, node name n1, message m1",
		"Pod condition PodScheduled, status False, reason r1, message m2",
		"Pod event reason r3, message m4",
		"node-agent is not running in node n1, err: daemonset pod not found in running state in node n1",
		"PVC ns/pvc, phase Bound, binding to pv",
		"PVC event reason r4, message m5",
		"PV pv, phase Bound, reason r2, message m3",
		"VS ns/vs, bind to vsc, readyToUse false, errMessage e1",
		"VS event reason r5, message m6",
		"VSC vsc, readyToUse true, errMessage e2, handle h",
		"end diagnose CSI exposer",
	}, Diagnose(everything(DataUpload)))
}

func TestDiagnosisLinesAsVelero(t *testing.T) {
	format := read[struct {
		Lines map[string]any `json:"lines"`
	}](t, "diagnostics-format.json").Lines
	require.Len(t, format, 12)
	seen := map[string]bool{}
	for _, kind := range []Kind{DataUpload, DataDownload, PodVolumeBackup} {
		f := everything(kind)
		f.Cache, f.CachePV = f.PVC, f.PV
		for _, line := range Diagnose(f) {
			name := formOf(format, line)
			require.NotEmpty(t, name, "no line of Velero's looks like %q", line)
			seen[name] = true
		}
	}
	assert.Len(t, seen, 12, "every line of Velero's is there")
}

// formOf is which of Velero's lines this one is; empty: none.
func formOf(format map[string]any, line string) string {
	for name, v := range format {
		text, plain := v.(string)
		if !plain { // the first and the last line of each exposer
			if strings.Contains(fmt.Sprint(v), line) {
				return name
			}
			continue
		}
		text, _, _ = strings.Cut(text, "  (")
		pattern := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(regexp.QuoteMeta(text), ".*")
		pattern = strings.ReplaceAll(pattern, `backup pod\|pvc\|vs\|pv\|vsc`, `(backup|restore|hosting|cache) \w+`)
		if regexp.MustCompile("^" + pattern + "$").MatchString(line) {
			return name
		}
	}
	return ""
}

func TestPodCannotRun(t *testing.T) {
	cases := read[struct {
		Cases []struct {
			Phase     corev1.PodPhase `json:"podPhase"`
			Waiting   string          `json:"containerWaiting"`
			Condition string          `json:"condition"`
			Expect    bool            `json:"expect"`
		} `json:"cases"`
	}](t, "pod-unrecoverable.json").Cases
	require.Len(t, cases, 7)
	for _, c := range cases {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: c.Phase}}
		if c.Waiting != "" {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: c.Waiting}}}}
		}
		if c.Condition != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		}
		assert.Equal(t, c.Expect, CannotRun(p) != "", "%+v", c)
	}
	// What Velero waits half an hour for. The scheduler says it so since 1.33, and before.
	for message, want := range map[string]bool{
		"0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's node affinity. no new claims to deallocate": true,
		"0/3 nodes are available: 3 node(s) had volume node affinity conflict.":                                                             true,
		"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.":                                                        false,
		"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.":                                                     false,
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1: node(s) had volume node affinity conflict"},
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message},
		}}}
		assert.Equal(t, want, CannotRun(p) != "", message)
		p.Status.Conditions[1].Status = corev1.ConditionTrue
		assert.Empty(t, CannotRun(p), "it is scheduled: %s", message)
	}
}

func TestStuckLoad(t *testing.T) {
	pod := func(phase corev1.PodPhase, ready time.Duration) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(-ready))},
		}}}
	}
	accepted, prepared := load("x", DataUpload, in(Accepted)), load("x", DataUpload, in(Prepared), on("n1"), func(l *Load) { l.PreparedAt = at(-UnstartedAfter) })
	runs := load("x", DataUpload, in(InProgress), on("n1"))
	gone, claim, ending := []ReadError{{What: "pod"}}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	ending.DeletionTimestamp = &metav1.Time{Time: noon}
	noImage := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull"}}},
	}}}
	for name, c := range map[string]struct {
		load       Load
		facts      *Facts
		room, held bool
		touch      string
		stuck      bool
	}{
		"its pod runs and nobody notices": {accepted, &Facts{Pod: pod(corev1.PodRunning, UnnoticedAfter)}, true, false, "pod", true},
		"it has just begun to run":        {accepted, &Facts{Pod: pod(corev1.PodRunning, UnnoticedAfter-1)}, true, false, "", false},
		"its pod has no image":            {accepted, &Facts{Pod: noImage}, true, false, "", true},
		"its pod ends, for it is done":    {runs, &Facts{Pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}}, true, false, "", false},
		"its pod is pending":              {accepted, &Facts{Pod: pod(corev1.PodPending, time.Hour)}, true, false, "", false},
		"no node-agent where its pod is":  {accepted, &Facts{Pod: pod(corev1.PodPending, 0), AgentMissing: true}, true, false, "", true},
		"prepared, and there is room":     {prepared, &Facts{Pod: pod(corev1.PodRunning, 0)}, true, false, "load", true},
		"prepared, and there is none":     {prepared, &Facts{Pod: pod(corev1.PodRunning, 0)}, false, false, "", false},
		"prepared, and we hold it":        {prepared, &Facts{Pod: pod(corev1.PodRunning, 0)}, true, true, "", false},
		"it runs without a pod":           {runs, &Facts{Errors: gone}, true, false, "", true},
		"it moves a volume without a pod": {runs, &Facts{Kind: DataUpload, Errors: gone, PVC: claim}, true, false, "", true},
		"it has moved it":                 {runs, &Facts{Kind: DataUpload, Errors: gone, PVC: ending}, true, false, "", false},
		"it gives it back":                {runs, &Facts{Kind: DataDownload, Errors: gone}, true, false, "", false},
		"it runs with its pod":            {runs, &Facts{Pod: pod(corev1.PodRunning, time.Hour)}, true, false, "", false},
		"it is new":                       {load("x", DataUpload), &Facts{AgentMissing: true}, true, false, "", false},
	} {
		got := StuckAt(noon, &c.load, c.facts, c.room, c.held)
		assert.Equal(t, c.stuck, got.Why != "", "%s: %s", name, got.Why)
		assert.Equal(t, c.touch, got.Touch, name)
	}
	since := metav1.NewTime(at(-time.Hour))
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &since}}
	assert.Equal(t, time.Hour, ranFor(noon, p))
}
