package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"and taken back by the later": {[]string{"--disable-controllers=backup-queue", "--disable-controllers="}, nil, Pass, "Velero's own queue"},
	} {
		server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"}}
		server.Spec.Template.Spec.Containers = []corev1.Container{{Command: []string{"/velero"}, Args: c.args}}
		row := queueRow(server, c.lease, now)
		assert.Equal(t, c.want, row.Result, name)
		assert.Contains(t, row.Finding, "velero/velero", name)
		assert.Contains(t, row.Finding, c.says, name)
	}
}
