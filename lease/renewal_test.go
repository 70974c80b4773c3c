package lease

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRenewalPatch(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	for _, c := range []struct {
		name    string
		stored  stored
		carried map[string]string
		want    string
	}{
		{"in steady state", stored{holder: "us", transitions: 3}, nil, `{"spec":{"holderIdentity":"us","leaseDurationSeconds":40,"renewTime":"2026-03-01T12:00:00.123456Z"}}`},
		{
			"one of somebody else is taken over",
			stored{holder: "them", transitions: 3},
			nil,
			`{"spec":{"holderIdentity":"us","leaseDurationSeconds":40,"renewTime":"2026-03-01T12:00:00.123456Z","acquireTime":"2026-03-01T12:00:00.123456Z","leaseTransitions":4}}`,
		},
		{
			"what is carried goes with it, what is empty is taken away where it is",
			stored{holder: "us", annotations: map[string]string{"b": "old", "others": "stay"}},
			map[string]string{"a": "1", "b": "", "c": ""},
			`{"metadata":{"annotations":{"a":"1","b":null}},"spec":{"holderIdentity":"us","leaseDurationSeconds":40,"renewTime":"2026-03-01T12:00:00.123456Z"}}`,
		},
		{
			"who wrote what need not be kept",
			stored{holder: "us", hasManagedFields: true},
			nil,
			`{"metadata":{"managedFields":[{}]},"spec":{"holderIdentity":"us","leaseDurationSeconds":40,"renewTime":"2026-03-01T12:00:00.123456Z"}}`,
		},
	} {
		body, err := c.stored.renew("us", 40*time.Second, at, c.carried).body()
		require.NoError(t, err)
		assert.Equal(t, c.want, string(body), c.name)
	}
}

func TestLeaseCreate(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
	l := create(node, "us", 40*time.Second, at, map[string]string{"a": "1", "b": ""})
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}}, l.OwnerReferences)
	assert.Equal(t, map[string]string{"a": "1"}, l.Annotations)
	assert.True(t, l.Spec.AcquireTime.Time.Equal(at))
	want := stored{renewed: at, holder: "us", owner: "u1", annotations: map[string]string{"a": "1"}}
	assert.Empty(t, cmp.Diff(want, leaseOf(l), cmp.AllowUnexported(stored{})))
	assert.EqualValues(t, 1, seconds(300*time.Millisecond), "the API takes no Lease of 0 s")
}

func TestLeaseOfStored(t *testing.T) {
	transitions := int32(3)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "7", ManagedFields: make([]metav1.ManagedFieldsEntry, 1),
			OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "node"}, {Kind: "ConfigMap", UID: "other"}},
		},
		Spec: coordinationv1.LeaseSpec{LeaseTransitions: &transitions},
	}
	want := stored{version: "7", hasManagedFields: true, transitions: 3, owner: "node"}
	assert.Empty(t, cmp.Diff(want, leaseOf(l), cmp.AllowUnexported(stored{})))
}

func TestRenewalLeavesOtherHolder(t *testing.T) {
	const duration = 40 * time.Second
	t0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	theirs := func(n int) stored { return stored{holder: "kubelet", renewed: t0.Add(time.Duration(n) * time.Second)} }
	var r otherHolder
	for _, c := range []struct {
		name   string
		stored stored
		now    time.Duration
		renews bool
	}{
		{"ours", stored{holder: "us", renewed: t0}, 0, false},
		{"nobody's", stored{}, 1 * time.Second, false},
		{"somebody's, whenever it was renewed", theirs(-86400), 2 * time.Second, true},
		{"not a renewal", theirs(-86400), 41 * time.Second, true},
		{"nor for as long as it is good", theirs(-86400), 42 * time.Second, false},
		{"a renewal, by a clock that goes wrong", theirs(-90000), 43 * time.Second, true},
		{"another holder", stored{holder: "other", renewed: t0.Add(-90000 * time.Second)}, 82 * time.Second, true},
		{"still", stored{holder: "other", renewed: t0.Add(-90000 * time.Second)}, 121 * time.Second, true},
		{"no more", stored{holder: "other", renewed: t0.Add(-90000 * time.Second)}, 122 * time.Second, false},
	} {
		assert.Equal(t, c.renews, r.renews(c.stored, "us", c.now, duration), c.name)
	}
}

func TestConnectionDeadOrSlow(t *testing.T) {
	for _, c := range []struct {
		name string
		h    health
		sent time.Duration
		dead bool
	}{
		{"it answers pings and took everything", health{open: true, pinged: true, acked: 1900 * ms}, 2 * time.Second, false},
		{"something is under way", health{open: true, pinged: true, unacked: true, acked: 100 * ms}, 8 * time.Second, false},
		{"it was idle before what is under way", health{open: true, pinged: true, unacked: true, acked: 9 * time.Second}, time.Second, false},
		{"its kernel is silent", health{open: true, pinged: true, unacked: true, acked: 2 * time.Second}, 2 * time.Second, true},
		{"nobody is behind its kernel", health{open: true, acked: 100 * ms}, 2 * time.Second, true},
		{"it was closed", health{pinged: true}, 2 * time.Second, true},
	} {
		assert.Equal(t, c.dead, c.h.dead(c.sent), c.name)
	}
}

// Of two agents on a node the one that did not write last sees the other's name
// in the answer, which its own would hide.
func TestRenewalSendsChangedAnnotations(t *testing.T) {
	s := stored{holder: "n", annotations: map[string]string{"same": "1", "other": "2", "gone": "3"}}
	two, empty := "4", "5"
	got := s.renew("n", time.Minute, time.Unix(1, 0), map[string]string{"same": "1", "other": two, "gone": "", "new": empty, "never": ""}).Metadata.Annotations
	assert.Equal(t, map[string]*string{"other": &two, "gone": nil, "new": &empty}, got)
}

// A renewal whose answer was lost may have been written: a request that was taken
// back since would stand until the beat after the next.
func TestRenewalAfterFailureSendsAll(t *testing.T) {
	var sent []renewal
	line, err := NewConnection(apiServer(t, func(r *http.Request) int {
		var patch renewal
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&patch))
		if sent = append(sent, patch); len(sent) == 1 {
			return http.StatusInternalServerError
		}
		return 0
	}))
	require.NoError(t, err)
	require.NoError(t, line.dial(t.Context()))
	defer line.Close()
	carried := map[string]string{"same": "1", "asks": "two"}
	b := Heartbeat{
		Node: "n", Namespace: "ns", Holder: "n", Connection: line, Duration: time.Minute, Annotations: func() map[string]string { return carried },
		Uptime: func() time.Duration { return 0 }, stored: &stored{holder: "n", annotations: map[string]string{"same": "1"}},
	}
	b.pulse.timeout = time.Minute
	require.Error(t, b.patch(t.Context(), nil))
	carried["asks"] = "" // it is taken back
	require.NoError(t, b.patch(t.Context(), nil))
	require.NoError(t, b.patch(t.Context(), nil))
	one, two := "1", "two"
	require.Len(t, sent, 3)
	assert.Equal(t, map[string]*string{"asks": &two}, sent[0].Metadata.Annotations)
	assert.Equal(t, map[string]*string{"same": &one, "asks": nil}, sent[1].Metadata.Annotations)
	assert.Empty(t, sent[2].Metadata.Annotations)
}
