package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/deploy"
	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

func controllerUsesExactlyItsRights(t *testing.T, c *cluster.Cluster) {
	f := newBackupWorld(t, c, "limit: 1", "shop")
	f.velero.Work = lasts(nil)
	f.runVelero()
	// An agent that never beats: its conditions are marked, its taints lifted.
	agents := newBeats(t, f.c, 2, "")
	silent, asks := agents.names[0], agents.names[1]
	agents.taint(silent)
	// Loads of another Velero, one of each kind.
	h := newVeleroWorld(t, f.c, 1, `{"loadConcurrency":{"globalConfig":4,"prepareQueueLength":4}}`, "")
	require.NoError(t, f.c.Apply(t.Context(), []byte(velero.Snapshots), []byte(nowhere(h.namespace))))
	for _, kind := range admission.Kinds() {
		h.load(kind, "one", "b", func(o map[string]any) {
			if kind == vgdp.DataUpload {
				o["spec"].(map[string]any)["csiSnapshot"] = map[string]any{"volumeSnapshot": "one", "storageClass": "disks", "snapshotClass": "disks"}
			}
		})
	}
	h.postpones("one")
	h.claim("one") // of the DataUpload's snapshot
	h.patch(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), h.namespace+"/one", `{"spec":{"volumeName":"none"}}`)
	configure := func(loads bool) {
		write(t, f.config, fmt.Sprintf("apiVersion: plimsoll.dev/v1alpha1\nkind: ControllerConfiguration\nvelero: [{namespace: %s}, {namespace: %s}]\n"+
			"election: {duration: %s}\nbackups: {enabled: true, resync: 1s, limit: 1, deadlines: {enabled: true}}\nagents: {monitorGracePeriod: 3s, taintRemovalDelay: 3s}\nvgdp: {enabled: %t, leaseDuration: %s, diagnoseAfter: 1s}\n", f.namespace, h.namespace, deadline.Scale(time.Second), loads, deadline.Scale(5*time.Second)))
	}
	configure(false)
	a := f.controller().start()
	eventually(t, "it has looked for loads that another one has left held", func() error {
		if used := usedBy(t, f.c, "plimsoll-controller"); used["list gates"] == 0 {
			return fmt.Errorf("used: %v", used)
		}
		return nil
	})
	configure(true)
	eventually(t, "the silent agent's taints are lifted", func() error {
		node, err := f.c.Client.CoreV1().Nodes().Get(t.Context(), silent, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return wanted(len(node.Spec.Taints), 0)
	})
	// A load that was accepted long ago, and is not prepared.
	eventually(t, "it has its ticket", func() error {
		if h.get(vgdp.DataUpload, "one").GetAnnotations()[gate.Admitted] == "" {
			return errors.New("none")
		}
		return nil
	})
	h.patch(admission.Resource(vgdp.DataUpload), h.namespace+"/one", `{"status":{"phase":"Accepted","acceptedTimestamp":"2026-03-01T12:00:00Z"}}`)
	// Another asks for an eviction, in a namespace that is no Velero's.
	agents.beat(asks)
	agents.answers(asks, agents.ask(asks, agents.deploy(metav1.NamespaceDefault, "web", asks)...))
	f.create("first", "shop")
	f.become(map[string]string{"first": "InProgress"})
	f.create("second", "shop")
	f.become(map[string]string{"second": "Queued 1"})
	f.said("second", "BackupQueued")
	// Who leads anew says again why each waits: the client joins the Events.
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGSTOP))
	standby := f.controller().start()
	eventually(t, "the other leads", func() error { return wanted(metric(standby, "plimsoll_leader"), "1") })
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "the first knows that it does not lead", func() error { return wanted(metric(a, "plimsoll_leader"), "0") })
	standby.end(syscall.SIGTERM)
	granted := grantedBy(t, deploy.ControllerRBAC)
	slices.Sort(granted)
	granted = slices.Compact(granted) // Leases of two namespaces
	within(t, patience, "every right is used", func() error {
		used := usedBy(t, f.c, "plimsoll-controller")
		for _, right := range granted {
			if used[right] == 0 {
				return fmt.Errorf("%s is granted and was not used; used: %v", right, used)
			}
		}
		return nil
	})
	used := usedBy(t, f.c, "plimsoll-controller")
	assert.ElementsMatch(t, granted, slices.Collect(maps.Keys(used)))
	t.Log(used)
}

// usedBy is what an account of ours did, and how often; whether or not it was
// allowed.
func usedBy(t *testing.T, c *cluster.Cluster, account string) map[string]int {
	t.Helper()
	events, err := c.AuditEvents()
	require.NoError(t, err)
	all := map[string]int{}
	for _, e := range events {
		if e.User != "system:serviceaccount:plimsoll-system:"+account || e.Resource == "" || e.Resource == "selfsubjectreviews" { // discovery, and who it is: each account may ask
			continue
		}
		right := e.Verb + " " + e.Resource
		if e.Subresource != "" {
			right += "/" + e.Subresource
		}
		all[right]++
	}
	return all
}

// nowhere is a snapshot that Velero would have made for a load.
func nowhere(namespace string) string {
	return `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":"one","namespace":"` + namespace + `"},"status":{"boundVolumeSnapshotContentName":"none"}}`
}
