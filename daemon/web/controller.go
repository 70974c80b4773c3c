package web

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/plimsoll-dev/plimsoll/agents"
	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
)

// Controller serves the controller's page, API and metrics. Its functions must
// not block.
type Controller struct {
	// State is called for each request.
	State func() ControllerState
	// Healthy and Ready return an error that names the failed part, or nil.
	Healthy, Ready func() error
	Log            *slog.Logger
}

// ControllerState is the current state of the controller.
type ControllerState struct {
	Version string
	Started time.Time
	// ConfigError is why the last reload failed; the previous configuration
	// then stays in force.
	ConfigError string
	// Identity of this replica. Leads: it is the leader. Leader is the identity
	// of the current leader, empty while unknown.
	Identity, Leader string
	Leads            bool
	// Enabled: the controller starts Backups (the backup queue).
	Enabled bool
	// Queues, one for each Velero; empty on a standby replica.
	Queues []backup.Report
	Counts backup.Counts
	// Fleet is the report about the agents; nil on a standby replica.
	Fleet       *agents.Report
	FleetCounts agents.Counts
	// LoadsEnabled: the admission of data mover loads. Loads has a report for
	// each Velero; empty on a standby replica.
	LoadsEnabled bool
	Loads        []admission.Report
	LoadCounts   admission.Counts
}

// Loads is /api/v1/loads.
type Loads struct {
	// Leader is the current leader; only its own answer has Veleros.
	Leader  string             `json:"leader,omitempty"`
	Leads   bool               `json:"leads"`
	Enabled bool               `json:"enabled"`
	Veleros []admission.Report `json:"veleros"`
}

// Backups is /api/v1/backups.
type Backups struct {
	// Leader is the current leader; only its own answer has queues.
	Leader  string          `json:"leader,omitempty"`
	Leads   bool            `json:"leads"`
	Enabled bool            `json:"enabled"`
	Queues  []backup.Report `json:"queues"`
}

// Listen opens a TCP address. On a non-loopback address unauthenticated clients
// get only /metrics and /-/*, unless the exposure is open.
func (c *Controller) Listen(ctx context.Context, address string, x Exposure) (*Listener, error) {
	return listen(ctx, address, x, c, c.Log)
}

// On serves on an open listener, as Listen does.
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

// fleet is /api/v1/fleet; a standby replica answers 503.
func (c *Controller) fleet(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	if s.Fleet == nil {
		http.Error(w, "agents: this replica is not the leader; the leader is "+cmp.Or(s.Leader, "unknown"), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, s.Fleet)
}
