package web

import (
	"bytes"
	"cmp"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/plugins/outer"
)

// Plugin is one entry of /api/v1/plugins: a plugin and one scope that it
// judges.
type Plugin struct {
	Name string `json:"name"`
	// Kind is inner, part of the agent, or outer, a process of its own.
	Kind string `json:"kind"`
	// Up: the plugin is called.
	Up bool `json:"up"`
	// Outer is the state of an outer plugin's process.
	Outer *outer.Status `json:"outer,omitempty"`
	// Scope is "node", or the device that the verdict is about.
	Scope string `json:"scope"`
	// Condition of the Node, also the key of its taint.
	Condition string        `json:"condition,omitempty"`
	Level     plugins.Level `json:"level"`
	// Absent is what is missing, or why level none was not judged.
	Absent string `json:"absent,omitempty"`
}

// Plugins is /api/v1/plugins.
type Plugins struct {
	// AgeSeconds is how old the sample was when the agent answered; Stale: the agent takes
	// no new one.
	AgeSeconds float64 `json:"ageSeconds"`
	Stale      bool    `json:"stale,omitempty"`

	Plugins []Plugin `json:"plugins"`
	// Rivals are other processes that watch plugin directories, and Beside is what
	// becomes of the plugins there: plugins.beside.
	Rivals []outer.Rival `json:"rivals,omitempty"`
	Beside string        `json:"beside,omitempty"`
}

func pluginOf(kind string, v plugins.Verdict) Plugin {
	p := Plugin{Name: v.Plugin, Kind: kind, Up: true, Scope: v.Scope, Level: v.Level, Absent: cmp.Or(v.NotJudged(), v.Absent)}
	if v.Condition != "" {
		p.Condition = names.Prefix + v.Condition
	}
	return p
}

// outerPlugins has an entry for each verdict of a plugin, and one for a plugin
// without a verdict.
func outerPlugins(all []outer.Status) []Plugin {
	var list []Plugin
	for _, s := range all {
		if len(s.Verdicts) == 0 {
			list = append(list, Plugin{Name: s.Name, Kind: "outer", Up: s.Up, Absent: cmp.Or(s.Problem, s.Failure), Outer: &s})
		}
		for _, v := range s.Verdicts {
			p := pluginOf("outer", v)
			p.Outer = &s
			p.Absent = cmp.Or(s.Failure, p.Absent, s.Unmarked)
			list = append(list, p)
		}
	}
	return list
}

// api answers /api/v1/ from the newest state.
type api struct {
	state  func() *view.State // nil before the first sample
	stored func() []evict.Decision
	now    func() time.Time
}

func (a *api) snapshot(w http.ResponseWriter, _ *http.Request) {
	a.answer(w, func(st *view.State) any { return st.Snapshot })
}

func (a *api) pressure(w http.ResponseWriter, _ *http.Request) {
	a.answer(w, func(st *view.State) any { return st.Answered(a.now()).Pressure() })
}

func (a *api) plugins(w http.ResponseWriter, _ *http.Request) {
	a.answer(w, func(st *view.State) any {
		at := st.Answered(a.now())
		answer := Plugins{AgeSeconds: at.SampleAge.Seconds(), Stale: at.Stale(), Plugins: []Plugin{}}
		for _, v := range st.Levels.Verdicts {
			if !st.Outer.Has(v.Plugin) {
				answer.Plugins = append(answer.Plugins, pluginOf("inner", v))
			}
		}
		if st.Outer != nil {
			answer.Plugins = append(answer.Plugins, outerPlugins(st.Outer.Plugins)...)
			answer.Rivals, answer.Beside = st.Outer.Rivals, st.Outer.Beside
		}
		return answer
	})
}

func (a *api) decisions(w http.ResponseWriter, _ *http.Request) {
	a.answer(w, func(*view.State) any { return Decisions{append([]evict.Decision{}, a.stored()...)} })
}

// Decisions is /api/v1/decisions, newest first.
type Decisions struct {
	Decisions []evict.Decision `json:"decisions"`
}

// reloadHandler is POST /-/reload.
func reloadHandler(reload func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := reload(); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		writeJSON(w, struct {
			Reloaded bool `json:"reloaded"`
		}{true})
	}
}

// answer writes of(newest state), or 503 before the first sample.
func (a *api) answer(w http.ResponseWriter, of func(*view.State) any) {
	st := a.state()
	if st == nil {
		http.Error(w, errNoSampleYet.Error(), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, of(st))
}

func writeJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	if err := view.WriteJSON(&b, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = b.WriteTo(w) // the client may be gone
}
