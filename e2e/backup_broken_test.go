package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
)

// some Backups of random applications, those that overlap among them.
func (f *backupWorld) createRandomly(r *rand.Rand, from, n int) {
	f.t.Helper()
	for i := range n {
		apps := [][]string{{"shop"}, {"web"}, {"db"}, {"shop", "db"}, {"mail"}, {"web", "mail"}}[r.IntN(6)]
		if r.IntN(12) == 0 {
			apps = nil
		}
		f.create(fmt.Sprintf("backup-%02d", from+i), apps...)
	}
}

func TestBackupQueueControllerKilled(t *testing.T) {
	t.Parallel()
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 2", "shop", "web", "db", "mail")
	f.configure("duration: 1s", "enabled: true, limit: 2, stuckAfter: 1m")
	f.runVelero()
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	lives := 8
	for life := range lives {
		a := f.controller().start()
		f.createRandomly(r, 3*life, 3)
		// The kill comes at any moment of the work: before, in its midst, after. The first
		// one has written something.
		moment := time.Now().Add(time.Duration(r.IntN(2500)) * time.Millisecond)
		eventually(t, "the moment of the kill", func() error {
			if time.Now().Before(moment) || life == 0 && writes(a) == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		a.end(syscall.SIGKILL)
	}
	f.controller().start()
	f.allEnd(2 * patience)
	assert.LessOrEqual(t, f.sound(), 2)
}

// editQueued Backups, one after the other, as their owners may, so that a leader
// often writes to one that has changed; until the test ends.
func (f *backupWorld) editQueued(r *rand.Rand) {
	ctx, end := context.WithCancel(contextWithoutCancel(f.t))
	edit := func(o *backup.Object, n int) error {
		_, err := f.backups().Patch(ctx, o.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"edited":"%d"}}}`, o.ResourceVersion, n), metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			return err
		}
		return nil
	}
	var editing sync.WaitGroup
	editing.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			sleep(ctx, 20*time.Millisecond)
			list, err := f.backups().List(ctx, metav1.ListOptions{})
			if err != nil {
				assert.ErrorIs(f.t, err, context.Canceled)
				return
			}
			for _, i := range r.Perm(len(list.Items)) {
				if o := backup.Read(&list.Items[i]); o.Backup.Phase == backup.Queued {
					assert.NoError(f.t, edit(o, n))
					break
				}
			}
		}
	})
	f.t.Cleanup(func() { end(); editing.Wait() })
}

func TestBackupQueueTwoLeaders(t *testing.T) {
	t.Parallel()
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 2", "shop", "web", "db", "mail")
	f.configure("enabled: false", "enabled: true, limit: 2")
	f.runVelero()
	one, two := f.controller().start(), f.controller().start()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	f.editQueued(rand.New(rand.NewPCG(seed, 1)))
	f.createRandomly(rand.New(rand.NewPCG(seed, 2)), 0, 40)
	f.allEnd(4 * patience)
	most := f.sound()
	assert.LessOrEqual(t, most, 4, "each holds the limit of what it has seen")
	for _, a := range []*agent{one, two} {
		assert.Positive(t, count(a, `plimsoll_backup_writes_total{result="start"}`), "both lead")
		t.Logf("started %s, was second %s times", metric(a, `plimsoll_backup_writes_total{result="start"}`), metric(a, `plimsoll_backup_writes_total{result="conflict"}`))
	}
	t.Log("ran together at most:", most)
}

func TestBackupQueueFailover(t *testing.T) {
	t.Parallel()
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 2", "shop")
	f.runVelero()
	replicas := []*agent{f.controller().start()}
	leads := func(a *agent) time.Duration {
		return within(t, patience, "the next one leads", func() error {
			if metric(a, "plimsoll_leader") != "1" || metric(a, "plimsoll_backup_queue_enabled") != "1" {
				return errors.New("not yet")
			}
			return nil
		})
	}
	leads(replicas[0])
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		next := f.controller().start()
		replicas = append(replicas, next)
		last := replicas[len(replicas)-2]
		assert.Equal(t, "0", metric(next, "plimsoll_leader"))
		eventually(t, "it knows who leads", func() error {
			if queues(next).Leader == "" {
				return errors.New("not yet")
			}
			return nil
		})
		status := last.end(sig)
		took := leads(next)
		t.Logf("after %s the next one leads in %s", sig, took)
		if sig == syscall.SIGTERM {
			assert.Zero(t, status, last.stderr.String())
		}
		f.create("after-"+strconv.Itoa(int(sig)), "shop")
		f.allEnd(patience)
	}
	f.sound()
}

func TestBackupReadyBeforeVeleroStarts(t *testing.T) {
	t.Parallel()
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 1", "shop", "web")
	f.controller().start()
	f.create("first", "shop")
	f.become(map[string]string{"first": "ReadyToStart"})
	f.create("overlaps", "shop")
	f.create("other", "web")
	assert.Equal(t, backup.CodeVelero, f.get("first").Waiting.Reason)

	// Nobody takes it up: it holds no slot any more, and keeps its namespaces.
	f.become(map[string]string{"first": "ReadyToStart", "overlaps": "Queued 1", "other": "ReadyToStart"})
	assert.Contains(t, f.said("first", backup.ReasonStuck), "Velero does not take it up")

	f.runVelero()
	f.allEnd(patience)
	f.sound()
}

// writes of Backups that a controller has done, of all kinds.
func writes(a *agent) (all int) {
	a.t.Helper()
	for _, kind := range backup.Kinds() {
		all += count(a, fmt.Sprintf("plimsoll_backup_writes_total{result=%q}", kind))
	}
	return all
}

func count(a *agent, series string) int {
	a.t.Helper()
	n, err := strconv.Atoi(metric(a, series))
	require.NoError(a.t, err)
	return n
}

func TestBackupQueueWritesPerBackup(t *testing.T) {
	t.Parallel()
	n := live.Times(60, 200)
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 1")
	f.configure("duration: 1s", "enabled: true, limit: 1, stuckAfter: 1m")
	open := make(chan struct{})
	f.velero.Work = lasts(open)
	f.runVelero()
	a := f.controller().start()
	for i := range n {
		f.create(fmt.Sprintf("backup-%03d", i), fmt.Sprintf("app-%03d", i))
	}
	eventually(t, "each has a position of its own", func() error {
		at := map[string]string{}
		for name, phase := range f.phases() {
			at[phase] = name
		}
		if len(at) != n || at["InProgress"] == "" || at["Queued 1"] == "" {
			return fmt.Errorf("%d of them: %v", len(at), at)
		}
		return nil
	})
	start := time.Now()
	close(open)
	f.allEnd(4 * patience)
	assert.Equal(t, 1, f.sound())
	all := writes(a)
	t.Logf("%d backups drained in %s: %d writes, %.1f each, conflicts %s; Velero's own queue: %d", n, time.Since(start).Round(time.Millisecond), all, float64(all)/float64(n), metric(a, `plimsoll_backup_writes_total{result="conflict"}`), n*(n+1)/2)
	assert.LessOrEqual(t, float64(all)/float64(n), 5+math.Log2(float64(n)))
	eventually(t, "each wait is counted, unless the API server's answer was lost", func() error { // Velero may be done before the answer is read
		waits, lost := count(a, `plimsoll_backup_queue_wait_seconds_count{velero="`+f.namespace+`"}`), count(a, `plimsoll_backup_writes_total{result="failed"}`)
		if waits+lost < n {
			return fmt.Errorf("%d waits, %d answers lost; of the others the controller said:\n%s", waits, lost, saidOfOthers(f, a, n))
		}
		return nil
	})
}

// saidOfOthers is what a controller has said of Backups that it does not say it started, and
// of being the leader.
func saidOfOthers(f *backupWorld, a *agent, n int) (lines string) {
	text := a.stderr.String()
	for i := range n {
		name := fmt.Sprintf("backup=%s/backup-%03d", f.namespace, i)
		started := strings.Contains(text, "msg=\"backup starts\" "+name+" ")
		for line := range strings.Lines(text) {
			if !started && strings.Contains(line, name) || i == 0 && strings.Contains(line, "lead") {
				lines += line
			}
		}
	}
	return lines
}

func backupQueueLosesServer(t *testing.T, o *outage) {
	f := newBackupWorld(t, o.c, "limit: 2", "shop", "web", "db", "mail")
	f.configure("duration: 1s", "enabled: true, limit: 2, stuckAfter: 1m") // Velero hears again long after the API server is back
	away := make(chan struct{})
	f.velero.Work = func(ctx context.Context, name string) {
		lasts(away)(ctx, name)
		takes(200*time.Millisecond)(ctx, name)
	}
	f.runVelero()
	a := f.controller().start()
	r := rand.New(rand.NewPCG(3, 3))
	f.createRandomly(r, 0, 12)
	eventually(t, "it leads, and one runs", func() error {
		now := f.phases()
		if metric(a, "plimsoll_leader") != "1" || !slices.Contains(slices.Collect(maps.Values(now)), "InProgress") {
			return fmt.Errorf("leader %s: %v", metric(a, "plimsoll_leader"), now)
		}
		return nil
	})
	o.begins(t, nothing)
	close(away)
	eventually(t, "it has lost leadership", func() error {
		if metric(a, "plimsoll_leader") != "0" {
			return errors.New("it does")
		}
		return nil
	})
	o.ends(t)
	f.createRandomly(r, 12, 6)
	f.allEnd(2 * patience)
	assert.LessOrEqual(t, f.sound(), 2)
}

func TestBackupQueueHandBack(t *testing.T) {
	t.Parallel()
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 1, priorities: true", "shop")
	hold := make(chan struct{})
	f.velero.Work = lasts(hold)
	f.runVelero()
	a := f.controller().start()
	f.create("runs", "shop")
	f.become(map[string]string{"runs": "InProgress"})
	want := map[string]string{}
	for i := range 6 {
		f.create(fmt.Sprintf("ordinary-%d", i), "shop")
		f.become(map[string]string{fmt.Sprintf("ordinary-%d", i): fmt.Sprintf("Queued %d", i+1)})
		want[fmt.Sprintf("ordinary-%d", i)] = fmt.Sprintf("Queued %d", i+2)
	}
	f.createWith("urgent", map[string]any{backup.AnnotationPriority: "7"}, "shop")
	f.createWith("odd", map[string]any{backup.AnnotationPriority: "very"}, "shop")
	want["urgent"], want["odd"] = "Queued 1", "Queued 8"
	assert.Contains(t, f.said("odd", backup.ReasonOdd), `got "very"`)
	f.become(map[string]string{"urgent": "Queued 1"})

	f.configure("duration: 1s", "enabled: false, limit: 1, priorities: true")
	eventually(t, "it says so", func() error {
		if f.get("odd").Annotated {
			return errors.New("the annotation is there")
		}
		return nil
	})
	f.become(want)
	eventually(t, "it says that it is over", func() error {
		if !strings.Contains(a.stderr.String(), "handed backup queue back") {
			return errors.New(a.stderr.String())
		}
		return nil
	})
	for name := range want {
		assert.False(t, f.get(name).Annotated, name)
	}
	before := writes(a)
	close(hold)
	f.become(map[string]string{"runs": "Completed", "urgent": "Queued 1"})
	assert.Equal(t, before, writes(a), "it keeps its hands off")
	assert.Equal(t, "0", metric(a, "plimsoll_backup_queue_enabled"))
}
