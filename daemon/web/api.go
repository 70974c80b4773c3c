package web

import (
	"bytes"
	"net/http"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/plugins"
)

// Plugin is one entry of /api/v1/plugins.
type Plugin struct {
	Name string `json:"name"`
	// Kind is inner: in the agent's own process.
	Kind string `json:"kind"`
	// Condition on the Node, and key of its taint.
	Condition string        `json:"condition,omitempty"`
	Level     plugins.Level `json:"level"`
	Absent    string        `json:"absent,omitempty"`
}

// conditionPrefix of every condition and taint that is ours.
const conditionPrefix = "plimsoll.dev/"

func (s *Server) snapshot(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, func(st *view.State) any { return st.Snapshot })
}

func (s *Server) pressure(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, func(st *view.State) any { return st.Pressure() })
}

func (s *Server) plugins(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, func(st *view.State) any {
		list := []Plugin{}
		for _, v := range st.Levels.Verdicts {
			list = append(list, Plugin{Name: v.Plugin, Kind: "inner", Condition: conditionPrefix + v.Condition, Level: v.Level, Absent: v.Absent})
		}
		return struct {
			Plugins []Plugin `json:"plugins"`
		}{list}
	})
}

func (s *Server) decisions(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, func(*view.State) any { return Decisions{append([]evict.Decision{}, s.Decisions()...)} })
}

// Decisions is /api/v1/decisions: the newest first.
type Decisions struct {
	Decisions []evict.Decision `json:"decisions"`
}

func (s *Server) reload(w http.ResponseWriter, _ *http.Request) {
	if err := s.Reload(); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Reloaded bool `json:"reloaded"`
	}{true})
}

// answer writes what of makes of the newest state.
func (s *Server) answer(w http.ResponseWriter, of func(*view.State) any) {
	st := s.whole()
	if st == nil {
		http.Error(w, errNoSampleYet.Error(), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, of(st))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	if err := view.WriteJSON(&b, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // the client may be gone
}
