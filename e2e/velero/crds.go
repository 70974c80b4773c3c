// Package velero is what tests need of Velero: a real [Server] with an object
// store, and real node-agents ([NodeAgent]) over a stand-in for storage and
// kubelets; and where none runs its resources, and stand-ins for its backup
// controller ([StandIn]) and its node-agents ([StandInAgent]).
package velero

import (
	"embed"
	"io/fs"
)

//go:generate go -C ../tools/velero run . ../../velero velero.io_backups.yaml velero.io_datauploads.yaml velero.io_datadownloads.yaml velero.io_podvolumebackups.yaml velero.io_podvolumerestores.yaml velero.io_schedules.yaml velero.io_backuprepositories.yaml
//go:generate go -C ../tools/velero run . @v1.16.2 ../../velero/older/v1.16.2 velero.io_backups.yaml velero.io_datauploads.yaml velero.io_datadownloads.yaml velero.io_podvolumebackups.yaml velero.io_podvolumerestores.yaml velero.io_schedules.yaml
//go:generate go -C ../tools/velero run . @v1.17.2 ../../velero/older/v1.17.2 velero.io_backups.yaml velero.io_datauploads.yaml velero.io_datadownloads.yaml velero.io_podvolumebackups.yaml velero.io_podvolumerestores.yaml velero.io_schedules.yaml

// Backups is Velero's CustomResourceDefinition of Backups.
//
//go:embed velero.io_backups.yaml
var Backups []byte

// Schedules is Velero's CustomResourceDefinition of Schedules.
//
//go:embed velero.io_schedules.yaml
var Schedules []byte

// BackupRepositories is Velero's CustomResourceDefinition of backup repositories.
//
//go:embed velero.io_backuprepositories.yaml
var BackupRepositories []byte

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

//go:embed older
var older embed.FS

// Newest is the version of the CustomResourceDefinitions above.
const Newest = "v1.18.3"

// Older are the versions whose CustomResourceDefinitions [Definitions] has as well.
func Older() []string { return []string{"v1.16.2", "v1.17.2"} }

// Definitions are the CustomResourceDefinitions of Backups, Schedules and loads of a version.
func Definitions(version string) ([][]byte, error) {
	if version == Newest {
		return [][]byte{Backups, Schedules, DataUploads, DataDownloads, PodVolumeBackups, PodVolumeRestores}, nil
	}
	dir := "older/" + version
	entries, err := older.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, e := range entries {
		content, err := fs.ReadFile(older, dir+"/"+e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, content)
	}
	return all, nil
}
