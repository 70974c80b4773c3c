package web

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/fleet"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// Controller serves what the controller shows. Its functions must not block.
type Controller struct {
	// State is what is shown; it is called for each request.
	State func() ControllerState
	// Healthy and Ready say what is wrong, naming the part, or nil.
	Healthy, Ready func() error
	Log            *slog.Logger
}

// ControllerState is what the controller is like now.
type ControllerState struct {
	Version string
	Started time.Time
	// ConfigError is why the last good configuration is still in force.
	ConfigError string
	// Identity of this replica; Leads: it is the one that acts. Leader is who
	// is, as far as this one knows.
	Identity, Leader string
	Leads            bool
	// Enabled: this queue lets Backups start.
	Enabled bool
	// Queues of the Veleros; none where another replica leads.
	Queues []backup.Report
	Counts backup.Counts
	// Fleet as the leader sees it; nil where another replica leads.
	Fleet       *fleet.Report
	FleetCounts fleet.Counts
	// LoadsEnabled: loads of data movers are held and let go. Loads of each
	// Velero; none where another replica leads.
	LoadsEnabled bool
	Loads        []admission.Report
	LoadCounts   admission.Counts
}

// Loads is /api/v1/loads.
type Loads struct {
	// Leader is who acts; only its own answer has Veleros.
	Leader  string             `json:"leader,omitempty"`
	Leads   bool               `json:"leads"`
	Enabled bool               `json:"enabled"`
	Veleros []admission.Report `json:"veleros"`
}

// Backups is /api/v1/backups.
type Backups struct {
	// Leader is who acts; only its own answer has queues.
	Leader  string          `json:"leader,omitempty"`
	Leads   bool            `json:"leads"`
	Enabled bool            `json:"enabled"`
	Queues  []backup.Report `json:"queues"`
}

// Listen opens a TCP address. One that others can reach shows only /metrics
// and /-/* to whoever has not proved who it is, unless the exposure is open.
func (c *Controller) Listen(ctx context.Context, address string, x Exposure) (*Listener, error) {
	return listen(ctx, address, x, c, c.Log)
}

// On serves on a listener that somebody else has opened, as Listen does.
func (c *Controller) On(l net.Listener, x Exposure) (*Listener, error) { return on(l, x, c, c.Log) }

func (c *Controller) public(mux *http.ServeMux) {
	mux.HandleFunc("GET /metrics", c.metrics)
	mux.HandleFunc("GET /-/healthy", probe(c.Healthy))
	mux.HandleFunc("GET /-/ready", probe(c.Ready))
}

func (c *Controller) everything(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", c.page)
	mux.HandleFunc("GET /api/v1/backups", c.backups)
	mux.HandleFunc("GET /api/v1/fleet", c.fleet)
	mux.HandleFunc("GET /api/v1/loads", c.loads)
}

func (c *Controller) backups(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	writeJSON(w, Backups{Leader: s.Leader, Leads: s.Leads, Enabled: s.Enabled, Queues: append([]backup.Report{}, s.Queues...)})
}

func (c *Controller) loads(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	writeJSON(w, Loads{Leader: s.Leader, Leads: s.Leads, Enabled: s.LoadsEnabled, Veleros: append([]admission.Report{}, s.Loads...)})
}

// fleet is what the leader sees; another replica has no answer.
func (c *Controller) fleet(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	if s.Fleet == nil {
		http.Error(w, "agents: this replica is not the leader; the leader is "+cmp.Or(s.Leader, "unknown"), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, s.Fleet)
}
