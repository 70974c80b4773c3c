package e2e_test

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
	"github.com/plimsoll-dev/plimsoll/e2e/live"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/vgdp"
	"github.com/plimsoll-dev/plimsoll/vgdp/admission"
	"github.com/plimsoll-dev/plimsoll/vgdp/gate"
)

// snapshotClass is what Velero takes snapshots with.
const snapshotClass = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: disks, labels: {velero.io/csi-volumesnapshot-class: "true"}}
driver: stand-in
deletionPolicy: Retain
`

// disk is a volume of an application, of a CSI driver.
const disk = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAME-NAMESPACE}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  storageClassName: disks
  csi: {driver: stand-in, volumeHandle: NAME}
  claimRef: {namespace: NAMESPACE, name: NAME}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME, namespace: NAMESPACE}
spec: {accessModes: [ReadWriteOnce], storageClassName: disks, volumeName: NAME-NAMESPACE, resources: {requests: {storage: 1Gi}}}
`

// shop is an application that a real Velero backs up, whose uploads are real
// node-agents'. Its storage, snapshots and kubelets are stand-ins.
type shop struct {
	*veleroWorld
	server    *velero.Server
	namespace string
	dir       string // of the server
}

// disks of a shop, by their claims.
func disks() []string { return []string{"orders", "stock"} }

func newShop(t *testing.T, h *veleroWorld) *shop {
	t.Helper()
	s := &shop{veleroWorld: h, namespace: h.c.Namespace(t), dir: t.TempDir()}
	require.NoError(t, h.c.Apply(t.Context(), []byte(snapshotClass)))
	claims := h.c.Client.CoreV1().PersistentVolumeClaims(s.namespace)
	for _, name := range disks() {
		require.NoError(t, h.c.Apply(t.Context(), []byte(strings.NewReplacer("NAMESPACE", s.namespace, "NAME", name).Replace(disk))))
		_, err := claims.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	daemonSets := h.c.Client.AppsV1().DaemonSets(h.namespace)
	_, err := daemonSets.Patch(t.Context(), "node-agent", types.MergePatchType, []byte(`{"status":{"numberReady":1}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	ctx, end := context.WithCancel(contextWithoutCancel(t))
	ended := make(chan error, 1)
	go func() { ended <- velero.StandInSnapshots(ctx, h.client, s.namespace) }()
	t.Cleanup(func() { end(); assert.NoError(t, <-ended) })
	s.server, err = velero.NewServer(t.Context(), h.c, h.namespace, s.dir,
		"--features=EnableCSI", "--item-operation-sync-frequency=1s", "--item-block-worker-count=2", "--disable-controllers=backup-queue")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Velero said last:\n%s", s.server.Tail())
		}
		require.NoError(t, s.server.Kill())
		require.NoError(t, s.server.Store.Kill())
	})
	return s
}

// slots that there are from now on, as the controller knows; the load that stands
// has one of them.
func (s *shop) slots(a *agent, n int) {
	s.t.Helper()
	s.configMap(fmt.Sprintf(`{"loadConcurrency":{"globalConfig":4,"prepareQueueLength":%d}}`, n))
	eventually(s.t, "the controller knows the slots", func() error {
		if all := loadsOf(a).Veleros; len(all) == 0 || all[0].PrepareLimit != n {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// stands: a load that cannot be prepared has a slot from now on.
func (s *shop) stands() {
	t := s.t
	t.Helper()
	s.storage.Keep(true)
	s.moves(vgdp.DataUpload, "stands")
	within(t, 2*patience, "it is accepted and goes no further", func() error {
		pod, err := s.c.Client.CoreV1().Pods(s.veleroWorld.namespace).Get(t.Context(), "stands", metav1.GetOptions{})
		if err == nil && len(pod.Status.Conditions) == 0 {
			err = errors.New("nobody has tried to find a node for its pod")
		}
		return err
	})
	s.storage.Keep(false)
}

// held is a Backup whose uploads all come to be hidden.
func (s *shop) held(name string, spec map[string]any) {
	t := s.t
	t.Helper()
	spec["includedNamespaces"], spec["snapshotMoveData"] = []any{s.namespace}, true
	s.veleroWorld.backup(name, nil, spec)
	s.patch(velero.Resource(), s.veleroWorld.namespace+"/"+name, `{"status":{"phase":"ReadyToStart"}}`)
	within(t, 4*patience, "its uploads are hidden", func() error {
		hidden := map[string]bool{}
		for _, e := range s.history() {
			if e.Load.Hidden && strings.HasPrefix(e.Load.Name, name+"-") {
				hidden[e.Load.UID] = true
			}
		}
		return wanted(len(hidden), len(disks()))
	})
}

func (s *shop) uploads(backup string) (list []*unstructured.Unstructured) {
	s.t.Helper()
	all, err := s.client.Resource(admission.Resource(vgdp.DataUpload)).Namespace(s.veleroWorld.namespace).List(s.t.Context(), metav1.ListOptions{
		LabelSelector: labels.Set{"velero.io/backup-name": backup}.String(),
	})
	require.NoError(s.t, err)
	for i := range all.Items {
		list = append(list, &all.Items[i])
	}
	return list
}

// ends waits until a Backup does.
func (s *shop) ends(backup, phase string) {
	s.t.Helper()
	within(s.t, 4*patience, backup+" ends", func() error {
		u, err := s.client.Resource(velero.Resource()).Namespace(s.veleroWorld.namespace).Get(s.t.Context(), backup, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return wanted(text(u, "status", "phase"), phase)
	})
}

// object of a Backup in the store, unzipped.
func (s *shop) object(backup, name string) io.Reader {
	s.t.Helper()
	f, err := os.Open(filepath.Join(s.dir, velero.Bucket, "backups", backup, backup+name))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, f.Close()) })
	unzipped, err := gzip.NewReader(f)
	require.NoError(s.t, err)
	return unzipped
}

// archived are the DataUploads in the tarball of a Backup.
func (s *shop) archived(backup string) (list []*unstructured.Unstructured) {
	s.t.Helper()
	archive := tar.NewReader(s.object(backup, ".tar.gz"))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(s.t, err)
		if !strings.HasPrefix(header.Name, "resources/datauploads.velero.io/") {
			continue
		}
		raw, err := io.ReadAll(archive)
		require.NoError(s.t, err)
		u := &unstructured.Unstructured{}
		require.NoError(s.t, u.UnmarshalJSON(raw))
		s.t.Logf("%s: data mover %q, %s, annotations %v", header.Name, text(u, "spec", "datamover"), text(u, "status", "phase"), u.GetAnnotations())
		list = append(list, u)
	}
}

// names: the DataUploads of a Backup's tarball name that mover, as the Backup did,
// and nothing that hides them.
func (s *shop) names(backup, mover string, phases ...string) {
	t := s.t
	t.Helper()
	all := s.archived(backup)
	assert.Len(t, all, 2*len(disks()), "each by its version and by that which is preferred")
	for _, u := range all {
		assert.Equal(t, mover, text(u, "spec", "datamover"))
		assert.NotContains(t, u.GetAnnotations(), gate.OriginalDataMover)
		assert.Contains(t, phases, cmp.Or(text(u, "status", "phase"), string(vgdp.New)))
	}
	var volumes []struct {
		PVCName                  string
		SnapshotDataMovementInfo struct{ DataMover string }
	}
	require.NoError(t, json.NewDecoder(s.object(backup, "-volumeinfo.json.gz")).Decode(&volumes))
	assert.Len(t, volumes, len(disks()))
	for _, v := range volumes {
		t.Logf("volume info of %s: data mover %s", v.PVCName, v.SnapshotDataMovementInfo.DataMover)
		assert.Contains(t, []string{gate.HiddenMover, cmp.Or(mover, "velero")}, v.SnapshotDataMovementInfo.DataMover)
	}
}

// What Velero's own server writes into the object store of a Backup whose uploads
// waited for their turn, and were hidden until then. The test is in the place of
// Velero's queue of Backups, which may look at one only a minute later.
func TestBackupOfHiddenUploadsNamesMover(t *testing.T) {
	t.Parallel()
	live.Long(t, "a whole Velero, beside that of another test")
	settings := fmt.Sprintf(", leaseDuration: %s, hideAbove: 0", deadline.Scale(10*time.Second))
	h := newRealVeleroWorld(t, 1, `{"loadConcurrency":{"globalConfig":4}}`, settings)
	a := h.controller().start()
	s := newShop(t, h)
	h.see()
	s.slots(a, 1) // the node-agent does not know, else it would look at each again after 5 s
	h.holds()
	s.stands()

	// One that Velero cancels while it is hidden is canceled, and nobody else's is.
	s.held("ticket", map[string]any{"datamover": "velero"})
	s.held("timeout", map[string]any{"itemOperationTimeout": "6s"})
	began := time.Now()
	s.ends("timeout", "PartiallyFailed")
	eventually(t, "its uploads are canceled", func() error {
		for _, u := range s.uploads("timeout") {
			if err := wanted(text(u, "status", "phase"), "Canceled"); err != nil {
				return fmt.Errorf("%s, data mover %q: %w", u.GetName(), text(u, "spec", "datamover"), err)
			}
		}
		return nil
	})
	t.Logf("canceled %s after they were hidden", time.Since(began).Round(10*time.Millisecond))
	s.names("timeout", "", string(vgdp.New), "Canceled")

	// Those of the other are let go by tickets.
	for _, u := range s.uploads("ticket") {
		assert.Equal(t, gate.HiddenMover, text(u, "spec", "datamover"))
	}
	s.slots(a, 2+len(disks())) // one of them is kept for restores
	eventually(t, "its uploads are accepted", func() error {
		for _, u := range s.uploads("ticket") {
			if text(u, "status", "phase") == "" {
				return fmt.Errorf("%s, data mover %q", u.GetName(), text(u, "spec", "datamover"))
			}
		}
		return nil
	})
	s.slots(a, 1)
	s.ends("ticket", "Completed")
	s.names("ticket", "velero", string(vgdp.Completed))

	// Others are handed back, for the controller is not to hold any more.
	s.held("handed-back", map[string]any{})
	h.configure("enabled: false")
	s.ends("handed-back", "Completed")
	s.names("handed-back", "", string(vgdp.Completed))

	// All of ours is deleted at once, and what was hidden is released then.
	h.configure("enabled: true" + settings)
	h.holds()
	s.held("released", map[string]any{})
	require.NoError(t, a.cmd.Process.Kill())
	<-a.ended
	for _, kind := range []string{"validating", "mutating"} {
		for _, what := range []string{"policybindings", "policies"} {
			of := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: kind + "admission" + what}
			require.NoError(t, h.client.Resource(of).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		}
	}
	h.remove("apiextensions.k8s.io", "v1", "customresourcedefinitions", "gates.plimsoll.dev")
	status, said, stderr := run(t, "release", "--kubeconfig", h.c.Kubeconfig)
	require.Zero(t, status, stderr)
	assert.Equal(t, len(disks()), strings.Count(said, ": released\n"), said)
	s.ends("released", "Completed")
	s.names("released", "", string(vgdp.Completed))
}
