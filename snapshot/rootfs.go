package snapshot

import "time"

// Rootfs is what the container runtime reports of the root filesystems of pods, which
// are the writable layers of their containers, and of the filesystem that holds them.
// It never changes, so samples share it.
type Rootfs struct {
	// At is when the runtime was asked, on CLOCK_MONOTONIC; 0: it never answered.
	At time.Duration `json:"monotonicNanoseconds,omitempty"`
	// Mountpoint is the directory of the writable layers, as the runtime names it.
	// What follows is of the filesystem that it is on (statfs).
	Mountpoint     string      `json:"mountpoint,omitempty"`
	SizeBytes      Opt[uint64] `json:"sizeBytes,omitzero"`
	AvailableBytes Opt[uint64] `json:"availableBytes,omitzero"`
	Files          Opt[uint64] `json:"files,omitzero"`
	FilesFree      Opt[uint64] `json:"filesFree,omitzero"`
	// Pods that have containers with a writable layer there, sorted by UID.
	Pods []PodRootfs `json:"pods,omitempty"`

	// Absent has the reason why the runtime has not answered since At, under
	// AbsentRootfs; and why the writable layers of some containers are unknown,
	// under AbsentLayers.
	Absent Absent `json:"absent,omitempty"`
}

// The keys of Rootfs.Absent that are no measurement's name.
const (
	AbsentRootfs = "answer"
	AbsentLayers = "writableLayers"
)

// PodRootfs is what the writable layers of a pod's containers use together, without
// those that are unknown.
type PodRootfs struct {
	PodUID    string      `json:"podUid"`
	UsedBytes Opt[uint64] `json:"usedBytes,omitzero"`
	FilesUsed Opt[uint64] `json:"filesUsed,omitzero"`
}
