package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// faulty is an API server in this process that does not change some of its loads.
type faulty struct {
	*loadServer

	refuses map[string]bool // by name: with 422
	hangs   map[string]bool // by name: without an answer
	makes   bool            // the writes that hang are made all the same
	tried   map[string]int
}

// RoundTrip implements http.RoundTripper.
func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	name := path.Base(r.URL.Path)
	answer := httptest.NewRecorder()
	write := r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == ""
	switch {
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="):
		f.list(answer, strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
	case write && f.hangs[name]:
		f.tried[name]++
		if f.makes {
			f.ServeHTTP(answer, r)
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	case write && f.refuses[name]:
		f.tried[name]++
		answer.Header().Set("Content-Type", "application/json")
		f.refuse(answer, metav1.StatusReasonInvalid, http.StatusUnprocessableEntity, "a policy is against it")
	default:
		f.ServeHTTP(answer, r)
	}
	return answer.Result(), nil
}

func (f *faulty) list(w http.ResponseWriter, name string) {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "velero.io/v2alpha1", "kind": "DataUploadList"}}
	if u := f.loads[name]; u != nil {
		list.Items = append(list.Items, *u)
	}
	w.Header().Set("Content-Type", "application/json")
	assert.NoError(f.t, json.NewEncoder(w).Encode(list.UnstructuredContent()))
}

// admitted are the names of the loads with a ticket to be accepted.
func (f *faulty) admitted() (names []string) {
	for name, u := range f.loads {
		if u.GetAnnotations()[gate.Admitted] != "" {
			names = append(names, name)
		}
	}
	return names
}

// inProcess is the configuration of a client whose API server is in this process.
func inProcess(s *loadServer) *rest.Config {
	return &rest.Config{Host: "http://api", Transport: &faulty{loadServer: s}, QPS: 1000}
}

// faultyRounds has a faulty API server with loads of which one has a slot at a time. The
// function lets rounds happen, a second apart.
func faultyRounds(t *testing.T, loads int) (f *faulty, r *Reconciler, rounds func(int)) {
	t.Helper()
	f = &faulty{loadServer: &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}, refuses: map[string]bool{}, hangs: map[string]bool{}, tried: map[string]int{}}
	for i := range loads {
		f.add(fmt.Sprint("new", i), "")
	}
	r, v, _ := listedBy(t, f.loadServer, &rest.Config{Host: "http://api", Transport: f, QPS: 1000})
	settings := r.Settings()
	settings.QuietAbove = 1000
	r.Settings = func() Settings { return settings }
	return f, r, func(n int) {
		for range n {
			r.reconcile(t.Context())
			learn(t, f.loadServer, v)
			time.Sleep(time.Second)
		}
	}
}

// A load that the API server refuses to change takes no slot from others.
func TestRefusedLoadTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r, rounds := faultyRounds(t, 2)
		f.refuses["new0"] = true
		rounds(10)
		assert.Equal(t, []string{"new1"}, f.admitted())
		assert.Equal(t, 1, f.tried["new0"], "not again so soon")
		for _, w := range r.Reports()[0].Waiting {
			if w.Name == "new0" {
				assert.Contains(t, w.Why, "the API server does not change it: ")
			}
		}
		f.refuses = nil
		delete(f.loads, "new1")
		rounds(60)
		assert.Equal(t, []string{"new0"}, f.admitted(), "it is tried again")
	})
}

// A load whose writes hang delays others for as long as such a write may still be made.
func TestHungLoadTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, rounds := faultyRounds(t, 2)
		f.hangs["new0"] = true
		rounds(30)
		assert.Empty(t, f.admitted(), "its ticket may still be made")
		rounds(20)
		assert.Equal(t, []string{"new1"}, f.admitted())
	})
}

// A ticket whose write was made, and not answered, has the slot: no other gets one.
func TestUnansweredTicketHasSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r, rounds := faultyRounds(t, 3)
		f.hangs["new0"], f.makes = true, true
		before := f.loads["new0"].DeepCopy()
		rounds(1)
		for range 50 { // its watch is behind
			r.reconcile(t.Context())
			require.Equal(t, []string{"new0"}, f.admitted())
			made := f.loads["new0"]
			f.loads["new0"] = before
			learn(t, f.loadServer, r.veleros["velero"])
			f.loads["new0"] = made
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, f.tried["new0"])
		assert.Equal(t, 1, r.Reports()[0].Slots)
		learn(t, f.loadServer, r.veleros["velero"])
		rounds(5)
		assert.Equal(t, []string{"new0"}, f.admitted())
	})
}

// So has one to start its place on the node.
func TestUnansweredStartHasPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r, _ := faultyRounds(t, 1)
		o := Read(vgdp.DataUpload, f.loads["new0"])
		l := o.Load
		l.Phase, l.Node = vgdp.Prepared, "n1"
		r.refused.Failed(o.UID, o.ResourceVersion, context.DeadlineExceeded, true)
		r.veleros["velero"].keeper.epoch = 7
		time.Sleep(time.Second)
		loads := []vgdp.Load{l}
		r.addRefused(t.Context(), loads, map[string]*Object{l.UID: o}, noon())
		assert.Equal(t, &vgdp.Ticket{Node: "n1", Epoch: 7, At: noon().Add(-time.Second)}, loads[0].Started)
		assert.Empty(t, loads[0].Refused)
	})
}

// A write that hangs delays the writes behind it once.
func TestHungWriteDelaysOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r, _ := faultyRounds(t, 3)
		f.hangs["new0"] = true
		var list []edit
		objects := map[string]*Object{}
		for i := range 3 {
			o := Read(vgdp.DataUpload, f.loads[fmt.Sprint("new", i)])
			objects[o.Load.UID] = o
			list = append(list, edit{load: &o.Load, kind: KindDiagnose, annotations: map[string]any{"plimsoll.dev/test": "x"}})
		}
		for range 5 {
			r.writeEdits(t.Context(), list, objects)
		}
		assert.Equal(t, 1, f.tried["new0"])
		assert.NotEmpty(t, f.loads["new1"].GetAnnotations())
		assert.NotEmpty(t, f.loads["new2"].GetAnnotations())
	})
}

// A hidden load is released when the Gate cannot be renewed, and holds nothing any more.
func TestHiddenReleasedWhenGateStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &loadServer{t: t, version: 10, loads: map[string]*unstructured.Unstructured{}}
		for i := range 5 {
			s.add(fmt.Sprint("new", i), "")
		}
		r, v, g := listedBy(t, s, inProcess(s))
		hidden := func(in time.Duration) (n int) {
			twoRounds(t, r, s, g, in)
			for _, u := range s.loads {
				if isHidden(u) {
					n++
				}
			}
			return n
		}
		require.Equal(t, 4, hidden(0))
		v.keeper.gates = readOnly{of: g}
		assert.Equal(t, 4, hidden(20*time.Second), "it still holds them")
		assert.Zero(t, hidden(40*time.Second))
	})
}
