package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Bounds of the examination: every local user may ask for it.
const (
	examinationTimeout = 30 * time.Second
	examinationValid   = 10 * time.Second
)

// examination is the newest result of Server.Examine, for all addresses.
type examination struct {
	mu   sync.Mutex // guards the others, and lets one run at a time
	rows any
	at   time.Time
}

// doctorHandler is GET /api/v1/doctor: an examination that is at most examinationValid
// old.
type doctorHandler struct {
	*examination
	examine func(context.Context) any
}

func (e *doctorHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !e.mu.TryLock() {
		http.Error(w, "doctor: another examination is running: ask again in some seconds", http.StatusTooManyRequests)
		return
	}
	defer e.mu.Unlock()
	if e.rows == nil || time.Since(e.at) > examinationValid {
		ctx, cancel := context.WithTimeout(r.Context(), examinationTimeout)
		defer cancel()
		rows := e.examine(ctx)
		if r.Context().Err() != nil {
			return // the client is gone, and its rows are about that
		}
		e.rows, e.at = rows, time.Now()
	}
	writeJSON(w, e.rows)
}
