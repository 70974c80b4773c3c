package pods

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

func asksFor(volume string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: new(""), VolumeName: volume,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}
}

// volume makes one for a claim, and returns its name. Without a claim it would be that of any
// claim that waits, such as one in the namespace of another test, which may not be gone yet.
func (l lab) volume(claim string, source corev1.PersistentVolumeSource, terms ...corev1.NodeSelectorTerm) string {
	l.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: l.namespace + "-" + claim}, Spec: corev1.PersistentVolumeSpec{
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: source,
		ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: l.namespace, Name: claim},
	}}
	if terms != nil {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	_, err := l.client.CoreV1().PersistentVolumes().Create(l.Context(), v, metav1.CreateOptions{})
	require.NoError(l, err)
	l.Cleanup(func() {
		ctx, stop := deadline.Context(context.Background(), patience)
		defer stop()
		assert.NoError(l, l.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{}))
	})
	return v.Name
}

// offered waits until the control plane has seen a volume.
func (l lab) offered(name string) {
	l.Helper()
	l.eventually("volume "+name+" is available", func() bool {
		v, err := l.client.CoreV1().PersistentVolumes().Get(l.Context(), name, metav1.GetOptions{})
		return err == nil && v.Status.Phase == corev1.VolumeAvailable
	})
}

func (l lab) claim(name, volume string) {
	l.Helper()
	_, err := l.client.CoreV1().PersistentVolumeClaims(l.namespace).Create(l.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: asksFor(volume),
	}, metav1.CreateOptions{})
	require.NoError(l, err)
}

// bound waits for the control plane to join a claim with its volume.
func (l lab) bound(name string) {
	l.Helper()
	l.eventually("claim "+name+" is bound", func() bool {
		c, err := l.client.CoreV1().PersistentVolumeClaims(l.namespace).Get(l.Context(), name, metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimBound
	})
}

// ofVolumes are a pod's protections but those that every bare pod has.
func (l lab) ofVolumes(w *Watcher, pod string) []Protection {
	l.Helper()
	var found []Protection
	for _, p := range l.seen(w, pod).Protections {
		if p.Code != NoController {
			found = append(found, p)
		}
	}
	return found
}

func TestClaimVolumeBindsPod(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	local := l.volume("local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/d1"}}, expr(host("In", "host-of-"+l.node)))
	nfs := l.volume("nfs", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}})
	dir := l.volume("dir", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/d"}})
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.org", VolumeHandle: "h"}}
	lvm := l.volume("lvm", csi, expr(where("topology.topolvm.io/node", "In", l.node)))
	zonal := l.volume("zonal", csi, expr(where(corev1.LabelTopologyZone, "In", "zone-a")))
	for name, volume := range map[string]string{"local": local, "nfs": nfs, "dir": dir, "lvm": lvm, "zonal": zonal} {
		l.claim(name, volume)
	}
	tmp := l.volume("with-ephemeral-tmp", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/d2"}}, expr(host("In", "host-of-"+l.node)))
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: asksFor(tmp)},
		}}}}
	}
	pods := map[string]string{"local": "local /mnt/d1", "nfs": "", "dir": "hostPath /tmp/d", "lvm": "topology.topolvm.io/node", "zonal": ""}
	for name := range pods {
		l.bind(podOf("with-"+name, claiming(name)))
		l.bound(name)
	}
	l.bind(podOf("with-ephemeral", ephemeral))
	l.bound("with-ephemeral-tmp")
	pods["ephemeral"] = "local /mnt/d2"
	for name := range pods {
		assert.Equal(t, []string{Unresolved}, codes(l.ofVolumes(w, "with-"+name)), "before anybody looked")
	}
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	for name, why := range pods {
		found := l.ofVolumes(w, "with-"+name)
		if why == "" {
			assert.Empty(t, found, name)
			continue
		}
		require.Equal(t, []string{OnlyHere}, codes(found), name)
		assert.Contains(t, found[0].Why, why)
	}
}

func TestClaimUnboundProtects(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	l.claim("data", "") // any volume would do, and there is none
	l.bind(podOf("db", claiming("data", "none")))
	l.seen(w, "db")
	require.Len(t, l.ofVolumes(w, "db"), 2, "before they were looked up")
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	found := l.ofVolumes(w, "db")
	require.Equal(t, []string{Unresolved}, codes(found), "a claim that is not there binds it to no node")
	assert.Contains(t, found[0].Why, `claim is not bound (phase "Pending")`)

	nfs := corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}}
	l.offered(l.volume("data", nfs))
	// The control plane looks at a waiting claim when it changes, else every 15 s.
	_, err := l.client.CoreV1().PersistentVolumeClaims(l.namespace).Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	l.offered(l.volume("none", nfs))
	l.claim("none", "")
	l.bound("data")
	l.bound("none")
	for key, claim := range w.claims { // a minute later
		claim.lookedUpAt = claim.lookedUpAt.Add(-resolveRetry)
		w.claims[key] = claim
	}
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	assert.Empty(t, l.ofVolumes(w, "db"))
	assert.Len(t, w.claims, 2, "one that was not there is asked for again")
	for key, claim := range w.claims {
		assert.True(t, claim.known, key.name)
	}
}

// The claim goes while its pod runs, for whoever may change it may take the
// finalizer off that keeps it, and one that is never bound takes its place.
func TestClaimReplacedUnderRunningPod(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	l.claim("data", l.volume("data", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}}))
	l.bind(podOf("db", claiming("data")))
	l.bound("data")
	_, err := l.client.CoreV1().Pods(l.namespace).Patch(t.Context(), "db", types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	claims := l.client.CoreV1().PersistentVolumeClaims(l.namespace)
	require.NoError(t, claims.Delete(t.Context(), "data", metav1.DeleteOptions{}))
	_, err = claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	l.claim("data", "")
	l.eventually("it runs", func() bool { p, _ := find(w, "db"); return p.Phase == "Running" })
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	assert.Empty(t, l.ofVolumes(w, "db"))
}

func TestClaimForbiddenProtects(t *testing.T) {
	l, c := shared(t)
	name := "agent-of-" + l.namespace
	user, err := c.User(name)
	require.NoError(t, err)
	l.allow(name, "pods", "list", "watch")
	w := l.watcher(user)
	l.claim("data", l.volume("data", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/p"}}))
	l.bind(podOf("db", claiming("data")))
	l.bound("data")
	l.seen(w, "db")
	for _, step := range []string{"persistentvolumeclaims", "persistentvolumes"} {
		l.eventually("refused to read "+step, func() bool {
			err := w.Resolve(t.Context(), everyPod(w))
			return assert.Error(t, err) && len(l.ofVolumes(w, "db")) == 1 && assert.ObjectsAreEqual(Unresolved, l.ofVolumes(w, "db")[0].Code) &&
				containsAll(l.ofVolumes(w, "db")[0].Why, step+` "`, "forbidden")
		})
		l.allow(name, step, "get")
	}
	l.eventually("allowed to read both", func() bool { return w.Resolve(t.Context(), everyPod(w)) == nil })
	assert.Empty(t, l.ofVolumes(w, "db"))
}

func TestClaimAskedOnceForgottenWithPod(t *testing.T) {
	l, c := shared(t)
	w := l.watcher(c.Admin)
	l.claim("data", l.volume("data", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/d"}}))
	l.bind(podOf("db", claiming("data")))
	l.bound("data")
	l.seen(w, "db")
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	asked := w.Claims
	w.Claims = nil // who asks now panics
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	assert.Equal(t, []string{OnlyHere}, codes(l.ofVolumes(w, "db")))
	w.Claims = asked

	// Under its name another pod is another pod.
	l.remove("db", 0)
	l.eventually("gone", func() bool { _, found := find(w, "db"); return !found })
	again := l.bind(podOf("db", claiming("data")))
	l.eventually("made again", func() bool { p, _ := find(w, "db"); return p.UID == string(again.UID) })
	assert.Equal(t, []string{Unresolved}, codes(l.ofVolumes(w, "db")))
	require.NoError(t, w.Resolve(t.Context(), everyPod(w)))
	assert.Equal(t, []string{OnlyHere}, codes(l.ofVolumes(w, "db")))
	assert.Len(t, w.claims, 1)
}

// allow grants a user verbs on a resource.
func (l lab) allow(user, what string, verbs ...string) {
	l.Helper()
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s", user, what)}
	roles := l.client.RbacV1()
	_, err := roles.ClusterRoles().Create(l.Context(), &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{what}, Verbs: verbs}},
	}, metav1.CreateOptions{})
	require.NoError(l, err)
	_, err = roles.ClusterRoleBindings().Create(l.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	require.NoError(l, err)
	l.Cleanup(func() {
		ctx, stop := deadline.Context(context.Background(), 10*time.Second)
		defer stop()
		assert.NoError(l, roles.ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}))
		assert.NoError(l, roles.ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{}))
	})
}

// Whoever makes pods chooses how many claims there are to remember.
func TestVolumeResolverBounded(t *testing.T) {
	var v VolumeResolver
	for i := range 3*maxFound + 1 {
		v.keep(claimKey{types.UID(fmt.Sprint("pod", i)), "shop", "data"}, claim{known: true})
		require.LessOrEqual(t, len(v.found), maxFound)
	}
	assert.Len(t, v.found, 1)
}
