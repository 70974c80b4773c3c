package web

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
)

// Bounds of the examination: every local user may ask for it. One that has not ended
// examinationMargin after its timeout hangs.
const (
	examinationTimeout = 30 * time.Second
	examinationMargin  = 5 * time.Second
	examinationValid   = 10 * time.Second
)

// examination is the newest result of Server.Examine, for all addresses. One runs at a time, and
// one that hangs keeps others from beginning until it ends.
type examination struct {
	mu    sync.Mutex // guards the others
	rows  any
	at    time.Time // when rows were complete
	began time.Time // the one that runs; zero: none
}

// doctorHandler is GET /api/v1/doctor: an examination that is at most examinationValid
// old.
type doctorHandler struct {
	*examination
	examine func(context.Context) any
}

func (e *doctorHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	result, began := e.begin(context.WithoutCancel(r.Context()))
	left := time.Until(began.Add(examinationTimeout + examinationMargin))
	if result == nil && left > 0 {
		http.Error(w, "doctor: another examination is running: ask again in some seconds", http.StatusTooManyRequests)
		return
	}
	hangs := time.NewTimer(left)
	defer hangs.Stop()
	select {
	case rows := <-result:
		writeJSON(w, rows)
	case <-r.Context().Done():
	case <-hangs.C:
		http.Error(w, "doctor: the examination that began at "+view.Stamp(began)+" UTC hangs: a disk or mount of this machine does not answer", http.StatusGatewayTimeout)
	}
}

// begin examines unless the newest rows are still valid, or another examination runs. The rows
// come through the channel; it is nil where another one runs, which began then.
func (e *doctorHandler) begin(ctx context.Context) (result <-chan any, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	done := make(chan any, 1)
	switch {
	case !e.began.IsZero():
		return nil, e.began
	case e.rows != nil && time.Since(e.at) <= examinationValid:
		done <- e.rows
		return done, e.at
	}
	e.began = time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(ctx, examinationTimeout)
		defer cancel()
		rows := e.examine(ctx)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.rows, e.at, e.began = rows, time.Now(), time.Time{}
		done <- rows
	}()
	return done, e.began
}
