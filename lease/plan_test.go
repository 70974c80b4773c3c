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
	calm := Condition{"plimsoll.dev/Mem", nay, "Calm", "m"}
	for _, c := range []struct {
		name    string
		have    have
		want    want
		write   Write
		then    have
		removed []corev1.NodeConditionType
	}{
		{"nothing of ours", have{on("Ready", yes, "r", 1, 2)}, nil, "", nil, nil},
		{"a new condition", have{on("Ready", yes, "r", 1, 2)}, want{calm}, Changed, have{on("plimsoll.dev/Mem", nay, "Calm", 1000, 1000)}, nil},
		{"nothing changed", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 990)}, want{calm}, "", nil, nil},
		{"only the message changed", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 990)}, want{{"plimsoll.dev/Mem", nay, "Calm", "other"}}, "", nil, nil},
		{"the status changed", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 990)}, want{{"plimsoll.dev/Mem", yes, "Stall", "m"}}, Changed, have{on("plimsoll.dev/Mem", yes, "Stall", 1000, 1000)}, nil},
		{"only the reason changed", have{on("plimsoll.dev/Mem", yes, "Soft", 5, 990)}, want{{"plimsoll.dev/Mem", yes, "Hard", "m"}}, Changed, have{on("plimsoll.dev/Mem", yes, "Hard", 5, 1000)}, nil},
		{"it is time for a report", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 760)}, want{calm}, Report, have{on("plimsoll.dev/Mem", nay, "Calm", 5, 1000)}, nil},
		{"a second before it", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 761)}, want{calm}, "", nil, nil},
		{"a heartbeat ahead of our clock", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 5000)}, want{calm}, Report, have{on("plimsoll.dev/Mem", nay, "Calm", 5, 1000)}, nil},
		{
			"one of two changed: both are applied",
			have{on("plimsoll.dev/Mem", nay, "Calm", 5, 990), on("plimsoll.dev/Disk", nay, "Calm", 6, 990)},
			want{calm, {"plimsoll.dev/Disk", yes, "Wait", "m"}},
			Changed,
			have{on("plimsoll.dev/Mem", nay, "Calm", 5, 1000), on("plimsoll.dev/Disk", yes, "Wait", 1000, 1000)},
			nil,
		},
		{
			"the first of two changed, and the Node has them in another order",
			have{on("plimsoll.dev/Disk", nay, "Calm", 6, 990), on("plimsoll.dev/Mem", nay, "Calm", 5, 990)},
			want{{"plimsoll.dev/Mem", yes, "Stall", "m"}, {"plimsoll.dev/Disk", nay, "Calm", "m"}},
			Changed,
			have{on("plimsoll.dev/Mem", yes, "Stall", 1000, 1000), on("plimsoll.dev/Disk", nay, "Calm", 6, 1000)},
			nil,
		},
		{
			"it is time for a report of the first of two",
			have{on("plimsoll.dev/Mem", nay, "Calm", 5, 760), on("plimsoll.dev/Disk", nay, "Calm", 6, 990)},
			want{calm, {"plimsoll.dev/Disk", nay, "Calm", "m"}},
			Report,
			have{on("plimsoll.dev/Mem", nay, "Calm", 5, 1000), on("plimsoll.dev/Disk", nay, "Calm", 6, 1000)},
			nil,
		},
		{"one is given no more", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 990), on("plimsoll.dev/Disk", nay, "Calm", 6, 990)}, want{calm}, Changed, have{on("plimsoll.dev/Mem", nay, "Calm", 5, 1000)}, []corev1.NodeConditionType{"plimsoll.dev/Disk"}},
		{"none is given any more", have{on("plimsoll.dev/Mem", nay, "Calm", 5, 990)}, nil, Changed, nil, []corev1.NodeConditionType{"plimsoll.dev/Mem"}},
		{"one of somebody else is none of ours", have{on("q", yes, "x", 5, 6)}, nil, "", nil, nil},
		{"somebody else set ours to Unknown", have{on("plimsoll.dev/Mem", corev1.ConditionUnknown, "Silent", 900, 990)}, want{calm}, Changed, have{on("plimsoll.dev/Mem", nay, "Calm", 1000, 1000)}, nil},
		{"a type given twice counts once", nil, want{calm, {"plimsoll.dev/Mem", yes, "x", "m"}}, Changed, have{on("plimsoll.dev/Mem", nay, "Calm", 1000, 1000)}, nil},
		{"no time of transition is known", have{{Type: "plimsoll.dev/Mem", Status: nay, Reason: "Calm", LastHeartbeatTime: sec(1)}}, want{calm}, Report, have{on("plimsoll.dev/Mem", nay, "Calm", 1000, 1000)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := plan(&nodeConditions{c.have, "7"}, c.want, time.Unix(1000, 999), 4*time.Minute)
			assert.Equal(t, c.write, got.why)
			assert.Empty(t, cmp.Diff(c.then, got.set))
			assert.Equal(t, c.removed, got.removed)
			assert.Empty(t, got.version, "no other client writes them")
		})
	}
}

func TestStatusReportTimeAheadOfClock(t *testing.T) {
	now := time.Unix(1000, 0)
	assert.False(t, overdue(now.Add(time.Second), now, time.Minute))
	assert.True(t, overdue(now.Add(time.Second+1), now, time.Minute))
}

func TestReadyWrittenByOneClient(t *testing.T) {
	const ready, now = "Ready", 100_000
	wanted := []Condition{{ready, corev1.ConditionTrue, "AgentBeats", "m"}}
	written := on(ready, corev1.ConditionTrue, "AgentBeats", now, now)
	for name, c := range map[string]struct {
		is    []corev1.NodeCondition
		write Write
		since int64
		left  bool
	}{
		"there is none":                   {nil, Changed, now, false},
		"ours, lately":                    {[]corev1.NodeCondition{on(ready, corev1.ConditionTrue, "AgentBeats", 5, now-1)}, "", 0, false},
		"ours, and a report is due":       {[]corev1.NodeCondition{on(ready, corev1.ConditionTrue, "AgentBeats", 5, now-240)}, Report, 5, false},
		"the node lifecycle controller's": {[]corev1.NodeCondition{on(ready, corev1.ConditionUnknown, "NodeStatusUnknown", now-9, now-50)}, Changed, now, false},
		"a kubelet's":                     {[]corev1.NodeCondition{on(ready, corev1.ConditionTrue, "KubeletReady", 5, now-299)}, "", 0, true},
		"a kubelet's that is not ready":   {[]corev1.NodeCondition{on(ready, corev1.ConditionFalse, "KubeletNotReady", 5, now-599)}, "", 0, true},
		"another's whose clock is behind": {[]corev1.NodeCondition{on(ready, corev1.ConditionFalse, "Other", 5, now-6000)}, "", 0, true},
		"another's whose clock is ahead":  {[]corev1.NodeCondition{on(ready, corev1.ConditionFalse, "Other", 5, now+6000)}, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := &nodeConditions{append(c.is, on("plimsoll.dev/Mem", corev1.ConditionTrue, "Soft", 5, 6)), "7"}
			got, other := planReady(k, wanted, 0, time.Unix(now, 0), 4*time.Minute)
			assert.Equal(t, c.left, other != nil)
			if c.write == "" {
				assert.Equal(t, change{}, got)
				return
			}
			written.LastTransitionTime = sec(c.since)
			assert.Equal(t, change{why: c.write, set: []corev1.NodeCondition{written}, version: "7"}, got)
		})
	}
	got, other := planReady(&nodeConditions{[]corev1.NodeCondition{written}, "7"}, nil, 0, time.Unix(now, 0), time.Minute)
	assert.Equal(t, change{}, got, "what is not wanted any more is not removed")
	assert.Nil(t, other)
}

// Another client has stopped when its Ready has been the same for long, by the agent's own
// clock: with each change it has that time again.
func TestReadyTakenOverWhenOtherStops(t *testing.T) {
	const ready = "Ready"
	wanted := []Condition{{ready, corev1.ConditionTrue, "AgentBeats", "m"}}
	var seen seenReady
	now := time.Unix(100_000, 0)
	left := func(after time.Duration, is ...corev1.NodeCondition) bool { // it is looked at each second
		k := &nodeConditions{is, "7"}
		for ; after > 0; after -= time.Second {
			now = now.Add(min(after, time.Second))
			seen.see(k, now)
		}
		got, other := planReady(k, wanted, seen.unchanged, now, 4*time.Minute)
		assert.Equal(t, other == nil, got.why != "")
		return other != nil
	}
	no, yes := on(ready, corev1.ConditionFalse, "KubeletNotReady", 5, 6), on(ready, corev1.ConditionTrue, "KubeletReady", 7, 8)
	assert.True(t, left(otherWriterGone, no))
	assert.True(t, left(1, yes), "it has written")
	yes.LastHeartbeatTime = sec(9)
	assert.True(t, left(otherWriterGone, yes), "and again")
	assert.False(t, left(time.Second, yes))
	yes.LastTransitionTime = sec(10)
	assert.True(t, left(1, yes), "without a heartbeat")
	for name, between := range map[string][]corev1.NodeCondition{
		"the agent wrote it": {on(ready, corev1.ConditionTrue, "AgentBeats", 5, 100_000)},
		"it was Unknown":     {on(ready, corev1.ConditionUnknown, "NodeStatusUnknown", 5, 6)},
		"it was removed":     nil,
	} {
		assert.False(t, left(otherWriterGone, yes), name)
		left(1, between...)
		assert.True(t, left(otherWriterGone, yes), name)
	}
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
		c := Condition{Type: "plimsoll.dev/x", Status: corev1.ConditionFalse, Reason: reasons[i : i+1]}
		if statuses[i] == 'T' {
			c.Status = corev1.ConditionTrue
		}
		if i == 0 || statuses[i] != statuses[i-1] {
			since = now
		}
		if got := plan(&k, []Condition{c}, time.Unix(now, 0), 5*time.Second); got.why != "" {
			k.conditions = got.set
		}
		require.Len(t, k.conditions, 1)
		is := k.conditions[0]
		assert.Equal(t, c.Status, is.Status, "second %d", i)
		assert.Equal(t, c.Reason, is.Reason, "second %d", i)
		assert.Equal(t, since, is.LastTransitionTime.Unix(), "second %d", i)
		assert.Less(t, now-is.LastHeartbeatTime.Unix(), int64(5), "second %d", i)
	}
}
