package doctor

import (
	"encoding/json"
	"errors"
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

	"github.com/plimsoll-dev/plimsoll/daemon/web"
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
	starts, disabled, ours := web.Backups{Leads: true, Enabled: true}, web.Backups{Leads: true}, web.Backups{Leads: true, Enabled: true, Veleros: []string{"velero"}}
	others := web.Backups{Leads: true, Enabled: true, Veleros: []string{"velero-dr"}}
	for name, c := range map[string]struct {
		args   []string
		leases []coordinationv1.Lease
		answer any // web.Backups or error
		want   Result
		says   string
	}{
		"Velero itself":               {[]string{"server"}, nil, nil, Pass, "Velero's own queue starts Backups, so backups.enabled must be false; it runs at most 1 Backup at a time with 1 worker each, 1 together"},
		"Velero, with a controller":   {[]string{"server", "--disable-controllers=gc"}, held("one", time.Second), disabled, Pass, "Velero's own queue"},
		"both":                        {[]string{"server"}, held("one", time.Second), starts, Fail, "two queues start them. Start Velero's server with that flag, or set backups.enabled: false"},
		"Velero, and others' queue":   {[]string{"server"}, held("one", time.Second), others, Pass, "Velero's own queue"},
		"Velero, and who knows":       {[]string{"server"}, held("one", time.Second), errors.New("no\nway"), Warn, "whether the plimsoll controller does too, as it must not (backups.enabled: false), is not known: no way; it runs"},
		"handed over":                 {[]string{"server", "--disable-controllers=gc,backup-queue", "--concurrent-backups=4", "--item-block-worker-count", "2"}, held("one", time.Second), starts, Pass, "the plimsoll controller starts Backups, leader one; it runs at most 4 Backups at a time with 2 workers each, 8 together"},
		"handed over, by name":        {handedOver, held("one", time.Second), ours, Pass, "the plimsoll controller starts Backups"},
		"no number":                   {[]string{"server", "--concurrent-backups=many"}, nil, nil, Pass, "at most many Backups at a time with 1 worker each (--concurrent-backups"},
		"less than one counts as one": {[]string{"server", "--concurrent-backups=0", "--item-block-worker-count=3"}, nil, nil, Pass, "with 3 workers each, 3 together"},
		"handed over in two words":    {[]string{"server", "--disable-controllers", "backup-queue"}, held("one", time.Second), starts, Pass, "the plimsoll controller starts Backups"},
		"to one that is disabled":     {handedOver, held("one", time.Second), disabled, Fail, "and the plimsoll controller does not start its Backups, leader one: no Backup starts. Set backups.enabled: true"},
		"to one of another Velero":    {handedOver, held("one", time.Second), others, Fail, "no Backup starts. Set backups.enabled: true"},
		"to one that does not answer": {handedOver, held("one", time.Second), errors.New("no way"), Warn, "whether the plimsoll controller starts its Backups, as it must (backups.enabled: true), is not known: no way; it runs"},
		"to one that stands by":       {handedOver, held("one", time.Second), web.Backups{Enabled: true}, Warn, "is not known: it is not the leader any more"},
		"to nobody":                   {handedOver, nil, nil, Fail, "no Backup starts. Start the controller, or Velero's server without that flag"},
		"to one that is gone":         {handedOver, held("one", 16*time.Second), nil, Fail, "no plimsoll controller is leader"},
		"to one that gave it back":    {handedOver, held("", time.Second), nil, Fail, "no plimsoll controller is leader"},
		"to one elsewhere":            {handedOver, append(held("one", time.Hour), heldIn("backup", "two", time.Second)), nil, Warn, "two holds Lease backup/plimsoll-controller, which is the controller's if it has election.namespace: backup; it runs at most"},
		"to ours, beside another":     {handedOver, append(held("one", time.Second), heldIn("backup", "two", time.Second)), starts, Pass, "leader one; "},
		"to ours, behind another":     {handedOver, append([]coordinationv1.Lease{heldIn("backup", "two", time.Second)}, held("one", time.Second)...), starts, Pass, "leader one; "},
		"to none elsewhere":           {handedOver, []coordinationv1.Lease{heldIn("backup", "two", time.Minute)}, nil, Fail, "no plimsoll controller is leader"},
		"and another later":           {[]string{"--disable-controllers=backup-queue", "--disable-controllers=gc"}, nil, nil, Fail, "no Backup starts"},
	} {
		server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"}}
		server.Spec.Template.Spec.Containers = []corev1.Container{{Command: []string{"/velero"}, Args: c.args}}
		l := leaderOf(c.leases, nil, now)
		switch answer := c.answer.(type) {
		case web.Backups:
			l.hear(answer, nil)
		case error:
			l.hear(web.Backups{}, answer)
		}
		row := queueRow(server, &l)
		assert.Equal(t, c.want, row.Result, name)
		assert.Contains(t, row.Finding, "velero/velero", name)
		assert.Contains(t, row.Finding, c.says, name)
	}
}

// The leader may not answer, the Leases may not be readable, and this machine's clock may differ from the API server's.
func TestDoctorBackupQueueLease(t *testing.T) {
	const ahead = 20 * time.Second // of this machine's clock
	server := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"}}
	server.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--disable-controllers=backup-queue"}}}
	for namespace, want := range map[string]struct {
		status int
		result Result
		says   string
	}{
		"plimsoll-system": {http.StatusOK, Warn, "is not known: no controller can be asked: "},
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
