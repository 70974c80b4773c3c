package plugins

import (
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// life is a made-up node of which a test fills in what its plugin reads, second
// by second.
type life struct {
	t       *testing.T
	history *snapshot.History
	set     *Set
	at      time.Duration
	levels  *Levels
	// snapshot is the newest.
	snapshot *snapshot.Snapshot
}

func newLife(t *testing.T, c Config) *life {
	t.Helper()
	return &life{
		t: t, at: time.Hour, set: NewSet(c, nil),
		history: &snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 3 * time.Second},
	}
}

// second lets one pass.
func (l *life) second(fill func(*snapshot.Sample)) []Verdict {
	l.at += time.Second
	s := &snapshot.Sample{Time: time.Unix(0, 0).Add(l.at), Monotonic: l.at, Boottime: l.at, BootID: "a"}
	fill(s)
	l.snapshot = l.history.Add(s)
	l.levels = l.set.Judge(l.snapshot)
	return l.levels.Verdicts
}

// sleep lets time pass without a sample.
func (l *life) sleep(d time.Duration) { l.at += d }
