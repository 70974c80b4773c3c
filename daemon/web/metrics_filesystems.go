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
