package abilities

import (
	"github.com/plimsoll-dev/plimsoll/capability"
	"github.com/plimsoll-dev/plimsoll/names"
)

// The capabilities.
const (
	// HoldVolumes: PodVolumeBackups and PodVolumeRestores can be held.
	HoldVolumes = "hold-pod-volumes"
	// PrepareQueue: Velero itself reads prepareQueueLength.
	PrepareQueue = "prepare-queue"
	// BackupQueue: Backups can be queued.
	BackupQueue = "backup-queue"
)

// Names of all capabilities, in the order in which they are listed.
func Names() []string { return []string{HoldVolumes, PrepareQueue, BackupQueue} }

// Capabilities are what the parts of Plimsoll can do that depend on the version of Velero.
func (v Velero) Capabilities() []capability.Capability {
	return []capability.Capability{v.volumes(), v.prepare(), v.queue()}
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

func (v Velero) volumes() capability.Capability {
	switch {
	case v.Unread != "":
		return capability.Unread(HoldVolumes, v.Unread, "with Velero 1.16 or earlier each takes a slot for the minute in which its ticket is not used")
	case !v.prepares():
		return capability.Lacks(HoldVolumes, direct, withoutVolumes)
	}
	return capability.Has(HoldVolumes, "PodVolumeBackups and PodVolumeRestores have the phase Accepted")
}

func (v Velero) prepare() capability.Capability {
	switch {
	case v.Unread != "":
		return capability.Unread(PrepareQueue, v.Unread, "with Velero 1.16 or earlier "+withoutPrepare)
	case !v.prepares():
		return capability.Lacks(PrepareQueue, "Velero 1.16 and earlier do not read prepareQueueLength", withoutPrepare)
	}
	return capability.Has(PrepareQueue, "Velero reads prepareQueueLength (1.17 or later)")
}

func (v Velero) queue() capability.Capability {
	switch {
	case v.Unread != "":
		return capability.Unread(BackupQueue, v.Unread, "with Velero 1.17 or earlier the API server refuses to queue a Backup")
	case !v.Queues():
		return capability.Lacks(BackupQueue, "Backups have no phase Queued (Velero 1.17 or earlier)", withoutQueue)
	}
	return capability.Has(BackupQueue, "Backups have the phase Queued")
}
