package view

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func filled(point string, available, size uint64) snapshot.Filesystem {
	return snapshot.Filesystem{Mountpoint: point, AvailableBytes: snapshot.Some(available), SizeBytes: snapshot.Some(size)}
}

func mountpoints(list []snapshot.Filesystem) []string {
	out := []string{}
	for _, f := range list {
		out = append(out, f.Mountpoint)
	}
	return out
}

func TestFilesystemKindText(t *testing.T) {
	for use, want := range map[snapshot.FilesystemUse]string{
		"": "xfs", snapshot.UseNode: "xfs", snapshot.UseKubelet: "xfs, the kubelet's", snapshot.UseVolume: "xfs, a pod's volume",
	} {
		assert.Equal(t, want, FilesystemKind(snapshot.Filesystem{Type: "xfs", Use: use}))
	}
}

func TestFilesystemsShownFirst(t *testing.T) {
	hung := filled("/c", 100, 100)
	hung.Absent = snapshot.Absent{"statfs": "statfs hangs"}
	all := []snapshot.Filesystem{filled("/a", 50, 100), filled("/b", 5, 100), hung, {Mountpoint: "/d"}, filled("/e", 60, 100)}
	shown, rest := Filesystems(all, 3)
	assert.Equal(t, []string{"/a", "/b", "/c"}, mountpoints(shown), "in the order of their names")
	assert.Equal(t, []string{"/d", "/e"}, mountpoints(rest))
	shown, rest = Filesystems(all, 9)
	assert.Len(t, shown, 5)
	assert.Empty(t, rest)
}

func TestFilesystemLowSpace(t *testing.T) {
	assert.True(t, LowSpace(filled("/", 9, 100)))
	assert.True(t, LowSpace(filled("/", 0, 100)))
	assert.False(t, LowSpace(filled("/", 10, 100)))
	assert.False(t, LowSpace(snapshot.Filesystem{}), "what is not known is not scarce")
	assert.False(t, LowSpace(filled("/", 0, 0)))
	files := func(free uint64) snapshot.Filesystem {
		return snapshot.Filesystem{Files: snapshot.Some[uint64](100), FilesFree: snapshot.Some(free)}
	}
	assert.True(t, LowInodes(files(4)))
	assert.False(t, LowInodes(files(5)))
	assert.False(t, LowInodes(snapshot.Filesystem{FilesFree: snapshot.Some[uint64](0)}))
	assert.Equal(t, "12 s ago", Ago(12.7))
	assert.Equal(t, "2 h 5 min ago", Ago(7500))
}

func TestFilesystemHungIsAbsence(t *testing.T) {
	s := judgedBy()
	s.Snapshot.Filesystems = []snapshot.Filesystem{
		{Mountpoint: "/a", Absent: snapshot.Absent{"statfs": "statfs hangs"}},
		{Mountpoint: "/b", Absent: snapshot.Absent{"statfs": "statfs hangs"}},
		{Mountpoint: "/pool", Absent: snapshot.Absent{"files": "this filesystem has no inode count"}},
	}
	assert.Equal(t, []Absence{
		{"2 filesystems", "statfs", "statfs hangs"}, {"filesystem /pool", "files", "this filesystem has no inode count"},
	}, Absences(s))
}
