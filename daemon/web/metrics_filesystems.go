package web

import "github.com/plimsoll-dev/plimsoll/snapshot"

// appendFilesystems appends the monitored mounts. One that hangs keeps its last
// values, with their age.
func appendFilesystems(b []byte, list []snapshot.Filesystem) []byte {
	label := func(b []byte, f *snapshot.Filesystem) []byte { return appendLabel(b, "mountpoint", f.Mountpoint) }
	return appendFamilies(b, list, label, []family[snapshot.Filesystem]{
		{
			"plimsoll_filesystem_up", gauge, "1 when the mount answered the last statfs, 0 while it hangs, fails, is not mounted or is not read.",
			func(b []byte, f *snapshot.Filesystem) []byte {
				switch {
				case f.Pending():
					return b
				case f.Problem() != "":
					return appendCount(b, 0)
				}
				return appendCount(b, 1)
			},
		},
		{
			"plimsoll_filesystem_probe_age_seconds", gauge, "Age of the mount's values; it grows while the mount does not answer; absent before the first answer (statfs).",
			func(b []byte, f *snapshot.Filesystem) []byte { return appendOptFloat(b, f.AgeSeconds) },
		},
		{
			"plimsoll_filesystem_size_bytes", gauge, "Size of the filesystem (statfs f_blocks).",
			func(b []byte, f *snapshot.Filesystem) []byte { return appendOptCount(b, f.SizeBytes) },
		},
		{
			"plimsoll_filesystem_avail_bytes", gauge, "Space available to unprivileged users (statfs f_bavail).",
			func(b []byte, f *snapshot.Filesystem) []byte { return appendOptCount(b, f.AvailableBytes) },
		},
		{
			"plimsoll_filesystem_files", gauge, "Inodes of the filesystem; absent when it does not count them (statfs f_files).",
			func(b []byte, f *snapshot.Filesystem) []byte { return appendOptCount(b, f.Files) },
		},
		{
			"plimsoll_filesystem_files_free", gauge, "Free inodes of the filesystem; absent when it does not count them (statfs f_ffree).",
			func(b []byte, f *snapshot.Filesystem) []byte { return appendOptCount(b, f.FilesFree) },
		},
	})
}

// exhaustionBound is one bound of an estimate.
type exhaustionBound struct {
	snapshot.Exhaustion
	bound   string
	seconds float64
}

// appendExhaustion appends the estimates of what is used up when.
func appendExhaustion(b []byte, list []snapshot.Exhaustion) []byte {
	var memory, filesystems []exhaustionBound
	for _, e := range list {
		bounds := []exhaustionBound{{e, "earliest", e.EarliestSeconds}, {e, "estimate", e.Seconds}, {e, "latest", e.LatestSeconds}}
		if e.Kind == snapshot.ExhaustsMemory {
			memory = append(memory, bounds...)
		} else {
			filesystems = append(filesystems, bounds...)
		}
	}
	seconds := func(b []byte, e *exhaustionBound) []byte { return appendFloat(b, e.seconds) }
	b = appendFamilies(b, memory, func(b []byte, e *exhaustionBound) []byte { return appendLabel(b, "bound", e.bound) }, []family[exhaustionBound]{{
		"plimsoll_memory_exhaustion_seconds", gauge, "Time until no memory is available, if it goes on shrinking as it does: earliest, estimate, latest; absent while it does not shrink steadily.", seconds,
	}})
	label := func(b []byte, e *exhaustionBound) []byte {
		b = append(appendPair(append(b, '{'), "mountpoint", e.Mountpoint), ',')
		b = append(appendPair(b, "kind", string(e.Kind)), ',')
		return append(appendPair(b, "bound", e.bound), '}')
	}
	return appendFamilies(b, filesystems, label, []family[exhaustionBound]{{
		"plimsoll_filesystem_exhaustion_seconds", gauge, "Time until no space or inodes are available, if they go on shrinking as they do: earliest, estimate, latest; absent while they do not shrink steadily.", seconds,
	}})
}
