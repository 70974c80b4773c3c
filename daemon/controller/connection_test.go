package controller

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/plimsoll-system/leases"

// server answers each request with a status.
func server(t *testing.T, status *int) (c *connection, log *bytes.Buffer, ask func(method, path string) error) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(*status)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"because"}`))
	}))
	t.Cleanup(s.Close)
	log = &bytes.Buffer{}
	c = &connection{log: slog.New(slog.NewTextHandler(log, nil))}
	client := &http.Client{Transport: c.Wrap(s.Client().Transport)}
	return c, log, func(method, path string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
		require.NoError(t, err)
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(response.Body)
		assert.NoError(t, err)
		assert.Contains(t, body.String(), `"message":"because"}`, "the client reads the whole answer")
		return response.Body.Close()
	}
}

func kinds(c *connection) (list []web.APIProblemKind) {
	for _, p := range c.list() {
		list = append(list, p.Kind)
	}
	return list
}

func TestConnection(t *testing.T) {
	for _, row := range []struct {
		name, method, path string
		status             int
		want               web.APIProblemKind
		cause              string
	}{
		{"a wrong token", "GET", leasePath + "/plimsoll-controller", 401, web.APIUnauthenticated, "because"},
		{"no right on the Lease", "GET", leasePath + "/plimsoll-controller", 403, web.APIForbidden, "get leases plimsoll-controller in namespace plimsoll-system: because"},
		{"no right to renew", "PUT", leasePath + "/plimsoll-controller", 403, web.APIForbidden, "update leases plimsoll-controller in namespace plimsoll-system: because"},
		{"no namespace", "POST", leasePath, 404, web.APINamespace, "create leases in namespace plimsoll-system: because"},
		{"no right to list", "GET", "/api/v1/nodes?watch=true", 403, web.APIForbidden, "list nodes: because"},
		{"etcd is away", "GET", "/api/v1/nodes", 500, web.APIFailing, "list nodes: because"},
		{"one object is not there", "GET", "/api/v1/namespaces/a/pods/b", 404, "", ""},
		{"one object is refused", "POST", "/api/v1/namespaces/a/pods/b/eviction", 403, "", ""},
		{"a policy refuses a write", "PATCH", "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/a", 403, "", ""},
		{"all is well", "GET", "/api/v1/nodes", 200, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, log, ask := server(t, &row.status)
			for range 5 {
				require.NoError(t, ask(row.method, row.path))
			}
			if row.want == "" {
				assert.Empty(t, c.list())
				assert.Empty(t, log.String())
				return
			}
			require.Equal(t, []web.APIProblemKind{row.want}, kinds(c))
			assert.Equal(t, row.cause, c.list()[0].Cause)
			assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
			assert.Contains(t, c.list()[0].Text(), row.want.Remedy())
			row.status = 200
			require.NoError(t, ask(row.method, row.path))
			assert.Empty(t, c.list())
			assert.Contains(t, log.String(), "a problem of the controller has ended")
		})
	}
	t.Run("what is refused of one kind is not granted by another", func(t *testing.T) {
		status := 403
		c, _, ask := server(t, &status)
		require.NoError(t, ask("GET", "/api/v1/nodes"))
		status = 200
		require.NoError(t, ask("GET", "/api/v1/pods"))
		assert.Equal(t, []web.APIProblemKind{web.APIForbidden}, kinds(c))
	})
	t.Run("a Lease that could not be read and is renewed is no problem", func(t *testing.T) {
		status := 403
		c, _, ask := server(t, &status)
		require.NoError(t, ask("GET", leasePath+"/plimsoll-controller"))
		status = 200
		require.NoError(t, ask("PUT", leasePath+"/plimsoll-controller"))
		assert.Empty(t, c.list(), "the election may not read it again")
	})
	t.Run("many refusals are told up to a bound", func(t *testing.T) {
		status := 403
		c, _, ask := server(t, &status)
		for i := range 2 * maxProblems {
			require.NoError(t, ask("GET", "/api/v1/kind"+strings.Repeat("x", i)))
		}
		assert.Len(t, c.list(), maxProblems)
	})
}

// refusing is a network without a server; while it answers, all is well.
type refusing struct{ answers bool }

func (r *refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	if r.answers {
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}
	<-q.Context().Done()
	return nil, q.Context().Err()
}

func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &connection{log: slog.New(slog.NewTextHandler(&log, nil))}
		network := &refusing{}
		by := c.Wrap(network)
		ask := func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/api/v1/nodes", nil)
			require.NoError(t, err)
			response, err := by.RoundTrip(r)
			if err == nil {
				require.NoError(t, response.Body.Close())
			}
		}
		ask(t.Context())
		time.Sleep(problemLife)
		assert.Len(t, c.list(), 1)
		time.Sleep(time.Nanosecond)
		assert.Empty(t, c.list(), "it is not asked for any more")
		log.Reset()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		ask(ended)
		assert.Empty(t, c.list(), "the controller itself ended the request")
		for range 300 { // it answers every second time
			network.answers = false
			ask(t.Context())
			require.Equal(t, []web.APIProblemKind{web.APIUnreachable}, kinds(c))
			require.Contains(t, c.list()[0].Text(), "cannot reach the API server: server: no answer in time: context deadline exceeded; check that")
			network.answers = true
			ask(t.Context())
			require.Empty(t, c.list())
		}
		assert.Equal(t, 5, strings.Count(log.String(), "level=WARN"), "once a minute")
		assert.Equal(t, 5, strings.Count(log.String(), "has ended"))
	})
}
