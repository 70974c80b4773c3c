package admission

import (
	"time"

	"github.com/plimsoll-dev/plimsoll/problems"
)

// Settings of the admission of data mover loads.
type Settings struct {
	Enabled        bool          `yaml:"enabled" why:"Whether data mover loads of Velero need a ticket; false releases all that are held. It needs gate-crd.yaml and gate.yaml."`
	LeaseDuration  time.Duration `yaml:"leaseDuration" why:"How long data mover loads stay held after the controller's last renewal of the Gate; then Velero goes on as without Plimsoll."`
	NotesPerSecond int           `yaml:"reasonsPerSecond" unit:"writes/s" why:"Rate limit of writing reasons to data mover loads that wait; tickets are not limited."`
	DiagnoseAfter  time.Duration `yaml:"diagnoseAfter" why:"How long after its acceptance a data mover load that is still not prepared gets a diagnosis (annotation plimsoll.dev/diagnosis); 0: never. Velero logs the same when it gives up, after 30 min."`
	QuietAbove     int           `yaml:"hideAbove" unit:"loads" why:"With more than this many DataUploads and DataDownloads waiting, they are hidden from the node-agents, which otherwise try each in vain; it needs gate-mutating.yaml, or where the cluster serves no such policies, release-hidden.yaml."`
	Maintenance    bool          `yaml:"maintenance" why:"Whether the maintenance of a backup repository is postponed while data mover loads use the repository, or no node without pressure and without another maintenance is available (spec.maintenanceFrequency of the BackupRepository); false hands all frequencies back."`
}

// DefaultSettings hold nothing.
func DefaultSettings() Settings {
	return Settings{LeaseDuration: 30 * time.Second, NotesPerSecond: 10, DiagnoseAfter: time.Minute, QuietAbove: 20, Maintenance: true}
}

const (
	minLease     = 4 * time.Second
	maxLease     = 10 * time.Minute
	maxReasons   = 1000
	maxHideAbove = 1_000_000
)

// Validate says which values must not be used.
func (s Settings) Validate(at problems.Section) {
	// A Gate's lease and its renewal are counted in seconds.
	at.Duration("leaseDuration", s.LeaseDuration, minLease, maxLease)
	at.Must(s.LeaseDuration%time.Second == 0, "want whole seconds", "leaseDuration")
	at.Int("reasonsPerSecond", s.NotesPerSecond, 1, maxReasons)
	at.Must(s.DiagnoseAfter >= 0, "want 0s (never) or longer, got "+problems.Duration(s.DiagnoseAfter), "diagnoseAfter")
	at.Int("hideAbove", s.QuietAbove, 0, maxHideAbove)
}

// Velero is one installation.
type Velero struct {
	Namespace string
	// ConfigMap of its node-agents; empty: the one that they name on their command
	// lines.
	ConfigMap string
	// PrepareQueueLength limits its loads that are Accepted or Prepared, where the ConfigMap
	// has no lower limit; 0: only the ConfigMap does.
	PrepareQueueLength int
}
