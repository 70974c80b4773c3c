package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/daemon/view/scenes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func lineWith(frame, word string) string {
	for line := range strings.Lines(frame) {
		if strings.Contains(line, word) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func TestTopFilesystems(t *testing.T) {
	frame := frameOf(scenes.MemoryHard(), 120, 44, false)
	assert.Contains(t, lineWith(frame, "/data xfs"), "6.0 %")
	hung := lineWith(frame, "/mnt/backup nfs4")
	assert.Contains(t, hung, "4.0 TiB", "its last values")
	assert.Contains(t, hung, "5 min 12 s ago  statfs hangs")
	assert.NotContains(t, frameOf(scenes.MemoryHard(), 80, 24, false), "FILESYSTEM", "there what presses has the room")

	first := frameOf(scenes.FirstTick(), 120, 40, false)
	assert.Contains(t, lineWith(first, "/ ext4"), "–")
	assert.NotContains(t, lineWith(first, "/ ext4"), "answered", "a first question is no trouble yet")
}

func TestTopKubeletFilesystem(t *testing.T) {
	s := scenes.Calm()
	s.Snapshot.Filesystems[0].Use = snapshot.UseKubelet
	assert.Contains(t, frameOf(s, 120, 40, false), s.Snapshot.Filesystems[0].Mountpoint+" "+s.Snapshot.Filesystems[0].Type+", the kubelet's")
}

func TestTopWithoutFilesystems(t *testing.T) {
	s := scenes.Calm()
	s.Snapshot.Filesystems = nil
	assert.NotContains(t, frameOf(s, 120, 40, false), "FILESYSTEM")
}

func TestTopFullestFilesystems(t *testing.T) {
	s := scenes.Calm()
	for _, name := range []string{"/v1", "/v2", "/v3", "/v4"} {
		s.Snapshot.Filesystems = append(s.Snapshot.Filesystems, snapshot.Filesystem{
			Mountpoint: name, Type: "ext4", SizeBytes: snapshot.Some[uint64](100), AvailableBytes: snapshot.Some[uint64](3), FilesFree: snapshot.Some[uint64](1), Files: snapshot.Some[uint64](100),
		})
	}
	frame := frameOf(s, 120, 40, false)
	assert.Contains(t, frame, "FILESYSTEM (4 of 6)")
	assert.Contains(t, frame, "/v4 ext4")
	assert.NotContains(t, frame, "/ ext4")
	assert.NotEmpty(t, lineWith(frameOf(s, 120, 40, true), "/v4 ext4"))
	assert.Contains(t, lineWith(frameOf(s, 120, 40, true), "/v4 ext4"), "\x1b[1;31m", "scarce room is marked")
}
