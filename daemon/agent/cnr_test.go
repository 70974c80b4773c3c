package agent

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/evict/kube"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// cnrServer serves one CustomNodeResource; none while object is empty.
type cnrServer struct {
	object string
	calls  int
}

func (s *cnrServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.calls++
	if s.object == "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	if r.Method == http.MethodPatch {
		body, _ := io.ReadAll(r.Body)
		patch, err := jsonpatch.DecodePatch(body)
		if err == nil {
			body, err = patch.Apply([]byte(s.object))
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s.object = string(body)
	}
	_, _ = io.WriteString(w, s.object)
}

const emptyCNR = `{"metadata":{"name":"n1"},"spec":{"taints":[]},"status":{"conditions":[]}}`

// An agent removes the conditions of one before it whose plugin is not asked any more.
func TestCNRMarksOfEarlierAgentRemoved(t *testing.T) {
	for what, row := range map[string]struct {
		marked, deleted bool
		calls           int
	}{
		"conditions were left":                   {true, false, 2},
		"the CustomNodeResource was deleted":     {true, true, 1},
		"nothing was written: nothing is read":   {false, false, 0},
		"nothing was written, and none is there": {false, true, 0},
	} {
		t.Run(what, func(t *testing.T) {
			server := &cnrServer{object: emptyCNR}
			s := httptest.NewServer(server)
			defer s.Close()
			core, err := corev1client.NewForConfig(&rest.Config{Host: s.URL})
			require.NoError(t, err)
			next := func() *cnr {
				return &cnr{marker: &kube.CNRMarker{REST: core.RESTClient(), Node: "n1", Log: slog.New(slog.DiscardHandler)}}
			}
			in := evict.Input{Time: time.Now(), Levels: &plugins.Levels{}, Cluster: &evict.Cluster{}}
			round := func(c *cnr, verdicts ...plugins.Verdict) {
				in.Time, in.Levels = in.Time.Add(2*cnrReread), &plugins.Levels{Verdicts: verdicts}
				in.State = c.adopt(t.Context(), in)
				marks, m := evict.Mark(in)
				c.mark(t.Context(), in.Time, marks.CNR)
				in.State = m
			}
			first := next()
			if row.marked {
				round(first, plugins.Verdict{Plugin: "outer", Scope: "s", Condition: "C", CNR: true})
				require.Contains(t, server.object, "plimsoll.dev/C")
			} else {
				round(first)
			}
			require.Equal(t, row.marked, in.State.CNRMarked)
			if row.deleted {
				server.object = ""
			}
			server.calls = 0

			second := next() // without the plugin
			for range 3 {
				round(second)
			}
			assert.NotContains(t, server.object, "plimsoll.dev/C")
			assert.False(t, in.State.CNRMarked)
			assert.Equal(t, row.calls, server.calls, "once and not again")
		})
	}
}
