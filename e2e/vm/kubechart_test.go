package vm_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/e2e/chart"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// serviceIP is the API server's address in the cluster, which pods are told. The
// node has no kube-proxy: it has the address itself, and systemd's own proxy
// hands what comes there to the host.
const serviceIP = "10.96.0.1"

// helmTime is how long Helm may wait on an idle machine: many times what it takes.
const helmTime = 5 * time.Minute

// imageVersion is that of the image which the node has.
const imageVersion = "v0.0.0-vm"

// charted is a node that the chart is installed on, by a helm on the host.
type charted struct {
	*kubeNode
	helm   chart.Helm
	loads  dynamic.ResourceInterface
	before struct {
		objects map[string]schema.GroupVersionResource
		files   []string
	}
}

// theChart installs the release by its default values, but for what a test has no
// time for, lets it act, and takes it away. Nobody stands in for the kubelet.
func theChart(shared *kubeNode) func(*testing.T) {
	return func(t *testing.T) {
		if !long() {
			t.Skip("some minutes of an emulated machine: make e2e")
		}
		k := &charted{kubeNode: shared.with(t), helm: chart.NewHelm(t, shared.cluster.Kubeconfig)}
		k.prepare()
		k.install()
		k.looksAround()
		k.reachesRuntime()
		k.holdsLoads()
		k.observes()
		k.onlyReports()
		k.evicts()
		k.slowsDown()
		k.fill()
		k.stage("the Node is marked")
		k.uninstall()
		k.leavesNothing()
	}
}

// reachAPIServer by its address in the cluster.
func (k *kubeNode) reachAPIServer() {
	k.t.Helper()
	k.run("ip address add " + serviceIP + "/32 dev lo && systemd-run -q --unit=kubernetes --socket-property=ListenStream=" + serviceIP + ":443 " +
		"/lib/systemd/systemd-socket-proxyd " + apiServerHost + ":" + apiServerPort)
}

// prepare what is there before a Plimsoll is: a Velero with a load that may go on
// at a time, whose node-agent is a pod that waits.
func (k *charted) prepare() {
	k.t.Helper()
	k.reachAPIServer()
	require.NoError(k.t, k.cluster.Apply(k.t.Context(), velero.Backups, velero.DataUploads, velero.DataDownloads, velero.PodVolumeBackups, velero.PodVolumeRestores))
	client, err := dynamic.NewForConfig(k.cluster.Admin)
	require.NoError(k.t, err)
	k.loads = client.Resource(schema.GroupVersionResource{Group: "velero.io", Version: "v2alpha1", Resource: "datauploads"}).Namespace("velero")
	for _, kind := range []dynamic.ResourceInterface{k.loads, client.Resource(velero.Resource())} {
		k.until(time.Minute, "Velero's kinds are served", func() bool {
			_, err := kind.List(k.t.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
	k.until(time.Minute, "the kubelet has its Lease", func() bool {
		_, err := k.cluster.Client.CoordinationV1().Leases("kube-node-lease").Get(k.t.Context(), nodeName, metav1.GetOptions{})
		return err == nil
	})
	k.before.objects = chart.All(k.t, k.cluster.Admin)
	k.before.files = k.files()
	require.NoError(k.t, k.cluster.Apply(k.t.Context(), []byte(`
{apiVersion: v1, kind: Namespace, metadata: {name: velero}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: node-agents, namespace: velero}
data: {config: '{"loadConcurrency":{"prepareQueueLength":1}}'}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: waits, namespace: velero}}
---
apiVersion: v1
kind: Pod
metadata: {name: node-agent, namespace: velero, labels: {role: node-agent}}
spec:
  serviceAccountName: waits
  containers:
    - {name: node-agent, image: "`+imageOf("pause")+`", imagePullPolicy: Never, args: [node-agent, server, --node-agent-configmap=node-agents]}
`)))
	k.stage("prepared")
}

// quickly are values for a test that does not wait for minutes.
func quickly() []string {
	return []string{
		"--set", "image.tag=" + imageVersion,
		"--set-json", `agent.config.plugins={"warmUp": "0s", "rssOveruse": {"enabled": true, "for": "5s", "clearFor": "1s"}, "rootfsOveruse": {"enabled": true}, "filesystem": {"minSize": 0, "for": "3s"},
			"diskContention": {"for": "3s", "ceilings": [{"device": "vdb", "iops": 12}]}}`,
		"--set-json", `agent.config.filesystems={"mounts": ["/srv/full"], "every": "1s"}`,
		"--set-json", `agent.config.eviction={"dryRun": true, "via": "controller", "reportOnly": "0s", "limits": {"perMinute": 60, "perOwnerHour": 3600}}`,
		"--set", "controller.config.vgdp.enabled=true",
		"--wait",
	}
}

// install until the kubelet's probes say that all is ready.
func (k *charted) install() {
	k.t.Helper()
	k.t.Cleanup(func() {
		if k.t.Failed() {
			k.t.Logf("what pods of ours said:\n%s", k.run("tail -n 15 /var/log/pods/plimsoll-system_*/*/*.log || true"))
		}
	})
	k.helm.Wait(helmTime, append([]string{"install", "plimsoll", chart.Dir, "--create-namespace"}, quickly()...)...)
	k.stage("installed, and all is ready")
	assert.Len(k.t, k.ours("controller"), 2)
	var first time.Time
	k.until(30*time.Second, "the agent's heartbeat goes on", func() bool {
		l, err := k.cluster.Client.CoordinationV1().Leases("plimsoll-node-lease").Get(k.t.Context(), nodeName, metav1.GetOptions{})
		require.NoError(k.t, err)
		if first.IsZero() {
			first = l.Spec.RenewTime.Time
		}
		return l.Spec.RenewTime.After(first)
	})
	k.stage("its heartbeat is renewed")
	k.helm.Wait(helmTime, "test", "plimsoll")
	k.stage("helm test passes")
}

// ours are the pods of a component, each of which has been ready from its first
// start on.
func (k *charted) ours(component string) []corev1.Pod {
	k.t.Helper()
	list, err := k.cluster.Client.CoreV1().Pods(chart.Namespace).List(k.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
	require.NoError(k.t, err)
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			assert.True(k.t, c.Ready, p.Name)
			assert.Zero(k.t, c.RestartCount, p.Name)
		}
	}
	return list.Items
}

// agent is the one pod of the DaemonSet.
func (k *charted) agent() *corev1.Pod {
	k.t.Helper()
	list := k.ours("agent")
	require.Len(k.t, list, 1)
	return &list[0]
}

// exec runs the program in the agent's container, as kubectl exec would.
func (k *charted) exec(args string) string {
	k.t.Helper()
	_, id, found := strings.Cut(k.agent().Status.ContainerStatuses[0].ContainerID, "//")
	require.True(k.t, found)
	return k.run("ctr -n k8s.io task exec --exec-id look " + id + " /plimsoll " + args)
}

// looksAround: a container hides nothing from the agent that root of the node sees.
func (k *charted) looksAround() {
	k.t.Helper()
	absent := func(said string) map[string]string {
		var s struct{ Snapshot snapshot.Snapshot }
		require.NoError(k.t, json.Unmarshal([]byte(said), &s), said)
		require.NotEmpty(k.t, s.Snapshot.Workloads)
		delete(s.Snapshot.Absent, "rates") // of a first look, or of an emulated machine that stood still
		return s.Snapshot.Absent
	}
	assert.Equal(k.t, absent(k.run("/root/plimsoll top --once -o json --api.socket /nobody/listens")), absent(k.exec("top --once -o json")))
	k.stage("the agent sees what root sees")
}

// reachesRuntime: no volume and no right is for it.
func (k *charted) reachesRuntime() {
	k.t.Helper()
	uid := string(k.agent().UID)
	k.until(time.Minute, "the agent has containerd's figures of its own pod", func() bool {
		var s struct{ Snapshot snapshot.Snapshot }
		said := k.exec("top --once -o json")
		require.NoError(k.t, json.Unmarshal([]byte(said), &s), said)
		of := s.Snapshot.Rootfs
		return of != nil && slices.ContainsFunc(of.Pods, func(p snapshot.PodRootfs) bool { return p.PodUID == uid })
	})
	k.stage("the agent asks containerd")
}

// observes without any privilege, and goes back.
func (k *charted) observes() {
	k.t.Helper()
	k.helm.Wait(helmTime, "upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "profile=observe", "--wait")
	assert.False(k.t, k.agent().Spec.HostPID)
	k.stage("without privileges it is ready as well")
	k.helm.Wait(helmTime, "test", "plimsoll")
	k.stage("helm test passes")
	k.helm.Wait(helmTime, "rollback", "plimsoll", "1", "--wait")
	assert.True(k.t, k.agent().Spec.HostPID)
	k.stage("rolled back")
}

// onlyReports: a pod that holds much more than it asked for stays, as a fresh
// install observes.
func (k *charted) onlyReports() {
	k.t.Helper()
	greedy := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "steady", Image: imageOf("steady"), Args: []string{"-memory", "64"},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}},
	}}}
	k.deploy("greedy", greedy)
	pod := k.running("greedy")
	k.said(pod.UID, "PressureEvictionDryRun", time.Minute)
	assert.Equal(k.t, pod.UID, k.running("greedy").UID)
	k.stage("what would be evicted is said")
}

// said waits for an Event of that reason about a pod.
func (k *kubeNode) said(pod types.UID, reason string, limit time.Duration) {
	k.t.Helper()
	k.until(limit, reason, func() bool {
		list, err := k.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(k.t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod) + ",reason=" + reason})
		require.NoError(k.t, err)
		if len(list.Items) == 0 {
			return false
		}
		k.t.Log(list.Items[0].Message)
		return true
	})
}

// evicts, once the configuration says so, that the kubelet brings to the agent
// while it runs: the controller grants what the agent asks for.
func (k *charted) evicts() {
	k.t.Helper()
	pod, was := k.running("greedy"), k.agent()
	k.helm.Wait(helmTime, "upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "agent.config.eviction.dryRun=false", "--wait")
	k.said(pod.UID, "PressureEviction", time.Minute)
	k.ended(pod)
	assert.Equal(k.t, was.UID, k.agent().UID, "no pod is made anew")
	assert.Contains(k.t, k.exec("explain eviction default/"+pod.Name), "rss-overuse")
	k.stage("let act, it evicts")
	k.undeploy("greedy")
}

// holdsLoads as long as the one slot is taken.
func (k *charted) holdsLoads() {
	k.t.Helper()
	k.load("first")
	k.until(time.Minute, "the first load has a ticket", func() bool { return k.notes("first")["plimsoll.dev/admitted"] != "" })
	require.NoError(k.t, k.becomes("first", "Accepted"))
	k.load("second")
	k.until(time.Minute, "the second load is held", func() bool {
		err := k.becomes("second", "Accepted", metav1.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "plimsoll: held: no valid ticket")
	})
	require.ErrorContains(k.t, k.becomes("second", "Accepted"), "plimsoll: held: no valid ticket")
	k.until(time.Minute, "why it waits is said", func() bool { return strings.Contains(k.notes("second")["plimsoll.dev/waiting"], `"limit"`) })
	require.NoError(k.t, k.becomes("first", "Completed"))
	k.until(time.Minute, "the second load goes on", func() bool { return k.becomes("second", "Accepted") == nil })
	k.load("third")
	k.until(time.Minute, "the third load is held", func() bool {
		return k.becomes("third", "Accepted", metav1.DryRunAll) != nil && k.notes("third")["plimsoll.dev/waiting"] != ""
	})
	k.stage("loads are held")
}

// load as Velero makes it.
func (k *charted) load(name string) {
	k.t.Helper()
	require.NoError(k.t, k.cluster.Apply(k.t.Context(), fmt.Appendf(nil, `
apiVersion: velero.io/v2alpha1
kind: DataUpload
metadata: {name: %s, namespace: velero}
spec: {backupStorageLocation: default, operationTimeout: 10m, snapshotType: CSI, sourceNamespace: shop, sourcePVC: data}
`, name)))
}

// becomes says of a load what a node-agent says of it.
func (k *charted) becomes(name, phase string, dryRun ...string) error {
	body := fmt.Appendf(nil, `{"metadata": {"labels": {"velero.io/expose-on-going": "true"}}, "status": {"phase": %q, "acceptedByNode": %q}}`, phase, nodeName)
	_, err := k.loads.Patch(k.t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{DryRun: dryRun})
	return err
}

// notes are the annotations of a load.
func (k *charted) notes(name string) map[string]string {
	k.t.Helper()
	u, err := k.loads.Get(k.t.Context(), name, metav1.GetOptions{})
	require.NoError(k.t, err)
	return u.GetAnnotations()
}

// slowsDown a data mover that presses a disk for which somebody else waits.
func (k *charted) slowsDown() {
	k.t.Helper()
	k.run("mkfs.ext4 -q -O ^has_journal /dev/vdb && mkdir -p /srv/work && mount /dev/vdb /srv/work")
	k.works("shop", nil, "-read", "1")
	k.works("mover", map[string]string{"velero.io/data-upload": "second"}, "-write", "40")
	was := k.agent()
	k.helm.Wait(helmTime, "upgrade", "plimsoll", chart.Dir, "--reset-then-reuse-values", "--set", "agent.config.vgdp.dryRun=false", "--wait")
	assert.NotEqual(k.t, was.UID, k.agent().UID, "the agent's pod is made anew, privileged")
	assert.True(k.t, *k.agent().Spec.Containers[0].SecurityContext.Privileged)
	k.until(time.Minute, "both have their files", func() bool { return k.run("find /srv/work -size 32M | wc -l") == "2\n" })
	_, err := k.Monitor(k.t.Context(), "block_set_io_throttle vd1 0 0 0 15 0 0")
	require.NoError(k.t, err)
	k.until(time.Minute, "the mover is slowed down", func() bool { return k.limits() != "" })
	k.t.Log(k.limits())
	k.stage("a data mover is slowed down")
}

// works has a pod in Velero's namespace work on a file of its own.
func (k *charted) works(name string, labels map[string]string, flags ...string) {
	k.t.Helper()
	pod := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "velero", Labels: labels},
		Spec:       worker("", "96Mi", append(flags, "-file", "/srv/work/"+name)...),
	}
	pod.Spec.ServiceAccountName, pod.Spec.Containers[0].ImagePullPolicy = "waits", corev1.PullNever
	manifest, err := json.Marshal(pod)
	require.NoError(k.t, err)
	require.NoError(k.t, k.cluster.Apply(k.t.Context(), manifest))
}

// limits of disks that pods have.
func (k *charted) limits() string {
	k.t.Helper()
	return k.run("find /sys/fs/cgroup/kubepods.slice -name io.max -exec cat {} +")
}

// uninstall while the disk is still pressed, the filesystem full, a load held.
func (k *charted) uninstall() {
	k.t.Helper()
	k.helm.Run("uninstall", "plimsoll")
	k.stage("uninstalled")
	k.until(time.Minute, "no limit is left", func() bool { return k.limits() == "" })
	_, err := k.Monitor(k.t.Context(), "block_set_io_throttle vd1 0 0 0 0 0 0")
	require.NoError(k.t, err)
}

// leavesNothing but the state on the node's disk, as the documentation says.
func (k *charted) leavesNothing() {
	k.t.Helper()
	k.until(time.Minute, "no pod of ours is left", func() bool { return len(k.ours("agent"))+len(k.ours("controller")) == 0 })
	assert.Empty(k.t, k.marked())
	assert.Empty(k.t, k.notes("third"))
	require.NoError(k.t, k.becomes("third", "Accepted"))
	for _, namespace := range []string{chart.Namespace, "velero"} {
		require.NoError(k.t, k.cluster.Client.CoreV1().Namespaces().Delete(k.t.Context(), namespace, metav1.DeleteOptions{}))
	}
	var left []string
	defer func() { k.t.Log("objects and files left:", left) }()
	k.until(time.Minute, "all objects are those from before", func() bool {
		left = chart.More(chart.All(k.t, k.cluster.Admin), k.before.objects)
		return len(left) == 0
	})
	assert.Empty(k.t, chart.More(k.before.objects, chart.All(k.t, k.cluster.Admin)))
	k.until(time.Minute, "no pod is on the disk", func() bool {
		_, err := k.Run(k.t.Context(), "umount /srv/work && rmdir /srv/work")
		return err == nil
	})
	k.run("umount /srv/full && rmdir /srv/full")
	left = slices.DeleteFunc(without(k.files(), k.before.files), func(file string) bool { return strings.HasPrefix(file, "/var/lib/plimsoll") })
	assert.Empty(k.t, left)
	k.run("rm -r /var/lib/plimsoll")
	k.stage("nothing is left")
}
