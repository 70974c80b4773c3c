package view

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Filesystems of a snapshot: at most n that fail or are the fullest, by mountpoint, and
// the rest.
func Filesystems(all []snapshot.Filesystem, n int) (shown, rest []snapshot.Filesystem) {
	shown = Busiest(all, n, fullness)
	for i := range all {
		if !slices.ContainsFunc(shown, func(f snapshot.Filesystem) bool { return f.Mountpoint == all[i].Mountpoint }) {
			rest = append(rest, all[i])
		}
	}
	return shown, rest
}

// fullness orders filesystems: 0 to 1, above that those that fail, below that
// those that are unknown.
func fullness(f snapshot.Filesystem) float64 {
	if f.Problem() != "" {
		return 2
	}
	left, ok := AvailableShare(f).Get()
	if !ok {
		return -1
	}
	return 1 - left
}

// AvailableShare is the share of a filesystem available to unprivileged users.
func AvailableShare(f snapshot.Filesystem) snapshot.Opt[float64] {
	return shareOf(f.AvailableBytes, f.SizeBytes)
}

func shareOf(of, all snapshot.Opt[uint64]) snapshot.Opt[float64] {
	n, ok1 := of.Get()
	total, ok2 := all.Get()
	if !ok1 || !ok2 || total == 0 {
		return snapshot.Opt[float64]{}
	}
	return snapshot.Some(float64(n) / float64(total))
}

// Below these shares a filesystem is highlighted: the kubelet's default eviction
// thresholds (nodefs.available, nodefs.inodesFree).
const (
	lowSpaceShare  = 0.10
	lowInodesShare = 0.05
)

// LowSpace reports whether little space is available.
func LowSpace(f snapshot.Filesystem) bool { return below(AvailableShare(f), lowSpaceShare) }

// LowInodes reports whether few inodes are available.
func LowInodes(f snapshot.Filesystem) bool {
	return below(shareOf(f.FilesFree, f.Files), lowInodesShare)
}

func below(o snapshot.Opt[float64], limit float64) bool {
	v, ok := o.Get()
	return ok && v < limit
}

// FilesystemKind is the type of a filesystem, and its manager if that is not the
// node: "ext4, the kubelet's".
func FilesystemKind(f snapshot.Filesystem) string {
	switch f.Use {
	case snapshot.UseKubelet:
		return f.Type + ", the kubelet's"
	case snapshot.UseVolume:
		return f.Type + ", a pod's volume"
	case snapshot.UseNode:
	}
	return f.Type
}

// Ago is the age of what was measured some seconds ago.
func Ago(seconds float64) string {
	return Age(time.Duration(seconds*float64(time.Second))) + " ago"
}
