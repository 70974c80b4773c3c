package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestDoctorBackupQueueOwner(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	heldIn := func(namespace, by string, ago time.Duration) coordinationv1.Lease {
		at := metav1.NewMicroTime(now.Add(-ago))
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &by, RenewTime: &at, LeaseDurationSeconds: new(int32(15))}}
	}
	held := func(by string, ago time.Duration) []coordinationv1.Lease {
		return []coordinationv1.Lease{heldIn("plimsoll-system", by, ago)}
	}
	handedOver := []string{"server", "--disable-controllers=backup-queue"}
	for name, c := range map[string]struct {
		args   []string
		leases []coordinationv1.Lease
		want   Result
		says   string
	}{
		"Velero itself":               {[]string{"server"}, nil, Pass, "Velero's own queue starts Backups, so backups.enabled must be false; it runs at most 1 Backup at a time with 1 worker each, 1 together"},
		"Velero, with a controller":   {[]string{"server", "--disable-controllers=gc"}, held("one", time.Second), Pass, "Velero's own queue"},
		"handed over":                 {[]string{"server", "--disable-controllers=gc,backup-queue", "--concurrent-backups=4", "--item-block-worker-count", "2"}, held("one", time.Second), Pass, "the plimsoll controller starts Backups, leader one; it runs at most 4 Backups at a time with 2 workers each, 8 together"},
		"no number":                   {[]string{"server", "--concurrent-backups=many"}, nil, Pass, "at most many Backups at a time with 1 worker each (--concurrent-backups"},
		"less than one counts as one": {[]string{"server", "--concurrent-backups=0", "--item-block-worker-count=3"}, nil, Pass, "with 3 workers each, 3 together"},
		"handed over in two words":    {[]string{"server", "--disable-controllers", "backup-queue"}, held("one", time.Second), Pass, "the plimsoll controller starts Backups"},
		"to nobody":                   {handedOver, nil, Fail, "no Backup starts. Start the controller, or Velero's server without that flag"},
		"to one that is gone":         {handedOver, held("one", 16*time.Second), Fail, "no plimsoll controller is leader"},
		"to one that gave it back":    {handedOver, held("", time.Second), Fail, "no plimsoll controller is leader"},
		"to one elsewhere":            {handedOver, append(held("one", time.Hour), heldIn("backup", "two", time.Second)), Warn, "two holds Lease backup/plimsoll-controller: the plimsoll controller starts Backups if it has election.namespace: backup, else nothing does; it runs at most"},
		"to ours, beside another":     {handedOver, append(held("one", time.Second), heldIn("backup", "two", time.Second)), Pass, "leader one; "},
		"to ours, behind another":     {handedOver, append([]coordinationv1.Lease{heldIn("backup", "two", time.Second)}, held("one", time.Second)...), Pass, "leader one; "},
		"to none elsewhere":           {handedOver, []coordinationv1.Lease{heldIn("backup", "two", time.Minute)}, Fail, "no plimsoll controller is leader"},
		"and another later":           {[]string{"--disable-controllers=backup-queue", "--disable-controllers=gc"}, nil, Fail, "no Backup starts"},
	} {
		server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"}}
		server.Spec.Template.Spec.Containers = []corev1.Container{{Command: []string{"/velero"}, Args: c.args}}
		row := queueRow(server, c.leases, nil, now)
		assert.Equal(t, c.want, row.Result, name)
		assert.Contains(t, row.Finding, "velero/velero", name)
		assert.Contains(t, row.Finding, c.says, name)
	}
}

// The Leases may not be readable, and this machine's clock may differ from the API server's.
func TestDoctorBackupQueueLease(t *testing.T) {
	const ahead = 20 * time.Second // of this machine's clock
	server := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"}}
	server.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--disable-controllers=backup-queue"}}}
	for namespace, want := range map[string]struct {
		status int
		result Result
		says   string
	}{
		"plimsoll-system": {http.StatusOK, Pass, "the plimsoll controller starts Backups, leader one"},
		"elsewhere":       {http.StatusOK, Warn, "one holds Lease elsewhere/plimsoll-controller"},
		"nowhere":         {http.StatusForbidden, Warn, "is not known: cannot list Leases plimsoll-controller: "},
	} {
		mux := http.NewServeMux()
		answer := func(path string, status int, body any) {
			mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Date", time.Now().Add(-ahead).UTC().Format(http.TimeFormat))
				w.WriteHeader(status)
				assert.NoError(t, json.NewEncoder(w).Encode(body))
			})
		}
		at := metav1.NewMicroTime(time.Now().Add(-ahead - time.Second))
		answer("/version", http.StatusOK, json.RawMessage(good))
		answer("/apis/apps/v1/deployments", http.StatusOK, appsv1.DeploymentList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"}, Items: []appsv1.Deployment{server}})
		answer("/apis/coordination.k8s.io/v1/leases", want.status, coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}, Items: []coordinationv1.Lease{{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plimsoll-controller"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("one"), RenewTime: &at, LeaseDurationSeconds: new(int32(15))},
		}}})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		rows := Examination{Cluster: &rest.Config{Host: s.URL}}.cluster(t.Context(), false)
		r := row(t, rows, "backup queue")
		assert.Equal(t, want.result, r.Result, r.Finding)
		assert.Contains(t, r.Finding, want.says)
	}
}
