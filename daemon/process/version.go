package process

import "runtime/debug"

// version is set by the linker (Makefile), which can only set strings.
var version string

// Version of this build: from the linker, else from the module.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
