package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One round foresees the night of each Velero, and again a minute later.
func TestForeseesEachVelero(t *testing.T) {
	r := &Reconciler{velero: map[string]*velero{"velero": {}, "velero-dr": {}, "velero-test": {}}}
	r.foreseen.begin()
	round := func(now time.Time) {
		for namespace, v := range r.velero {
			r.foresee(newWanted(now, DeadlineSettings{Enabled: true}, nil, nil, &v.learned, nil), namespace, Input{Time: now, Namespaces: &Namespaces{}}, nil, nil)
		}
		r.foreseen.running.Wait()
	}
	from := func() (list map[string]time.Time) {
		list = map[string]time.Time{}
		for _, n := range r.Nights() {
			list[n.Namespace] = n.From
		}
		return list
	}
	for _, row := range []struct{ now, from time.Duration }{{0, 0}, {foreseeEvery - time.Second, 0}, {foreseeEvery, foreseeEvery}} {
		round(noon.Add(row.now))
		at := noon.Add(row.from)
		assert.Equal(t, map[string]time.Time{"velero": at, "velero-dr": at, "velero-test": at}, from(), "%s", row.now)
	}
}

// A leader that is none any more does not play the nights that wait for their turn.
func TestForeseesNothingAfterTerm(t *testing.T) {
	r := &Reconciler{velero: map[string]*velero{"velero": {}}}
	r.foreseen.begin()
	r.foreseen.turn.Lock() // another one is played
	r.foresee(newWanted(noon, DeadlineSettings{Enabled: true}, nil, nil, &r.velero["velero"].learned, nil), "velero", Input{Time: noon, Namespaces: &Namespaces{}}, nil, nil)
	ended := make(chan struct{})
	go func() {
		r.foreseen.end()
		close(ended)
	}()
	require.Eventually(t, func() bool { return !r.foreseen.following() }, 10*time.Second, time.Millisecond)
	r.foreseen.turn.Unlock()
	<-ended
	assert.Empty(t, r.Nights())
	assert.False(t, r.velero["velero"].playing.Load())
}
