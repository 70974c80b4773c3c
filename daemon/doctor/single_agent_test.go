package doctor

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

func TestDoctorLease(t *testing.T) {
	for name, c := range map[string]struct {
		annotation, ours string
		age              time.Duration
		agentRuns        bool
		want             Result
	}{
		"another agent renews it": {"theirs", "ours", time.Second, false, Fail},
		"another agent did":       {"theirs", "ours", time.Minute, false, Pass},
		"ours renews it":          {"ours", "ours", time.Second, true, Pass},
		"no agent used the state": {"theirs", "", time.Second, false, Pass},
		"it has no name":          {"", "ours", time.Second, false, Pass},
		"ours runs in vain":       {"ours", "ours", time.Hour, true, Fail},
		"ours does not run":       {"ours", "ours", time.Hour, false, Pass},
		"the clock was set back":  {"ours", "ours", -time.Hour, true, Warn},
	} {
		t.Run(name, func(t *testing.T) {
			renewed := metav1.NewMicroTime(time.Now().Add(-c.age))
			p := holding(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"agent": c.annotation}}}, &renewed)
			p.Lease.Annotation, p.Lease.Agent = "agent", c.ours
			rows := leases(t.Context(), clientOf(t, p.Cluster), p, c.agentRuns)
			require.Len(t, rows, 1)
			assert.Equal(t, c.want, rows[0].Result, rows[0].Finding)
		})
	}
	t.Run("without a time", func(t *testing.T) {
		p := holding(t, &coordinationv1.Lease{}, nil)
		assert.Equal(t, Row{Pass, heartbeat, `ns/n is held by "n", without renewTime`}, leases(t.Context(), clientOf(t, p.Cluster), p, false)[0])
		assert.Equal(t, Fail, leases(t.Context(), clientOf(t, p.Cluster), p, true)[0].Result)
	})
	t.Run("an agent that answers runs", func(t *testing.T) {
		old := metav1.NewMicroTime(time.Now().Add(-time.Hour))
		p := holding(t, &coordinationv1.Lease{}, &old)
		at := patient(t)
		p.Paths, p.Socket, p.StateDir, p.Disk = at.Paths, at.Socket, at.StateDir, at.Disk
		require.NoError(t, os.MkdirAll(filepath.Dir(p.Socket), 0o755))
		l, err := net.Listen("unix", p.Socket)
		require.NoError(t, err)
		agent := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })}}
		agent.Start()
		defer agent.Close()
		r := row(t, p.Examine(t.Context()), heartbeat)
		assert.Equal(t, Fail, r.Result)
		assert.Regexp(t, "renewed 1h[0-9ms]+ ago: an agent runs, and its renewals do not reach the API server: see its log", r.Finding)
	})
}

// holding is the examination of an agent whose Lease, of 40 s, is the one given.
func holding(t *testing.T, l *coordinationv1.Lease, renewed *metav1.MicroTime) Examination {
	t.Helper()
	l.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	l.Name, l.Namespace = "n", "ns"
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("n"), RenewTime: renewed, LeaseDurationSeconds: new(int32(40))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, good) })
	mux.HandleFunc("GET /apis/coordination.k8s.io/v1/namespaces/ns/leases/n", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(l))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return Examination{Cluster: &rest.Config{Host: s.URL}, Lease: &Lease{Namespace: "ns", Name: "n", Holder: "n"}}
}
