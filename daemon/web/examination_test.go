package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
