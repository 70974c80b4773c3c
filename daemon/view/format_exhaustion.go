package view

import "github.com/plimsoll-dev/plimsoll/snapshot"

// soonSeconds is the time below which an estimate is highlighted.
const soonSeconds = 600

// ExhaustedSoon reports whether little time is left.
func ExhaustedSoon(e snapshot.Exhaustion) bool { return e.Seconds < soonSeconds }

// FilesystemExhaustion is the estimate for a filesystem in words; empty if there is none.
func FilesystemExhaustion(s *snapshot.Snapshot, mountpoint string) string {
	if e, shrinks := s.Exhaustion.Filesystem(mountpoint).Get(); shrinks {
		return e.String()
	}
	return ""
}
