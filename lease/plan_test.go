package lease

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func sec(s int64) metav1.Time { return metav1.NewTime(time.Unix(s, 0).UTC()) }

// on is a condition as the Node has it: when it began, when it was last heard.
func on(kind string, status corev1.ConditionStatus, reason string, since, heard int64) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(kind), Status: status, Reason: reason, Message: "m",
		LastTransitionTime: sec(since), LastHeartbeatTime: sec(heard),
	}
}

func TestStatusWrittenWhenMeaningful(t *testing.T) {
	const (
		yes = corev1.ConditionTrue
		nay = corev1.ConditionFalse
	)
	type (
		have = []corev1.NodeCondition
		want = []Condition
	)
	calm := Condition{"p/Mem", nay, "Calm", "m"}
	for _, c := range []struct {
		name  string
		have  have
		owned []string
		want  want
		write Write
		then  have
	}{
		{"nothing of ours", have{on("Ready", yes, "r", 1, 2)}, nil, nil, "", nil},
		{"a new condition", have{on("Ready", yes, "r", 1, 2)}, nil, want{calm}, Changed, have{on("p/Mem", nay, "Calm", 1000, 1000)}},
		{"nothing changed", have{on("p/Mem", nay, "Calm", 5, 990)}, []string{"p/Mem"}, want{calm}, "", nil},
		{"only the message changed", have{on("p/Mem", nay, "Calm", 5, 990)}, []string{"p/Mem"}, want{{"p/Mem", nay, "Calm", "other"}}, "", nil},
		{"the status changed", have{on("p/Mem", nay, "Calm", 5, 990)}, []string{"p/Mem"}, want{{"p/Mem", yes, "Stall", "m"}}, Changed, have{on("p/Mem", yes, "Stall", 1000, 1000)}},
		{"only the reason changed", have{on("p/Mem", yes, "Soft", 5, 990)}, []string{"p/Mem"}, want{{"p/Mem", yes, "Hard", "m"}}, Changed, have{on("p/Mem", yes, "Hard", 5, 1000)}},
		{"it is time for a report", have{on("p/Mem", nay, "Calm", 5, 760)}, []string{"p/Mem"}, want{calm}, Report, have{on("p/Mem", nay, "Calm", 5, 1000)}},
		{"a second before it", have{on("p/Mem", nay, "Calm", 5, 761)}, []string{"p/Mem"}, want{calm}, "", nil},
		{"a heartbeat ahead of our clock", have{on("p/Mem", nay, "Calm", 5, 5000)}, []string{"p/Mem"}, want{calm}, Report, have{on("p/Mem", nay, "Calm", 5, 1000)}},
		{
			"one of two changed: both are applied",
			have{on("p/Mem", nay, "Calm", 5, 990), on("p/Disk", nay, "Calm", 6, 990)},
			[]string{"p/Disk", "p/Mem"},
			want{calm, {"p/Disk", yes, "Wait", "m"}},
			Changed,
			have{on("p/Mem", nay, "Calm", 5, 1000), on("p/Disk", yes, "Wait", 1000, 1000)},
		},
		{
			"the first of two changed, and the Node has them in another order",
			have{on("p/Disk", nay, "Calm", 6, 990), on("p/Mem", nay, "Calm", 5, 990)},
			[]string{"p/Disk", "p/Mem"},
			want{{"p/Mem", yes, "Stall", "m"}, {"p/Disk", nay, "Calm", "m"}},
			Changed,
			have{on("p/Mem", yes, "Stall", 1000, 1000), on("p/Disk", nay, "Calm", 6, 1000)},
		},
		{
			"it is time for a report of the first of two",
			have{on("p/Mem", nay, "Calm", 5, 760), on("p/Disk", nay, "Calm", 6, 990)},
			[]string{"p/Disk", "p/Mem"},
			want{calm, {"p/Disk", nay, "Calm", "m"}},
			Report,
			have{on("p/Mem", nay, "Calm", 5, 1000), on("p/Disk", nay, "Calm", 6, 1000)},
		},
		{"one is given no more", have{on("p/Mem", nay, "Calm", 5, 990), on("p/Disk", nay, "Calm", 6, 990)}, []string{"p/Disk", "p/Mem"}, want{calm}, Changed, have{on("p/Mem", nay, "Calm", 5, 1000)}},
		{"none is given any more", have{on("p/Mem", nay, "Calm", 5, 990)}, []string{"p/Mem"}, nil, Changed, have{}},
		{"one of somebody else is none of ours", have{on("q", yes, "x", 5, 6)}, []string{}, nil, "", nil},
		{"somebody else set ours to Unknown", have{on("p/Mem", corev1.ConditionUnknown, "Silent", 900, 990)}, []string{"p/Mem"}, want{calm}, Changed, have{on("p/Mem", nay, "Calm", 1000, 1000)}},
		{"a type given twice counts once", nil, nil, want{calm, {"p/Mem", yes, "x", "m"}}, Changed, have{on("p/Mem", nay, "Calm", 1000, 1000)}},
		{"no time of transition is known", have{{Type: "p/Mem", Status: nay, Reason: "Calm", LastHeartbeatTime: sec(1)}}, []string{"p/Mem"}, want{calm}, Report, have{on("p/Mem", nay, "Calm", 1000, 1000)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := plan(&nodeConditions{c.have, c.owned}, c.want, time.Unix(1000, 999), 4*time.Minute)
			assert.Equal(t, c.write, why)
			assert.Empty(t, cmp.Diff(c.then, got))
		})
	}
}

func TestStatusReportTimeAheadOfClock(t *testing.T) {
	now := time.Unix(1000, 0)
	assert.False(t, overdue(now.Add(time.Second), now, time.Minute))
	assert.True(t, overdue(now.Add(time.Second+1), now, time.Minute))
}

func TestOwnedConditionsFromManagedFields(t *testing.T) {
	const ours = `{"f:status":{"f:conditions":{"k:{\"type\":\"p/Mem\"}":{".":{},"f:type":{}},"k:{\"type\":\"p/Disk\"}":{},".":{}}}}`
	entry := func(manager string, op metav1.ManagedFieldsOperationType, sub, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: sub, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	for _, c := range []struct {
		name  string
		entry metav1.ManagedFieldsEntry
		want  []string
	}{
		{"ours", entry("plimsoll-agent", apply, "status", ours), []string{"p/Disk", "p/Mem"}},
		{"the kubelet's", entry("kubelet", update, "status", ours), nil},
		{"applied by another", entry("kubelet", apply, "status", ours), nil},
		{"ours, by patch", entry("plimsoll-agent", update, "status", ours), nil},
		{"ours, not of the status", entry("plimsoll-agent", apply, "", ours), nil},
		{"no fields", metav1.ManagedFieldsEntry{Manager: "plimsoll-agent", Operation: apply, Subresource: "status"}, nil},
		{"broken", entry("plimsoll-agent", apply, "status", `{"f:status":[]}`), nil},
		{"broken keys", entry("plimsoll-agent", apply, "status", `{"f:status":{"f:conditions":{"k:{":{},"k:{\"name\":\"x\"}":{},"v:1":{}}}}`), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, ownedTypes([]metav1.ManagedFieldsEntry{c.entry}))
		})
	}
}

func FuzzManagedFields(f *testing.F) {
	f.Add([]byte(`{"f:status":{"f:conditions":{"k:{\"type\":\"p/Mem\"}":{}}}}`))
	f.Add([]byte(`{"f:status":{"f:conditions":{"k:{}":null}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range ownedTypes([]metav1.ManagedFieldsEntry{{
			Manager: fieldManager, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", FieldsV1: metav1.NewFieldsV1(string(raw)),
		}}) {
			require.NotEmpty(t, kind)
		}
	})
}

// Each second is held against what an observer of the Node would have seen if
// every second had been written.
func TestLastTransitionTime(t *testing.T) {
	const statuses = "FFTTTFTFFFTTFFFFFFFFTTTTTTTTF"
	const reasons = "abaabbbabaaabbbaaaaaabaaaabaa"
	k := nodeConditions{}
	var since int64
	for i := range statuses {
		now := int64(1000 + i)
		c := Condition{Type: "p/x", Status: corev1.ConditionFalse, Reason: reasons[i : i+1]}
		if statuses[i] == 'T' {
			c.Status = corev1.ConditionTrue
		}
		if i == 0 || statuses[i] != statuses[i-1] {
			since = now
		}
		got, why := plan(&k, []Condition{c}, time.Unix(now, 0), 5*time.Second)
		if why != "" {
			k = nodeConditions{got, []string{"p/x"}}
		}
		require.Len(t, k.conditions, 1)
		is := k.conditions[0]
		assert.Equal(t, c.Status, is.Status, "second %d", i)
		assert.Equal(t, c.Reason, is.Reason, "second %d", i)
		assert.Equal(t, since, is.LastTransitionTime.Unix(), "second %d", i)
		assert.Less(t, now-is.LastHeartbeatTime.Unix(), int64(5), "second %d", i)
	}
}
