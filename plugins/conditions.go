package plugins

// The conditions of inner plugins, which are also the keys of their taints, both
// behind names.Prefix.
const (
	conditionMemoryContention    = "MemoryContention"
	conditionDiskContention      = "DiskContention"
	conditionNetworkContention   = "NetworkContention"
	conditionFilesystemPressure  = "FilesystemPressure"
	conditionCPUContention       = "CPUContention"
	conditionCPUSuppression      = "CPUSuppression"
	conditionOOMStorm            = "OOMStorm"
	conditionReclaimedOvercommit = "ReclaimedOvercommit"

	conditionNUMAMemoryContention = "NUMAMemoryContention"
	conditionRootfsOveruse        = "RootfsOveruse"
)

// Conditions of all inner plugins.
func Conditions() []string {
	return []string{
		conditionMemoryContention, conditionDiskContention, conditionNetworkContention, conditionFilesystemPressure,
		conditionCPUContention, conditionCPUSuppression, conditionOOMStorm, conditionReclaimedOvercommit,
		conditionNUMAMemoryContention, conditionRootfsOveruse,
	}
}
