package names

import "slices"

// MoverKind is the kind of a data mover load.
type MoverKind string

// The kinds, as the API server calls them.
const (
	DataUpload       MoverKind = "DataUpload"
	DataDownload     MoverKind = "DataDownload"
	PodVolumeBackup  MoverKind = "PodVolumeBackup"
	PodVolumeRestore MoverKind = "PodVolumeRestore"
)

// VeleroGroup is the API group of Velero's objects.
const VeleroGroup = "velero.io"

// What Velero's node-agents write to a load before they prepare it. The admission
// policies spell both out.
const (
	// MoverFinalizer is the first thing that a node-agent writes to a DataUpload or
	// DataDownload, before it accepts it.
	MoverFinalizer = "velero.io/data-upload-download-finalizer"
	// ExposeLabel comes with the phase Accepted from Velero 1.17 on. Earlier node-agents
	// do not write it, and fail a load when the write that accepts it is refused.
	ExposeLabel = "velero.io/expose-on-going"
)

// MaintenanceLabel is on the jobs by which Velero's server maintains its backup
// repositories, and on their pods, with the name of the BackupRepository or its hash:
// pkg/repository/maintenance of Velero.
const MaintenanceLabel = VeleroGroup + "/repo-name"

// DataMover is a value of spec.datamover that Velero's own node-agents serve. They leave
// every other one alone.
type DataMover struct {
	Name string
	// Since is the first Velero that has it.
	Since string
	// Moves is what it moves.
	Moves string
}

// DataMovers has a row for each data mover of Velero's own. The admission policies spell
// the names out.
func DataMovers() []DataMover {
	return []DataMover{
		{Name: "", Since: "1.12", Moves: "files"},
		{Name: "velero", Since: "1.12", Moves: "files"},
		{Name: "velero-fs", Since: "1.19", Moves: "files"},
		{Name: "velero-block", Since: "1.19", Moves: "blocks"},
	}
}

// IsVelerosMover tells whether Velero's own node-agents serve a data mover.
func IsVelerosMover(name string) bool {
	// Nearly all loads name none, and decisions ask for each.
	return name == "" || slices.ContainsFunc(DataMovers(), func(m DataMover) bool { return m.Name == name })
}

// MoverFacts is what a kind is called, and in what the kinds differ. The manifests
// spell the resources out; vgdp/admission/load.go reads the objects.
type MoverFacts struct {
	Kind MoverKind
	// Version and Resource in VeleroGroup, and Short, the name for command lines.
	Version, Resource, Short string
	// PodLabel is the label of the mover's pod; its value is the load's name.
	PodLabel string
	// Exposer is Velero's name for what prepares it, Prefix that of its objects.
	Exposer, Prefix string
	// Restores: it restores data.
	Restores bool
	// NodeFixed: its node is fixed from the beginning.
	NodeFixed bool
	// HasMover: its spec names a data mover. Only such a load can be hidden.
	HasMover bool
	// InProgress: its Backup stays InProgress until it is done. Others are item operations,
	// for which a Backup waits in a phase of its own.
	InProgress bool
	// AcceptedSince is the first Velero in which it has the phases Accepted and Prepared.
	// An earlier node-agent starts it at once.
	AcceptedSince string
}

// MoverKinds has a row for each kind.
func MoverKinds() []MoverFacts {
	return []MoverFacts{DataUpload.Facts(), DataDownload.Facts(), PodVolumeBackup.Facts(), PodVolumeRestore.Facts()}
}

// Facts of a kind. An unknown kind is no other: it has only its name.
func (k MoverKind) Facts() MoverFacts {
	switch k { // no table, which each call would make: decisions ask for each load
	case DataUpload:
		return MoverFacts{
			Kind: k, Version: "v2alpha1", Resource: "datauploads", Short: "du", PodLabel: "velero.io/data-upload",
			Exposer: "CSI exposer", Prefix: "backup", HasMover: true, AcceptedSince: "1.12",
		}
	case DataDownload:
		return MoverFacts{
			Kind: k, Version: "v2alpha1", Resource: "datadownloads", Short: "dd", PodLabel: "velero.io/data-download",
			Exposer: "restore exposer", Prefix: "restore", Restores: true, HasMover: true, AcceptedSince: "1.12",
		}
	case PodVolumeBackup:
		return MoverFacts{
			Kind: k, Version: "v1", Resource: "podvolumebackups", Short: "pvb", PodLabel: "velero.io/pod-volume-backup",
			Exposer: "pod volume exposer", Prefix: "hosting", NodeFixed: true, InProgress: true, AcceptedSince: "1.17",
		}
	case PodVolumeRestore:
		return MoverFacts{
			Kind: k, Version: "v1", Resource: "podvolumerestores", Short: "pvr", PodLabel: "velero.io/pod-volume-restore",
			Exposer: "pod volume exposer", Prefix: "hosting", Restores: true, NodeFixed: true, InProgress: true, AcceptedSince: "1.17",
		}
	}
	return MoverFacts{Kind: k, Exposer: "unknown exposer", Prefix: "unknown"}
}
