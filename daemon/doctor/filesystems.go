package doctor

import (
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/probes"
)

// firstAnswer is how long beyond its timeout a filesystem is waited for.
const firstAnswer = 500 * time.Millisecond

// read takes a sample in which every watched filesystem has answered or is
// said to hang: they are asked outside of the sample.
func (p Patient) read(host *probes.Host) (*probes.Sample, error) {
	host.FollowFilesystems(p.Filesystems)
	host.FollowNetwork(p.Network)
	defer host.Close()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for start := time.Now(); ; <-poll.C {
		s, err := host.Read()
		if err != nil || p.settled(s) || time.Since(start) > p.Filesystems.Timeout+firstAnswer {
			return s, err
		}
	}
}

func (p Patient) settled(s *probes.Sample) bool {
	pending := slices.ContainsFunc(s.Filesystems, func(f probes.Filesystem) bool { return f.Pending() })
	failed := slices.ContainsFunc(s.Probes, func(p probes.Probe) bool { return p.Name == "filesystems" && p.Error != "" })
	return p.Filesystems.Every <= 0 || !pending && (len(s.Filesystems) > 0 || failed)
}
