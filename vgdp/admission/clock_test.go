package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/vgdp"
)

// serverPod is Velero's server as its own installer and OADP start it, made at a time.
func serverPod(name string, made time.Time, line string) string {
	return fmt.Sprintf("metadata: {name: %s, namespace: velero, creationTimestamp: %q}\nspec: {containers: [{name: sidecar, args: [x]}, {name: velero, %s}]}", name, made.Format(time.RFC3339), line)
}

// minio is the pod of Velero's example of an object store.
func minio(made time.Time) string {
	return fmt.Sprintf("metadata: {name: zminio, namespace: velero, creationTimestamp: %q}\nspec: {containers: [{name: minio, args: [server, /storage, --fs-backup-timeout=9h]}]}", made.Format(time.RFC3339))
}

// The clocks that Velero cancels loads by.
func TestLoadClocks(t *testing.T) {
	made := noon().Add(time.Hour)
	kinds := func(backup string) string {
		meta := fmt.Sprintf("namespace: velero, creationTimestamp: %q, labels: {velero.io/backup-name: %s, velero.io/restore-name: r}", made.Format(time.RFC3339), backup)
		var all []string
		for kind, version := range map[string]string{"DataUpload": "v2alpha1", "DataDownload": "v2alpha1", "PodVolumeBackup": "v1", "PodVolumeRestore": "v1"} {
			all = append(all, fmt.Sprintf("{apiVersion: velero.io/%s, kind: %s, metadata: {name: %s, uid: %s, %s}, spec: {node: n1}}", version, kind, kind, kind, meta))
		}
		return documents(all...)
	}
	backup := func(annotation, spec, status string) string {
		return fmt.Sprintf(`{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"b","namespace":"velero","annotations":{%s}},"spec":{%s},"status":{%s}}`, annotation, spec, status)
	}
	const short, started = `"velero.io/pod-volume-timeout":"90m"`, `"startTimestamp":"2026-03-01T12:00:00Z"`
	const server = `command: [/velero], args: [server, --uploader-type=kopia, --fs-backup-timeout=2h]`
	at := func(hour string) string { return "2026-03-01T" + hour + ":00:00Z" }
	for name, c := range map[string]struct {
		pods, backup                  string
		upload, podBackup, podRestore time.Duration
		clock                         string // of the PodVolumeBackup
	}{
		"Velero's own":                    {"", backup("", "", ""), 0, 4 * time.Hour, 4 * time.Hour, "Velero's 4h0m0s, counted from " + at("13")},
		"counted from the Backup's start": {"", backup("", "", started), 0, 3 * time.Hour, 4 * time.Hour, "Velero's 4h0m0s, counted from " + at("12")},
		"the server's":                    {serverPod("velero", noon(), server), backup("", "", started), 0, time.Hour, 2 * time.Hour, "--fs-backup-timeout 2h0m0s of Velero's server, counted from " + at("12")},
		"of the image's own command":      {serverPod("velero", noon(), `args: [server, --fs-backup-timeout, 3h]`), backup("", "", ""), 0, 3 * time.Hour, 3 * time.Hour, "--fs-backup-timeout 3h0m0s of Velero's server, counted from " + at("13")},
		"of the newest server": {
			documents(serverPod("old", noon(), `args: [server, --fs-backup-timeout=3h]`), serverPod("new", noon().Add(time.Hour), server)), backup("", "", ""),
			0, 2 * time.Hour, 2 * time.Hour, "--fs-backup-timeout 2h0m0s of Velero's server, counted from " + at("13"),
		},
		"of one of two servers made at once": {
			documents(serverPod("old", noon(), `args: [server, --fs-backup-timeout=3h]`), serverPod("young", noon(), server)), backup("", "", ""),
			0, 2 * time.Hour, 2 * time.Hour, "--fs-backup-timeout 2h0m0s of Velero's server, counted from " + at("13"),
		},
		"beside a newer server of another program": {
			documents(serverPod("velero", noon(), server), minio(noon().Add(time.Hour))), backup("", "", ""),
			0, 2 * time.Hour, 2 * time.Hour, "--fs-backup-timeout 2h0m0s of Velero's server, counted from " + at("13"),
		},
		"beside one of another program made at once": {
			documents(serverPod("velero", noon(), server), minio(noon())), backup("", "", ""),
			0, 2 * time.Hour, 2 * time.Hour, "--fs-backup-timeout 2h0m0s of Velero's server, counted from " + at("13"),
		},
		"another program's":                 {serverPod("job", noon(), `command: [/velero], args: [repo-maintenance, --fs-backup-timeout=3h]`), backup("", "", ""), 0, 4 * time.Hour, 4 * time.Hour, "Velero's 4h0m0s, counted from " + at("13")},
		"the Backup's":                      {serverPod("velero", noon(), server), backup(short, "", started), 0, 30 * time.Minute, 2 * time.Hour, "velero.io/pod-volume-timeout 1h30m0s of its Backup, counted from " + at("12")},
		"of the Backup, which is no time":   {serverPod("velero", noon(), server), backup(`"velero.io/pod-volume-timeout":"soon"`, "", ""), 0, 2 * time.Hour, 2 * time.Hour, "--fs-backup-timeout 2h0m0s of Velero's server, counted from " + at("13")},
		"over before the load was made":     {"", backup(`"velero.io/pod-volume-timeout":"1m"`, "", started), 0, time.Second, 4 * time.Hour, "velero.io/pod-volume-timeout 1m0s of its Backup, counted from " + at("12")},
		"itemOperationTimeout is another's": {"", backup(short, `"itemOperationTimeout":"10m"`, ""), 10 * time.Minute, 90 * time.Minute, 4 * time.Hour, "velero.io/pod-volume-timeout 1h30m0s of its Backup, counted from " + at("13")},
	} {
		t.Run(name, func(t *testing.T) {
			pods := documents(agentsOn("", "n1"))
			if c.pods != "" {
				pods = documents(pods, c.pods)
			}
			r, _ := placed(t, `{"loadConcurrency":{"prepareQueueLength":9}}`, nodesOf("n1"), pods, classYAML("c", immediate, ""))
			v := r.veleros["velero"]
			require.NoError(t, v.backups.Replace([]any{object(t, c.backup)}, ""))
			with(t, r, kinds("b"))
			_, loads, _ := look(t, r, made)
			assert.Equal(t, c.upload, loads["DataUpload"].Timeout)
			assert.Zero(t, loads["DataDownload"].Timeout, "that is in its Restore")
			assert.Equal(t, c.podBackup, loads["PodVolumeBackup"].Timeout)
			assert.Equal(t, c.podRestore, loads["PodVolumeRestore"].Timeout)
			assert.Equal(t, c.clock, loads["PodVolumeBackup"].Clock)
			assert.Equal(t, c.upload > 0, strings.HasPrefix(loads["DataUpload"].Clock, "itemOperationTimeout 10m0s of its Backup, counted from "))
		})
	}
}

// A PodVolumeBackup waits for pressure for a quarter of its own clock.
func TestPodVolumeClockHold(t *testing.T) {
	r, _ := placed(t, `{"loadConcurrency":{"prepareQueueLength":9}}`, nodesOf("n1"), documents(agentsOn("", "n1"), serverPod("velero", noon(), "args: [server, --fs-backup-timeout=20m]")), classYAML("c", immediate, ""))
	with(t, r, fmt.Sprintf("{apiVersion: velero.io/v1, kind: PodVolumeBackup, metadata: {name: x, uid: x, creationTimestamp: %q, annotations: {plimsoll.dev/waiting: '{\"pressureSince\":%q}'}}, spec: {node: n1, pod: {namespace: shop, name: gone}}}",
		noon().Format(time.RFC3339), noon().Format(time.RFC3339)))
	for after, goes := range map[time.Duration]bool{4 * time.Minute: false, 6 * time.Minute: true} {
		in, _, _ := look(t, r, noon().Add(after))
		in.Pressure = map[string]vgdp.Pressure{"n1": {HoldUntil: in.Time.Add(time.Minute), Why: "disk"}}
		assert.Equal(t, goes, len(vgdp.Decide(in).Admit) == 1, after)
	}
}
