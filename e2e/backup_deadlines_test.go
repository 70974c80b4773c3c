package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/e2e/clock"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/names"
)

// schedule of an application, which creates nothing here: no Velero runs its cron.
func (f *backupWorld) schedule(name, cron string, annotations map[string]any) {
	f.t.Helper()
	_, err := f.client.Resource(backup.ScheduleResource()).Namespace(f.namespace).Create(f.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": map[string]any{"name": name, "annotations": annotations},
		"spec": map[string]any{"schedule": cron, "template": map[string]any{"includedNamespaces": []any{f.apps[name]}}},
	}}, metav1.CreateOptions{})
	require.NoError(f.t, err)
}

// of lets a Backup be a schedule's, with the annotations that Velero copies.
func (f *backupWorld) of(backup, schedule string) {
	f.t.Helper()
	_, err := f.backups().Patch(f.t.Context(), backup, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"velero.io/schedule-name":%q}}}`, schedule), metav1.PatchOptions{})
	require.NoError(f.t, err)
}

// ended is a good Backup of a schedule, as Velero left it then.
func (f *backupWorld) ended(schedule string, started time.Time, took time.Duration) {
	f.t.Helper()
	started = started.UTC().Truncate(time.Second)
	_, err := f.backups().Create(f.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "Backup",
		"metadata": map[string]any{"name": schedule + "-" + started.Format("20060102150405"), "labels": map[string]any{"velero.io/schedule-name": schedule}},
		"spec":     map[string]any{"includedNamespaces": []any{f.apps[schedule]}},
		"status": map[string]any{
			"phase": string(backup.Completed), "startTimestamp": started.Format(time.RFC3339), "completionTimestamp": started.Add(took).Format(time.RFC3339),
		},
	}}, metav1.CreateOptions{})
	require.NoError(f.t, err)
}

func TestBackupDeadlines(t *testing.T) {
	t.Parallel()
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 1, deadlines: {enabled: true}", "busy", "late", "early", "night", "plain")
	hold := make(chan struct{})
	f.velero.Work = lasts(hold)
	f.runVelero()
	first := f.controller()
	first.settable = clock.Supported
	a := first.start()
	f.create("runs", "busy")
	f.become(map[string]string{"runs": "InProgress"})

	opens := time.Now().UTC().Add(3 * time.Hour)
	f.schedule("late", "0 * * * *", map[string]any{names.RPO: "5h"})
	f.schedule("early", "0 * * * *", map[string]any{names.RPO: "3h"})
	f.schedule("night", "0 * * * *", map[string]any{names.Window: fmt.Sprintf("%s-%s UTC", opens.Format("15:04"), opens.Add(2*time.Hour).Format("15:04")), names.RPO: "soon"})
	for _, name := range []string{"plain", "night", "late", "early"} {
		f.create(name+"-1", name)
		if name != "plain" {
			f.of(name+"-1", name)
		}
	}
	ordered := func(want ...string) {
		t.Helper()
		phases := map[string]string{"runs": "InProgress"}
		for i, name := range want {
			phases[name] = fmt.Sprintf("Queued %d", i+1)
		}
		f.become(phases)
	}
	ordered("early-1", "late-1", "plain-1", "night-1")
	assert.Contains(t, f.said("night", backup.ReasonInvalidObjective), `annotation plimsoll.dev/rpo: want a duration from 1m to 8784h such as 36h, got "soon"; using the default, none`)

	status, told, errs := run(t, "explain", "backup", "-n", f.namespace, "--kubeconfig", f.c.Kubeconfig, "--config", f.config, "early-1")
	require.Zero(t, status, errs)
	assert.Contains(t, told, "Objective: RPO 3h.\nIt is to be complete by ")
	assert.Contains(t, told, "How long it takes is not known: no Backup of its schedule has ended yet.\n")
	_, told, _ = run(t, "explain", "backup", "-n", f.namespace, "--kubeconfig", f.c.Kubeconfig, "--config", f.config, "night-1")
	assert.Contains(t, told, "its backup window opens at "+opens.Truncate(time.Minute).Format(time.RFC3339))

	// A Schedule is edited while its Backup waits.
	edit := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"2h"}}}`, names.RPO)
	_, err := f.client.Resource(backup.ScheduleResource()).Namespace(f.namespace).Patch(t.Context(), "late", types.MergePatchType, edit, metav1.PatchOptions{})
	require.NoError(t, err)
	ordered("late-1", "early-1", "plain-1", "night-1")

	// A clock that is set, and set right again, loses nothing.
	if a.clock != nil {
		require.NoError(t, a.clock.Set(4*time.Hour))
		f.become(map[string]string{"night-1": "Queued 1"}) // its window is open by that clock, and no RPO can be kept
		require.NoError(t, a.clock.Set(-4*time.Hour))
		ordered("late-1", "early-1", "plain-1", "night-1")
		require.NoError(t, a.clock.Set(0))
		ordered("late-1", "early-1", "plain-1", "night-1")
	}

	// Another leader knows the same.
	a.end(syscall.SIGKILL)
	a = f.controller().start()
	var q []backup.Report
	eventually(t, "it leads", func() error {
		q = queues(a).Queues
		return wanted(len(q), 1)
	})
	var order []string
	for _, w := range q[0].Waiting {
		order = append(order, w.Name)
	}
	assert.Equal(t, []string{"late-1", "early-1", "plain-1", "night-1"}, order)
	assert.WithinDuration(t, f.get("late-1").Backup.Created.Add(2*time.Hour), q[0].Waiting[0].Deadline, 0)

	close(hold)
	f.become(map[string]string{"runs": "Completed", "late-1": "Completed", "early-1": "Completed", "plain-1": "Completed", "night-1": "Queued 1"})
	var began []string
	for _, r := range f.velero.Runs() {
		began = append(began, r.Name)
	}
	assert.Equal(t, []string{"runs", "late-1", "early-1", "plain-1"}, began)

	// Without deadlines the window does not hold it.
	f.configure("duration: 1s", "enabled: true, stuckAfter: 4s, limit: 1")
	f.become(map[string]string{"night-1": "Completed"})
}
