package plugins

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

func usualRead(n *diskNode) snapshot.Opt[float64] {
	return n.set.Baselines()[DiskKey(&n.disk, "a")].await(false, 8192)
}

func TestBaseline(t *testing.T) {
	t.Run("needs hour and requests", baselineNeedsHourAndRequests)
	t.Run("not under pressure", baselineNotUnderPressure)
	t.Run("not while level lasts", baselineNotWhileLevelLasts)
	t.Run("of slow disk is bounded", baselineOfSlowDiskIsBounded)
	t.Run("per request size", baselinePerRequestSize)
	t.Run("changed mix", baselineChangedMix)
	t.Run("follows disk", baselineFollowsDisk)
	t.Run("survives restart", baselineSurvivesRestart)
	t.Run("disk key", baselineDiskKey)
	t.Run("forgets removed disk", baselineForgetsRemovedDisk)
	t.Run("of many disks", baselinesOfManyDisks)
}

func baselineNeedsHourAndRequests(t *testing.T) {
	n := newDiskNode(t)
	n.seconds(3590, calm())
	assert.True(t, usualRead(n).IsZero(), "10,000 requests are not enough")
	n.seconds(20, calm())
	usual, ok := usualRead(n).Get()
	require.True(t, ok)
	assert.InDelta(t, 0.001, usual, 1e-9)

	n = newDiskNode(t)
	few := calm()
	few.requests = 2
	n.seconds(4900, few)
	assert.True(t, usualRead(n).IsZero(), "an hour is not enough")
	n.seconds(200, few)
	assert.False(t, usualRead(n).IsZero())
}

func baselineNotUnderPressure(t *testing.T) {
	for name, d := range map[string]diskSecond{
		"busy":                {requests: 100, await: 0.5, busy: 0.6},
		"tasks wait for it":   {requests: 100, await: 0.5, busy: 0.1, waits: 0.2},
		"its rule is met":     pressedHard(),
		"nothing is asked it": {},
	} {
		t.Run(name, func(t *testing.T) {
			n := newDiskNode(t).learned()
			before := requestStats(n)
			n.seconds(2000, d)
			assert.Equal(t, before, requestStats(n))
		})
	}
}

// While the level lasts nothing is learned either: what comes after a pressure
// is its end, not what is usual.
func baselineNotWhileLevelLasts(t *testing.T) {
	n := newDiskNode(t).learned()
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	before := requestStats(n)
	require.Equal(t, Soft, n.seconds(29, calm()).Level)
	assert.Equal(t, before, requestStats(n))
	n.seconds(30, calm())
	assert.NotEqual(t, before, requestStats(n))
}

// A device that is slow from its first second is learned as slow: it is judged
// all the same, for what is usual is never taken for more than what is slow.
func baselineOfSlowDiskIsBounded(t *testing.T) {
	slow := calm()
	slow.await = 0.2
	n := newDiskNode(t)
	n.seconds(4000, slow)
	usual, _ := usualRead(n).Get()
	assert.InDelta(t, 0.2, usual, 1e-9)
	d := pressedHard()
	d.await = 0.2
	v := n.seconds(90, d)
	assert.Equal(t, Soft, v.Level, v.Reason)
	assert.Equal(t, snapshot.Some(0.06), v.Threshold)
}

// Large requests take longer. What was learned of small ones says nothing of
// them, and nobody is named for it.
func baselinePerRequestSize(t *testing.T) {
	b := Baseline{}
	b.Read[sizeClass(8192)] = RequestStats{Requests: 1e6, Seconds: 1e5, TotalSeconds: 1e3}
	assert.Equal(t, snapshot.Some(0.001), b.await(false, 8192))
	assert.True(t, b.await(false, 1<<20).IsZero())
	assert.True(t, b.await(true, 8192).IsZero())
	for bytes, class := range map[float64]int{0: 0, 4096: 0, 16 << 10: 0, 16<<10 + 1: 1, 128 << 10: 1, 256 << 10: 2, 512 << 10: 2, 1 << 20: 3} {
		assert.Equal(t, class, sizeClass(bytes))
	}
}

func baselineChangedMix(t *testing.T) {
	n := newDiskNode(t).learned()
	d := pressedHard()
	d.size = 1 << 20
	v := n.seconds(90, d)
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.Contains(t, v.Absent, "not learned yet: 0s and 0 requests of this size")
	n.seconds(60, calm())
	large := calm()
	large.size = 1 << 20
	n.seconds(4000, large)
	v = n.seconds(90, d)
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.NotEmpty(t, v.Candidates, v.Absent)
}

func baselineFollowsDisk(t *testing.T) {
	var u RequestStats
	for range 10 * 24 * 3600 {
		u.add(1, 100, snapshot.Some(0.001))
	}
	assert.Less(t, u.Seconds, float64(2*fullWeightSeconds+1))
	for range 4 * 24 * 3600 {
		u.add(1, 100, snapshot.Some(0.002))
	}
	usual, _ := u.Await().Get()
	assert.InDelta(t, 0.002, usual, 0.0002)
}

func baselineSurvivesRestart(t *testing.T) {
	n := newDiskNode(t).learned()
	b, err := json.Marshal(n.set.Baselines())
	require.NoError(t, err)
	var kept Baselines
	require.NoError(t, json.Unmarshal(b, &kept))
	assert.Equal(t, n.set.Baselines(), kept)
	n.set = NewSet(diskConfig(), kept)
	n.seconds(301, calm())
	v := n.seconds(90, pressedHard())
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.NotEmpty(t, v.Candidates)
}

func baselineDiskKey(t *testing.T) {
	d := snapshot.Disk{Name: "sda", Number: "8:0", Sequence: snapshot.Some(uint64(7))}
	before := DiskKey(&d, "a")
	assert.NotEqual(t, before, DiskKey(&d, "b"), "another boot")
	d.Sequence = snapshot.Some(uint64(8))
	assert.NotEqual(t, before, DiskKey(&d, "a"), "another device")
	d.WWID = snapshot.Some("naa.5000")
	assert.Equal(t, DiskKey(&d, "a"), DiskKey(&d, "b"))
}

func baselineForgetsRemovedDisk(t *testing.T) {
	n := newDiskNode(t)
	n.second(calm())
	n.second(calm())
	gone := Baselines{"wwid:gone": {Seen: time.Unix(0, 0).Add(n.at - baselineMaxAge - time.Minute)}, "wwid:away": {Seen: time.Unix(0, 0).Add(n.at - baselineMaxAge + time.Hour)}}
	here := DiskKey(&n.disk, "a")
	gone[here] = gone["wwid:gone"]
	n.set = NewSet(diskConfig(), gone)
	n.second(diskSecond{})
	n.second(diskSecond{})
	assert.Contains(t, n.set.Baselines(), here, "the disk is there: the clock was set forward")
	assert.NotContains(t, n.set.Baselines(), "wwid:gone")
	assert.Contains(t, n.set.Baselines(), "wwid:away")
}

// A node to which other volumes are attached all the time keeps those of the last ones.
func baselinesOfManyDisks(t *testing.T) {
	n := newDiskNode(t)
	n.second(calm())
	n.second(calm())
	many := Baselines{DiskKey(&n.disk, "a"): {Seen: time.Unix(0, 0)}}
	for i := range maxBaselines {
		many[fmt.Sprint("wwid:", i)] = Baseline{Seen: time.Unix(0, 0).Add(n.at - time.Duration(i)*time.Minute)}
	}
	n.set = NewSet(diskConfig(), many)
	n.second(diskSecond{})
	n.second(diskSecond{})
	assert.Len(t, n.set.Baselines(), maxBaselines)
	assert.Contains(t, n.set.Baselines(), DiskKey(&n.disk, "a"), "the disk is there")
	assert.Contains(t, n.set.Baselines(), "wwid:0")
	assert.NotContains(t, n.set.Baselines(), fmt.Sprint("wwid:", maxBaselines-1), "it was removed first")
}

// requestStats are the baselines without what the disk carries, which is learned under
// pressure too.
func requestStats(n *diskNode) map[string][2][sizeClasses]RequestStats {
	list := map[string][2][sizeClasses]RequestStats{}
	for key, b := range n.set.Baselines() {
		list[key] = [2][sizeClasses]RequestStats{b.Read, b.Write}
	}
	return list
}
