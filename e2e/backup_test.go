package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func TestBackupQueueOverlap(t *testing.T) {
	t.Parallel()
	f := newBackupWorld(t, cluster.Shared(t, cluster.Options{}), "limit: 2", "shop", "web", "db")
	hold := make(chan struct{})
	f.velero.Work = lasts(hold)
	f.runVelero()
	f.configure("duration: 5s", "enabled: true, stuckAfter: 4s, limit: 2") // a term that ends has no report
	a := f.controller().start()
	f.create("first", "shop")
	f.become(map[string]string{"first": "InProgress"})
	f.create("second", "shop", "db")
	f.become(map[string]string{"second": "Queued 1"})
	f.create("third", "db")
	f.become(map[string]string{"third": "Queued 2"})
	f.create("fourth", "web")
	f.become(map[string]string{"fourth": "InProgress"})
	f.create("all")
	f.become(map[string]string{"first": "InProgress", "second": "Queued 1", "third": "Queued 2", "fourth": "InProgress", "all": "Queued 3"})

	second, third := f.get("second"), f.get("third")
	assert.Equal(t, backup.CodeRunning, second.Waiting.Reason)
	assert.Equal(t, "first", second.Waiting.BlockedBy)
	assert.Equal(t, []string{f.apps["shop"]}, second.Waiting.Namespaces)
	assert.Equal(t, backup.CodeAhead, third.Waiting.Reason)
	assert.Equal(t, "second", third.Waiting.BlockedBy)
	assert.Zero(t, f.get("first").Backup.Position)
	eventually(t, "who runs has no mark", func() error {
		if f.get("first").Annotated {
			return assert.AnError
		}
		return nil
	})
	eventually(t, "the round that wrote this is over", func() error {
		if q := queues(a).Queues; len(q) != 1 || q[0].Running != 2 || len(q[0].Waiting) != 3 {
			return fmt.Errorf("%+v", q)
		}
		return nil
	})
	assert.Equal(t, "3", metric(a, `plimsoll_backup_queue_length{velero="`+f.namespace+`"}`))
	assert.Equal(t, "2", metric(a, `plimsoll_backup_running{velero="`+f.namespace+`"}`))
	kubeconfig := f.c.Kubeconfig
	status, told, errs := run(t, "explain", "backup", "-n", f.namespace, "--kubeconfig", kubeconfig, "--config", f.config, "third")
	require.Zero(t, status, errs)
	assert.Contains(t, told, "third is Queued, at place 2 of 3, for ")
	assert.Contains(t, told, "shares namespace "+f.apps["db"]+" with second, which waits ahead of it")
	assert.NotContains(t, told, "all")
	status, _, errs = run(t, "explain", "backup", "-n", f.namespace, "--kubeconfig", kubeconfig, "nobody")
	assert.Equal(t, 1, status)
	assert.Equal(t, "plimsoll: explain: backup: "+f.namespace+"/nobody: no such backup\n", errs)
	page := a.mustGet("/")
	assert.Contains(t, page, "2 of 2 Backups running, 3 queued")
	assert.Contains(t, page, "with second, which waits ahead of it")
	close(hold)
	f.allEnd(patience)
	assert.Equal(t, 2, f.sound())
	assert.Regexp(t, `backup starts.*backup=\S+/second waited=`, a.stderr.String())
	assert.Regexp(t, `backup waits.*backup=\S+/second reason="it shares namespace \S+ with Backup first, which runs" code=running place=1 blockedBy=first namespaces=`+f.apps["shop"], a.stderr.String())
}
