package e2e_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/lease"
)

// backupsAnswer is /api/v1/backups of a controller.
type backupsAnswer struct {
	Leads     bool           `json:"leads"`
	Enabled   bool           `json:"enabled"`
	Deadlines bool           `json:"deadlines"`
	Nights    []backup.Night `json:"nights"`
}

// simulatedController answers on a loopback address of this machine with what is MADE UP.
type simulatedController struct {
	*httptest.Server

	answer atomic.Pointer[backupsAnswer]
}

func simulateController(t *testing.T) (s *simulatedController, port int32) {
	t.Helper()
	s = &simulatedController{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := s.answer.Load(); answer != nil && r.URL.Path == "/api/v1/backups" {
			assert.NoError(t, json.NewEncoder(w).Encode(answer))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s, int32(s.Listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
}

// madeUpNight was not: one Backup runs, and one will be late.
func madeUpNight() backup.Night {
	now := time.Now().UTC().Truncate(time.Second)
	return backup.Night{
		Namespace: "velero", From: now, Until: now.Add(9 * time.Hour), Limit: 2,
		Backups: []backup.Foreseen{
			{Name: "shop-1", Schedule: "shop", Phase: backup.InProgress, Created: now, Begins: now, Ends: now.Add(time.Hour), Earliest: now.Add(50 * time.Minute), Latest: now.Add(80 * time.Minute), Deadline: now.Add(2 * time.Hour)},
			{Schedule: "bank", Created: now, Begins: now.Add(time.Hour), Ends: now.Add(3 * time.Hour), Earliest: now.Add(2 * time.Hour), Latest: now.Add(4 * time.Hour), Deadline: now.Add(2 * time.Hour), LateSeconds: 3600, Because: "it takes 2h by itself", Helps: []string{"a limit of 3 instead of 2"}},
		},
		Schedules: []backup.ScheduleState{{Name: "bank", Cron: "0 22 * * *", RPOSeconds: 86400}, {Name: "shop", Cron: "0 21 * * *", Missed: true}},
	}
}

// leads makes the Lease of the election name a replica.
func leads(t *testing.T, c *cluster.Cluster, identity string) {
	t.Helper()
	leases, at := c.Client.CoordinationV1().Leases("plimsoll-system"), lease.Micro(time.Now())
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-controller"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: new(int32(3600)), RenewTime: &at},
	}
	err := leases.Delete(t.Context(), l.Name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	_, err = leases.Create(t.Context(), l, metav1.CreateOptions{})
	require.NoError(t, err)
}

// kubectlBackups asks the controllers of a cluster that never had one.
func kubectlBackups(t *testing.T, c *cluster.Cluster, node, viewer string) {
	newForwards(t).asKubelet(c, node)
	kubectl := plugin(t)
	ask := func(args ...string) (status int, stdout, stderr string) {
		return kubectl(append([]string{"backups", "--kubeconfig", viewer}, args...)...)
	}
	fails := func(want string) {
		t.Helper()
		status, stdout, stderr := ask()
		assert.Equal(t, 1, status)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "plimsoll: backups: "+want)
	}

	fails("no controller can be asked: no Lease of a controller in plimsoll-system")
	leads(t, c, "bare-metal_1234")
	fails("no controller can be asked: the leader bare-metal_1234 is no pod of namespace plimsoll-system: if it runs outside of the cluster, ask on its machine")

	served, port := simulateController(t)
	pods := c.Client.CoreV1().Pods("plimsoll-system")
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plimsoll-controller-5d4f-x", Labels: map[string]string{"app.kubernetes.io/name": "plimsoll", "app.kubernetes.io/component": "controller"}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(false), ServiceAccountName: "plimsoll-controller",
			Containers: []corev1.Container{{Name: "controller", Image: "none", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: port}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	leads(t, c, pod.Name+"_1234")
	fails("no controller can be asked: the leader's pod " + pod.Name + " does not run")
	pod.Status.Phase = corev1.PodRunning
	_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)

	fails("the controller is of a version that cannot answer this: upgrade it")
	served.answer.Store(&backupsAnswer{})
	fails("the controller that was asked is on standby")
	served.answer.Store(&backupsAnswer{Leads: true})
	fails("the controller does not run the backup queue (backups.enabled: false, or a Velero older than 1.18): ")
	served.answer.Store(&backupsAnswer{Leads: true, Enabled: true})
	fails("the controller forecasts nothing, since deadlines are disabled: set backups.deadlines.enabled: true")

	night := madeUpNight()
	served.answer.Store(&backupsAnswer{Leads: true, Enabled: true, Deadlines: true, Nights: []backup.Night{night, {Namespace: "other", From: night.From, Until: night.Until}}})
	t.Run("the night as a plot", func(t *testing.T) {
		status, stdout, stderr := ask()
		assert.Zero(t, status, stderr)
		t.Log("\n" + stdout)
		assert.Contains(t, stdout, "1 of at most 2 Backups running, 0 waiting, 1 to come, 1 will be late")
		assert.Contains(t, stdout, ": will miss its deadline by 1h, because it takes 2h by itself; it would be in time with a limit of 3 instead of 2.")
		assert.Contains(t, stdout, "Schedule shop: no good Backup yet.")
		assert.Contains(t, stdout, "Velero other, as of ")
		_, stdout, _ = ask("-o", "wide", "-n", "velero")
		assert.Contains(t, stdout, "\nbank      0 22 * * *  24h ")
		assert.NotContains(t, stdout, "Velero other")
	})
	t.Run("as an object", func(t *testing.T) {
		_, stdout, _ := ask("-o", "json", "-n", "velero")
		var b backupsAnswer
		require.NoError(t, json.Unmarshal([]byte(stdout), &b))
		assert.Equal(t, []backup.Night{night}, b.Nights)
		_, stdout, _ = ask("-o", "yaml")
		assert.Contains(t, stdout, "lateSeconds: 3600\n")
	})
	t.Run("of a Velero that is not known", func(t *testing.T) {
		status, _, stderr := ask("-n", "nosuch")
		assert.Equal(t, 1, status)
		assert.Contains(t, stderr, `the controller knows no Velero in namespace "nosuch"; it knows: velero, other`)
	})
	t.Run("who has no right is told which", func(t *testing.T) {
		_, _, stderr := kubectl("backups", "--kubeconfig", userFile(t, c, "stranger"))
		assert.Contains(t, stderr, "bind the ClusterRole plimsoll-viewer")
	})
	t.Run("a controller that is away is told apart", func(t *testing.T) {
		served.Close()
		status, _, stderr := ask()
		assert.Equal(t, 1, status)
		assert.Regexp(t, `no controller can be asked: error forwarding port \d+: .*connection refused\n$`, stderr)
	})
}
