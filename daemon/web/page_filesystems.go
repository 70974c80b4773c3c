package web

import (
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

type filesystemRow struct {
	Name, Kind, Trouble, Exhausted   string
	Size, Available, Left, Free, Age cell
}

// filesystemsShown, those that fail and the fullest; the others are folded.
const filesystemsShown = 12

func filesystemRows(n *snapshot.Snapshot, list []snapshot.Filesystem) []filesystemRow {
	rows := make([]filesystemRow, 0, len(list))
	for _, f := range list {
		kind := view.Printable(view.FilesystemKind(f) + " " + f.Device)
		if f.Type == "" {
			kind = "not mounted"
		}
		room := func(o snapshot.Opt[uint64]) cell {
			return cellOf(o, wholeNumber(view.Bytes), f.Absent, "sizeBytes", "statfs")
		}
		rows = append(rows, filesystemRow{
			Name: view.Printable(f.Mountpoint), Kind: kind, Trouble: view.Printable(f.Problem()), Exhausted: view.FilesystemExhaustion(n, f.Mountpoint),
			Size: room(f.SizeBytes), Available: highlightIf(room(f.AvailableBytes), view.LowSpace(f)),
			Left: highlightIf(cellOf(view.AvailableShare(f), view.Ratio, f.Absent, "sizeBytes", "statfs"), view.LowSpace(f)),
			Free: highlightIf(cellOf(f.FilesFree, view.Count, f.Absent, "files", "statfs"), view.LowInodes(f)),
			Age:  highlightIf(cellOf(f.AgeSeconds, view.Ago, f.Absent, "statfs"), f.Problem() != "" && !f.Pending()),
		})
	}
	return rows
}
