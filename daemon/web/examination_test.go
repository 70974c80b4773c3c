package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// An examination that ignores its timeout holds up no client for longer, and each learns since
// when it hangs.
func TestDoctorEndpointHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs, ends := 0, make(chan struct{})
		h := &doctorHandler{&examination{}, func(context.Context) any {
			runs++
			<-ends
			return []string{"row"}
		}}
		get := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/doctor", http.NoBody))
			return w
		}
		start := time.Now()
		for range 2 {
			w := get()
			assert.Equal(t, http.StatusGatewayTimeout, w.Code)
			assert.Contains(t, w.Body.String(), "the examination that began at "+view.Stamp(start)+" UTC hangs")
			assert.Equal(t, examinationTimeout+examinationMargin, time.Since(start), "the second client does not wait")
		}
		close(ends)
		synctest.Wait()
		assert.JSONEq(t, `["row"]`, get().Body.String(), "it has ended late")
		assert.Equal(t, 1, runs)
	})
}

// A client that does not wait ends no examination: the next one gets its rows.
func TestDoctorEndpointClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &doctorHandler{&examination{}, func(ctx context.Context) any {
			select {
			case <-ctx.Done():
				return []string{"interrupted"}
			case <-time.After(2 * time.Second):
				return []string{"row"}
			}
		}}
		get := func(ctx context.Context) string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/doctor", http.NoBody))
			return w.Body.String()
		}
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		assert.Empty(t, get(leaving))
		time.Sleep(2 * time.Second)
		assert.JSONEq(t, `["row"]`, get(t.Context()))
	})
}

func TestDoctorEndpoint(t *testing.T) {
	runs, entered, leave := 0, make(chan struct{}), make(chan struct{})
	h := &doctorHandler{&examination{}, func(context.Context) any {
		runs++
		close(entered)
		<-leave
		return []string{"row"}
	}}
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/doctor", h)
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/doctor", http.NoBody))
		return w
	}
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- get() }()
	<-entered
	assert.Equal(t, http.StatusTooManyRequests, get().Code, "one runs at a time")
	close(leave)
	assert.JSONEq(t, `["row"]`, (<-first).Body.String())
	assert.JSONEq(t, `["row"]`, get().Body.String())
	assert.Equal(t, 1, runs, "a new one soon after gets the same rows")
}
