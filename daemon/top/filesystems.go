package top

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// filesystemsShown in a roomy frame.
const filesystemsShown = 4

// filesystemTable has no rows where no filesystem is monitored.
func filesystemTable(n *snapshot.Snapshot, shown []snapshot.Filesystem, all int) table {
	t := table{head: []string{headWithCount("FILESYSTEM", len(shown), all), "available", "of", "left", "inodes left", "answered"}}
	for _, f := range shown {
		r := row{id: f.Mountpoint, cells: []cell{
			text(f.Mountpoint + " " + view.FilesystemKind(f)),
			highlightIf(value(f.AvailableBytes, size), view.LowSpace(f)),
			value(f.SizeBytes, size),
			highlightIf(value(view.AvailableShare(f), view.Ratio), view.LowSpace(f)),
			highlightIf(value(f.FilesFree, view.Count), view.LowInodes(f)),
			value(f.AgeSeconds, view.Ago),
		}}
		if why := f.Problem(); why != "" && !f.Pending() {
			r.note = line{{"  " + why, yellow}}
		} else if text := view.FilesystemExhaustion(n, f.Mountpoint); text != "" {
			r.note = line{{"  " + text, yellow}}
		}
		t.rows = append(t.rows, r)
	}
	return t
}
