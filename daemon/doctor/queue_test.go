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
	held := func(by string, ago time.Duration) *coordinationv1.Lease {
		at := metav1.NewMicroTime(now.Add(-ago))
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &by, RenewTime: &at, LeaseDurationSeconds: new(int32(15))}}
	}
	for name, c := range map[string]struct {
		args  []string
		lease *coordinationv1.Lease
		want  Result
		says  string
	}{
		"Velero itself":               {[]string{"server"}, nil, Pass, "Velero's own queue starts Backups, so backups.enabled must be false; it runs at most 1 Backup at a time with 1 worker each, 1 together"},
		"Velero, with a controller":   {[]string{"server", "--disable-controllers=gc"}, held("one", time.Second), Pass, "Velero's own queue"},
		"handed over":                 {[]string{"server", "--disable-controllers=gc,backup-queue", "--concurrent-backups=4", "--item-block-worker-count", "2"}, held("one", time.Second), Pass, "the plimsoll controller starts Backups, leader one; it runs at most 4 Backups at a time with 2 workers each, 8 together"},
		"no number":                   {[]string{"server", "--concurrent-backups=many"}, nil, Pass, "at most many Backups at a time with 1 worker each (--concurrent-backups"},
		"less than one counts as one": {[]string{"server", "--concurrent-backups=0", "--item-block-worker-count=3"}, nil, Pass, "with 3 workers each, 3 together"},
		"handed over in two words":    {[]string{"server", "--disable-controllers", "backup-queue"}, held("one", time.Second), Pass, "the plimsoll controller starts Backups"},
		"to nobody":                   {[]string{"server", "--disable-controllers=backup-queue"}, nil, Fail, "no Backup starts. Start the controller, or Velero's server without that flag"},
		"to one that is gone":         {[]string{"server", "--disable-controllers=backup-queue"}, held("one", 16*time.Second), Fail, "no plimsoll controller is leader"},
		"to one that gave it back":    {[]string{"server", "--disable-controllers=backup-queue"}, held("", time.Second), Fail, "no plimsoll controller is leader"},
		"and another later":           {[]string{"--disable-controllers=backup-queue", "--disable-controllers=gc"}, nil, Fail, "no Backup starts"},
	} {
		server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"}}
		server.Spec.Template.Spec.Containers = []corev1.Container{{Command: []string{"/velero"}, Args: c.args}}
		row := queueRow(server, c.lease, nil, now)
		assert.Equal(t, c.want, row.Result, name)
		assert.Contains(t, row.Finding, "velero/velero", name)
		assert.Contains(t, row.Finding, c.says, name)
	}
}

// The Lease may not be readable, and this machine's clock may differ from the API server's.
func TestDoctorBackupQueueLease(t *testing.T) {
	const ahead = 20 * time.Second // of this machine's clock
	server := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"}}
	server.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--disable-controllers=backup-queue"}}}
	for status, want := range map[int]struct {
		result Result
		says   string
	}{
		http.StatusOK:        {Pass, "the plimsoll controller starts Backups, leader one"},
		http.StatusNotFound:  {Fail, "no plimsoll controller is leader"},
		http.StatusForbidden: {Warn, "is not known: cannot read Lease plimsoll-system/plimsoll-controller: "},
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
		answer("/apis/coordination.k8s.io/v1/namespaces/plimsoll-system/leases/plimsoll-controller", status, coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			Spec:     coordinationv1.LeaseSpec{HolderIdentity: new("one"), RenewTime: &at, LeaseDurationSeconds: new(int32(15))},
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		rows := Examination{Cluster: &rest.Config{Host: s.URL}}.cluster(t.Context(), false)
		r := row(t, rows, "backup queue")
		assert.Equal(t, want.result, r.Result, r.Finding)
		assert.Contains(t, r.Finding, want.says)
	}
}
