package admission

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/counters"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// A slow API server: the Gates must be renewed between two writes.
func TestWritesBoundedPerReconcile(t *testing.T) {
	var writes atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writes.Add(1)
		<-time.After(maxWriteTime)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"DataUpload","apiVersion":"velero.io/v2alpha1","metadata":{"name":"a","resourceVersion":"9"}}`)
	}))
	t.Cleanup(s.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	r := &Reconciler{Dynamic: client, Settings: DefaultSettings, Log: slog.New(slog.DiscardHandler)}
	r.reset()
	r.veleros["velero"] = newVelero(r, Velero{Namespace: "velero"})
	var list []edit
	objects := map[string]*Object{}
	for i := range 3 {
		l := &vgdp.Load{UID: fmt.Sprint(i), Name: fmt.Sprint(i), Namespace: "velero", Kind: vgdp.DataUpload}
		objects[l.UID] = &Object{ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: l.Namespace, ResourceVersion: "5"}, Load: *l}
		list = append(list, edit{load: l, kind: KindDiagnose, annotations: map[string]any{}})
	}
	r.writeEdits(t.Context(), list, objects)
	assert.Equal(t, int64(1), writes.Load())
	assert.Len(t, r.wake, 1, "it is looked again at once")
}

func TestDecideWaitsForOwnWrites(t *testing.T) {
	r, _ := veleroServer(t)
	v := newVelero(r, Velero{Namespace: "velero"})
	r.veleros["velero"] = v
	o := &Object{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "velero", ResourceVersion: "5"}}
	require.NoError(t, v.loads[vgdp.DataUpload].Replace([]any{o}, ""))
	for _, row := range []struct {
		version string
		known   bool
	}{{"4", true}, {"5", true}, {"6", false}} {
		v.loads[vgdp.DataUpload].Wrote("velero", "a", row.version)
		assert.Equal(t, row.known, r.caughtUp(), row.version)
	}
	require.NoError(t, v.loads[vgdp.DataUpload].Replace(nil, ""))
	assert.True(t, r.caughtUp(), "it was deleted")
}

// A load that would not be released is not hidden, and told why it waits.
func TestHideWithoutRelease(t *testing.T) {
	var bodies []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		bodies = append(bodies, string(body))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"DataUpload","apiVersion":"velero.io/v2alpha1","metadata":{"name":"a","resourceVersion":"9"},"spec":{"datamover":"plimsoll.dev/held"}}`)
	}))
	t.Cleanup(s.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	r := &Reconciler{Dynamic: client, Settings: DefaultSettings, Log: slog.New(slog.DiscardHandler)}
	r.reset()
	v := newVelero(r, Velero{Namespace: "velero"})
	v.gatesRead, v.keeper.epoch = true, 1
	r.veleros["velero"] = v
	l := &vgdp.Load{UID: "u", Name: "a", Namespace: "velero", Kind: vgdp.DataUpload, Created: noon()}
	w := vgdp.Waiting{Load: l, Wait: vgdp.Wait{Code: vgdp.CodeFull, Node: "n1", Count: 1}}
	list, err := edits(&vgdp.Decision{Waiting: []vgdp.Waiting{w}}, []*vgdp.Waiting{&w}, noon().Add(time.Hour))
	require.NoError(t, err)
	objects := map[string]*Object{"u": {ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "velero", ResourceVersion: "5"}, Load: *l}}
	require.NoError(t, v.loads[vgdp.DataUpload].Replace([]any{objects["u"]}, ""))
	for _, releasable := range []bool{false, true} {
		v.releasedBy = map[bool]string{true: byJob}[releasable]
		r.writeEdits(t.Context(), list, objects)
		last := bodies[len(bodies)-1]
		assert.Equal(t, releasable, strings.Contains(last, `"datamover":"plimsoll.dev/held"`), last)
		assert.Contains(t, last, "plimsoll.dev/waiting")
		assert.False(t, r.caughtUp(), "the store has the version before")
	}
	assert.Equal(t, Counts{Writes: counters.By[Kind]{KindNote: 1, KindHide: 1}}, r.Counts())
}
