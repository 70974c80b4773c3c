package backup

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// A Backup that runs bears our mark when the queue is handed back, and another
// was let start a moment ago.
func TestHandBackLoggedOnceNoMarksLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{random: rand.New(rand.NewPCG(1, 1)), now: map[string]*unstructured.Unstructured{}, read: map[string]*Object{}, rank: map[string]int{}}
		for range 6 {
			s.create(0)
		}
		enabled := true
		l := newLeader(s, func() Settings {
			if enabled {
				return leading(3, Config{})
			}
			return Settings{Resync: time.Minute, Config: DefaultConfig()}
		})
		defer l.stop()
		var log bytes.Buffer
		l.r.Log = slog.New(slog.NewTextHandler(&log, nil))
		turn := func() {
			l.learn(len(s.history))
			l.resume()
			time.Sleep(time.Second)
		}
		for range 100 {
			turn()
		}
		require.True(t, s.become(Ready, InProgress), "one runs, and nobody has looked since")
		enabled = false
		for range 100 {
			turn()
		}
		assert.Equal(t, 1, strings.Count(log.String(), "handed backup queue back"), log.String())
		for name, o := range s.read {
			assert.False(t, o.Annotated, name)
		}
	})
}

// Where no queue works, Backups stay New: how long is told also while this queue is disabled.
func TestDisabledTellsWhatIsNotQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1)
		enabled := false
		s.r.Settings = func() Settings {
			settings := leading(1, Config{})
			settings.Enabled = enabled
			return settings
		}
		s.backup("queued", 1, "a")
		s.pass(time.Minute)
		assert.Empty(t, s.r.Unqueued(), "by Velero's own queue")
		s.backup("new", 0, "a")
		s.pass(time.Hour)
		s.backup("newer", 0, "a")
		s.pass(time.Hour)
		assert.Equal(t, map[string]time.Duration{"velero": 2 * time.Hour}, s.r.Unqueued())
		assert.Empty(t, s.r.Reports())
		enabled = true
		s.pass(time.Second)
		assert.Empty(t, s.r.Unqueued())
		assert.NotEmpty(t, s.r.Reports())
	})
}

// Two others lead for a moment, or think so. They may start Backups in another
// order than the queue's, but none that overlaps with one that runs.
func TestHandBackBesideLeadersNoOverlap(t *testing.T) {
	for seed := range uint64(live.Times(15, 60)) {
		synctest.Test(t, func(t *testing.T) {
			on := func() Settings { return leading(1+int(seed%3), Config{}) }
			off := func() Settings { return Settings{Resync: time.Minute, Config: Config{Limit: 1}} }
			_, err := compete(seed, false, on, on, off)
			require.NoError(t, err, "seed %d", seed)
		})
	}
}

// Who may write Backups may write our annotation as well.
func TestWaitingAnnotationInFutureIgnored(t *testing.T) {
	for name, waiting := range map[string]Waiting{
		"since":   {Reason: CodeVelero, Since: noon.Add(time.Hour)},
		"touched": {Reason: CodeVelero, Since: noon.Add(-time.Hour), Touched: noon.Add(100 * time.Hour)},
	} {
		list := planned(DefaultConfig(), noon, false, object(Backup{UID: "made-up", Phase: Ready}, waiting))
		require.Len(t, list, 1, name)
		assert.Equal(t, kindTouch, list[0].kind, name)
		assert.False(t, list[0].patch.waiting.Since.After(noon), name)
		assert.Equal(t, noon, list[0].patch.waiting.Touched, name)
	}
	left := object(Backup{UID: "made-up", Phase: Ready}, Waiting{Reason: CodeVelero, Since: noon.Add(time.Hour)})
	assert.Len(t, (&planner{now: noon, objects: byUID([]*Object{left})}).notTakenUp(), 1, "nor when the queue is handed back")
	other := Waiting{Reason: CodeVelero, Since: noon.Add(20 * time.Second)}
	assert.Empty(t, planned(DefaultConfig(), noon, false, object(Backup{UID: "of another leader", Phase: Ready}, other)), "by a clock that is a little ahead")
}
