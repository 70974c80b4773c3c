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

// examination is the newest result of Server.Examine.
type examination struct {
	mu   sync.Mutex // guards the others, and lets one run at a time
	rows any
	at   time.Time
}

// doctor answers with an examination that is at most examinationValid old.
func (s *Server) doctor(w http.ResponseWriter, r *http.Request) {
	e := &s.examination
	if !e.mu.TryLock() {
		http.Error(w, "doctor: another examination is running: ask again in some seconds", http.StatusTooManyRequests)
		return
	}
	defer e.mu.Unlock()
	if e.rows == nil || time.Since(e.at) > examinationValid {
		ctx, cancel := context.WithTimeout(r.Context(), examinationTimeout)
		defer cancel()
		rows := s.Examine(ctx)
		if r.Context().Err() != nil {
			return // the client is gone, and its rows are about that
		}
		e.rows, e.at = rows, time.Now()
	}
	writeJSON(w, e.rows)
}
