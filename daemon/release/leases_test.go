package release

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// of is a Lease of 30 s, renewed so long ago.
func of(uid, holder string, ago time.Duration) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "plimsoll-node-lease", Name: uid, UID: types.UID(uid)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(30)), RenewTime: &metav1.MicroTime{Time: now().Add(-ago)}},
	}
}

func TestReleaseWaitsForLiveLeases(t *testing.T) {
	beats := liveLeases([]coordinationv1.Lease{of("ended-long-ago", "n1", 31*time.Second), of("given-back", "", time.Second), {}, of("a", "n2", time.Second), of("b", "n3", 29*time.Second)}, now())
	assert.Len(t, beats, 2)

	assert.Empty(t, renewedSince(beats, []coordinationv1.Lease{of("a", "n2", time.Second), of("b", "n3", 29*time.Second)}, now().Add(10*time.Second)))
	assert.Len(t, beats, 2, "neither has renewed it, and there is time left")

	errs := renewedSince(beats, []coordinationv1.Lease{of("a", "n2", 0), of("b", "n3", 29*time.Second)}, now().Add(10*time.Second))
	assert.Len(t, beats, 1)
	if assert.Len(t, errs, 1) {
		assert.EqualError(t, errs[0], "lease plimsoll-node-lease/a: still renewed by n2, which brings back what is removed: stop it first")
	}
	assert.Empty(t, renewedSince(beats, []coordinationv1.Lease{of("b", "n3", 29*time.Second)}, now().Add(10*time.Second+time.Millisecond)))
	assert.Empty(t, beats, "he would have")
}

func TestReleaseLeaseEnded(t *testing.T) {
	for name, leases := range map[string][]coordinationv1.Lease{"back": {of("a", "", 0)}, "deleted": nil} {
		beats := liveLeases([]coordinationv1.Lease{of("a", "n2", time.Second)}, now())
		assert.Empty(t, renewedSince(beats, leases, now()), name)
		assert.Empty(t, renewedSince(beats, leases, now().Add(11*time.Second)), name)
		assert.Empty(t, beats, name)
	}
}
