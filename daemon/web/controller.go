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
	"github.com/plimsoll-dev/plimsoll/capability"
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
	IsLeader         bool
	// Problems that keep this replica from leading or working, the one that explains
	// most first.
	Problems []APIProblem
	// Capabilities of the cluster. Those of its Velero are told by the leader, if it has
	// something to do with Velero.
	Capabilities []capability.Capability
	// QueueEnabled: the backup queue is enabled. CannotQueue: it has no effect, because the
	// installed Velero cannot queue Backups.
	QueueEnabled, CannotQueue bool
	// Unqueued is how long the oldest New Backup of each Velero has waited while the queue is
	// disabled. QueueOf are the namespaces of the Veleros whose Backups it starts; none: all.
	Unqueued map[string]time.Duration
	QueueOf  []string
	// Queues, one for each Velero; empty on a standby replica, and before the leader has
	// decided about the Backups (QueueDecided).
	Queues       []backup.Report
	QueueDecided bool
	Counts       backup.Counts
	// DeadlinesEnabled: the controller forecasts the night. Nights, one for each Velero;
	// empty on a standby replica.
	DeadlinesEnabled bool
	Nights           []backup.Night
	// AgentsEnabled: the controller watches the agents. Agents is the report about them; nil
	// on a standby replica, and before the leader has listed them.
	AgentsEnabled bool
	Agents        *agents.Report
	AgentCounts   agents.Counts
	// AdmissionEnabled: the admission of data mover loads. Loads has a report for
	// each Velero; empty on a standby replica.
	AdmissionEnabled bool
	DataMoverLoads   []admission.Report
	DataMoverCounts  admission.Counts
}

// DataMoverLoads is /api/v1/loads.
type DataMoverLoads struct {
	// Leader is the current leader; only its own answer has Veleros.
	Leader  string             `json:"leader,omitempty"`
	Leads   bool               `json:"leads"`
	Enabled bool               `json:"enabled"`
	Veleros []admission.Report `json:"veleros"`
}

// Backups is /api/v1/backups.
type Backups struct {
	// Now is the controller's time.
	Now time.Time `json:"now"`
	// Leader is the current leader; only its own answer has queues and nights.
	Leader string `json:"leader,omitempty"`
	Leads  bool   `json:"leads"`
	// Enabled: the controller starts the Backups of these Veleros (namespaces); none: of all.
	Enabled bool            `json:"enabled"`
	Veleros []string        `json:"veleros,omitempty"`
	Queues  []backup.Report `json:"queues"`
	// Deadlines: the controller forecasts the night.
	Deadlines bool           `json:"deadlines"`
	Nights    []backup.Night `json:"nights"`
}

// Listen opens a TCP address. On a non-loopback address unauthenticated clients
// get only /metrics and /-/*, unless the exposure is open.
func (c *Controller) Listen(ctx context.Context, address string, x Exposure) (*Listener, error) {
	return listen(ctx, address, x, c, c.Log)
}

// On serves on an open listener, as Listen does.
func (c *Controller) On(l net.Listener, x Exposure) (*Listener, error) {
	return serveOn(l, x, c, c.Log)
}

func (c *Controller) public(mux *http.ServeMux) {
	mux.Handle("GET /metrics", &boundedScrapes{next: http.HandlerFunc(c.metrics)})
	mux.HandleFunc("GET /-/healthy", probeHandler(c.Healthy))
	mux.HandleFunc("GET /-/ready", probeHandler(c.Ready))
}

func (c *Controller) restricted(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", c.page)
	mux.HandleFunc("GET /culprit", c.culprit)
	mux.HandleFunc("GET /api/v1/backups", c.backups)
	mux.HandleFunc("GET /api/v1/agents", c.agents)
	mux.HandleFunc("GET /api/v1/loads", c.loads)
	mux.HandleFunc("GET /api/v1/capabilities", c.capabilities)
}

func (c *Controller) backups(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	writeJSON(w, Backups{
		Now: time.Now(), Leader: s.Leader, Leads: s.IsLeader, Enabled: s.runsQueue(), Veleros: s.QueueOf, Queues: append([]backup.Report{}, s.Queues...),
		Deadlines: s.DeadlinesEnabled, Nights: append([]backup.Night{}, s.Nights...),
	})
}

func (c *Controller) loads(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	writeJSON(w, DataMoverLoads{Leader: s.Leader, Leads: s.IsLeader, Enabled: s.AdmissionEnabled, Veleros: append([]admission.Report{}, s.DataMoverLoads...)})
}

// capabilities is /api/v1/capabilities, which every replica answers.
func (c *Controller) capabilities(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, append([]capability.Capability{}, c.State().Capabilities...))
}

// agents is /api/v1/agents; without a report it answers 503.
func (c *Controller) agents(w http.ResponseWriter, _ *http.Request) {
	s := c.State()
	if s.Agents == nil {
		http.Error(w, "agents: "+s.withoutAgents(), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, s.Agents)
}

// withoutAgents is why there is no report about the agents.
func (s *ControllerState) withoutAgents() string {
	switch {
	case !s.AgentsEnabled:
		return "agents.enabled is false: the controller does not watch them"
	case !s.IsLeader:
		return "this replica is not the leader; the leader is " + cmp.Or(s.Leader, "unknown")
	}
	return "Nodes and Leases are not listed yet"
}

// runsQueue tells whether the controller starts Backups in order. Else Velero does, if its
// server runs with its own queue.
func (s *ControllerState) runsQueue() bool { return s.QueueEnabled && !s.CannotQueue }
