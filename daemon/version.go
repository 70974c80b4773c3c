package daemon

import "runtime/debug"

// version is set by the linker (Makefile): -X can set nothing else.
var version string

// Version of this build: what the linker was given, else the module's.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
