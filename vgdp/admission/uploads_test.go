package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/uploads"
)

// volumeBackup is a PodVolumeBackup of a Backup on a node, created so many minutes ago.
func volumeBackup(name, backup, node string, minutes int, status string) string {
	return fmt.Sprintf(`{apiVersion: velero.io/v1, kind: PodVolumeBackup, metadata: {name: %[1]s, uid: %[1]s, creationTimestamp: %[4]q, labels: {velero.io/backup-name: %[2]s}},
spec: {node: %[3]s, volume: data, pod: {namespace: shop, name: %[1]s}}, status: {%[5]s}}`, name, backup, node, noon().Add(-time.Duration(minutes)*time.Minute).Format(time.RFC3339), status)
}

func TestUploads(t *testing.T) {
	times := func(accepted, started, completed time.Duration) string {
		at := func(d time.Duration) string { return noon().Add(d).Format(time.RFC3339) }
		return fmt.Sprintf("acceptedTimestamp: %q, startTimestamp: %q, completionTimestamp: %q, ", at(accepted), at(started), at(completed))
	}
	r, _ := placed(t, `{"loadConcurrency":{"globalConfig":4,"prepareQueueLength":9}}`, nodesOf("n1", "n7"), agentsOn("", "n1", "n7"), classYAML("c", immediate, ""))
	with(t, r, documents(
		volumeBackup("ended", "old", "n7", 300, times(-5*time.Hour, -4*time.Hour, -3*time.Hour)+"phase: Completed, progress: {totalBytes: 100, bytesDone: 100}, incrementalBytes: 30"),
		volumeBackup("failed", "old", "n7", 300, times(-5*time.Hour, -4*time.Hour, -3*time.Hour)+"phase: Failed, progress: {totalBytes: -7}"),
		volumeBackup("runs", "night", "n7", 50, fmt.Sprintf("phase: InProgress, acceptedTimestamp: %[1]q, startTimestamp: %[1]q, progress: {totalBytes: 9223372036854775807, bytesDone: 4}", noon().Add(-time.Hour).Format(time.RFC3339))),
		volumeBackup("prepares", "night", "n1", 40, fmt.Sprintf("phase: Accepted, acceptedTimestamp: %q", noon().Add(-time.Minute).Format(time.RFC3339))),
		volumeBackup("waits-2", "night", "n7", 20, ""),
		volumeBackup("waits-1", "night", "n7", 30, ""),
		volumeBackup("goes", "night", "n1", 10, ""),
		volumeBackup("lost", "night", "n9", 5, ""),
	))
	require.NoError(t, r.veleros["velero"].backups.Replace(nil, ""))
	in, _, _ := look(t, r, noon())
	in.Time = noon()
	in.Pressure = map[string]vgdp.Pressure{"n7": {Budget: new(1), Why: "disk hard"}}
	o := &observation{Input: in, objects: map[string]*Object{}}
	for _, load := range r.veleros["velero"].loads[vgdp.PodVolumeBackup].List() {
		o.objects[string(load.UID)] = load
	}
	for i := range o.Loads { // their pods are known
		o.Loads[i].NotReady = ""
	}
	d := vgdp.Decide(o.Input)

	assert.Nil(t, r.Uploads("velero"), "none are kept before they are asked for")
	r.forecast.forget()
	r.forecast.refresh(o, &d, r.veleros)
	s := r.Uploads("velero")
	require.NotNil(t, s)
	assert.Nil(t, r.Uploads("other"))
	assert.Equal(t, map[string]uploads.Node{"n1": {Places: 4, Allowed: 4}, "n7": {Places: 4, Allowed: 1, Pressed: true}}, s.Nodes)
	assert.Equal(t, 9, s.Slots)
	assert.Equal(t, map[string]uploads.Size{"old": {Total: 100, New: 30}, "night": {Total: 1 << 60, Open: 6, Unknown: 5}}, s.Sizes)
	pod := func(name string) uploads.Volume {
		return uploads.Volume{Kind: vgdp.PodVolumeBackup, Namespace: "shop", Name: name, Volume: "data"}
	}
	assert.Equal(t, []uploads.Ended{{Volume: pod("ended"), Accepted: noon().Add(-5 * time.Hour), Started: noon().Add(-4 * time.Hour), Completed: noon().Add(-3 * time.Hour)}}, s.Ended)
	load := func(name string, minutes int, nodes ...string) uploads.Load {
		created := noon().Add(-time.Duration(minutes) * time.Minute)
		return uploads.Load{Volume: pod(name), Backup: "night", Nodes: nodes, HeldUntil: noon().Add(30 * time.Minute), Cancelled: created.Add(4 * time.Hour)}
	}
	runs, prepares, goes := load("runs", 50, "n7"), load("prepares", 40, "n1"), load("goes", 10, "n1")
	runs.Stage, runs.Since, runs.Done, runs.Total = uploads.Runs, noon().Add(-time.Hour), 4, 1<<63-1
	prepares.Stage, prepares.Since, goes.Stage = uploads.Prepares, noon().Add(-time.Minute), uploads.Prepares
	first, second, lost := load("waits-1", 30, "n7"), load("waits-2", 20, "n7"), load("lost", 5)
	first.Code, second.Code, lost.Code = vgdp.CodePressure, vgdp.CodePressure, vgdp.CodeUnschedulable
	loads := slices.Clone(s.Loads)
	for i := range loads {
		loads[i].Cancelled = loads[i].Cancelled.UTC()
	}
	assert.Equal(t, []uploads.Load{runs, prepares, goes, first, second, lost}, loads)

	r.forecast.refresh(o, &d, r.veleros)
	assert.Same(t, s, r.Uploads("velero"), "it is new enough")
	o.Time = noon().Add(refreshEvery)
	r.forecast.refresh(o, &d, r.veleros)
	assert.NotSame(t, s, r.Uploads("velero"))
	r.forecast.asked.Store(new(time.Now().Add(-2 * keptFor)))
	r.forecast.refresh(o, &d, r.veleros)
	assert.Nil(t, r.forecast.states.Load(), "nothing asks for them any more")
}
