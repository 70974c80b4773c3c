package release

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
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
	typo := of("typo", "n4", time.Second)
	typo.Spec.LeaseDurationSeconds = new(int32(math.MaxInt32))
	beats := heldLeases([]coordinationv1.Lease{of("given-back", "", time.Second), {}, of("a", "n2", 31*time.Second), of("b", "n3", -time.Hour), typo}, now())
	assert.Len(t, beats, 3, "whatever the clock of the holder says")
	assert.Equal(t, now().Add(longestRenewal), beats["typo"].until)
	delete(beats, "typo")

	assert.Empty(t, renewedSince(beats, []coordinationv1.Lease{of("a", "n2", 31*time.Second), of("b", "n3", -time.Hour)}, now().Add(10*time.Second)))
	assert.Len(t, beats, 2, "neither has renewed it, and there is time left")

	errs := renewedSince(beats, []coordinationv1.Lease{of("a", "n2", 0), of("b", "n3", -time.Hour)}, now().Add(10*time.Second))
	assert.Len(t, beats, 1)
	if assert.Len(t, errs, 1) {
		assert.EqualError(t, errs[0], "lease plimsoll-node-lease/a: still renewed by n2, which brings back what is removed: stop it first")
	}
	assert.Empty(t, renewedSince(beats, []coordinationv1.Lease{of("b", "n3", -time.Hour)}, now().Add(10*time.Second+time.Millisecond)))
	assert.Empty(t, beats, "he would have")
}

func TestReleaseLeaseEnded(t *testing.T) {
	for name, leases := range map[string][]coordinationv1.Lease{"back": {of("a", "", 0)}, "deleted": nil} {
		beats := heldLeases([]coordinationv1.Lease{of("a", "n2", time.Second)}, now())
		assert.Empty(t, renewedSince(beats, leases, now()), name)
		assert.Empty(t, renewedSince(beats, leases, now().Add(11*time.Second)), name)
		assert.Empty(t, beats, name)
	}
}

// Of an agent that may be alive the Lease stays: by it the next release knows the agent.
func TestReleaseLeavesLeasesUnchecked(t *testing.T) {
	const failed = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`
	const lease = `{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "items": [
		{"metadata": {"name": "n", "namespace": "plimsoll-node-lease", "uid": "u"}, "spec": {"holderIdentity": "n", "leaseDurationSeconds": 3, "renewTime": %q}}]}`
	for want, first := range map[string]int{"list heartbeats: ": http.StatusForbidden, "lease plimsoll-node-lease/n: still renewed by n, ": http.StatusOK} {
		t.Run(want, func(t *testing.T) {
			lists, deleted := 0, 0
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status, answer := http.StatusNotFound, fmt.Sprintf(failed, "NotFound", http.StatusNotFound)
				switch {
				case r.Method == http.MethodDelete:
					deleted++
				case strings.HasSuffix(r.URL.Path, "/deployments"):
					status, answer = http.StatusOK, `{"kind": "DeploymentList", "apiVersion": "apps/v1"}`
				case strings.HasSuffix(r.URL.Path, "/plimsoll-node-lease/leases"):
					if lists++; lists == 1 && first != http.StatusOK {
						status, answer = first, fmt.Sprintf(failed, "Forbidden", first)
						break
					}
					status, answer = http.StatusOK, fmt.Sprintf(lease, now().Add(time.Duration(lists)*time.Second).Format(metav1.RFC3339Micro))
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, answer)
			}))
			defer api.Close()
			how := &rest.Config{Host: api.URL}
			r := &Release{Dynamic: dynamic.NewForConfigOrDie(how), Leases: coordinationv1client.NewForConfigOrDie(how), Election: types.NamespacedName{Namespace: "plimsoll-system", Name: "plimsoll-controller"}, Out: io.Discard}
			require.ErrorContains(t, r.All(t.Context()), want)
			assert.Zero(t, deleted)
		})
	}
}
