package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/backup"
)

func TestExplainBackupQueuePlace(t *testing.T) {
	now := time.Date(2026, 3, 1, 2, 10, 0, 0, time.UTC)
	made := now.Add(-10 * time.Minute)
	in := backup.Input{
		Time: now, Config: backup.Config{Limit: 2}, Namespaces: backup.NewNamespaces([]string{"db", "shop", "web"}),
		Backups: []backup.Backup{
			{UID: "1", Name: "nightly", Phase: backup.InProgress, Created: made, Include: []string{"shop"}},
			{UID: "2", Name: "weekly", Phase: backup.Queued, Position: 1, Created: made, Include: []string{"shop", "db"}},
			{UID: "3", Name: "soon", Phase: backup.Queued, Position: 2, Created: made, Include: []string{"web"}},
			{UID: "4", Name: "mine", Phase: backup.Queued, Position: 3, Created: made, Include: []string{"db"}},
			{UID: "5", Name: "later", Phase: backup.Queued, Position: 4, Created: made},
		},
	}
	queue := backup.NewReport("velero", in, backup.Decide(in))
	told := func(name string, phase backup.Phase) string {
		o := &backup.Object{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}, Backup: backup.Backup{Phase: phase, Created: made}}
		var b strings.Builder
		require.NoError(t, WriteBackup(&b, backupOf(o, queue), now))
		return b.String()
	}
	assert.Equal(t, `velero/mine is Queued, at place 2 of 3, for 10m0s: shares namespace db with weekly, which waits ahead of it.

2 of 2 run in velero:
  -  nightly  InProgress  10m0s
  1  weekly   10m0s       shares namespace shop with nightly, which runs
  -  soon     10m0s       it starts now
  2  mine     10m0s       shares namespace db with weekly, which waits ahead of it
`, told("mine", backup.Queued))
	assert.Contains(t, told("soon", backup.Queued), "velero/soon is Queued, next, for 10m0s: it starts now.\n")
	assert.Equal(t, "velero/nightly is InProgress: it does not wait in the queue.\n", told("nightly", backup.InProgress))
	assert.NotContains(t, told("mine", backup.Queued), "later")
	queue.Waiting[3].Deadline = now
	assert.Contains(t, told("mine", backup.Queued), "the leader may have seen more of them, and its page has its own places.\n")
}

// A Backup that the controller should have started long ago does not start now.
func TestExplainBackupNotStarted(t *testing.T) {
	now := time.Date(2026, 3, 1, 2, 10, 0, 0, time.UTC)
	long := now.Add(-3 * time.Hour)
	const late = "it could start, and the controller has not started it: see `plimsoll doctor`"
	for name, tt := range map[string]struct {
		created, opens, wrote time.Time
		disabled              bool
		want                  string
	}{
		"created long ago":           {created: long, want: late},
		"just created":               {created: now.Add(-2 * time.Minute), want: "it starts now"},
		"its window has just opened": {created: long, opens: now.Add(-time.Minute), want: "it starts now"},
		"its window opened long ago": {created: long, opens: now.Add(-time.Hour), want: late},
		"it has just waited":         {created: long, wrote: now.Add(-time.Minute), want: "it starts now"},
		"the queue is disabled":      {created: now, disabled: true, want: "it could start, but this configuration starts no Backup (backups.enabled is false)"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &backup.Object{
				ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "mine"},
				Backup:     backup.Backup{UID: "1", Name: "mine", Phase: backup.Queued, Position: 1, Created: tt.created},
				Waiting:    backup.Waiting{Since: tt.wrote},
			}
			in := backup.Input{Time: now, Config: backup.Config{Limit: 1}, Namespaces: backup.NewNamespaces([]string{"db"}), Backups: []backup.Backup{o.Backup}}
			b := backupOf(o, backup.NewReport("velero", in, backup.Decide(in)))
			b.Queue.Waiting[0].Opens = tt.opens
			b.Disabled, b.NotStarted = tt.disabled, notStarted(b.Queue.Waiting, []*backup.Object{o}, time.Minute, now)
			var text strings.Builder
			require.NoError(t, WriteBackup(&text, b, now))
			assert.Equal(t, 2, strings.Count(text.String(), tt.want), "in its line and in its row: %s", text.String())
		})
	}
}
