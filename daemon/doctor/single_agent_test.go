package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/state"
)

func TestDoctorSecondAgent(t *testing.T) {
	p := Examination{StateDir: t.TempDir(), StartedBy: state.BySystemd}
	assert.Equal(t, Pass, p.singleAgent(false).Result, "none runs")
	lock, err := state.Acquire(p.StateDir, time.Now(), state.ByPod)
	require.NoError(t, err)
	row := p.singleAgent(false)
	assert.Equal(t, Fail, row.Result)
	assert.Contains(t, row.Finding, "started in a pod at ")
	assert.Equal(t, Pass, p.singleAgent(true).Result, "it answers on our socket")
	p.StartedBy = state.ByPod
	assert.Equal(t, Pass, p.singleAgent(false).Result, "an examination in a pod sees the agent in its own")
	lock.Release()
	p.StartedBy = state.BySystemd
	assert.Equal(t, Pass, p.singleAgent(false).Result, "it has ended")
}

func TestDoctorSecondAgentInLease(t *testing.T) {
	for name, c := range map[string]struct {
		annotation, ours string
		age              time.Duration
		want             Result
	}{
		"another agent renews it": {"theirs", "ours", time.Second, Fail},
		"another agent did":       {"theirs", "ours", time.Minute, Pass},
		"ours renews it":          {"ours", "ours", time.Second, Pass},
		"no agent used the state": {"theirs", "", time.Second, Pass},
		"it has no name":          {"", "ours", time.Second, Pass},
	} {
		t.Run(name, func(t *testing.T) {
			renewed, holder := metav1.NewMicroTime(time.Now().Add(-c.age)), "n"
			lease := coordinationv1.Lease{
				TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
				ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", Annotations: map[string]string{"agent": c.annotation}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: new(int32(40))},
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				assert.NoError(t, json.NewEncoder(w).Encode(lease))
			}))
			defer s.Close()
			p := Examination{Lease: &Lease{Namespace: "ns", Name: "n", Holder: "n", Annotation: "agent", Agent: c.ours}}
			rows := leases(t.Context(), &rest.Config{Host: s.URL}, p.Lease, p.NodeLease)
			require.Len(t, rows, 1)
			assert.Equal(t, c.want, rows[0].Result, rows[0].Finding)
		})
	}
}
