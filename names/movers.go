package names

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
}

// MoverKinds has a row for each kind.
func MoverKinds() []MoverFacts {
	rows := moverKinds()
	return rows[:]
}

// moverKinds is an array, which costs no allocation: decisions ask for each load.
func moverKinds() [4]MoverFacts {
	return [...]MoverFacts{
		{
			Kind: DataUpload, Version: "v2alpha1", Resource: "datauploads", Short: "du", PodLabel: "velero.io/data-upload",
			Exposer: "CSI exposer", Prefix: "backup",
		},
		{
			Kind: DataDownload, Version: "v2alpha1", Resource: "datadownloads", Short: "dd", PodLabel: "velero.io/data-download",
			Exposer: "restore exposer", Prefix: "restore", Restores: true,
		},
		{
			Kind: PodVolumeBackup, Version: "v1", Resource: "podvolumebackups", Short: "pvb", PodLabel: "velero.io/pod-volume-backup",
			Exposer: "pod volume exposer", Prefix: "hosting", NodeFixed: true,
		},
		{
			Kind: PodVolumeRestore, Version: "v1", Resource: "podvolumerestores", Short: "pvr", PodLabel: "velero.io/pod-volume-restore",
			Exposer: "pod volume exposer", Prefix: "hosting", Restores: true, NodeFixed: true,
		},
	}
}

// Facts of a kind. An unknown kind is no other: it has only its name.
func (k MoverKind) Facts() MoverFacts {
	rows := moverKinds()
	for i := range rows {
		if rows[i].Kind == k {
			return rows[i]
		}
	}
	return MoverFacts{Kind: k, Exposer: "unknown exposer", Prefix: "unknown"}
}
