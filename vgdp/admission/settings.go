package admission

import "time"

// Settings of load admission.
type Settings struct {
	Enabled        bool          `yaml:"enabled" why:"Whether loads of Velero's data movers wait for their turn; false lets all go that are held. It needs gate-crd.yaml and gate.yaml."`
	LeaseDuration  time.Duration `yaml:"leaseDuration" why:"How long loads stay held when the controller says nothing any more; then they go on as without it."`
	NotesPerSecond int           `yaml:"notesPerSecond" unit:"writes/s" why:"How often reasons are written to loads that wait; tickets are not limited."`
	DiagnoseAfter  time.Duration `yaml:"diagnoseAfter" why:"How long after a load was accepted, and is not prepared, what keeps it is written to it (plimsoll.dev/diagnosis); 0: never. Velero says it in its log when it gives up, after 30 min."`
	QuietAbove     int           `yaml:"quietAbove" unit:"loads" why:"With more DataUploads and DataDownloads waiting, they are hidden from the node-agents, which else try each in vain every 5 s; it needs gate-mutating.yaml."`
}

// DefaultSettings hold nothing.
func DefaultSettings() Settings {
	return Settings{LeaseDuration: 30 * time.Second, NotesPerSecond: 10, DiagnoseAfter: time.Minute, QuietAbove: 20}
}

// Velero is one installation.
type Velero struct {
	Namespace string
	// ConfigMap of its node-agents; empty: the one that they name on their command
	// lines.
	ConfigMap string
}
