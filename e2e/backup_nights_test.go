package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/names"
)

const (
	nightSchedules = 20
	nightRuns      = 5 // of a Schedule in a night
)

// nightApp is what a run of a Schedule backs up: a namespace of its own, so that how long
// others take decides nothing but when it starts.
func nightApp(schedule, run int) string { return fmt.Sprintf("app-%02d-%d", schedule, run) }

// night of a real Velero, minutes long: a Backup of all runs, while the others come in any
// order; then they start in the order that the queue plays forward.
func (r *realBackupWorld) night(a *agent, random *rand.Rand, of int) {
	t := r.t
	t.Helper()
	require.NoError(t, r.server.Store.Pause())
	all := fmt.Sprintf("all-%d", of)
	r.create(all)
	r.become(map[string]string{all: "InProgress"})
	created := r.nightBackups(random, of)
	within(t, 4*patience, "all are queued, in the order of their deadlines", func() error {
		queued := 0
		for _, w := range queues(a).Queues[0].Waiting {
			if w.Phase == backup.Queued && !w.Deadline.IsZero() {
				queued++
			}
		}
		return wanted(queued, len(created))
	})
	played := r.foreseen(a, created)
	var order []string
	for _, w := range queues(a).Queues[0].Waiting {
		order = append(order, w.Name)
	}
	require.NoError(t, r.server.Store.Resume())
	within(t, 20*time.Minute, "all are complete", func() error {
		for name, phase := range r.phases() {
			if phase != "Completed" {
				return fmt.Errorf("%s is %s", name, phase)
			}
		}
		return nil
	})
	assert.Equal(t, order, r.started(created), "they start in the order of the queue")
	r.cameAs(of, played, order)
}

// nightBackups come in any order.
func (r *realBackupWorld) nightBackups(random *rand.Rand, of int) (created []string) {
	due := random.Perm(nightSchedules * nightRuns) // those of a Schedule are far apart
	for run := range nightRuns {
		for _, i := range random.Perm(nightSchedules) {
			name := fmt.Sprintf("night-%d-%02d-%d", of, i, run)
			rpo := 5*time.Hour + time.Duration(due[len(created)])*10*time.Minute
			r.createWith(name, map[string]any{names.RPO: rpo.String()}, nightApp(i, run))
			r.of(name, nightApp(i, 0))
			created = append(created, name)
		}
	}
	return created
}

// cameAs compares a night that was played with what came: nothing was played to begin before
// what is ahead of it in the queue, and from the second night on there are ends that were
// forecast. How many ends were in their intervals is said, not asserted:
// the first Backup lasts for as long as the test holds the object store, which no forecast knows.
func (r *realBackupWorld) cameAs(of int, played backup.Night, order []string) {
	r.t.Helper()
	in, known, last := 0, 0, time.Time{}
	for _, name := range order {
		i := slices.IndexFunc(played.Backups, func(f backup.Foreseen) bool { return f.Name == name })
		require.GreaterOrEqual(r.t, i, 0, "%s is not in the night that was played", name)
		f := played.Backups[i]
		if f.Ends.IsZero() {
			continue
		}
		known++
		assert.False(r.t, f.Begins.Before(last), "%s was played to begin before those ahead of it", name)
		last = f.Begins
		if ended := r.get(name).Completed; !ended.Before(f.Earliest.Truncate(time.Second)) && !ended.After(f.Latest) {
			in++
		}
	}
	if of > 0 {
		assert.Positive(r.t, known, "durations of the night before are known")
	}
	r.t.Logf("night %d: of %d Backups, %d ends were forecast before the first began, and %d of them came in their intervals of 90 %%", of, len(order), known, in)
}

// pause a Schedule, so that it creates no Backup by itself.
func (r *realBackupWorld) pause(schedule string) {
	r.t.Helper()
	_, err := r.client.Resource(backup.ScheduleResource()).Namespace(r.namespace).Patch(r.t.Context(), schedule, types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	require.NoError(r.t, err)
}

// foreseen is the night as the controller plays it while these Backups wait; until the next
// minute it may have one from before.
func (r *realBackupWorld) foreseen(a *agent, waiting []string) (n backup.Night) {
	r.t.Helper()
	within(r.t, 3*time.Minute, "the night is played with all of them", func() error {
		var answer struct{ Nights []backup.Night }
		if err := json.Unmarshal([]byte(a.mustGet("/api/v1/backups")), &answer); err != nil {
			return err
		}
		if len(answer.Nights) == 0 {
			return fmt.Errorf("none")
		}
		n = answer.Nights[0]
		now := 0
		for _, f := range n.Backups {
			if f.Phase == backup.Queued && slices.Contains(waiting, f.Name) {
				now++
			}
		}
		return wanted(now, len(waiting))
	})
	return n
}

// started are these Backups in the order in which they became ReadyToStart.
func (r *realBackupWorld) started(of []string) (order []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Backup.Phase == backup.Ready && slices.Contains(of, e.Name) && !slices.Contains(order, e.Name) {
			order = append(order, e.Name)
		}
	}
	return order
}

// Two nights of a hundred Backups each, by a real Velero: in the second durations are known.
func TestRealVeleroNights(t *testing.T) {
	live.Long(t, "202 Backups by a whole Velero; the order by deadlines is shown by TestBackupDeadlines")
	var apps []string
	for i := range nightSchedules {
		for run := range nightRuns {
			apps = append(apps, nightApp(i, run))
		}
	}
	r := newReal(t, cluster.Shared(t, cluster.Options{}), "limit: 4, deadlines: {enabled: true}", apps...)
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	for i := range nightSchedules {
		r.schedule(nightApp(i, 0), "0 * * * *", nil)
		r.pause(nightApp(i, 0))
	}
	a := r.controller().start()
	for of := range 2 {
		r.night(a, random, of)
	}
	t.Logf("%d ran together at most", r.apart(4))
}
