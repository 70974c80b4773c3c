package top

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// filesystemsShown in a roomy frame.
const filesystemsShown = 4

// filesystemTable has no rows where no filesystem is monitored.
func filesystemTable(shown []snapshot.Filesystem, all int) table {
	t := table{head: []string{headWithCount("FILESYSTEM", len(shown), all), "available", "of", "left", "inodes left", "answered"}}
	for _, f := range shown {
		row := line{
			{f.Mountpoint + " " + view.FilesystemKind(f), plain},
			highlightIf(span{view.Optional(f.AvailableBytes, size), plain}, view.LowSpace(f)),
			{view.Optional(f.SizeBytes, size), plain},
			highlightIf(span{view.Optional(view.AvailableShare(f), view.Ratio), plain}, view.LowSpace(f)),
			highlightIf(span{view.Optional(f.FilesFree, view.Count), plain}, view.LowInodes(f)),
			{view.Optional(f.AgeSeconds, view.Ago), plain},
		}
		if why := f.Problem(); why != "" && !f.Pending() {
			row = append(row, span{"  " + why, yellow})
		}
		t.rows = append(t.rows, row)
	}
	return t
}
