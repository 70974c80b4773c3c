// Package velero is what tests need of Velero: a real [Server] with an object
// store, and real node-agents ([NodeAgent]) over a stand-in for storage and
// kubelets; and where none runs its resources, and stand-ins for its backup
// controller ([StandIn]) and its node-agents ([StandInAgent]).
package velero

import _ "embed"

//go:generate go -C ../tools/velero run . ../../velero velero.io_backups.yaml velero.io_datauploads.yaml velero.io_datadownloads.yaml velero.io_podvolumebackups.yaml velero.io_podvolumerestores.yaml

// Backups is Velero's CustomResourceDefinition of Backups.
//
//go:embed velero.io_backups.yaml
var Backups []byte

// The CustomResourceDefinitions of the loads of Velero's data path.
var (
	//go:embed velero.io_datauploads.yaml
	DataUploads []byte
	//go:embed velero.io_datadownloads.yaml
	DataDownloads []byte
	//go:embed velero.io_podvolumebackups.yaml
	PodVolumeBackups []byte
	//go:embed velero.io_podvolumerestores.yaml
	PodVolumeRestores []byte
)
