package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// extraWait is how long to wait for a filesystem beyond its timeout: on a
// starved machine even the mount table is slow.
const extraWait = 5 * time.Second

// read takes samples until every watched filesystem has answered or timed out,
// because they are asked outside of the sample. One that has done neither in
// time is an error of its probe.
func read(host *probes.Host, filesystems probes.FilesystemConfig) (*snapshot.Sample, error) {
	host.FollowFilesystems(filesystems)
	defer host.Close()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for start := time.Now(); ; <-poll.C {
		s, err := host.Read()
		if err != nil || filesystems.Every <= 0 || allAnswered(s) {
			return s, err
		}
		if waited := time.Since(start); waited > filesystems.Timeout+extraWait {
			markUnanswered(s, waited)
			return s, nil
		}
	}
}

// markUnanswered turns filesystems without an answer into an error of their probe.
func markUnanswered(s *snapshot.Sample, waited time.Duration) {
	what := "the mount table"
	if i := slices.IndexFunc(s.Filesystems, func(f snapshot.Filesystem) bool { return f.Pending() }); i >= 0 {
		what = s.Filesystems[i].Mountpoint
	}
	for i := range s.Probes {
		if s.Probes[i].Name == "filesystems" {
			s.Probes[i].Error = fmt.Sprintf("%s was not read within %s", what, waited.Round(100*time.Millisecond))
		}
	}
}

func allAnswered(s *snapshot.Sample) bool {
	pending := slices.ContainsFunc(s.Filesystems, func(f snapshot.Filesystem) bool { return f.Pending() })
	failed := slices.ContainsFunc(s.Probes, func(p snapshot.Probe) bool { return p.Name == "filesystems" && p.Error != "" })
	return !pending && (len(s.Filesystems) > 0 || failed)
}
