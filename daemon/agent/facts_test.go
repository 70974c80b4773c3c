package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Rules that name pods for what they ask for, hold or wait for leave out those
// that are ending. An owner may delete its pod with a grace period of a month.
func TestLongGraceTerminatingIsBounded(t *testing.T) {
	const most = time.Minute
	start := time.Unix(1000, 0)
	var e terminations
	deleted := func(uid string) snapshot.Pod { return snapshot.Pod{UID: uid, Terminating: true} }
	for second, want := range map[int]bool{0: true, 59: true, 60: false, 61: false, 3600: false} {
		e = terminations(nil).limit([]snapshot.Pod{deleted("a")}, start, most)
		now := start.Add(time.Duration(second) * time.Second)
		assert.Equal(t, !want, e.expired(now, most), second)
		list := []snapshot.Pod{deleted("a"), deleted("b"), {UID: "c"}}
		e = e.limit(list, now, most)
		assert.Equal(t, []bool{want, true, false}, []bool{list[0].Terminating, list[1].Terminating, list[2].Terminating}, second)
		assert.False(t, e.expired(now, most), "that is known now")
		list = []snapshot.Pod{deleted("a")}
		e = e.limit(list, now.Add(time.Second), most)
		assert.Equal(t, second < 59, list[0].Terminating)
		assert.Len(t, e, 1, "who is gone is forgotten")
	}
}
