package top

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// filesystemsShown in a roomy frame.
const filesystemsShown = 4

// filesystemTable has no rows where no filesystem is monitored.
func filesystemTable(shown []snapshot.Filesystem, all int) table {
	t := table{head: []string{some("FILESYSTEM", len(shown), all), "available", "of", "left", "inodes left", "answered"}}
	for _, f := range shown {
		row := line{
			{f.Mountpoint + " " + view.FilesystemKind(f), plain},
			mark(span{view.Optional(f.AvailableBytes, size), plain}, view.ScarceRoom(f)),
			{view.Optional(f.SizeBytes, size), plain},
			mark(span{view.Optional(view.RoomLeft(f), view.Ratio), plain}, view.ScarceRoom(f)),
			mark(span{view.Optional(f.FilesFree, view.Count), plain}, view.ScarceFiles(f)),
			{view.Optional(f.AgeSeconds, view.Ago), plain},
		}
		if why := f.Trouble(); why != "" && !f.Pending() {
			row = append(row, span{"  " + why, yellow})
		}
		t.rows = append(t.rows, row)
	}
	return t
}
