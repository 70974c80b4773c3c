package e2e_test

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plimsoll-dev/plimsoll/backup"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/lease"
	"github.com/plimsoll-dev/plimsoll/names"
	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// A Backup runs, one of its uploads runs on a pressed node, and four wait for that. The next
// Backup of its Schedule waits for it.
func foreseenLoads(t *testing.T, c *cluster.Cluster) {
	h := newVeleroWorld(t, c, 1, `{"loadConcurrency":{"globalConfig":4,"prepareQueueLength":9}}`, "")
	write(t, h.config, fmt.Sprintf("apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: %s}]\n%s"+
		"backups: {enabled: true, resync: 1s, limit: 2, deadlines: {enabled: true}}\n", h.namespace, fmt.Sprintf(quickLoads, "enabled: true")))
	pressed, now := h.nodes[0], time.Now().UTC().Truncate(time.Second)
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	h.report(pressed, lease.NodeReport{Pressure: map[string]string{"disk": "hard"}, DataMoverBudget: new(1)})
	_, err := h.client.Resource(backup.ScheduleResource()).Namespace(h.namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": map[string]any{"name": "hourly", "annotations": map[string]any{names.RPO: "2h"}},
		"spec": map[string]any{"schedule": "0 * * * *", "template": map[string]any{"includedNamespaces": []any{h.namespace}}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	of := func(name string, status string) {
		h.backup(name, map[string]any{"velero.io/schedule-name": "hourly"}, map[string]any{"includedNamespaces": []any{h.namespace}})
		if status != "" {
			h.patch(velero.Resource(), h.namespace+"/"+name, `{"status":{`+status+`}}`)
		}
	}
	for i := range 23 { // ten minutes each, the newest an hour and a half ago
		began := -90*time.Minute - time.Duration(i)*time.Hour
		of(fmt.Sprint("ended-", i), fmt.Sprintf(`"phase":"Completed","startTimestamp":%q,"completionTimestamp":%q`, at(began), at(began+10*time.Minute)))
	}
	of("runs", fmt.Sprintf(`"phase":"InProgress","startTimestamp":%q`, at(-10*time.Minute)))
	of("waits", "")
	upload := func(i int, of string, status map[string]any) {
		h.load(vgdp.PodVolumeBackup, fmt.Sprintf("up-%d", i), of, func(o map[string]any) { o["status"] = status })
	}
	for i := range 3 {
		upload(i, "ended-0", map[string]any{
			"phase": "Completed", "acceptedTimestamp": at(-2 * time.Hour), "startTimestamp": at(-2 * time.Hour), "completionTimestamp": at(-90 * time.Minute),
			"progress": map[string]any{"totalBytes": int64(1 << 30), "bytesDone": int64(1 << 30)},
		})
	}
	upload(3, "runs", map[string]any{
		"phase": "InProgress", "acceptedTimestamp": at(-10 * time.Minute), "startTimestamp": at(-10 * time.Minute),
		"progress": map[string]any{"totalBytes": int64(3 << 30), "bytesDone": int64(1 << 30)},
	})
	for i := range 4 {
		upload(4+i, "runs", map[string]any{})
	}
	a := h.controller().start()
	foreseen := map[string]backup.Foreseen{}
	because := "node " + pressed + " is pressed and 3 uploads wait before it"
	took := within(t, 3*patience, "the forecast says why", func() error {
		var answer backupsAnswer
		require.NoError(t, json.Unmarshal([]byte(a.mustGet("/api/v1/backups")), &answer))
		for _, n := range answer.Nights {
			for _, b := range n.Backups {
				foreseen[b.Name] = b
			}
		}
		return wanted(foreseen["runs"].Because, because)
	})
	t.Logf("after %s: %+v", took.Round(time.Millisecond), foreseen)
	// The first of those that wait begins when the one that runs is done, and the others when
	// pressure has held them for half an hour.
	runs, waits := foreseen["runs"], foreseen["waits"]
	assert.WithinDuration(t, now.Add(60*time.Minute), runs.Ends, 5*time.Minute)
	assert.WithinDuration(t, now.Add(30*time.Minute), runs.Deadline, 0)
	assert.True(t, !runs.Earliest.After(runs.Ends) && runs.Latest.After(runs.Ends), "%v", runs)
	assert.Equal(t, runs.Ends, waits.Begins)
	assert.Zero(t, waits.LateSeconds, "its RPO counts from the one that runs")
	a.end(syscall.SIGTERM)
}
