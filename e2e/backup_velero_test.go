package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
)

// realBackupWorld is a fleet whose Velero is a real one: its server, its plugin for S3 and
// an object store. Nobody is left in the Backups' way but the store, which
// stands still to make them last.
type realBackupWorld struct {
	*backupWorld
	server *velero.Server

	mu     sync.Mutex // guards events
	events []*backup.Object
}

// handedOver are the arguments of a Velero whose queue was handed over, and that
// runs so many Backups at once.
func handedOver(atOnce int) []string {
	return []string{"--disable-controllers=backup-queue", fmt.Sprintf("--concurrent-backups=%d", atOnce)}
}

func newReal(t *testing.T, c *cluster.Cluster, settings string, apps ...string) *realBackupWorld {
	t.Helper()
	f := newBackupWorld(t, c, settings, apps...)
	version, err := cluster.Pinned(cluster.Velero)
	require.NoError(t, err)
	t.Attr(cluster.Velero, version)
	if !slices.Contains(phasesOf(t, f.client, velero.Resource()), string(backup.Queued)) {
		t.Skipf("Velero %s has no backup queue: its Backups have no phase Queued", version)
	}
	server, err := velero.NewServer(t.Context(), c, f.namespace, t.TempDir(), handedOver(4)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Velero said last:\n%s", server.Tail())
		}
		require.NoError(t, server.Kill())
		require.NoError(t, server.Store.Kill())
	})
	r := &realBackupWorld{backupWorld: f, server: server}
	r.watch()
	return r
}

// listed is what `velero backup get` says of a Backup: its line.
func (r *realBackupWorld) listed(name string) string {
	r.t.Helper()
	out, err := r.server.Command(r.t.Context(), "backup", "get")
	require.NoError(r.t, err)
	return regexp.MustCompile(`(?m)^` + name + ` .*$`).FindString(string(out))
}

// watch the phases of Backups from now on.
func (r *realBackupWorld) watch() {
	r.t.Helper()
	ctx, end := context.WithCancel(contextWithoutCancel(r.t))
	w, err := r.backups().Watch(ctx, metav1.ListOptions{})
	require.NoError(r.t, err)
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range w.ResultChan() {
			u, is := e.Object.(*unstructured.Unstructured)
			if !is {
				continue // of a watch that ends with its cluster
			}
			r.mu.Lock()
			r.events = append(r.events, backup.Read(u))
			r.mu.Unlock()
		}
	})
	r.t.Cleanup(func() { end(); w.Stop(); watching.Wait() })
}

// apart: of Backups that overlap one alone was InProgress at any time, and never
// more than limit, by every event of the watch up to the last ones; it returns how
// many ran together at most. What Velero finalizes it does not count as running, nor does the queue.
func (r *realBackupWorld) apart(limit int) (most int) {
	r.t.Helper()
	eventually(r.t, "the watch has seen the end", func() error {
		last := r.phases()
		r.mu.Lock()
		defer r.mu.Unlock()
		seen := map[string]string{}
		for _, e := range r.events {
			seen[e.Name] = string(e.Backup.Phase)
		}
		if !maps.Equal(seen, last) {
			return fmt.Errorf("%v of %v", seen, last)
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := map[string]bool{}
	for _, e := range r.events {
		name := e.Name
		if e.Backup.Phase != backup.InProgress {
			delete(runs, name)
			continue
		}
		for other := range runs {
			assert.False(r.t, other != name && r.overlap(other, name), "%s and %s ran together", other, name)
		}
		runs[name] = true
		most = max(most, len(runs))
	}
	assert.LessOrEqual(r.t, most, limit)
	return most
}

func TestRealVeleroRunsQueue(t *testing.T) {
	t.Parallel()
	r := newReal(t, cluster.Shared(t, cluster.Options{}), "limit: 2", "shop", "web", "db")
	r.controller().start()
	require.NoError(t, r.server.Store.Pause())
	r.create("first", "shop")
	r.become(map[string]string{"first": "InProgress"})
	r.create("second", "shop", "db")
	r.become(map[string]string{"second": "Queued 1"})
	r.create("third", "db")
	r.become(map[string]string{"third": "Queued 2"})
	r.create("wrong", "shop-**") // Velero rejects it, and nobody waits for that
	r.become(map[string]string{"wrong": "FailedValidation", "first": "InProgress", "second": "Queued 1", "third": "Queued 2"})
	r.create("fourth", "web")
	r.become(map[string]string{"fourth": "InProgress"})
	r.create("all")
	r.become(map[string]string{"first": "InProgress", "second": "Queued 1", "third": "Queued 2", "fourth": "InProgress", "all": "Queued 3"})
	for name, says := range map[string]string{"first": "InProgress", "second": "Queued", "all": "Queued"} {
		assert.Contains(t, r.listed(name), says)
	}
	t.Logf("velero backup get:\n%s", strings.Join([]string{r.listed("NAME"), r.listed("first"), r.listed("second"), r.listed("third"), r.listed("all")}, "\n"))
	require.NoError(t, r.server.Store.Resume())
	r.allEnd(4*patience, "wrong")
	t.Logf("%d ran together at most", r.apart(2))
}

// The server is killed while one Backup runs and others wait; it says itself
// that what ran has failed, and the order goes on.
func TestRealVeleroKilled(t *testing.T) {
	t.Parallel()
	live.Long(t, "a whole Velero, beside that of another test")
	r := newReal(t, cluster.Shared(t, cluster.Options{}), "limit: 1", "shop")
	a := r.controller().start()
	require.NoError(t, r.server.Store.Pause())
	r.create("runs", "shop")
	r.become(map[string]string{"runs": "InProgress"})
	for i := range 3 {
		r.create(fmt.Sprintf("waits-%d", i), "shop")
		r.become(map[string]string{fmt.Sprintf("waits-%d", i): fmt.Sprintf("Queued %d", i+1)})
	}
	require.NoError(t, r.server.Kill())
	require.Equal(t, -1, a.end(sigkill))
	require.NoError(t, r.server.Store.Resume())
	r.controller().start()
	require.NoError(t, r.server.Start())
	within(t, 4*patience, "the others end", func() error {
		now := r.phases()
		for i := range 3 {
			if name := fmt.Sprintf("waits-%d", i); now[name] != "Completed" {
				return fmt.Errorf("%s: %v", name, now)
			}
		}
		return nil
	})
	assert.Equal(t, "Failed", r.phases()["runs"], "Velero does not take it up again")
	r.apart(1)
}

// The controller is gone for good: what is documented for that drains the queue.
// Velero's own queue looks at what waits when a Backup is made, and else once a
// minute: the long form waits for three of them.
func TestRealVeleroDrainsWithoutController(t *testing.T) {
	t.Parallel()
	live.Long(t, "a whole Velero, beside that of another test")
	waiting := 1
	if os.Getenv("PLIMSOLL_LONG") != "" {
		waiting = 3
	}
	r := newReal(t, cluster.New(t, cluster.Options{Without: []string{cluster.Scheduler}}), "limit: 1", "shop", "web")
	a := r.controller().start()
	require.NoError(t, r.server.Store.Pause())
	r.create("runs", "shop")
	r.become(map[string]string{"runs": "InProgress"})
	for i := range waiting {
		r.create(fmt.Sprintf("waits-%d", i), "shop")
		r.become(map[string]string{fmt.Sprintf("waits-%d", i): fmt.Sprintf("Queued %d", i+1)})
	}
	r.deployed(handedOver(4)...)
	r.examined(`WARN +backup queue +` + r.namespace + `/velero runs with --disable-controllers=backup-queue, and whether the plimsoll controller starts its Backups, .* is not known: .* holds Lease ` + r.namespace + `/plimsoll-controller, which is the controller's if it has election.namespace: ` + r.namespace + `; it runs at most 4 Backups at a time`)
	require.Equal(t, -1, a.end(sigkill))
	r.examined(`FAIL +backup queue +` + r.namespace + `/velero runs with --disable-controllers=backup-queue and no plimsoll controller is leader`)
	require.NoError(t, r.server.Store.Resume())
	r.become(map[string]string{"runs": "Completed", "waits-0": "Queued 1"})
	require.NoError(t, r.server.Restart(t.Context()))
	begun, made := time.Now(), 0
	within(t, time.Duration(waiting+1)*90*time.Second, "all have had their turn", func() error {
		if now := r.phases()["waits-"+strconv.Itoa(waiting-1)]; now != "Completed" {
			if waiting == 1 && time.Since(begun) > time.Duration(made)*5*time.Second { // Velero misses some
				made++
				r.create(fmt.Sprintf("made-later-%d", made), "web")
			}
			return errors.New(now)
		}
		return nil
	})
	r.allEnd(4 * patience)
	t.Logf("Velero's own queue drained %d in %s", waiting, time.Since(begun).Round(time.Second))
	r.apart(1)
}

// deployed makes the Deployment that Velero's server would be of, without pods.
func (r *realBackupWorld) deployed(args ...string) {
	r.t.Helper()
	labels := map[string]string{"component": "velero"}
	_, err := r.c.Client.AppsV1().Deployments(r.namespace).Create(r.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "velero", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "velero", Image: "none", Command: []string{"/velero"}, Args: append([]string{"server"}, args...)}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(r.t, err)
}

// examined waits until doctor says so.
func (r *realBackupWorld) examined(line string) {
	r.t.Helper()
	eventually(r.t, "doctor says "+line, func() error {
		_, out, errs := run(r.t, "doctor", "--kubeconfig", r.c.Kubeconfig)
		if !regexp.MustCompile(line).MatchString(out) {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
}
