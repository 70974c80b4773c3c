package plugins

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// stats are requests of so many milliseconds, over so many seconds.
func stats(requests, seconds, ms float64) RequestStats {
	return RequestStats{Requests: requests, Seconds: seconds, TotalSeconds: requests * ms / 1000}
}

func TestDiskThreshold(t *testing.T) {
	turns, still := snapshot.Some(true), snapshot.Some(false)
	for what, row := range map[string]struct {
		rotational  snapshot.Opt[bool]
		small, mid  RequestStats // reads up to 16 KiB, up to 128 KiB
		large, sync RequestStats // reads above 512 KiB, writes up to 16 KiB
		least, most time.Duration
		rotates     bool
		why         string
	}{
		"an NVMe":                          {rotational: still, least: 20 * time.Millisecond, why: "it does not rotate"},
		"a disk that says nothing":         {least: 20 * time.Millisecond, why: "does not say"},
		"a disk that says that it rotates": {rotational: turns, least: 100 * time.Millisecond, rotates: true, why: "too few reads were measured to doubt it: 0 in 0 s, needs 1000 in 60 s"},
		"a virtual disk":                   {rotational: turns, small: stats(900, 50, 1), mid: stats(200, 20, 2), least: 20 * time.Millisecond, why: "its reads take 1.2 ms"},
		"too few reads":                    {rotational: turns, small: stats(999, 500, 1), least: 100 * time.Millisecond, rotates: true, why: "999 in 500 s"},
		"reads of a moment":                {rotational: turns, small: stats(1e6, 59, 1), least: 100 * time.Millisecond, rotates: true, why: "1000000 in 59 s"},
		"a disk that does rotate":          {rotational: turns, small: stats(5000, 900, 9), least: 100 * time.Millisecond, rotates: true, why: "it rotates (queue/rotational is 1): its reads take 9.0 ms"},
		"writes end in a cache":            {rotational: turns, sync: stats(1e6, 7200, 0.1), least: 100 * time.Millisecond, rotates: true, why: "0 in 0 s"},
		"large reads are sequential":       {rotational: turns, large: stats(1e6, 7200, 2), least: 100 * time.Millisecond, rotates: true, why: "0 in 0 s"},
		"what is usual raises it":          {rotational: still, large: stats(1e6, 7200, 15), least: 20 * time.Millisecond, most: 45 * time.Millisecond, why: "it does not rotate"},
		"but no further than the floor":    {rotational: still, sync: stats(1e6, 7200, 400), least: 20 * time.Millisecond, most: 60 * time.Millisecond, why: "it does not rotate"},
	} {
		t.Run(what, func(t *testing.T) {
			of := Baseline{Read: [sizeClasses]RequestStats{row.small, row.mid, {}, row.large}, Write: [sizeClasses]RequestStats{row.sync}}
			got := DefaultDiskContention().ThresholdOf(&snapshot.Disk{Name: "sda", Rotational: row.rotational}, of)
			assert.Equal(t, row.least, got.Least)
			assert.Equal(t, row.most, got.Most)
			assert.Equal(t, row.rotates, got.Rotates)
			assert.Contains(t, got.Why, row.why)
		})
	}
}
