package vgdp

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// moversShare is the least share of a disk's traffic with which movers count as its users.
const moversShare = 0.2

// AtKnee is a disk that is busy with all that it carries and that movers use considerably;
// empty if there is none.
func AtKnee(s *snapshot.Snapshot, l *plugins.Levels, movers map[string]bool) string {
	for i := range s.Contention {
		c, share := &s.Contention[i], 0.0
		if disk := l.Capacity(c.Device); c.Resource != snapshot.SharedDisk || disk == nil || !disk.AtKnee {
			continue
		}
		for _, culprit := range c.Culprits {
			if movers[culprit.Cgroup] {
				share += culprit.Share
			}
		}
		if share >= moversShare {
			return c.Device
		}
	}
	return ""
}
