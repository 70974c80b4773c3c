package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// On a starved machine neither an answer nor the end of the wait for it comes in
// time: that is no all-clear.
func TestDoctorFilesystemReadLate(t *testing.T) {
	for name, c := range map[string]struct {
		known []snapshot.Filesystem
		want  string
	}{
		"the mount table is late": {nil, "the mount table was not read within 1.3s"},
		"a mount is late": {
			[]snapshot.Filesystem{{Mountpoint: "/"}, {Mountpoint: "/data", Absent: snapshot.Absent{"statfs": "first statfs has not returned yet"}}},
			"/data was not read within 1.3s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &snapshot.Sample{}
			s.Filesystems = c.known
			s.Probes = []snapshot.Probe{{Name: "disks"}, {Name: "filesystems"}}
			assert.False(t, allAnswered(s))
			markUnanswered(s, 1310*time.Millisecond)
			assert.Equal(t, []snapshot.Probe{{Name: "disks"}, {Name: "filesystems", Error: c.want}}, s.Probes)
		})
	}
}
