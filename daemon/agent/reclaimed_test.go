package agent

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// reclaimedServer answers as an API server with one answer, which a test changes.
type reclaimedServer struct {
	code  int
	body  string
	asked int
}

func (s *reclaimedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked++
	if r.URL.Path != "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/n1" || r.Method != http.MethodGet {
		s.code, s.body = http.StatusTeapot, r.URL.Path
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(s.code)
	_, _ = w.Write([]byte(s.body))
}

func newReclaimedReader(t *testing.T) (*reclaimedServer, *reclaimedReader) {
	t.Helper()
	s := &reclaimedServer{code: 200, body: `{"status":{"resources":{"allocatable":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"44k","resource.katalyst.kubewharf.io/reclaimed_memory":"2Gi","cpu":"7"}}}}`}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	core, err := corev1client.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return s, &reclaimedReader{rest: core.RESTClient(), node: "n1"}
}

func TestReclaimedPoll(t *testing.T) {
	s, l := newReclaimedReader(t)
	assert.Contains(t, l.absentReason(), "reclaimedOvercommit is off")
	now := time.Unix(1000, 0)
	l.poll(t.Context(), now)
	want := snapshot.Reclaimable{CPUMillicores: snapshot.Some[uint64](44_000), MemoryBytes: snapshot.Some[uint64](2 << 30)}
	assert.Equal(t, want, l.last)
	assert.Empty(t, l.absentReason())
	l.poll(t.Context(), now.Add(reclaimedInterval-1))
	assert.Equal(t, 1, s.asked)
	s.body = `{"status":{"resources":{"allocatable":{"resource.katalyst.kubewharf.io/reclaimed_memory":"-1"}}}}`
	l.poll(t.Context(), now.Add(reclaimedInterval))
	assert.Equal(t, snapshot.Reclaimable{MemoryBytes: snapshot.Some[uint64](0)}, l.last, "what is not said is not known")
	s.body = `{"status":{}}`
	l.poll(t.Context(), now.Add(2*reclaimedInterval))
	assert.Equal(t, "the CustomNodeResource of this Node has no reclaimed resources", l.absentReason())
}

// zonesBody is a CustomNodeResource with NUMA zones.
func zonesBody() string {
	const cpu, memory = "resource.katalyst.kubewharf.io/reclaimed_millicpu", "resource.katalyst.kubewharf.io/reclaimed_memory"
	return `{"status":{"resources":{"allocatable":{"` + cpu + `":"44k"}},"topologyZone":[{"type":"Socket","name":"0","resources":{},"children":[
		{"type":"Numa","name":"1","resources":{"allocatable":{"` + cpu + `":"20k","` + memory + `":"1Gi","cpu":"9"}},"allocations":[
			{"consumer":"ns/a/uid-a","requests":{"` + cpu + `":"3k","` + memory + `":"2Mi","cpu":"4"}},
			{"consumer":"ns/dedicated/uid-b","requests":{"cpu":"4"}}, {"consumer":""}]},
		{"type":"Numa","name":"0","resources":{"allocatable":{"` + cpu + `":"24k"}},"children":[{"type":"NIC","name":"eth0","resources":{}}]},
		{"type":"Numa","name":"0","resources":{"allocatable":{"` + cpu + `":"99k"}}},
		{"type":"Numa","name":"x\n","resources":{"allocatable":{"` + cpu + `":"1k"}}},
		{"type":"Numa","name":"2","resources":{"allocatable":{"cpu":"4"}}}]}]}}`
}

func TestReclaimedZones(t *testing.T) {
	s, l := newReclaimedReader(t)
	s.body = zonesBody()
	l.poll(t.Context(), time.Unix(1000, 0))
	require.Empty(t, l.absentReason())
	assert.Equal(t, []snapshot.ReclaimableZone{
		{ID: 0, CPUMillicores: snapshot.Some[uint64](24_000)},
		{
			ID: 1, CPUMillicores: snapshot.Some[uint64](20_000), MemoryBytes: snapshot.Some[uint64](1 << 30),
			Allocations: []snapshot.ZoneAllocation{{PodUID: "uid-a", CPUMillicores: 3000, MemoryBytes: 2 << 20}},
		},
	}, l.last.Zones)
}

// FuzzReclaimed: no answer makes it panic, each NUMA node is there once, and a decoded one
// is what a recording keeps of it.
func FuzzReclaimed(f *testing.F) {
	f.Add([]byte(zonesBody()))
	f.Add([]byte(`{"status":{"topologyZone":[{"children":[{"type":"Numa","name":"65536"}]},null]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		lent, err := decodeReclaimed(body)
		if err != nil {
			return
		}
		require.True(t, slices.IsSortedFunc(lent.Zones, func(a, b snapshot.ReclaimableZone) int { return cmp.Or(cmp.Compare(a.ID, b.ID), -1) }),
			"each once")
		text, err := json.Marshal(lent)
		require.NoError(t, err)
		var again snapshot.Reclaimable
		require.NoError(t, json.Unmarshal(text, &again))
		require.True(t, lent.Equal(again))
	})
}

func TestReclaimedOldAnswerExpires(t *testing.T) {
	for _, row := range []struct {
		code int
		body string
		why  string
		kept bool
	}{
		{404, `{"kind":"Status","code":404,"reason":"NotFound"}`, "no CustomNodeResource of Katalyst", false},
		{403, `{"kind":"Status","code":403,"reason":"Forbidden"}`, "deploy/rbac-katalyst.yaml", false},
		{500, `{"kind":"Status","code":500,"message":"etcd is away"}`, "an error on the server", true},
		{200, `{"status":7}`, "cannot unmarshal", true},
	} {
		s, l := newReclaimedReader(t)
		now := time.Unix(1000, 0)
		l.poll(t.Context(), now)
		require.Empty(t, l.absentReason())
		s.code, s.body = row.code, row.body
		l.poll(t.Context(), now.Add(reclaimedInterval))
		assert.Equal(t, row.kept, l.absentReason() == "", "%d: a moment's trouble changes nothing", row.code)
		l.poll(t.Context(), now.Add(reclaimedMaxAge))
		assert.Contains(t, l.absentReason(), row.why)
		assert.Zero(t, l.last)
	}
}
