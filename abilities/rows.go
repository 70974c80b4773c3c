package abilities

import "github.com/plimsoll-dev/plimsoll/names"

// State of a capability.
type State string

// The states. Unknown: it could not be read.
const (
	Available State = "available"
	Missing   State = "missing"
	Unknown   State = "unknown"
)

// Capability is a part of Plimsoll that needs something of Velero.
type Capability struct {
	Name  Name  `json:"capability"`
	State State `json:"state"`
	// Why it is so; Consequence of it not being available, empty: it is.
	Why         string `json:"reason"`
	Consequence string `json:"consequence,omitempty"`
}

// String is the capability in one line.
func (c Capability) String() string {
	text := string(c.Name) + " is " + string(c.State) + ": " + c.Why
	if c.Consequence != "" {
		text += ": " + c.Consequence
	}
	return text
}

// Lacking are those that are not available for sure.
func Lacking(list []Capability) (lacking []Capability) {
	for _, c := range list {
		if c.State != Available {
			lacking = append(lacking, c)
		}
	}
	return lacking
}

// Name of a capability.
type Name string

// The capabilities.
const (
	// HoldVolumes: PodVolumeBackups and PodVolumeRestores can be held.
	HoldVolumes Name = "hold-pod-volumes"
	// PrepareQueue: Velero itself reads prepareQueueLength.
	PrepareQueue Name = "prepare-queue"
	// BackupQueue: Backups can be queued.
	BackupQueue Name = "backup-queue"
)

// Names of all capabilities, in the order in which they are listed.
func Names() []Name { return []Name{HoldVolumes, PrepareQueue, BackupQueue} }

// Capabilities are what the parts of Plimsoll can do that depend on the version of Velero.
func (v Velero) Capabilities() []Capability {
	return []Capability{v.volumes(), v.prepare(), v.queue()}
}

// prepares tells whether Velero prepares pod volumes in pods of their own, as from 1.17 on.
func (v Velero) prepares() bool {
	return v.Accepts(names.PodVolumeBackup) && v.Accepts(names.PodVolumeRestore)
}

const (
	direct = "PodVolumeBackups and PodVolumeRestores have no phase Accepted (Velero 1.16 or earlier): a node-agent starts each at once, and fails it when that is refused"

	withoutVolumes = "they take their places on their nodes and are never held; they are not throttled, since the node-agent's own pod moves their data and serves all other data mover loads as well"
	withoutPrepare = "DataUploads and DataDownloads wait for a slot by Plimsoll alone, and not while there is no leader; where an operator writes the ConfigMap, set velero[].prepareQueueLength of the controller"
	withoutQueue   = "Velero starts Backups itself, one at a time; backups.enabled has no effect"
)

func (v Velero) volumes() Capability {
	switch {
	case v.Unread != "":
		return Capability{HoldVolumes, Unknown, v.Unread, "with Velero 1.16 or earlier each takes a slot for the minute in which its ticket is not used"}
	case !v.prepares():
		return Capability{HoldVolumes, Missing, direct, withoutVolumes}
	}
	return Capability{Name: HoldVolumes, State: Available, Why: "PodVolumeBackups and PodVolumeRestores have the phase Accepted"}
}

func (v Velero) prepare() Capability {
	switch {
	case v.Unread != "":
		return Capability{PrepareQueue, Unknown, v.Unread, "with Velero 1.16 or earlier " + withoutPrepare}
	case !v.prepares():
		return Capability{PrepareQueue, Missing, "Velero 1.16 and earlier do not read prepareQueueLength", withoutPrepare}
	}
	return Capability{Name: PrepareQueue, State: Available, Why: "Velero reads prepareQueueLength (1.17 or later)"}
}

func (v Velero) queue() Capability {
	switch {
	case v.Unread != "":
		return Capability{BackupQueue, Unknown, v.Unread, "with Velero 1.17 or earlier the API server refuses to queue a Backup"}
	case !v.Queues():
		return Capability{BackupQueue, Missing, "Backups have no phase Queued (Velero 1.17 or earlier)", withoutQueue}
	}
	return Capability{Name: BackupQueue, State: Available, Why: "Backups have the phase Queued"}
}
